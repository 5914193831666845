//! The way to the server: a TCP connection, encrypted where that is configured, or a unix socket. Both kinds of
//! connection go over it, so that what it refuses is refused for both.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use openssl::ssl;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_openssl::SslStream;
use tokio_postgres::config::{ChannelBinding, Host};
use tokio_postgres::tls;

use crate::config::Address;
use crate::postgres::tls::{TlsError, client_refused, end_point, handshake};
use crate::postgres::{SourceError, wire};

/// `SSLRequest`: its length, and the code in the place of a protocol version.
const TLS_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";

/// Tag, length and method of an authentication request.
const AUTHENTICATION_BYTES: usize = 9;

/// A connection that nothing was said on yet.
pub(super) struct Socket {
    stream: Stream,
    /// For errors.
    endpoint: String,
    /// What the server said first, up to [`AUTHENTICATION_BYTES`].
    greeting: Vec<u8>,
    end_point: Option<Vec<u8>>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<SslStream<TcpStream>>),
}

/// A host of an address, and where to find it.
pub(super) struct Place<'a> {
    host: &'a Host,
    /// Where to connect to instead of looking the host up.
    address: Option<std::net::IpAddr>,
    port: u16,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host {
            Host::Tcp(name) => write!(f, "{name}:{}", self.port),
            Host::Unix(folder) => write!(f, "{}/.s.PGSQL.{}", folder.display(), self.port),
        }
    }
}

/// The hosts of `address`, in their order.
pub(super) fn places(address: &Address) -> impl Iterator<Item = Place<'_>> {
    let (hosts, ports) = (address.postgres.get_hosts(), address.postgres.get_ports());
    hosts.iter().enumerate().map(move |(index, host)| Place {
        host,
        address: address.postgres.get_hostaddrs().get(index).copied(),
        port: ports.get(index).or(ports.first()).copied().unwrap_or(5432),
    })
}

/// The server is told, as far as that is possible without waiting: else it would complain in its log of a client that
/// vanished.
impl Drop for Socket {
    fn drop(&mut self) {
        const TERMINATE: &[u8] = b"X\0\0\0\x04";
        let mut context = Context::from_waker(Waker::noop());
        let _said = Pin::new(self).poll_write(&mut context, TERMINATE).is_ready();
    }
}

impl Socket {
    /// Connects, and encrypts where the address says so. Unix sockets are never encrypted, as in libpq.
    pub(super) async fn open(place: &Place<'_>, address: &Address) -> Result<Self, SourceError> {
        let failed = |source| SourceError::Connect { endpoint: place.to_string(), source };
        let refused = |source| SourceError::Tls { endpoint: place.to_string(), source };
        let stream = match place.host {
            Host::Unix(folder) => Stream::Unix(UnixStream::connect(folder.join(format!(".s.PGSQL.{}", place.port))).await.map_err(failed)?),
            Host::Tcp(name) => {
                let connecting = match place.address {
                    Some(address) => TcpStream::connect((address, place.port)).await,
                    None => TcpStream::connect((name.as_str(), place.port)).await,
                };
                let mut stream = connecting.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                rustix::net::sockopt::set_socket_keepalive(&stream, true).map_err(|error| failed(error.into()))?;
                match &address.tls {
                    None => Stream::Tcp(stream),
                    Some(tls) => {
                        if !ask_for_tls(&mut stream).await? {
                            return Err(refused(TlsError::NotOffered));
                        }
                        Stream::Tls(Box::new(handshake(stream, name, tls).await.map_err(refused)?))
                    }
                }
            }
        };
        let end_point = match &stream {
            Stream::Tls(stream) => stream.ssl().peer_certificate().and_then(|certificate| end_point(&certificate)),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        };
        if end_point.is_none() && address.postgres.get_channel_binding() == ChannelBinding::Require {
            return Err(refused(TlsError::NothingToBindTo));
        }
        Ok(Self { stream, endpoint: place.to_string(), greeting: Vec::with_capacity(AUTHENTICATION_BYTES), end_point })
    }

    /// What a password's proof can be bound to; `None` without TLS.
    pub(super) fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }

    /// A server that asks for the password in a form that gives it away to whoever stands between is not answered:
    /// neither in clear text (3) nor by MD5 (5).
    fn look_at_greeting(&mut self, bytes: &[u8]) -> io::Result<()> {
        let missing = AUTHENTICATION_BYTES.saturating_sub(self.greeting.len());
        if missing == 0 {
            return Ok(());
        }
        self.greeting.extend(bytes.iter().take(missing));
        match self.greeting.as_slice() {
            [b'R', _, _, _, _, 0, 0, 0, 3 | 5] => Err(io::Error::other(SourceError::Authentication {
                why: "the server asks for an MD5 or clear-text password; use `scram-sha-256` in pg_hba.conf and set the role's password again"
                    .to_owned(),
            })),
            _ => Ok(()),
        }
    }
}

/// The server's answer is one byte; nothing it says before the connection is encrypted is believed or shown.
async fn ask_for_tls(stream: &mut TcpStream) -> Result<bool, SourceError> {
    let broke = |source| SourceError::Io { doing: "ask for TLS", source };
    stream.write_all(TLS_REQUEST).await.map_err(broke)?;
    match stream.read_u8().await.map_err(broke)? {
        b'S' => Ok(true),
        b'N' => Ok(false),
        _ => Err(wire::protocol("neither yes nor no to a request for TLS")),
    }
}

/// An encrypted record is 8 KiB or so: what has arrived is taken together, as a plain socket gives it.
fn read_records(stream: &mut SslStream<TcpStream>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    let before = into.filled().len();
    loop {
        let filled = into.filled().len();
        match Pin::new(&mut *stream).poll_read(context, into) {
            Poll::Ready(Ok(())) if into.filled().len() > filled && into.remaining() > 0 => {}
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            // What was read goes on; an error is met again by the next read.
            _ if filled > before => return Poll::Ready(Ok(())),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        }
    }
}

/// A server's alert over our certificate has its own error.
fn said_by_server(error: io::Error, endpoint: &str) -> io::Error {
    match error.get_ref().and_then(|error| error.downcast_ref::<ssl::Error>()).and_then(client_refused) {
        Some(source) => io::Error::other(SourceError::Tls { endpoint: endpoint.to_owned(), source }),
        None => error,
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Tls(stream) => read_records(stream, context, into).map_err(|error| said_by_server(error, &self.endpoint)),
        })?;
        Poll::Ready(self.look_at_greeting(into.filled().get(before..).unwrap_or_default()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

impl tls::TlsStream for Socket {
    fn channel_binding(&self) -> tls::ChannelBinding {
        self.end_point.clone().map_or_else(tls::ChannelBinding::none, tls::ChannelBinding::tls_server_end_point)
    }
}

/// Tells tokio-postgres that a connection is encrypted as far as it shall be.
pub(super) struct AsItIs;

impl tls::TlsConnect<Socket> for AsItIs {
    type Stream = Socket;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Socket, Self::Error>>;

    fn connect(self, socket: Socket) -> Self::Future {
        std::future::ready(Ok(socket))
    }
}
