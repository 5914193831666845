//! Files that hold secrets: read only when nobody but their owner can. And libpq's password and service files.
//!
//! PostgreSQL manual, 34.16 "The Password File" and 34.17 "The Connection Service File".

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::conninfo::Parameters;
use super::environment::SOCKET_DIRECTORIES;

/// No password, service, key or certificate file is longer; what is, is another file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why such a file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("`{}` cannot be read ({source})", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("`{}` can be read by others (mode {mode:04o}): run `chmod 0600 {}`", path.display(), path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("`{}` is longer than 1 MiB: is this the right file?", path.display())]
    TooLong { path: PathBuf },
    #[error("`{}` is empty: write the password on its first line", path.display())]
    Empty { path: PathBuf },
    #[error("`{}`, line {line}, is not `name=value` or `[service]`", path.display())]
    Line { path: PathBuf, line: usize },
}

/// Who may read a file, by its owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    Owner,
    /// As libpq for private keys: a key that root owns may be shared with a group.
    OwnerOrRootsGroup,
    Anyone,
}

/// Reads a file whose mode lets nobody but its owner at it.
pub(super) fn read_private(path: &Path) -> Result<Vec<u8>, SecretError> {
    read(path, Readers::Owner)
}

/// Reads a file with a private key.
pub(crate) fn read_key(path: &Path) -> Result<Vec<u8>, SecretError> {
    read(path, Readers::OwnerOrRootsGroup)
}

/// Reads a file that holds no secret.
pub(crate) fn read_public(path: &Path) -> Result<Vec<u8>, SecretError> {
    read(path, Readers::Anyone)
}

/// The password in a file of its own: its first line.
pub(super) fn password_of_file(path: &Path) -> Result<Vec<u8>, SecretError> {
    let bytes = read_private(path)?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() { Err(SecretError::Empty { path: path.to_owned() }) } else { Ok(line.to_owned()) }
}

fn read(path: &Path, readers: Readers) -> Result<Vec<u8>, SecretError> {
    let path = || path.to_owned();
    let failed = |source| SecretError::Io { path: path(), source };
    // The kind is looked at before it is opened, because opening a pipe waits; the mode of what was opened afterwards.
    if !std::fs::metadata(path()).map_err(failed)?.is_file() {
        return Err(SecretError::NotAFile { path: path() });
    }
    let file = File::open(path()).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o7777;
    let others = match readers {
        Readers::OwnerOrRootsGroup if metadata.uid() == 0 => 0o037,
        Readers::Owner | Readers::OwnerOrRootsGroup => 0o077,
        Readers::Anyone => 0,
    };
    if mode & others != 0 {
        return Err(SecretError::Open { path: path(), mode });
    }
    let mut bytes = Vec::new();
    let length = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(length).is_ok_and(|length| length <= FILE_BYTES_MAX) { Ok(bytes) } else { Err(SecretError::TooLong { path: path() }) }
}

/// What a line of a password file has to match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Login<'a> {
    pub(super) host: &'a str,
    pub(super) port: &'a str,
    pub(super) dbname: &'a str,
    pub(super) user: &'a str,
}

/// The password of the first line that matches: `host:port:database:user:password`, `*` for any, `\` before `:` and `\`.
pub(super) fn find_password(passfile: &[u8], login: Login<'_>) -> Option<Vec<u8>> {
    // libpq's rule: a socket in the default folder is called `localhost`, any other by its path.
    let host = if SOCKET_DIRECTORIES.contains(&login.host) { "localhost" } else { login.host };
    let wanted = [host, login.port, login.dbname, login.user];
    passfile.split(|byte| *byte == b'\n').find_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b"#") {
            return None;
        }
        let mut fields = split_fields(line).into_iter();
        let matching =
            wanted.iter().all(|wanted| fields.next().is_some_and(|(field, written)| written == b"*" || field == wanted.as_bytes()));
        let (password, _) = fields.next()?;
        (matching && !password.is_empty()).then_some(password)
    })
}

/// The fields of a line, each without its backslashes and as written.
fn split_fields(line: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut fields = vec![(Vec::new(), Vec::new())];
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        let Some((field, written)) = fields.last_mut() else { break };
        match byte {
            b':' => fields.push((Vec::new(), Vec::new())),
            b'\\' => {
                let next = bytes.next();
                field.extend(next);
                written.push(byte);
                written.extend(next);
            }
            _ => {
                field.push(byte);
                written.push(byte);
            }
        }
    }
    fields
}

