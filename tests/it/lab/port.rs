//! Ports of 127.0.0.1 for servers that are stopped and started again.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::wait;

/// For a machine on which many tests look for one.
const PATIENCE: Duration = Duration::from_mins(1);

/// A port below those that the system gives to outgoing connections, so that it stays free across a restart;
/// another one for each call, and others than those of another process with a number nearby.
pub(crate) fn free() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(process::id() * 64 % 12_000).expect("less than a `u16`");
    wait::until_some(PATIENCE, "a port is free", || {
        let port = 20_000 + (first + CALLS.fetch_add(1, Ordering::Relaxed)) % 12_000;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok().then_some(port)
    })
}
