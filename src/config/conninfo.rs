//! Connection strings as libpq reads them: a URI, or keywords and values. Pure; nothing is looked up, and no
//! error repeats a part of the text that could be a password.
//!
//! PostgreSQL manual, 34.1.1 "Connection Strings".

use std::collections::BTreeMap;

/// Parameters by their libpq keyword.
pub(super) type Parameters = BTreeMap<String, String>;

/// Keywords whose meaning is known here; see [`super::source`] for what becomes of each.
pub(super) const KEYWORDS: &[&str] = &[
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "service",
    "servicefile",
    "connect_timeout",
    "options",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "target_session_attrs",
    "client_encoding",
    "gssencmode",
    "channel_binding",
];

/// Why a text is no connection string.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum ConninfoError {
    #[error("has a `%` that is not followed by two hexadecimal digits: write `%25` for the character itself")]
    Percent,
    #[error("has `%00`, which no part of a connection may contain")]
    Nul,
    #[error("has percent-encoded bytes that are not UTF-8")]
    Utf8,
    #[error("has a `[` without its `]`: an IPv6 address is written as `[::1]`")]
    Bracket,
    #[error("has text after the `]` of an address: only `:port` can stand there")]
    AfterBracket,
    #[error("has a query parameter without `=`: write `?name=value&name=value`")]
    QueryValue,
    #[error(
        "has a word without `=` (word {0}): write `name=value`, values with spaces in single quotes; or a URI, `postgresql://user@host/database`"
    )]
    NoValue(usize),
    #[error("has a value whose single quote is not closed")]
    Unclosed,
}

/// Reads a URI or a list of keywords and values.
pub(super) fn parse(text: &str) -> Result<Parameters, ConninfoError> {
    let text = text.trim();
    match text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://")) {
        Some(rest) => parse_uri(rest),
        None => parse_words(text),
    }
}

/// `[user[:password]@][host[:port],…][/dbname][?name=value&…]`, after the scheme.
fn parse_uri(text: &str) -> Result<Parameters, ConninfoError> {
    let mut parameters = Parameters::new();
    // As libpq: user and password are there if an `@` comes before the first `/`.
    let before_path = text.split('/').next().unwrap_or_default();
    let rest = match before_path.split_once('@') {
        None => text,
        Some((credentials, _)) => {
            let (user, password) = credentials.split_once(':').map_or((credentials, None), |(user, password)| (user, Some(password)));
            put(&mut parameters, "user", user)?;
            put(&mut parameters, "password", password.unwrap_or_default())?;
            text.split_once('@').map_or("", |(_, rest)| rest)
        }
    };
    let hosts_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (hosts, rest) = rest.split_at_checked(hosts_end).unwrap_or((rest, ""));
    parse_hosts(hosts, &mut parameters)?;
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    put(&mut parameters, "dbname", path.strip_prefix('/').unwrap_or_default())?;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(ConninfoError::QueryValue)?;
        match (decode(name)?.as_str(), decode(value)?) {
            ("ssl", value) if value == "true" => parameters.insert("sslmode".to_owned(), "require".to_owned()),
            (name, value) => parameters.insert(name.to_owned(), value),
        };
    }
    Ok(parameters)
}

/// `host[:port],…`; libpq keeps two lists of the same length.
fn parse_hosts(text: &str, parameters: &mut Parameters) -> Result<(), ConninfoError> {
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for item in text.split(',') {
        let (host, port) = match item.strip_prefix('[') {
            None => item.split_once(':').unwrap_or((item, "")),
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or(ConninfoError::Bracket)?;
                match (after, after.strip_prefix(':')) {
                    (_, Some(port)) => (host, port),
                    ("", None) => (host, ""),
                    _ => return Err(ConninfoError::AfterBracket),
                }
            }
        };
        hosts.push(decode(host)?);
        ports.push(decode(port)?);
    }
    for (name, list) in [("host", hosts), ("port", ports)] {
        if list.iter().any(|item| !item.is_empty()) {
            parameters.insert(name.to_owned(), list.join(","));
        }
    }
    Ok(())
}

fn put(parameters: &mut Parameters, name: &str, value: &str) -> Result<(), ConninfoError> {
    if !value.is_empty() {
        parameters.insert(name.to_owned(), decode(value)?);
    }
    Ok(())
}

fn decode(text: &str) -> Result<String, ConninfoError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let (digits, after) = piece.split_at_checked(2).ok_or(ConninfoError::Percent)?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match plain.then(|| u8::from_str_radix(digits, 16).ok()).flatten() {
            None => return Err(ConninfoError::Percent),
            Some(0) => return Err(ConninfoError::Nul),
            Some(byte) => bytes.push(byte),
        }
        bytes.extend_from_slice(after.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| ConninfoError::Utf8)
}