/// The parameters of one service; `None` where the file does not have it.
pub(super) fn find_service(path: &Path, service: &str) -> Result<Option<Parameters>, SecretError> {
    let bytes = read_public(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut found: Option<Parameters> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let heading = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match (heading, found.as_mut()) {
            (Some(_), Some(_)) => break,
            (Some(name), None) => found = (name == service).then(Parameters::new),
            (None, Some(parameters)) if !line.is_empty() && !line.starts_with('#') => {
                let (name, value) = line.split_once('=').ok_or_else(|| SecretError::Line { path: path.to_owned(), line: index + 1 })?;
                parameters.entry(name.trim_end().to_owned()).or_insert_with(|| value.trim_start().to_owned());
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(directory: &tempfile::TempDir, content: &[u8], mode: u32) -> PathBuf {
        let path = directory.path().join("secret");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_password_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let check = |content: &[u8], mode: u32, expect: Result<&[u8], &str>| {
            let path = file(&directory, content, mode);
            let shown = path.display().to_string();
            let outcome = password_of_file(&path).map_err(|error| error.to_string().replace(&shown, "F"));
            assert_eq!(outcome, expect.map(<[u8]>::to_owned).map_err(str::to_owned));
        };
        check(b"s3cret\n", 0o600, Ok(b"s3cret"));
        check(b"s3cret\r\nmore", 0o400, Ok(b"s3cret"));
        check(b"with space ", 0o600, Ok(b"with space "));
        check(b"s3cret", 0o640, Err("`F` can be read by others (mode 0640): run `chmod 0600 F`"));
        check(b"s3cret", 0o604, Err("`F` can be read by others (mode 0604): run `chmod 0600 F`"));
        check(b"\n", 0o600, Err("`F` is empty: write the password on its first line"));
    }

    #[test]
    fn a_private_key_may_be_shared_with_a_group_by_root_alone() {
        let directory = tempfile::tempdir().unwrap();
        let by_root = rustix::process::geteuid().is_root();
        for (mode, expect) in [(0o600, true), (0o640, by_root), (0o644, false), (0o660, false)] {
            assert_eq!(read_key(&file(&directory, b"key", mode)).is_ok(), expect, "{mode:o}");
        }
    }

    #[test]
    fn a_folder_or_a_missing_file_is_no_password() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(password_of_file(directory.path()), Err(SecretError::NotAFile { .. })));
        assert!(matches!(password_of_file(&directory.path().join("none")), Err(SecretError::Io { .. })));
    }

    #[test]
    fn the_first_matching_line_gives_the_password() {
        let passfile = br"# comment: a:b:c:d:e
db:5432:shop:ann:one
db:*:*:ann:t\:w\\o
*:5433:*:*:three
localhost:5432:shop:ann:local
/srv/pg:5432:shop:ann:socket
\*:1:x:y:star
short:line
db:1:x:y:
";
        let check = |host, port, dbname, user, expect: Option<&str>| {
            let found = find_password(passfile, Login { host, port, dbname, user });
            assert_eq!(found.map(|bytes| String::from_utf8(bytes).unwrap()), expect.map(str::to_owned), "{host} {port} {dbname} {user}");
        };
        check("db", "5432", "shop", "ann", Some("one"));
        check("db", "5432", "other", "ann", Some(r"t:w\o"));
        check("elsewhere", "5433", "x", "bob", Some("three"));
        check("/var/run/postgresql", "5432", "shop", "ann", Some("local"));
        check("/tmp", "5432", "shop", "ann", Some("local"));
        check("/srv/pg", "5432", "shop", "ann", Some("socket"));
        check("/srv/other", "5432", "shop", "ann", None);
        check("anything", "1", "x", "y", None);
        check("*", "1", "x", "y", Some("star"));
        check("db", "1", "x", "y", None);
        check("short", "line", "x", "y", None);
    }

    #[test]
    fn a_service_is_found_by_its_heading() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(&directory, b"# services\n[other]\nhost=no\nnonsense here is not ours\n\n[shop]\nhost=db\n# port\nport = 5433\nhost=second\n[last]\nuser=x\n", 0o644);
        let found = find_service(&path, "shop").unwrap().unwrap();
        assert_eq!(found, [("host", "db"), ("port", "5433")].map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert!(find_service(&path, "absent").unwrap().is_none());
        assert!(matches!(find_service(&path, "other"), Err(SecretError::Line { line: 4, .. })));
    }

    proptest::proptest! {
        #[test]
        fn no_password_file_is_a_panic(passfile: Vec<u8>) {
            let login = Login { host: "a", port: "1", dbname: "b", user: "c" };
            proptest::prop_assert!(find_password(&passfile, login).is_none_or(|password| !password.is_empty()));
        }
    }
}
