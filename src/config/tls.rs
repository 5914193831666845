//! How the way to the source is protected: what the keys `source.tls…` say, and where they are silent libpq's `ssl…`
//! parameters. Where neither says anything, the way within a machine is plain text, and any other has to be decided.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio_postgres::config::ChannelBinding;

use super::{ClientCertificate, ServerCheck, Tls};

/// `source.tls`, and libpq's `sslmode` without the modes that fall back to plain text unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    Require,
    VerifyCa,
    VerifyFull,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "disable" => Ok(Self::Disable),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            _ => Err("has to be `disable`, `require`, `verify-ca` or `verify-full`".to_owned()),
        }
    }
}

/// The keys of `[source]` as far as they are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    pub(super) mode: Option<Mode>,
    pub(super) ca: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) channel_binding: Option<ChannelBinding>,
}

/// What keys and parameters mean together; `None`: plain text. `given` looks a libpq parameter up.
///
/// # Errors
/// A text for people, that reads on after `source.url`.
pub(super) fn meant(
    keys: &Keys,
    given: impl Fn(&str) -> Option<String>,
    home: Option<&Path>,
    hosts: &[&str],
) -> Result<Option<Tls>, String> {
    let sslrootcert = given("sslrootcert");
    let system = sslrootcert.as_deref() == Some("system") && keys.ca.is_none();
    let sslmode = match given("sslmode").as_deref() {
        // They leave it to the server, or to whoever stands between.
        None | Some("allow" | "prefer") if system => Some(Mode::VerifyFull),
        None | Some("allow" | "prefer") => None,
        Some(mode) => Some(Mode::from_str(mode).map_err(|why| format!("has sslmode={mode}, which {why}"))?),
    };
    let mode = match (keys.mode, sslmode) {
        (Some(Mode::Disable), Some(Mode::Require | Mode::VerifyCa | Mode::VerifyFull)) => {
            return Err("asks for TLS by its sslmode, and `source.tls = \"disable\"` forbids it: decide for one".to_owned());
        }
        (Some(mode), _) => mode,
        (None, Some(mode)) if mode != Mode::Disable => mode,
        (None, _) => match hosts.iter().find(|host| !is_near(host)) {
            Some(host) => {
                return Err(format!(
                    "names `{host}` over the network: set `source.tls = \"verify-full\"`, or `source.tls = \"disable\"` if plain text is meant"
                ));
            }
            None => Mode::Disable,
        },
    };
    let check = match mode {
        Mode::Disable if keys.ca.is_some() || keys.certificate.is_some() || keys.key.is_some() => {
            return Err(
                "is reached in plain text, for which `source.tls_ca`, `tls_cert` and `tls_key` have no use: set `source.tls = \"verify-full\"`"
                    .to_owned(),
            );
        }
        Mode::Disable => return Ok(None),
        Mode::Require => ServerCheck::Nothing,
        Mode::VerifyCa => ServerCheck::Chain,
        Mode::VerifyFull => ServerCheck::ChainAndName,
    };
    let in_home = |name: &str| home.map(|home| home.join(".postgresql").join(name)).filter(|path| path.is_file());
    let ca = match (&keys.ca, sslrootcert) {
        (Some(ca), _) => Some(ca.clone()),
        (None, Some(_)) if system => None,
        (None, Some(ca)) => Some(ca.into()),
        (None, None) => in_home("root.crt"),
    };
    let check = match (check, &ca) {
        // As libpq: who names an authority wants it asked.
        (ServerCheck::Nothing, Some(_)) => ServerCheck::Chain,
        (ServerCheck::Chain, None) => {
            return Err("is checked by `verify-ca` alone, which needs `source.tls_ca`: the system's authorities vouch for anyone's server"
                .to_owned());
        }
        (ServerCheck::Nothing, None) if system => {
            return Err("has sslrootcert=system, for which only `verify-full` is safe: the system's authorities vouch for anyone's server"
                .to_owned());
        }
        (check, _) => check,
    };
    let certificate = keys.certificate.clone().or_else(|| given("sslcert").map(PathBuf::from)).or_else(|| in_home("postgresql.crt"));
    let key = keys.key.clone().or_else(|| given("sslkey").map(PathBuf::from)).or_else(|| in_home("postgresql.key"));
    let client = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
        (Some(_), None) => return Err("has a client certificate without its key: set `source.tls_key`".to_owned()),
        // A key by itself says nothing, whoever put it there.
        (None, Some(_)) if keys.key.is_some() => return Err("has a client key without its certificate: set `source.tls_cert`".to_owned()),
        (None, _) => None,
    };
    Ok(Some(Tls { check, ca, client }))
}

