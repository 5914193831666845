//! The task that owns the replication connection: chunks of frames go on, one value comes back.
//!
//! It answers keepalives and sends what is durable on a timer of its own, whatever the rooms behind it are doing:
//! while they are full it stops reading, not answering. Whole chunks go on, never single messages; while the
//! stream is hot and the next room still has work, it lets data gather in the socket for a moment.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::postgres::SourceError;
use crate::postgres::replication::{Frame, Frames, status_update};
use crate::postgres::wire::Wire;
use crate::progress::Durable;
use crate::telemetry::Chain;

/// Chunks on their way to the emitter: more than this waits in the socket.
pub const QUEUE_BYTES: usize = 8 * 1024 * 1024;

/// A chunk this large means that the stream is hot.
const HOT_BYTES: usize = 32 * 1024;

/// How long data gathers while the stream is hot and the emitter has work.
const GATHER: Duration = Duration::from_millis(1);

/// Status updates go out at least this often; half of any sensible `wal_sender_timeout` is longer.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// Frames, and the room they take in the queue until the emitter is done with them.
#[derive(Debug)]
pub struct Chunk {
    pub frames: Frames,
    pub room: OwnedSemaphorePermit,
}

/// Asks the server for a keepalive: set by the emitter, which waits for the stream to pass a position.
pub type Ask = Arc<Notify>;

/// Reads until the stream ends, or until nothing more can become durable: by then the server knows what did.
///
/// # Errors
/// The connection's, or silence of the network.
pub async fn run(
    mut wire: Wire,
    chunks: Sender<Chunk>,
    mut durable: watch::Receiver<Durable>,
    ask: Ask,
    wal_sender_timeout: Duration,
    silence: Duration,
) -> Result<(), SourceError> {
    let room = Arc::new(Semaphore::new(QUEUE_BYTES));
    let status_interval = if wal_sender_timeout.is_zero() { STATUS_INTERVAL } else { STATUS_INTERVAL.min(wal_sender_timeout / 3) };
    let mut ticks = tokio::time::interval(Duration::from_millis(100).min(status_interval));
    let mut status_due = Instant::now();
    let mut heard = Instant::now();
    let mut asked_at = Instant::now();
    loop {
        let mut asked = false;
        // In this order: what is durable goes back first; then the timer; data last, so that it cannot crowd out the others.
        tokio::select! {
            biased;
            changed = durable.changed() => {
                if changed.is_err() {
                    end(&mut wire).await;
                    return Ok(());
                }
                status_due = Instant::now();
            }
            () = ask.notified() => asked = true,
            _ = ticks.tick() => {}
            messages = wire.whole_messages("stream changes") => {
                let messages = messages?;
                heard = Instant::now();
                let frames = Frames::of(messages);
                let bytes = frames.bytes();
                if asks_for_reply(&frames) {
                    status_due = Instant::now();
                }
                let permits = u32::try_from(bytes.clamp(1, QUEUE_BYTES)).unwrap_or(u32::MAX);
                // While the queue is full the server still hears of us.
                let permit = loop {
                    match tokio::time::timeout(status_interval, Arc::clone(&room).acquire_many_owned(permits)).await {
                        Ok(Ok(permit)) => break permit,
                        Ok(Err(_)) => return Ok(()),
                        Err(_) => send_status(&mut wire, &mut durable, false).await?,
                    }
                };
                heard = heard.max(Instant::now());
                if chunks.send(Chunk { frames, room: permit }).is_err() {
                    return send_the_rest(&mut wire, &mut durable, status_interval).await;
                }
                if bytes >= HOT_BYTES && room.available_permits() < QUEUE_BYTES - bytes.min(QUEUE_BYTES) {
                    tokio::time::sleep(GATHER).await;
                }
            }
        }
        let now = Instant::now();
        if now.duration_since(heard) > silence {
            return Err(SourceError::Silent { seconds: silence.as_secs() });
        }
        let wants = asked || now.duration_since(heard.max(asked_at)) > silence / 3;
        if wants || now >= status_due {
            if wants {
                asked_at = now;
            }
            send_status(&mut wire, &mut durable, wants).await?;
            status_due = now + status_interval;
        }
    }
}

/// The emitter is gone; what it emitted is still being delivered.
async fn send_the_rest(wire: &mut Wire, durable: &mut watch::Receiver<Durable>, interval: Duration) -> Result<(), SourceError> {
    while !matches!(tokio::time::timeout(interval, durable.changed()).await, Ok(Err(_))) {
        send_status(wire, durable, false).await?;
    }
    end(wire).await;
    Ok(())
}

/// Ends the stream in order: a connection that is closed while the server sends can take with it what the server has not read
/// yet, the last position among it. Where that fails, the server sends again what it did not hear of.
async fn end(wire: &mut Wire) {
    const COPY_DONE: [u8; 5] = [b'c', 0, 0, 0, 4];
    let ended = async {
        wire.send("end the stream", &COPY_DONE).await?;
        wire.finish_copy("end the stream").await
    };
    if let Err(error) = ended.await {
        tracing::debug!(error = %Chain(&error), "the stream did not end in order");
    }
}

async fn send_status(wire: &mut Wire, durable: &mut watch::Receiver<Durable>, ask: bool) -> Result<(), SourceError> {
    let reached = *durable.borrow_and_update();
    wire.send("send what is durable", &status_update(reached, ask)).await
}

fn asks_for_reply(frames: &Frames) -> bool {
    // Keepalives are small and come last; the emitter looks at the rest.
    frames.bytes() < HOT_BYTES && frames.iter().any(|frame| matches!(frame, Ok(Frame::Keepalive { reply_requested: true, .. })))
}
