//! Where the source is and who we are there: the URL, then service files, PG* variables and password files, as
//! libpq looks for them.

use std::path::{Path, PathBuf};

use tokio_postgres::config::ChannelBinding;

use super::conninfo::{self, Parameters};
use super::environment::Environment;
use super::secret::{Login, find_password, find_service, password_of_file, read_private};
use super::{Address, tls};
use crate::postgres::tls::connector;
use crate::telemetry::Chain;

/// PG* variables and the parameter that each stands for.
const VARIABLES: [(&str, &str); 13] = [
    ("PGHOST", "host"),
    ("PGHOSTADDR", "hostaddr"),
    ("PGPORT", "port"),
    ("PGDATABASE", "dbname"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGPASSFILE", "passfile"),
    ("PGSERVICE", "service"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGCHANNELBINDING", "channel_binding"),
];

/// The connection that `url` means, with what the keys beside it say.
///
/// # Errors
/// A text for people, without any secret.
pub(super) fn connection(url: &str, password_file: Option<&Path>, keys: &tls::Keys, environment: &Environment) -> Result<Address, String> {
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
    let addresses = given("hostaddr");
    let hosts = given("host")
        .or_else(|| addresses.clone())
        .or_else(|| environment.socket_directory.map(str::to_owned))
        .unwrap_or_else(|| "localhost".to_owned());
    let ports = given("port").unwrap_or_else(|| "5432".to_owned());
    let user = given("user").or_else(|| environment.user.clone()).ok_or("has no user, and the system does not know one")?;
    let dbname = given("dbname").unwrap_or_else(|| user.clone());
    let reached: Vec<&str> = addresses.as_deref().unwrap_or(&hosts).split(',').collect();
    let tls = tls::meant(keys, given, environment.home.as_deref(), &reached)?;
    let channel_binding = match (keys.channel_binding, given("channel_binding")) {
        (Some(binding), _) => binding,
        (None, Some(text)) => parse_channel_binding(&text).map_err(|why| format!("has channel_binding={text}, which {why}"))?,
        (None, None) => ChannelBinding::Prefer,
    };
    match &tls {
        None if channel_binding == ChannelBinding::Require => {
            return Err("is reached in plain text, and channel binding is required: set `source.tls = \"verify-full\"`".to_owned());
        }
        None => {}
        Some(tls) => drop(connector(tls).map_err(|error| format!("cannot be reached with TLS: {}", Chain(&error)))?),
    }
    let mut config = tokio_postgres::Config::new();
    config.user(&user).dbname(&dbname).channel_binding(channel_binding);
    for host in hosts.split(',') {
        config.host(host);
    }
    for address in addresses.iter().flat_map(|addresses| addresses.split(',')) {
        config.hostaddr(address.parse().map_err(|_| format!("has the hostaddr `{address}`, which is no IP address"))?);
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
    Ok(Address { postgres: config, tls })
}

/// libpq's values.
pub(super) fn parse_channel_binding(text: &str) -> Result<ChannelBinding, String> {
    match text {
        "disable" => Ok(ChannelBinding::Disable),
        "prefer" => Ok(ChannelBinding::Prefer),
        "require" => Ok(ChannelBinding::Require),
        _ => Err("has to be `disable`, `prefer` or `require`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str, mode: Option<tls::Mode>) -> Option<String> {
        let environment = Environment { user: Some("me".to_owned()), ..Environment::default() };
        connection(url, None, &tls::Keys { mode, ..tls::Keys::default() }, &environment).err()
    }

    #[test]
    fn plain_text_over_a_network_has_to_be_asked_for() {
        let disable = Some(tls::Mode::Disable);
        assert_eq!(refused("postgresql://w:p@127.0.0.1/shop", None), None);
        assert_eq!(refused("postgresql:///shop?host=/tmp", None), None);
        assert!(refused("postgresql://w:p@db/shop", None).unwrap().contains("source.tls"));
        assert_eq!(refused("postgresql://w:p@db/shop", disable), None);
        assert!(refused("postgresql://w:p@127.0.0.1/shop?sslmode=require", disable).unwrap().contains("sslmode"));
        assert!(refused("postgresql://w:p@127.0.0.1/shop?channel_binding=require", None).unwrap().contains("channel binding"));
        assert!(refused("postgresql://w:p@localhost/shop?hostaddr=10.0.0.1", None).unwrap().contains("`10.0.0.1` over the network"));
    }

    #[test]
    fn a_file_that_is_not_there_is_a_fault_of_the_configuration() {
        let why = refused("postgresql://w:p@db/shop?sslmode=verify-full&sslrootcert=/none", None).unwrap();
        assert!(why.contains("`/none` cannot be read"), "{why}");
    }

    #[test]
    fn the_name_that_a_certificate_is_for_stays_beside_the_address() {
        let address = connection(
            "host=db hostaddr=127.0.0.1",
            None,
            &tls::Keys::default(),
            &Environment { user: Some("me".to_owned()), ..Environment::default() },
        );
        let config = address.unwrap().postgres;
        assert_eq!(config.get_hosts(), [tokio_postgres::config::Host::Tcp("db".to_owned())]);
        assert_eq!(config.get_hostaddrs(), ["127.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    }

    #[test]
    fn the_url_goes_before_the_variables() {
        let variables = [("PGUSER", "other"), ("PGDATABASE", "shop"), ("PGPASSWORD", "secret")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment { variables: variables.into(), ..Environment::default() };
        let config = connection("postgresql://w@127.0.0.1:6000", None, &tls::Keys::default(), &environment).unwrap().postgres;
        assert_eq!((config.get_user(), config.get_dbname(), config.get_ports()), (Some("w"), Some("shop"), [6000].as_slice()));
        assert_eq!(config.get_password(), Some(b"secret".as_slice()));
    }
}