/// `name = value …`; a value may stand in single quotes, and a backslash makes the next character plain.
fn parse_words(text: &str) -> Result<Parameters, ConninfoError> {
    let mut parameters = Parameters::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(ConninfoError::NoValue(parameters.len() + 1))?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(ConninfoError::NoValue(parameters.len() + 1));
        }
        let (value, after) = word(after.trim_start())?;
        parameters.insert(name.to_owned(), value);
        rest = after.trim_start();
    }
    Ok(parameters)
}

/// One value and what follows it.
fn word(text: &str) -> Result<(String, &str), ConninfoError> {
    let (mut characters, quoted) = text.strip_prefix('\'').map_or((text.chars(), false), |inner| (inner.chars(), true));
    let mut value = String::new();
    loop {
        match characters.next() {
            None if quoted => return Err(ConninfoError::Unclosed),
            None => return Ok((value, "")),
            Some('\'') if quoted => return Ok((value, characters.as_str())),
            Some(character) if !quoted && character.is_whitespace() => return Ok((value, characters.as_str())),
            Some('\\') => value.extend(characters.next()),
            Some(character) => value.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<&[(&str, &str)], ConninfoError>) {
        let expect = expect.map(|pairs| pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
        assert_eq!(parse(text), expect, "{text}");
    }

    #[test]
    fn uris_are_read_as_libpq_reads_them() {
        check("", Ok(&[]));
        check("postgresql://", Ok(&[]));
        check("postgresql://db/shop", Ok(&[("host", "db"), ("dbname", "shop")]));
        check(
            "postgres://ann:s%3Acret@db:5433/shop",
            Ok(&[("user", "ann"), ("password", "s:cret"), ("host", "db"), ("port", "5433"), ("dbname", "shop")]),
        );
        check("postgresql:///shop?host=/var/run/postgresql", Ok(&[("host", "/var/run/postgresql"), ("dbname", "shop")]));
        check("postgresql://%2Ftmp%2Fpg:5433/shop", Ok(&[("host", "/tmp/pg"), ("port", "5433"), ("dbname", "shop")]));
        check("postgresql://[::1]:5432/x", Ok(&[("host", "::1"), ("port", "5432"), ("dbname", "x")]));
        check("postgresql://a:1,b,[::2]:3/x", Ok(&[("host", "a,b,::2"), ("port", "1,,3"), ("dbname", "x")]));
        check(
            "postgresql://u@?connect_timeout=5&options=-c%20a%3Db",
            Ok(&[("user", "u"), ("connect_timeout", "5"), ("options", "-c a=b")]),
        );
        check("postgresql://db/x?user=u@v", Ok(&[("host", "db"), ("dbname", "x"), ("user", "u@v")]));
        check("postgresql://db?ssl=true", Ok(&[("host", "db"), ("sslmode", "require")]));
        check("postgresql://u:p%zz@db", Err(ConninfoError::Percent));
        check("postgresql://u:p%4@db", Err(ConninfoError::Percent));
        check("postgresql://db/a%00b", Err(ConninfoError::Nul));
        check("postgresql://db/%FF", Err(ConninfoError::Utf8));
        check("postgresql://[::1/x", Err(ConninfoError::Bracket));
        check("postgresql://[::1]5432/x", Err(ConninfoError::AfterBracket));
        check("postgresql://db/x?sslmode", Err(ConninfoError::QueryValue));
    }

    #[test]
    fn keywords_and_values_are_read_as_libpq_reads_them() {
        check("host=db port = 5433 dbname='my shop'", Ok(&[("host", "db"), ("port", "5433"), ("dbname", "my shop")]));
        check(r"password='it\'s \\' user=a\ b", Ok(&[("password", r"it's \"), ("user", "a b")]));
        check("user='' host=", Ok(&[("user", ""), ("host", "")]));
        check("db/shop", Err(ConninfoError::NoValue(1)));
        check("host=db shop port=5", Err(ConninfoError::NoValue(2)));
        check("= db", Err(ConninfoError::NoValue(1)));
        check("password='x", Err(ConninfoError::Unclosed));
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_a_panic(text: String, uri: bool) {
            let parsed = parse(&if uri { format!("postgresql://{text}") } else { text });
            proptest::prop_assert!(parsed.is_ok() || parsed.is_err());
        }
    }
}
