//! What the process finds around it: variables, home folder, user name, socket folder. Read once, so that
//! everything after it is a function of its arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Socket folders that builds of libpq have as their default: Debian's and Red Hat's, then PostgreSQL's own.
pub(super) const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The surroundings of the process.
#[derive(Clone, Default)]
pub(super) struct Environment {
    /// Variables whose name and value are UTF-8.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) home: Option<PathBuf>,
    /// Name of the effective user.
    pub(super) user: Option<String>,
    /// The default socket folder that exists here.
    pub(super) socket_directory: Option<&'static str>,
}

impl Environment {
    pub(super) fn of_process() -> Self {
        let variables: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let account = account(&passwd, rustix::process::geteuid().as_raw());
        let given = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        Self {
            home: given("HOME").or_else(|| account.map(|(_, home)| home.to_owned())).map(PathBuf::from),
            user: account.map(|(user, _)| user.to_owned()).or_else(|| given("USER")),
            socket_directory: SOCKET_DIRECTORIES.into_iter().find(|directory| Path::new(directory).is_dir()),
            variables,
        }
    }

    /// A variable; an empty one counts as not set, as in libpq.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys())
            .field("home", &self.home)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Name and home folder of a user id, of the lines of `passwd(5)`.
fn account(passwd: &str, id: u32) -> Option<(&str, &str)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let own = fields.nth(1)?.parse::<u32>().ok()?;
        (own == id).then(|| fields.nth(2).map(|home| (name, home)))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_id() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\npostgres:x:105:112:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(account(passwd, 0), Some(("root", "/root")));
        assert_eq!(account(passwd, 105), Some(("postgres", "/var/lib/postgresql")));
        assert_eq!(account(passwd, 112), None);
    }

    #[test]
    fn debug_shows_no_value_of_a_variable() {
        let environment = Environment { variables: [("PGPASSWORD".to_owned(), "hunter2".to_owned())].into(), ..Environment::default() };
        let shown = format!("{environment:?}");
        assert!(shown.contains("PGPASSWORD") && !shown.contains("hunter2"), "{shown}");
    }
}
