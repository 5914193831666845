//! The control socket in the state folder: a request a line, an answer a line, JSON. Mode 0600, so whoever may read
//! the state may ask.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::admin::board::Board;

/// Bytes of a request.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// Clients at a time.
const CLIENTS_MAX: usize = 16;
/// A client that says nothing for this long is let go.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// A request that the service has to act upon.
#[derive(Debug)]
pub struct Command {
    pub tables: Vec<String>,
    pub resend: bool,
    /// Id of the rebuild, or why not.
    pub reply: oneshot::Sender<Result<u64, String>>,
}

/// Where the socket of a state folder is.
#[must_use]
pub fn path(state_directory: &Path) -> PathBuf {
    state_directory.join("control.sock")
}

/// Answers until dropped. The state folder is locked by this process, so a socket left there is stale.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve(path: PathBuf, board: Board, commands: mpsc::Sender<Command>) -> std::io::Result<()> {
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let room = std::sync::Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let Ok(permit) = std::sync::Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let (client, _) = listener.accept().await?;
        let (board, commands) = (board.clone(), commands.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = tokio::time::timeout(PATIENCE, answer(client, &board, &commands)).await.unwrap_or(Ok(())) {
                tracing::debug!(%error, "a control client left");
            }
        });
    }
}

async fn answer(client: UnixStream, board: &Board, commands: &mpsc::Sender<Command>) -> std::io::Result<()> {
    let (reading, mut writing) = client.into_split();
    let mut line = String::new();
    tokio::io::BufReader::new(reading.take(REQUEST_BYTES_MAX)).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::Status) => serde_json::to_value(board.snapshot()).unwrap_or_default(),
        Ok(Request::Rebuild { tables, resend }) => {
            let (reply, replied) = oneshot::channel();
            let sent = commands.send(Command { tables, resend, reply }).await.is_ok();
            match replied.await {
                Ok(Ok(id)) if sent => serde_json::json!({ "accepted": true, "id": id }),
                Ok(Err(why)) => serde_json::json!({ "error": why }),
                _ => serde_json::json!({ "error": "the service is not streaming now: see `walgate status`" }),
            }
        }
        Err(error) => serde_json::json!({ "error": format!("not a request: {error}") }),
    };
    writing.write_all(format!("{answer}\n").as_bytes()).await
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
    #[error("the service gave an answer that cannot be read")]
    Answer(#[source] serde_json::Error),
}

/// Asks the service whose state folder this is.
///
/// # Errors
/// Nobody listens; the connection's.
pub fn ask(state_directory: &Path, request: &Request) -> Result<serde_json::Value, ControlError> {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    let path = path(state_directory);
    let failed = |source: std::io::Error| ControlError::Io { path: path.clone(), source };
    let mut stream = match std::os::unix::net::UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => return Err(ControlError::NotRunning),
        Err(error) => return Err(failed(error)),
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let line = serde_json::to_string(request).map_err(ControlError::Answer)?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(failed)?;
    serde_json::from_str(&answer).map_err(ControlError::Answer)
}
