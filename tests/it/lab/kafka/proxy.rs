//! Stands between a client and the broker, and keeps requests or answers back: all, or the next one of a kind. What is
//! kept back of one connection holds up what comes behind it there; other connections go on.
//!
//! It reads no more of the protocol than a request's kind and number. A request that is released after its client has
//! given the connection up still reaches the broker, late.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LockResult, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Kinds of requests (API keys).
pub(crate) const PRODUCE: i16 = 0;
pub(crate) const FETCH: i16 = 1;
pub(crate) const LIST_OFFSETS: i16 = 2;
pub(crate) const FIND_COORDINATOR: i16 = 10;
pub(crate) const INIT_PRODUCER_ID: i16 = 22;
pub(crate) const ADD_PARTITIONS: i16 = 24;
/// Commits or aborts.
pub(crate) const END_TXN: i16 = 26;

/// For a client to come to the request that is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

/// What is to be kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    All(Direction),
    Next(Direction, i16),
}

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    port: u16,
    gate: Arc<Gate>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// Counts releases: what is kept back waits for the next one.
    releases: u64,
    /// Kinds of the frames kept back now.
    kept: Vec<i16>,
    /// Kinds of which what is kept back now may pass.
    let_go: Vec<i16>,
    /// How many answers of each kind the broker gave.
    answered: HashMap<i16, u32>,
    connections: Vec<Arc<Connection>>,
}

struct Connection {
    client: TcpStream,
    broker: TcpStream,
    /// The kind of each request that was not answered yet, by its number.
    kinds: Mutex<HashMap<[u8; 4], i16>>,
    is_cut: AtomicBool,
}

impl Proxy {
    /// To a broker that need not run yet.
    pub(super) fn to(broker_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the system has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        let gate = Arc::new(Gate::default());
        let acceptor = thread::spawn({
            let gate = Arc::clone(&gate);
            move || accept(&listener, broker_port, &gate)
        });
        Self { port, gate, acceptor: Some(acceptor) }
    }

    /// For `bootstrap.servers`: a client that starts here stays behind the proxy.
    pub(crate) fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Keeps back whatever clients send, also on connections to come.
    pub(crate) fn hold_requests(&self) {
        self.gate.lock().rules.push(Rule::All(Direction::Requests));
    }

    /// Keeps back whatever the broker sends, also on connections to come.
    pub(crate) fn hold_answers(&self) {
        self.gate.lock().rules.push(Rule::All(Direction::Answers));
    }

    /// Keeps back one request of a kind; its repetition passes.
    pub(crate) fn hold_next_request(&self, kind: i16) {
        self.gate.lock().rules.push(Rule::Next(Direction::Requests, kind));
    }

    /// Keeps back the answer to one request of a kind, which the broker carries out.
    pub(crate) fn hold_next_answer(&self, kind: i16) {
        self.gate.lock().rules.push(Rule::Next(Direction::Answers, kind));
    }

    /// Waits until something is kept back.
    #[track_caller]
    pub(crate) fn wait_until_holding(&self) {
        self.wait_until("something is kept back", |state| !state.kept.is_empty());
    }

    /// Waits until a request or answer of this kind is kept back.
    #[track_caller]
    pub(crate) fn wait_until_holding_one(&self, kind: i16) {
        self.wait_until("one of a kind is kept back", |state| state.kept.contains(&kind));
    }

    /// Delivers what was kept back of one kind, and waits for an answer to one more of it.
    #[track_caller]
    pub(crate) fn release_one(&self, kind: i16) {
        let mut state = self.gate.lock();
        let answered = state.answered.get(&kind).copied().unwrap_or_default();
        state.let_go.push(kind);
        self.gate.changed.notify_all();
        drop(state);
        self.wait_until("it is answered", |state| state.answered.get(&kind).is_some_and(|now| *now > answered));
    }

