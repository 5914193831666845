//! Where the source is and who we are there: the URL, then service files, PG* variables and password files, as
//! libpq looks for them.

use std::path::{Path, PathBuf};

use super::conninfo::{self, Parameters};
use super::environment::Environment;
use super::secret::{Login, find_password, find_service, password_of_file, read_private};

/// PG* variables and the parameter that each stands for.
const VARIABLES: [(&str, &str); 8] = [
    ("PGHOST", "host"),
    ("PGPORT", "port"),
    ("PGDATABASE", "dbname"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGPASSFILE", "passfile"),
    ("PGSERVICE", "service"),
    ("PGSSLMODE", "sslmode"),
];

/// The connection that `url` means. `plaintext` was asked for in so many words (`source.tls = "disable"`).
///
/// # Errors
/// A text for people, without any secret.
pub(super) fn connection(
    url: &str,
    password_file: Option<&Path>,
    plaintext: bool,
    environment: &Environment,
) -> Result<tokio_postgres::Config, String> {
    let mut parameters = conninfo::parse(url).map_err(|error| error.to_string())?;
    if let Some(unknown) = parameters.keys().find(|name| !conninfo::KEYWORDS.contains(&name.as_str())) {
        return Err(format!("has the parameter `{unknown}`, which is not supported"));
    }
    let or_variable = |parameters: &Parameters, name: &str| {
        let variable = VARIABLES.iter().find(|(_, keyword)| *keyword == name).and_then(|(variable, _)| environment.get(variable));
        parameters.get(name).cloned().filter(|value| !value.is_empty()).or_else(|| variable.map(str::to_owned))
    };
    if let Some(service) = or_variable(&parameters, "service") {
        let file =
            environment.get("PGSERVICEFILE").map(PathBuf::from).or_else(|| Some(environment.home.as_ref()?.join(".pg_service.conf")));
        let file = file.ok_or("names a service, and there is no service file")?;
        let found = find_service(&file, &service).map_err(|error| error.to_string())?;
        let found = found.ok_or_else(|| format!("names the service `{service}`, which `{}` does not have", file.display()))?;
        for (name, value) in found {
            parameters.entry(name).or_insert(value);
        }
    }
    let given = |name: &str| or_variable(&parameters, name);
    let hosts = given("hostaddr")
        .or_else(|| given("host"))
        .or_else(|| environment.socket_directory.map(str::to_owned))
        .unwrap_or_else(|| "localhost".to_owned());
    let ports = given("port").unwrap_or_else(|| "5432".to_owned());
    let user = given("user").or_else(|| environment.user.clone()).ok_or("has no user, and the system does not know one")?;
    let dbname = given("dbname").unwrap_or_else(|| user.clone());
    refuse_what_needs_tls(given("sslmode").as_deref(), given("channel_binding").as_deref(), &hosts, plaintext)?;

    let mut config = tokio_postgres::Config::new();
    config.user(&user).dbname(&dbname);
    for host in hosts.split(',') {
        config.host(host);
    }
    for port in ports.split(',') {
        config.port(port.parse().map_err(|_| format!("has the port `{port}`, which is no port"))?);
    }
    if let Some(options) = given("options") {
        config.options(options);
    }
    let password = match (password_file, given("password")) {
        (Some(file), _) => Some(password_of_file(file).map_err(|error| error.to_string())?),
        (None, Some(password)) => Some(password.into_bytes()),
        (None, None) => {
            let file = given("passfile").map(PathBuf::from).or_else(|| Some(environment.home.as_ref()?.join(".pgpass")));
            let login = Login {
                host: hosts.split(',').next().unwrap_or_default(),
                port: ports.split(',').next().unwrap_or_default(),
                dbname: &dbname,
                user: &user,
            };
            // As libpq: a password file that others can read is passed over.
            file.and_then(|file| find_password(&read_private(&file).ok()?, login))
        }
    };
    if let Some(password) = password {
        config.password(password);
    }
    Ok(config)
}

/// This version speaks plain text only: never over a network unless that was asked for, and never where the URL
/// asks for more.
fn refuse_what_needs_tls(sslmode: Option<&str>, channel_binding: Option<&str>, hosts: &str, plaintext: bool) -> Result<(), String> {
    if let Some(mode @ ("require" | "verify-ca" | "verify-full")) = sslmode {
        return Err(format!("has sslmode={mode}, but this version has no TLS to the source: use a unix socket, loopback or a tunnel"));
    }
    if channel_binding == Some("require") {
        return Err("has channel_binding=require, but this version has no TLS to the source".to_owned());
    }
    let near = |host: &str| host.starts_with('/') || host == "localhost" || host == "::1" || host.starts_with("127.");
    match hosts.split(',').find(|host| !near(host)) {
        Some(host) if !plaintext => Err(format!(
            "names `{host}` over the network, and this version has no TLS to the source: set `source.tls = \"disable\"` if plain text is meant"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str, plaintext: bool) -> Option<String> {
        let environment = Environment { user: Some("me".to_owned()), ..Environment::default() };
        connection(url, None, plaintext, &environment).err()
    }

    #[test]
    fn plain_text_over_a_network_has_to_be_asked_for() {
        assert_eq!(refused("postgresql://w:p@127.0.0.1/shop", false), None);
        assert_eq!(refused("postgresql:///shop?host=/tmp", false), None);
        assert!(refused("postgresql://w:p@db/shop", false).unwrap().contains("source.tls"));
        assert_eq!(refused("postgresql://w:p@db/shop", true), None);
        assert!(refused("postgresql://w:p@127.0.0.1/shop?sslmode=require", true).unwrap().contains("sslmode=require"));
    }

    #[test]
    fn the_url_goes_before_the_variables() {
        let variables = [("PGUSER", "other"), ("PGDATABASE", "shop"), ("PGPASSWORD", "secret")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment { variables: variables.into(), ..Environment::default() };
        let config = connection("postgresql://w@127.0.0.1:6000", None, false, &environment).unwrap();
        assert_eq!((config.get_user(), config.get_dbname(), config.get_ports()), (Some("w"), Some("shop"), [6000].as_slice()));
        assert_eq!(config.get_password(), Some(b"secret".as_slice()));
    }
}
