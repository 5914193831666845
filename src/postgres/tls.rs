//! TLS to the source, with the meaning that libpq gives to its modes: what is checked, by whose word, and what went
//! wrong where a connection is refused. The files are read for each connection, so that certificates can be renewed
//! under a running service.
//!
//! PostgreSQL manual, 34.19 "SSL Support".

use std::path::{Path, PathBuf};
use std::pin::Pin;

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{self, SslConnector, SslMethod, SslVerifyMode, SslVersion};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509Ref, X509VerifyResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_openssl::SslStream;

use crate::config::secret::{SecretError, read_key, read_public};
use crate::config::{ServerCheck, Tls};

/// Why there is no protected connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the server does not offer TLS")]
    NotOffered,
    #[error("the server's certificate is not trusted ({why})")]
    NotTrusted { why: &'static str },
    #[error("the server's certificate, or one that vouches for it, is out of date ({why})")]
    OutOfDate { why: &'static str },
    #[error("the server's certificate is not for `{host}`")]
    OtherName { host: String },
    #[error("the server refuses our certificate, or the lack of one ({alert})")]
    ClientRefused { alert: &'static str },
    #[error("`channel_binding = \"require\"` needs TLS and a certificate that it can be bound to, and this connection has none")]
    NothingToBindTo,
    #[error("no agreement with the server on how to encrypt")]
    Handshake(#[source] ssl::Error),
    #[error("TLS cannot be set up")]
    Library(#[from] ErrorStack),
    #[error(transparent)]
    File(#[from] SecretError),
    #[error("`{}` holds no certificate in PEM form", path.display())]
    NoCertificate { path: PathBuf },
    #[error("`{}` holds no private key in PEM form", path.display())]
    NoKey { path: PathBuf },
    #[error("the private key in `{}` is encrypted: decrypt it with `openssl pkey`, and keep its file at mode 0600", path.display())]
    KeyEncrypted { path: PathBuf },
    #[error("the private key in `{}` does not belong to the certificate in `{}`", key.display(), certificate.display())]
    OtherKey { key: PathBuf, certificate: PathBuf },
}

/// Certificates of a PEM file; at least one.
///
/// # Errors
/// The file cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<X509>, TlsError> {
    let certificates = X509::stack_from_pem(&read_public(path)?).unwrap_or_default();
    if certificates.is_empty() { Err(TlsError::NoCertificate { path: path.to_owned() }) } else { Ok(certificates) }
}

/// The private key of a PEM file that nobody else can read.
///
/// # Errors
/// The file cannot be read, others can read it, it holds no key, or the key is encrypted.
pub fn private_key(path: &Path) -> Result<PKey<Private>, TlsError> {
    // Without an answer of ours OpenSSL would ask at the terminal.
    let mut asked = false;
    let key = PKey::private_key_from_pem_callback(&read_key(path)?, |_| {
        asked = true;
        Ok(0)
    });
    match key {
        Ok(key) => Ok(key),
        Err(_) if asked => Err(TlsError::KeyEncrypted { path: path.to_owned() }),
        Err(_) => Err(TlsError::NoKey { path: path.to_owned() }),
    }
}

/// What connections are made with.
///
/// # Errors
/// A file is not what it has to be.
pub fn connector(tls: &Tls) -> Result<SslConnector, TlsError> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    builder.set_verify(match tls.check {
        ServerCheck::Nothing => SslVerifyMode::NONE,
        ServerCheck::Chain | ServerCheck::ChainAndName => SslVerifyMode::PEER,
    });
    if let Some(path) = &tls.ca {
        // In the place of the system's authorities, not beside them.
        let mut authorities = X509StoreBuilder::new()?;
        for certificate in certificates(path)? {
            authorities.add_cert(certificate)?;
        }
        builder.set_cert_store(authorities.build());
    }
    if let Some(client) = &tls.client {
        let mut chain = certificates(&client.certificate)?.into_iter();
        if let Some(own) = chain.next() {
            let key = private_key(&client.key)?;
            if !own.public_key()?.public_eq(&key) {
                return Err(TlsError::OtherKey { key: client.key.clone(), certificate: client.certificate.clone() });
            }
            builder.set_certificate(&own)?;
            builder.set_private_key(&key)?;
        }
        for intermediate in chain {
            builder.add_extra_chain_cert(intermediate)?;
        }
    }
    Ok(builder.build())
}

/// Encrypts a connection on which the server has agreed to it.
///
/// # Errors
/// What is wrong with the server's certificate, or no agreement.
pub(super) async fn handshake<S>(stream: S, host: &str, tls: &Tls) -> Result<SslStream<S>, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let configuration = connector(tls)?.configure()?.verify_hostname(tls.check == ServerCheck::ChainAndName);
    let mut stream = SslStream::new(configuration.into_ssl(host)?, stream)?;
    match Pin::new(&mut stream).connect().await {
        Ok(()) => Ok(stream),
        Err(error) if tls.check == ServerCheck::Nothing => Err(refusal(error, X509VerifyResult::OK, host)),
        Err(error) => Err(refusal(error, stream.ssl().verify_result(), host)),
    }
}

fn refusal(error: ssl::Error, verified: X509VerifyResult, host: &str) -> TlsError {
    /// `X509_V_ERR_…` of OpenSSL's `x509_vfy.h`, which the library's bindings give as numbers only.
    const NOT_YET_VALID: i32 = 9;
    const HAS_EXPIRED: i32 = 10;
    const HOSTNAME_MISMATCH: i32 = 62;
    const IP_ADDRESS_MISMATCH: i32 = 64;
    let why = verified.error_string();
    match (verified.as_raw(), client_refused(&error)) {
        (_, Some(refused)) => refused,
        (_, None) if verified == X509VerifyResult::OK => TlsError::Handshake(error),
        (NOT_YET_VALID | HAS_EXPIRED, None) => TlsError::OutOfDate { why },
        (HOSTNAME_MISMATCH | IP_ADDRESS_MISMATCH, None) => TlsError::OtherName { host: host.to_owned() },
        (_, None) => TlsError::NotTrusted { why },
    }
}

/// Whether the server has ended the connection over our certificate; with TLS 1.3 it says so only when we have begun
/// to speak.
pub(super) fn client_refused(error: &ssl::Error) -> Option<TlsError> {
    /// OpenSSL gives the alerts of RFC 8446, 6.2 as reasons from here on.
    const ALERT: i32 = 1000;
    let reason = error.ssl_error()?.errors().last()?;
    let of_certificates = matches!(reason.reason_code() - ALERT, 41..=46 | 48 | 49 | 116);
    of_certificates.then(|| TlsError::ClientRefused { alert: reason.reason().unwrap_or("no reason given") })
}

/// The hash of the server's certificate that a password's proof can be bound to: `tls-server-end-point` of RFC 5929, 4.
/// `None` for signatures without a hash of their own, as Ed25519: libpq has none for these either.
pub(super) fn end_point(certificate: &X509Ref) -> Option<Vec<u8>> {
    let algorithms = certificate.signature_algorithm().object().nid().signature_algorithms()?;
    let digest = match algorithms.digest {
        Nid::UNDEF => return None,
        Nid::MD5 | Nid::SHA1 => MessageDigest::sha256(),
        other => MessageDigest::from_nid(other)?,
    };
    Some(certificate.digest(digest).ok()?.to_vec())
}
