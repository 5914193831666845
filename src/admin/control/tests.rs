//! The control socket, asked through a real one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as Client;

use super::*;

/// A service with its socket in `folder`; gone when dropped.
struct Service {
    folder: PathBuf,
    commands: mpsc::Receiver<Command>,
    runtime: tokio::runtime::Runtime,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

fn serve_in(folder: &Path) -> Service {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (sender, commands) = mpsc::channel(4);
    let board = Board::default();
    board.update(|status| "shop".clone_into(&mut status.stream));
    let serving = runtime.spawn(serve(path(folder), board, sender));
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while ask(folder, &Request::Status).is_err() {
        assert!(std::time::Instant::now() < deadline && !serving.is_finished(), "nobody listens");
        std::thread::yield_now();
    }
    Service { folder: folder.to_owned(), commands, runtime, serving }
}

fn connect(service: &Service) -> Client {
    let client = Client::connect(path(&service.folder)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

fn answer(client: &Client) -> Json {
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn the_status_is_told_as_often_as_one_asks() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve_in(folder.path());
    let mut client = connect(&service);
    for _ in 0..3 {
        client.write_all(b"{\"command\":\"status\"}\n").unwrap();
        assert_eq!(answer(&client)["stream"], "shop");
    }
    let mode = std::fs::metadata(path(folder.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[test]
fn a_rebuild_is_answered_by_whoever_begins_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = serve_in(folder.path());
    let mut check = |reply: Verdict, expect: Json| {
        let state = service.folder.clone();
        let asking = std::thread::spawn(move || ask(&state, &Request::Rebuild { tables: vec!["public.t".to_owned()], resend: true }));
        let command = service.commands.blocking_recv().unwrap();
        assert_eq!((command.tables, command.resend), (vec!["public.t".to_owned()], true));
        command.reply.send(reply).unwrap();
        assert_eq!(asking.join().unwrap().unwrap(), expect);
    };
    check(Verdict::Accepted { id: 7 }, json!({ "accepted": { "id": 7 } }));
    check(Verdict::Refused { why: "no such table".to_owned() }, json!({ "refused": { "why": "no such table" } }));
    check(Verdict::After { id: 6, reason: "operator".to_owned() }, json!({ "after": { "id": 6, "reason": "operator" } }));
}

#[test]
fn a_rebuild_that_nobody_takes_up_is_called_off() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = serve_in(folder.path());
    let answer = ask(folder.path(), &Request::Rebuild { tables: Vec::new(), resend: false }).unwrap();
    assert!(answer["error"].as_str().unwrap().starts_with("the service is not streaming now"));
    assert!(service.commands.blocking_recv().unwrap().reply.is_closed());
}

#[test]
fn what_is_no_request_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve_in(folder.path());
    let check = |line: &[u8]| {
        let mut client = connect(&service);
        client.write_all(line).unwrap();
        let error = answer(&client)["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with("not a request: "), "{error}");
    };
    check(b"{\"command\":\"explode\"}\n");
    check(b"\xFF\n");
    check(&vec![b' '; usize::try_from(REQUEST_BYTES_MAX).unwrap()]);
}

#[test]
fn silent_clients_do_not_keep_others_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve_in(folder.path());
    let silent: Vec<Client> = (2..CLIENTS_MAX).map(|_| connect(&service)).collect();
    assert_eq!(ask(folder.path(), &Request::Status).unwrap()["stream"], "shop");
    let more: Vec<Client> = (0..CLIENTS_MAX).map(|_| connect(&service)).collect();
    assert_eq!(answer(more.last().unwrap())["error"], "too many clients: try again");
    drop(silent);
}

#[test]
fn a_stale_socket_is_replaced_and_a_service_that_ended_is_not_running() {
    let folder = tempfile::tempdir().unwrap();
    let not_running = || matches!(ask(folder.path(), &Request::Status), Err(ControlError::NotRunning));
    assert!(not_running());
    drop(std::os::unix::net::UnixListener::bind(path(folder.path())).unwrap());
    assert!(path(folder.path()).exists() && not_running());

    let service = serve_in(folder.path());
    service.serving.abort();
    assert!(service.runtime.block_on(service.serving).is_err());
    assert!(!path(folder.path()).exists() && not_running());
}

#[test]
fn a_state_folder_may_lie_deeper_than_a_socket_address_can_say() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&deep).unwrap();
    let _service = serve_in(&deep);
    assert_eq!(ask(&deep, &Request::Status).unwrap()["stream"], "shop");
}