    #[track_caller]
    fn wait_until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let waited = self.gate.changed.wait_timeout_while(self.gate.lock(), PATIENCE, |state| !holds(state));
        let (state, _) = ignoring_panics(waited);
        let (has_come, rules) = (holds(&state), state.rules.clone());
        drop(state);
        assert!(has_come, "waited in vain until {what} by {rules:?}");
    }

    /// Delivers what was kept back, and keeps nothing back any more.
    pub(crate) fn release(&self) {
        let mut state = self.gate.lock();
        state.rules.clear();
        state.releases += 1;
        self.gate.changed.notify_all();
    }

    /// Ends all connections; what was kept back is lost.
    pub(crate) fn cut(&self) {
        for connection in self.gate.lock().connections.drain(..) {
            connection.is_cut.store(true, Ordering::SeqCst);
            // One that has ended by itself is as good.
            connection.client.shutdown(Shutdown::Both).ok();
            connection.broker.shutdown(Shutdown::Both).ok();
        }
        self.gate.changed.notify_all();
    }

    /// Ends all connections for their clients only: requests kept back reach the broker when they are released.
    pub(crate) fn cut_clients(&self) {
        for connection in &self.gate.lock().connections {
            connection.client.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.gate.has_ended.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the acceptor.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().ok();
        }
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        ignoring_panics(self.state.lock())
    }

    /// Waits where a rule asks for it.
    fn pass(&self, direction: Direction, kind: i16, connection: &Connection) {
        let mut state = self.lock();
        if direction == Direction::Answers {
            *state.answered.entry(kind).or_default() += 1;
            self.changed.notify_all();
        }
        let Some(index) = state.rules.iter().position(|rule| *rule == Rule::All(direction) || *rule == Rule::Next(direction, kind)) else {
            return;
        };
        if matches!(state.rules[index], Rule::Next(..)) {
            state.rules.remove(index);
        }
        state.kept.push(kind);
        self.changed.notify_all();
        let releases = state.releases;
        let waits =
            |state: &mut State| state.releases == releases && !state.let_go.contains(&kind) && !connection.is_cut.load(Ordering::SeqCst);
        let mut state = ignoring_panics(self.changed.wait_while(state, waits));
        take(&mut state.kept, kind);
        take(&mut state.let_go, kind);
    }
}

fn take(kinds: &mut Vec<i16>, kind: i16) {
    if let Some(index) = kinds.iter().position(|known| *known == kind) {
        kinds.remove(index);
    }
}

fn accept(listener: &TcpListener, broker_port: u16, gate: &Arc<Gate>) {
    for client in listener.incoming() {
        if gate.has_ended.load(Ordering::SeqCst) {
            return;
        }
        // Where no broker listens the client is dropped, as by a broker that has just ended.
        let Ok(client) = client else { continue };
        let Ok(broker) = TcpStream::connect((Ipv4Addr::LOCALHOST, broker_port)) else { continue };
        for stream in [&client, &broker] {
            stream.set_nodelay(true).expect("a connection takes settings");
        }
        let connection = Arc::new(Connection { client, broker, kinds: Mutex::default(), is_cut: AtomicBool::new(false) });
        gate.lock().connections.push(Arc::clone(&connection));
        for direction in [Direction::Requests, Direction::Answers] {
            let (gate, connection) = (Arc::clone(gate), Arc::clone(&connection));
            // Ends with the connection.
            thread::spawn(move || carry(direction, &gate, &connection));
        }
    }
}

/// Carries frames one way until the sender has ended.
fn carry(direction: Direction, gate: &Gate, connection: &Connection) {
    let (mut from, mut to) = match direction {
        Direction::Requests => (&connection.client, &connection.broker),
        Direction::Answers => (&connection.broker, &connection.client),
    };
    while let Ok(frame) = read_frame(&mut from) {
        gate.pass(direction, connection.kind(direction, &frame), connection);
        // A client that has gone does not keep the broker from being read to the end.
        if to.write_all(&frame).is_err() && direction == Direction::Requests {
            break;
        }
    }
    to.shutdown(Shutdown::Write).ok();
}

impl Connection {
    /// The kind of the request, or of the request that this is the answer to.
    fn kind(&self, direction: Direction, frame: &[u8]) -> i16 {
        let mut kinds = ignoring_panics(self.kinds.lock());
        // A request begins with its length, kind, version and number, an answer with its length and that number.
        match (direction, frame) {
            (Direction::Requests, [_, _, _, _, high, low, _, _, a, b, c, d, ..]) => {
                let kind = i16::from_be_bytes([*high, *low]);
                kinds.insert([*a, *b, *c, *d], kind);
                kind
            }
            (Direction::Answers, [_, _, _, _, a, b, c, d, ..]) => kinds.remove(&[*a, *b, *c, *d]).unwrap_or(-1),
            _ => -1,
        }
    }
}

/// A length of four bytes, and as many bytes.
fn read_frame(from: &mut &TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame)?;
    let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
    frame.resize(4 + usize::try_from(length).expect("a `u32` fits"), 0);
    from.read_exact(&mut frame[4..])?;
    Ok(frame)
}

/// A test that fails still has to end its connections.
fn ignoring_panics<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
