//! The control socket in the state folder: a request a line, an answer a line, JSON.
//!
//! ```text
//! {"command":"status"}                                            → the status, see `board`
//! {"command":"rebuild","tables":["public.t"],"resend":false}      → {"accepted":{"id":7}}, see [`Verdict`]
//! anything else, and what cannot be done now                      → {"error":"…"}
//! ```
//!
//! Mode 0600 in a folder of mode 0700: who may read the state may ask. A client that is slow, silent or too
//! talkative costs itself its connection and nobody else anything: each has its own task, their number, their lines
//! and their time are bounded, and one too many is told so at once.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::admin::board::Board;

/// Bytes of a request.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of an answer: the status of some ten thousand tables.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Clients at a time.
const CLIENTS_MAX: usize = 16;

/// A client that sends no request, or does not take its answer, for this long is let go.
const PATIENCE: Duration = Duration::from_secs(10);

/// The service has to take up a command within this time. Shorter than what clients wait for an answer.
const COMMAND_PATIENCE: Duration = Duration::from_secs(5);

/// After a client could not be accepted (out of descriptors), until the next is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The longest path that a socket address holds, its closing zero left out (`sun_path`, unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Request {
    Status,
    /// `schema.table`; empty: all.
    Rebuild {
        #[serde(default)]
        tables: Vec<String>,
        #[serde(default)]
        resend: bool,
    },
}

/// A request that the service has to act upon. One whose `reply` is closed came too late and is not to be acted upon.
#[derive(Debug)]
pub struct Command {
    pub tables: Vec<String>,
    pub resend: bool,
    pub reply: oneshot::Sender<Verdict>,
}

/// What becomes of a rebuild that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It has this id. One that was under way already may be what was asked for.
    Accepted {
        id: u64,
    },
    /// Another has to end before.
    After {
        id: u64,
        reason: String,
    },
    Refused {
        why: String,
    },
}

/// Where the socket of a state folder is.
#[must_use]
pub fn path(state_directory: &Path) -> PathBuf {
    state_directory.join("control.sock")
}

/// Answers until dropped; its clients end with it, and the socket goes. The state folder is locked by this process,
/// so a socket that is there already is stale.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve(path: PathBuf, board: Board, commands: mpsc::Sender<Command>) -> std::io::Result<()> {
    remove_stale(&path)?;
    let listener = with_short_path(&path, |short| UnixListener::bind(short))?;
    let _removed_at_the_end = SocketFile(path.clone());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let mut clients = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::debug!(%error, "a control client could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while clients.try_join_next().is_some() {}
        if clients.len() >= CLIENTS_MAX {
            // An empty socket takes a line without waiting for its reader.
            let _told = client.try_write(b"{\"error\":\"too many clients: try again\"}\n").is_ok();
            continue;
        }
        let (board, commands) = (board.clone(), commands.clone());
        clients.spawn(async move {
            if let Err(error) = converse(client, &board, &commands).await {
                tracing::debug!(%error, "a control client left");
            }
        });
    }
}

/// Requests and answers, until the client leaves or is let go.
async fn converse(client: UnixStream, board: &Board, commands: &mpsc::Sender<Command>) -> std::io::Result<()> {
    let (reading, mut writing) = client.into_split();
    let mut reading = tokio::io::BufReader::new(reading);
    let mut line = Vec::new();
    loop {
        line.clear();
        tokio::time::timeout(PATIENCE, (&mut reading).take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line)).await??;
        let whole = line.ends_with(b"\n");
        let answer = match serde_json::from_slice(&line) {
            _ if line.is_empty() => return Ok(()),
            _ if !whole => json!({ "error": format!("not a request: no line of at most {REQUEST_BYTES_MAX} bytes") }),
            Ok(Request::Status) => serde_json::to_value(board.snapshot())?,
            Ok(Request::Rebuild { tables, resend }) => rebuild(tables, resend, commands).await,
            Err(error) => json!({ "error": format!("not a request: {error}") }),
        };
        tokio::time::timeout(PATIENCE, writing.write_all(format!("{answer}\n").as_bytes())).await??;
        if !whole {
            return Ok(());
        }
    }
}

async fn rebuild(tables: Vec<String>, resend: bool, commands: &mpsc::Sender<Command>) -> Json {
    let (reply, replied) = oneshot::channel();
    let answered = async {
        commands.send(Command { tables, resend, reply }).await.ok()?;
        replied.await.ok()
    };
    // When time is up `replied` is dropped, which closes `reply`: the command is not acted upon later.
    match tokio::time::timeout(COMMAND_PATIENCE, answered).await {
        Ok(Some(verdict)) => json!(verdict),
        Ok(None) | Err(_) => json!({ "error": "the service is not streaming now, so it cannot begin a rebuild: see `walgate status`" }),
    }
}

/// Why a service could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no service runs for this stream")]
    NotRunning,
    #[error("ask the running service through `{path}`")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the service went away before it answered")]
    NoAnswer,
    #[error("the service gave an answer that cannot be read")]
    Answer(#[source] serde_json::Error),
}

/// Asks the service whose state folder this is. Waits for a bounded time.
///
/// # Errors
/// Nobody listens; the connection's.
pub fn ask(state_directory: &Path, request: &Request) -> Result<Json, ControlError> {
    let path = path(state_directory);
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ControlError::NoAnswer,
        _ => ControlError::Io { path: path.clone(), source },
    };
    let mut stream = match with_short_path(&path, |short| std::os::unix::net::UnixStream::connect(short)) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Err(ControlError::NotRunning),
        Err(error) => return Err(failed(error)),
    };
    stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(failed)?;
    let line = serde_json::to_string(request).map_err(ControlError::Answer)?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut answer).map_err(failed)?;
    if answer.is_empty() {
        return Err(ControlError::NoAnswer);
    }
    serde_json::from_slice(&answer).map_err(ControlError::Answer)
}

fn remove_stale(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The socket's name in the folder, removed when this is dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = remove_stale(&self.0) {
            tracing::debug!(%error, "the control socket could not be removed");
        }
    }
}

/// A state folder may lie deeper than a socket address can say; through a descriptor of the folder its path is short.
fn with_short_path<T>(path: &Path, act: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX => {
            let folder = std::fs::File::open(folder)?;
            act(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
        }
        _ => act(path),
    }
}

#[cfg(test)]
mod tests;
