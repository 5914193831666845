//! An issuer of tokens, as OIDC has them: gives one to each client that shows the right secret.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};

/// Serves until the process ends.
pub(crate) struct Issuer {
    port: u16,
    issued: Arc<AtomicU32>,
}

impl Issuer {
    /// Gives tokens that are good for `lifetime` to client `walgate` with secret `secret`.
    pub(crate) fn start(lifetime: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the system has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        let issued = Arc::new(AtomicU32::new(0));
        thread::spawn({
            let issued = Arc::clone(&issued);
            move || {
                for client in listener.incoming() {
                    match client.and_then(|client| answer(client, lifetime)) {
                        Ok(true) => drop(issued.fetch_add(1, Ordering::Relaxed)),
                        Ok(false) => {}
                        Err(error) => eprintln!("the issuer of tokens lost a client: {error}"),
                    }
                }
            }
        });
        Self { port, issued }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/token", self.port)
    }

    /// How many tokens it has given.
    pub(crate) fn issued(&self) -> u32 {
        self.issued.load(Ordering::Relaxed)
    }
}

/// Answers one request; whether with a token.
fn answer(mut client: TcpStream, lifetime: Duration) -> io::Result<bool> {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut body_length, mut is_known) = (0, false);
    let right = format!("Basic {}", BASE64_STANDARD.encode("walgate:secret"));
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => body_length = value.parse().unwrap_or_default(),
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => is_known = value == right,
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    io::copy(&mut reader.take(body_length), &mut io::sink())?;
    let (status, body) = if is_known {
        ("200 OK", format!("{{\"access_token\":\"{}\",\"token_type\":\"Bearer\"}}", token(lifetime)))
    } else {
        ("401 Unauthorized", "{\"error\":\"invalid_client\"}".to_owned())
    };
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    client.write_all(format!("{head}{body}").as_bytes())?;
    Ok(is_known)
}

/// Of RFC 7519, without a signature.
fn token(lifetime: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs();
    let claims = format!("{{\"sub\":\"walgate\",\"iat\":{now},\"exp\":{}}}", now + lifetime.as_secs());
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.", part("{\"alg\":\"none\"}"), part(&claims))
}
