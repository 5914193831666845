//! A private Kafka broker: one node on free ports of 127.0.0.1, with its data in a folder of its own.
//!
//! `Kafka::start()`, or `Kafka::with("message.max.bytes=10000").start()`; `Kafka::shared()` for a test that does
//! it no harm. It ends with the value, and prints the end of its log where a test fails.

mod admin;
mod neighbour;
pub(crate) mod proxy;
pub(crate) mod reader;
mod security;
pub(crate) mod tokens;

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tempfile::TempDir;

use self::proxy::Proxy;
use super::{port, process, wait};

/// For a start on a busy machine: two seconds on an idle one, three after SIGKILL.
const PATIENCE: Duration = Duration::from_mins(1);

/// Lines of the broker's log that a failed test prints.
const LOG_LINES_SHOWN: usize = 40;

/// How a broker is to be made.
pub(crate) struct Plan {
    properties: Vec<String>,
    is_secured: bool,
}

/// A broker, running or stopped.
pub(crate) struct Kafka {
    folder: TempDir,
    port: u16,
    controller_port: u16,
    /// `None` where all are let in.
    secure_port: Option<u16>,
    /// To the same broker, by a listener of its own.
    pub(crate) proxy: Proxy,
    properties: Vec<String>,
    broker: Option<Child>,
    was_killed: bool,
}