/// Whether what is said to this host stays on the machine.
fn is_near(host: &str) -> bool {
    host.starts_with('/') || host == "localhost" || host == "::1" || host.starts_with("127.")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is checked, by whose word, and whether we show a certificate; `None`: plain text. Or a part of what is wrong.
    type Expect<'a> = Result<Option<(ServerCheck, Option<&'a str>, bool)>, &'a str>;

    /// `keys` as `mode ca cert key`, `-` for what is not written; parameters as `name=value`.
    fn check(keys: &str, parameters: &str, host: &str, expect: Expect<'_>) {
        let mut words = keys.split(' ').map(|word| Some(word).filter(|word| *word != "-"));
        let mut word = || words.next().flatten();
        let mode = word().map(|mode| mode.parse().unwrap());
        let mut path = || word().map(PathBuf::from);
        let written = Keys { mode, ca: path(), certificate: path(), key: path(), channel_binding: None };
        let given = |name: &str| {
            let pair = parameters.split(' ').filter_map(|pair| pair.split_once('=')).find(|(known, _)| *known == name);
            pair.map(|(_, value)| value.to_owned())
        };
        let case = format!("`{keys}` with `{parameters}` to {host}");
        match (meant(&written, given, None, &[host]), expect) {
            (Ok(tls), Ok(expect)) => {
                let tls = tls.map(|tls| (tls.check, tls.ca, tls.client.is_some()));
                assert_eq!(tls, expect.map(|(check, ca, client)| (check, ca.map(PathBuf::from), client)), "{case}");
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{case}: {why}"),
            (found, _) => panic!("{case}: {found:?}"),
        }
    }

    #[test]
    fn plain_text_stays_on_the_machine_unless_the_key_says_so() {
        for near in ["127.0.0.1", "::1", "localhost", "/tmp"] {
            check("-", "", near, Ok(None));
            check("-", "sslmode=prefer", near, Ok(None));
        }
        check("-", "", "db", Err("`db` over the network"));
        check("-", "sslmode=prefer", "db", Err("`db` over the network"));
        check("-", "sslmode=disable", "db", Err("`db` over the network"));
        check("disable", "", "db", Ok(None));
        check("disable", "sslmode=prefer", "db", Ok(None));
        check("disable", "sslmode=require", "db", Err("decide for one"));
        check("disable ca", "", "db", Err("no use"));
        check("- ca", "", "/tmp", Err("no use"));
    }

    #[test]
    fn modes_mean_what_they_mean_to_libpq() {
        use ServerCheck::{Chain, ChainAndName, Nothing};
        check("require", "", "db", Ok(Some((Nothing, None, false))));
        check("require ca", "", "db", Ok(Some((Chain, Some("ca"), false))));
        check("verify-ca", "", "db", Err("needs `source.tls_ca`"));
        check("verify-ca ca", "", "db", Ok(Some((Chain, Some("ca"), false))));
        check("verify-full", "", "db", Ok(Some((ChainAndName, None, false))));
        check("verify-full ca cert key", "", "db", Ok(Some((ChainAndName, Some("ca"), true))));
        check("verify-full ca cert", "", "db", Err("set `source.tls_key`"));
        check("verify-full ca - key", "", "db", Err("set `source.tls_cert`"));
        check("-", "sslmode=require", "db", Ok(Some((Nothing, None, false))));
        check("-", "sslmode=verify-full sslrootcert=r sslcert=c sslkey=k", "127.0.0.1", Ok(Some((ChainAndName, Some("r"), true))));
        check("verify-full ca", "sslmode=require sslrootcert=r", "db", Ok(Some((ChainAndName, Some("ca"), false))));
        check("-", "sslrootcert=system", "db", Ok(Some((ChainAndName, None, false))));
        check("-", "sslmode=require sslrootcert=system", "db", Err("only `verify-full`"));
        check("-", "sslmode=verified", "db", Err("sslmode=verified"));
    }

    #[test]
    fn files_in_the_home_folder_are_found_as_libpq_finds_them() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".postgresql");
        std::fs::create_dir(&folder).unwrap();
        for name in ["root.crt", "postgresql.crt", "postgresql.key"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let keys = Keys { mode: Some(Mode::Require), ..Keys::default() };
        let tls = meant(&keys, |_| None, Some(home.path()), &["db"]).unwrap().unwrap();
        let client = ClientCertificate { certificate: folder.join("postgresql.crt"), key: folder.join("postgresql.key") };
        assert_eq!(tls, Tls { check: ServerCheck::Chain, ca: Some(folder.join("root.crt")), client: Some(client) });
    }
}
