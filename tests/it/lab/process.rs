//! Processes that the lab starts, and only those.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::wait;

/// Sends `signal` to a process that was not waited for yet, so that its number is still its own.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a child can be signalled");
}

/// Stops a process with SIGSTOP, and returns once none of its threads runs any more.
pub(crate) fn suspend(child: &Child) {
    signal(child, Signal::STOP);
    let threads = format!("/proc/{}/task", child.id());
    wait::until(Duration::from_secs(30), "all threads of a process are stopped", || {
        let threads = fs::read_dir(&threads).expect("a child that was not waited for has threads");
        let state = |thread: fs::DirEntry| field_after_name(&thread.path().join("stat"), 0);
        threads.map(|thread| thread.expect("/proc is readable")).all(|thread| state(thread).is_none_or(|state| state == "T"))
    });
}

/// Kills a server and all its processes as a machine would that loses power: none gets to run again.
pub(crate) fn kill_with_children(mut parent: Child) {
    // Stopped first, so that it cannot start another process in place of one that died.
    signal(&parent, Signal::STOP);
    let children = children_of(parent.id());
    for child in &children {
        // One that has just ended by itself is as dead as the others.
        kill_process(*child, Signal::KILL).ok();
    }
    signal(&parent, Signal::KILL);
    parent.wait().expect("a child can be waited for");
    wait::until(Duration::from_secs(30), "the killed server's processes are gone", || children.iter().all(|child| !runs(*child)));
}

/// A command that runs as another user than root where we are root: PostgreSQL refuses to run as root.
pub(crate) fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = postgres_user() {
        command.uid(user).gid(group);
    }
    // A folder that the other user may not enter would be complained about.
    command.current_dir("/");
    command
}

/// Gives a path to the user of [`unprivileged`].
pub(crate) fn hand_over(path: &Path) {
    if let Some((user, group)) = postgres_user() {
        std::os::unix::fs::chown(path, Some(user), Some(group)).expect("root can give a folder away");
    }
}

/// Copies a folder as it is.
pub(crate) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "--reflink=auto"]).args([from, to]).status().expect("cp runs");
    assert!(copied.success(), "cp -a {} {} fails", from.display(), to.display());
}

/// User and group of `postgres`, where we are root; `None` where we are not and stay who we are.
fn postgres_user() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("/etc/passwd is readable");
    let number = |name: &str| {
        let fields: Vec<&str> =
            users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields.first() == Some(&name))?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    };
    Some(number("postgres").or_else(|| number("nobody")).expect("there is a user `postgres` or `nobody`"))
}

fn children_of(parent: u32) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").expect("/proc is readable");
    let pid = |name: &str| Pid::from_raw(name.parse().ok()?);
    processes
        .filter_map(|process| pid(process.ok()?.file_name().to_str()?))
        .filter(|process| state_and_parent(*process).is_some_and(|(_, of)| of == parent))
        .collect()
}

/// Whether a process exists that is more than an entry nobody has waited for.
fn runs(process: Pid) -> bool {
    state_and_parent(process).is_some_and(|(state, _)| state != "Z")
}

/// The third and fourth field of `/proc/<pid>/stat`; `None` once the process is gone.
fn state_and_parent(process: Pid) -> Option<(String, u32)> {
    let stat = PathBuf::from(format!("/proc/{}/stat", process.as_raw_nonzero()));
    Some((field_after_name(&stat, 0)?, field_after_name(&stat, 1)?.parse().ok()?))
}

/// A field of a `stat` file, counted from the third; `None` once there is no such file.
fn field_after_name(stat: &Path, index: usize) -> Option<String> {
    let stat = fs::read_to_string(stat).ok()?;
    // The second field is the program's name in brackets, which may hold anything.
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(index)?.to_owned())
}
