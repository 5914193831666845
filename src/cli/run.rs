//! `walgate run`: sessions, one after the other, until it is told to stop or policy says so.
//!
//! `walgate rebuild` runs the same service where none runs, until its rebuild has ended.

use std::fs::File;
use std::future::Future;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::admin::board::{Board, State};
use crate::admin::control::{self, Command};
use crate::config::{Config, SinkKind};
use crate::exit::Exit;
use crate::pipeline::session::Service;
use crate::policy::{Action, Backoff, action, advice_when_spent, store_advice};
use crate::progress::InstanceId;
use crate::sink::Sink;
use crate::sink::file::FileSink;
use crate::sink::kafka::KafkaSink;
use crate::sink::null::NullSink;
use crate::sink::stdout::StdoutSink;
use crate::store::open::Claim;
use crate::store::{Stamp, Store, StoreError};
use crate::telemetry::Chain;

/// Signals within so long a time are one.
const TOLD_ONCE: Duration = Duration::from_millis(300);
/// For what runs still, once everything is recorded.
const CLOSING: Duration = Duration::from_secs(1);

/// `take_over`: another instance is not waited for.
pub(super) fn execute(config: Config, take_over: bool) -> anyhow::Result<Exit> {
    start(config, Asked { for_rebuild: false, take_over }, |_| std::future::pending())
}

/// What was asked for beside streaming.
#[derive(Clone, Copy, Debug)]
struct Asked {
    for_rebuild: bool,
    take_over: bool,
}

/// For an operator who waits for a rebuild: what bounds those that nobody asked for does not hold, and the service stops
/// in order when `asks`, given the way to ask for one, has an outcome.
pub(super) fn execute_for_rebuild<F>(config: Config, asks: impl FnOnce(mpsc::Sender<Command>) -> F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    start(config, Asked { for_rebuild: true, take_over: false }, asks)
}

fn start<F>(config: Config, asked: Asked, until: impl FnOnce(mpsc::Sender<Command>) -> F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    let claim = match Claim::of(&config.store.directory) {
        Ok(claim) => claim,
        Err(error) => return Ok(cannot_use_store(&error)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let exit = runtime.block_on(serve(config, claim, asked, until));
    // The store is closed in order; a thread that hangs in the sink does not hold the process.
    runtime.shutdown_timeout(CLOSING);
    exit
}

fn cannot_use_store(error: &StoreError) -> Exit {
    tracing::error!(error = %Chain(error), advice = store_advice(error), "the state folder cannot be used");
    Exit::Store
}

async fn serve<F>(config: Config, claim: Claim, asked: Asked, until: impl FnOnce(mpsc::Sender<Command>) -> F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    let config = Arc::new(config);
    let board = Board::default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    board.update(|status| {
        status.stream.clone_from(&config.stream);
        status.slot.name.clone_from(&config.source.slot);
        config.sink.kind.name().clone_into(&mut status.sink.kind);
        status.since = i64::try_from(since).unwrap_or(0);
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
    });
    let (stop, stopped) = watch::channel(false);
    let (commands, commands_in) = mpsc::channel(4);
    let socket = control::path(&config.store.directory);
    let serving = control::serve(socket, board.clone(), commands.clone());
    let control = tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::warn!(%error, "there is no control socket: `walgate status` and `walgate rebuild` cannot ask this service");
        }
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;

    // Whoever asks for the status meanwhile is answered already.
    let stamp = Stamp { stream: config.stream.clone() };
    let store = match tokio::task::spawn_blocking(move || Store::open_claimed(claim, &stamp)).await? {
        Ok(store) => store,
        Err(error) => return Ok(cannot_use_store(&error)),
    };
    let service = Service {
        store: Arc::new(store),
        sink: Some(make_sink(&config, &board, InstanceId::random()?)?),
        board: board.clone(),
        instance: InstanceId::random()?,
        batch_number: 1,
        conflict: None,
        rebuild_is_asked_for: asked.for_rebuild,
        making_slot: None,
        worked: false,
        take_over: asked.take_over,
        commands: commands_in,
        stop: stopped.clone(),
        config: Arc::clone(&config),
    };
    let mut sessions = tokio::spawn(sessions(service, stopped));
    let mut told_to_stop = false;
    let exit = tokio::select! {
        exit = &mut sessions => exit?,
        () = told(&mut terminate, &mut interrupt, &mut hangup) => {
            told_to_stop = true;
            finish(&stop, &mut sessions, &mut terminate, &mut interrupt, &config).await?
        }
        outcome = until(commands) => match finish(&stop, &mut sessions, &mut terminate, &mut interrupt, &config).await? {
            Exit::Success => outcome?,
            failure => failure,
        },
    };
    let exit = if asked.for_rebuild && told_to_stop && exit == Exit::Success {
        super::complain("stopped before the rebuild has ended: the next `walgate run` or `rebuild` goes on with it");
        Exit::Refused
    } else {
        exit
    };
    control.abort();
    board.update(|status| status.state = State::Stopped);
    tracing::info!(status = exit as u8, "stopped");
    Ok(exit)
}

/// A signal to stop has come.
async fn told(
    terminate: &mut tokio::signal::unix::Signal,
    interrupt: &mut tokio::signal::unix::Signal,
    hangup: &mut tokio::signal::unix::Signal,
) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// The open batch is finished, recorded and acknowledged; a second signal, or the time-out, leaves at once, which is
/// as safe as any kill. Success says that everything delivered is recorded, so neither is one.
async fn finish(
    stop: &watch::Sender<bool>,
    sessions: &mut tokio::task::JoinHandle<Exit>,
    terminate: &mut tokio::signal::unix::Signal,
    interrupt: &mut tokio::signal::unix::Signal,
    config: &Config,
) -> anyhow::Result<Exit> {
    tracing::info!("stopping");
    stop.send_replace(true);
    // Some send a signal to the process and to its group: that is told once.
    let told = Instant::now();
    let again = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if told.elapsed() >= TOLD_ONCE {
                return;
            }
        }
    };
    tokio::select! {
        exit = sessions => Ok(exit?),
        () = again => Ok(left_at_once()),
        () = tokio::time::sleep(config.run.shutdown_timeout) => {
            tracing::error!(after = ?config.run.shutdown_timeout, "the sink did not take the open batch: left without it, the next start sends it");
            Ok(Exit::Sink)
        }
    }
}