/// A broker that other tests use too, so that it can only be read from and written to.
pub(crate) struct Shared(&'static Kafka);

impl Plan {
    /// Sets a property, such as `message.max.bytes=10000`.
    pub(crate) fn with(mut self, property: &str) -> Self {
        self.properties.push(property.to_owned());
        self
    }

    pub(crate) fn start(self) -> Kafka {
        wait::until_some(PATIENCE, "a broker finds its ports free", || {
            let mut kafka = self.prepare();
            match kafka.try_start() {
                Ok(()) => Some(kafka),
                Err(_) if kafka.log().contains("Address already in use") => None,
                Err(status) => panic!("the broker ended with {status} while it started"),
            }
        })
    }

    fn prepare(&self) -> Kafka {
        let folder = tempfile::Builder::new().prefix("walgate-kafka-").tempdir().expect("the temporary folder is writable");
        let [port, controller_port, proxied_port] = [(); 3].map(|()| port::free());
        let proxy = Proxy::to(proxied_port);
        let direct = format!("DIRECT://127.0.0.1:{port}");
        let (controller, proxied) = (format!("CONTROLLER://127.0.0.1:{controller_port}"), format!("PROXIED://127.0.0.1:{proxied_port}"));
        let mut listeners = vec![direct.clone(), controller, proxied];
        let mut advertised = vec![direct, format!("PROXIED://127.0.0.1:{}", proxy.port())];
        let secure_port = self.is_secured.then(port::free);
        let mut properties = Vec::new();
        if let Some(port) = secure_port {
            listeners.push(format!("SECURE://127.0.0.1:{port}"));
            advertised.push(format!("SECURE://localhost:{port}"));
            properties = security::properties(folder.path());
        }
        properties.extend([format!("listeners={}", listeners.join(",")), format!("advertised.listeners={}", advertised.join(","))]);
        properties.extend(self.properties.iter().cloned());
        Kafka { folder, port, controller_port, secure_port, proxy, properties, broker: None, was_killed: false }
    }
}

impl Kafka {
    pub(crate) fn start() -> Self {
        Self::plan().start()
    }

    /// A broker with one more property.
    pub(crate) fn with(property: &str) -> Plan {
        Self::plan().with(property)
    }

    /// The broker of all tests that neither stop it nor change its settings. Each needs topics and a
    /// `transactional.id` of its own: see [`Kafka::fresh_prefix`].
    pub(crate) fn shared() -> Shared {
        static SHARED: LazyLock<Kafka> = LazyLock::new(|| {
            let kafka = Kafka::start();
            kafka.outlive_nobody();
            kafka
        });
        Shared(&SHARED)
    }

    fn plan() -> Plan {
        Plan { properties: Vec::new(), is_secured: false }
    }

    /// A prefix for topics that no other test has.
    pub(crate) fn fresh_prefix() -> String {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        format!("lab{}", CALLS.fetch_add(1, Ordering::Relaxed))
    }

    /// For `bootstrap.servers`: without encryption or password.
    pub(crate) fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the broker with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut broker = self.broker.take().expect("the broker runs");
        broker.kill().expect("a child can be killed");
        broker.wait().expect("a child can be waited for");
        self.was_killed = true;
    }

    /// Stops the broker with SIGTERM.
    pub(crate) fn stop(&mut self) {
        let broker = self.broker.as_mut().expect("the broker runs");
        process::signal(broker, Signal::TERM);
        wait::until(PATIENCE, "the broker has stopped", || ended(broker).is_some());
        self.broker = None;
    }

    /// Lets no file of the running broker grow any more, which it takes as a full disk: it ends with the first write.
    pub(crate) fn fill_disk(&self) {
        let broker = Pid::from_child(self.broker.as_ref().expect("the broker runs"));
        prlimit(Some(broker), Resource::Fsize, Rlimit { current: Some(0), maximum: Some(0) }).expect("a child can be limited");
    }

    /// Waits until the broker has ended by itself.
    #[track_caller]
    pub(crate) fn wait_until_ended(&mut self) {
        let broker = self.broker.as_mut().expect("it was running");
        let status = wait::until_some(PATIENCE, "the broker ends", || ended(broker));
        assert!(!status.success(), "it ended with {status}");
        self.broker = None;
        self.was_killed = true;
    }

    /// Starts a broker that was stopped or killed; one that runs is stopped first.
    pub(crate) fn restart(&mut self) {
        if self.broker.is_some() {
            self.stop();
        }
        if std::mem::take(&mut self.was_killed) {
            self.fence();
        }
        self.try_start().unwrap_or_else(|status| panic!("the broker ended with {status} while it started"));
    }

    /// Stops it as a machine would that is suspended (SIGSTOP): connections stay and nothing answers.
    pub(crate) fn pause(&self) {
        process::suspend(self.broker.as_ref().expect("the broker runs"));
    }

    /// Lets it go on after [`Kafka::pause`].
    pub(crate) fn resume(&self) {
        process::signal(self.broker.as_ref().expect("the broker runs"), Signal::CONT);
    }

    /// Runs one of Kafka's own programs, such as `TransactionsCommand`, and returns what it prints.
    #[track_caller]
    pub(crate) fn tool(&self, name: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(script("java"));
        command.arg(format!("org.apache.kafka.tools.{name}")).args(["--bootstrap-server", &self.brokers()]).args(arguments);
        let output = command.stdin(Stdio::null()).output().expect("a script can be run");
        let (printed, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name} {arguments:?} fails:\n{printed}\n{complaint}");
        printed.into_owned()
    }

    /// Writes records with these keys by Kafka's own console producer.
    #[track_caller]
    pub(crate) fn produce_with_java<'k>(&self, topic: &str, keys: impl IntoIterator<Item = &'k str>) {
        let lines: String = keys.into_iter().flat_map(|key| [key, "\tx\n"]).collect();
        let mut command = Command::new(script("java"));
        command.args(["org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", &self.brokers(), "--topic", topic]);
        command.args(["--reader-property", "parse.key=true"]);
        let mut producer = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a script can be run");
        producer.stdin.take().expect("it is piped").write_all(lines.as_bytes()).expect("the producer reads");
        assert!(producer.wait().expect("a child can be waited for").success());
    }

    /// What the broker has written to standard error, over all its starts: warnings and errors.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Lets the controller alone come up first, until it has noticed that the broker is gone, as the controllers of a
    /// cluster do.
    ///
    /// A node that is both starts as the leader that it was, and loses that again when the session of the killed
    /// broker ends. While it does, the transaction coordinator may find no leader for a partition, take it for deleted and
    /// call a transaction complete whose marker was never written there: committed, and never visible (Kafka 4.4.0; about
    /// every second time when killed within milliseconds of a commit).
    fn fence(&self) {
        let listener = format!("CONTROLLER://127.0.0.1:{}", self.controller_port);
        let earlier = self.log().len();
        let mut controller = self.command();
        controller.env("JAVA_TOOL_OPTIONS", "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.controller.ReplicationControlManager=info");
        controller.args(["--override", "process.roles=controller", "--override", &format!("listeners={listener}")]);
        controller.args(["--override", &format!("advertised.listeners={listener}")]);
        controller.args(["--override", "broker.session.timeout.ms=100", "--override", "broker.heartbeat.interval.ms=50"]);
        let mut controller = Running(controller.spawn().expect("a script can be run"));
        wait::until(PATIENCE, "the controller has fenced the killed broker", || {
            if let Some(status) = ended(&mut controller.0) {
                panic!("the controller ended with {status}: {}", self.log());
            }
            self.log().get(earlier..).is_some_and(|log| log.contains("Fencing broker 1 "))
        });
        process::signal(&controller.0, Signal::TERM);
        wait::until(PATIENCE, "the controller has stopped", || ended(&mut controller.0).is_some());
    }

    /// Starts the broker and waits until it serves; the status is that of a broker that ended instead.
    fn try_start(&mut self) -> Result<(), ExitStatus> {
        let mut broker = self.command().spawn().expect("a script can be run");
        let serves = wait::until_some(PATIENCE, "the broker answers", || match ended(&mut broker) {
            Some(status) => Some(Err(status)),
            None => self.serves().then_some(Ok(())),
        });
        if serves.is_ok() {
            self.broker = Some(broker);
        }
        serves
    }

    /// Of the broker with its properties.
    fn command(&self) -> Command {
        let mut command = Command::new(script("broker"));
        command.arg(self.path("data")).args([self.port.to_string(), self.controller_port.to_string()]);
        command.args(self.properties.iter().flat_map(|property| ["--override", property]));
        command.stdin(Stdio::null()).stdout(self.log_file()).stderr(self.log_file());
        command
    }

    fn log_file(&self) -> File {
        File::options().create(true).append(true).open(self.path("log")).expect("the folder is writable")
    }

    /// Has the broker and its folder removed when this process ends, however it does: a static value is never dropped.
    fn outlive_nobody(&self) {
        const WAIT_AND_REMOVE: &str = "trap '' INT; read -r _; kill -KILL \"$1\" 2>/dev/null; rm -rf \"$2\"";
        let broker = self.broker.as_ref().expect("the broker runs").id().to_string();
        let mut command = Command::new("sh");
        command.args(["-c", WAIT_AND_REMOVE, "sh", &broker]).arg(self.folder.path());
        let janitor = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sh runs");
        // Its standard input ends with this process.
        std::mem::forget(janitor);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn show_log(&self) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or_default();
        eprintln!("--- end of the broker's log ---\n{}", shown.join("\n"));
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        if thread::panicking() {
            self.show_log();
        }
        if let Some(mut broker) = self.broker.take() {
            broker.kill().ok();
            drop(broker.wait());
        }
    }
}

impl Deref for Shared {
    type Target = Kafka;

    fn deref(&self) -> &Kafka {
        self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if thread::panicking() {
            self.show_log();
        }
    }
}

/// Is killed with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        drop(self.0.wait());
    }
}

fn ended(broker: &mut Child) -> Option<ExitStatus> {
    broker.try_wait().expect("a child can be waited for")
}

/// A script that also people use.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/kafka").join(name)
}