fn left_at_once() -> Exit {
    tracing::warn!("told twice to stop: left at once, without the open batch; the next start sends it");
    Exit::Sink
}

async fn sessions(mut service: Service, mut stopped: watch::Receiver<bool>) -> Exit {
    let mut backoff = Backoff::new(service.config.retry);
    loop {
        let begun = Instant::now();
        let board = service.board.clone();
        let outcome = tokio::select! {
            biased; // a session that has something to finish says so before it could be left
            outcome = service.session() => outcome,
            // While a session only waits, nothing has to be finished.
            () = stop_while_nothing_is_delivered(&board, &mut stopped) => {
                service.abandon().await;
                return Exit::Success;
            }
        };
        let Err(error) = outcome else { return Exit::Success };
        let text = Chain(&error).to_string();
        service.board.update(|status| status.last_error = Some(text.clone()));
        match action(&error) {
            Action::Stop(exit, advice) => {
                tracing::error!(error = text, advice, "stopped by an error");
                service.board.update(|status| status.state = State::Refused);
                return exit;
            }
            Action::Rebuild(reason) => {
                tracing::error!(error = text, "the stream conflicts with what was delivered");
                service.conflict = Some(reason);
            }
            Action::Retry(budget) => {
                let mut random = [0; 8];
                let _even_without = getrandom::fill(&mut random).is_err();
                let Some(pause) = backoff.pause(begun.elapsed(), service.worked, u64::from_ne_bytes(random)) else {
                    tracing::error!(error = text, advice = advice_when_spent(&error), "the retry budget is spent");
                    return budget.exit();
                };
                tracing::warn!(error = text, pause_ms = pause.as_millis(), "session ended: trying again");
                service.board.update(|status| {
                    status.state = State::Waiting;
                    status.waiting_for = Some(text);
                });
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stopped.wait_for(|stop| *stop) => return Exit::Success,
                }
            }
        }
    }
}

async fn stop_while_nothing_is_delivered(board: &Board, stopped: &mut watch::Receiver<bool>) {
    loop {
        if stopped.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
        if !board.snapshot().delivers {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn make_sink(config: &Config, board: &Board, writer: InstanceId) -> std::io::Result<Box<dyn Sink>> {
    Ok(match &config.sink.kind {
        SinkKind::File { directory, segment_bytes } => {
            Box::new(FileSink::new(directory.clone(), *segment_bytes, config.stream.clone(), &config.sink.headers))
        }
        SinkKind::Kafka(kafka) => Box::new(KafkaSink::new(config, kafka.as_ref().clone(), board.clone(), writer)),
        SinkKind::Stdout => Box::new(StdoutSink::new(standard_output()?, &config.sink.headers)),
        SinkKind::Null => Box::new(NullSink),
    })
}

/// Not std's: a write that blocks would hold its lock, and an exit that flushes would wait for it.
fn standard_output() -> std::io::Result<File> {
    std::io::stdout().as_fd().try_clone_to_owned().map(File::from)
}
