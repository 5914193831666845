//! Every exit status. Scripts rely on the numbers; the README explains them.

use std::io::Write as _;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; or stopped on request with everything delivered recorded.
    Success = 0,
    /// `check` found faults.
    Findings = 1,
    /// Wrong usage or configuration.
    Usage = 2,
    /// The source: unreachable past the retry budget, rights, settings.
    Source = 10,
    /// The sink: the same.
    Sink = 11,
    /// The store: damaged, locked by another process, not writable, of another stream.
    Store = 12,
    /// A person has to decide.
    Refused = 20,
    /// Another instance took this stream over.
    TakenOver = 21,
}

impl Exit {
    /// Ends the process here and now, whatever else runs in it. What the libraries beneath (RocksDB, OpenSSL, librdkafka) would tear
    /// down at the exit of a process is left to the system: a thread of theirs that still runs would find it torn down,
    /// and end the process with another status than this one.
    pub fn leave(self) -> ! {
        let _nobody_reads = std::io::stdout().flush().is_err();
        #[expect(unsafe_code, reason = "takes a number and does not return")]
        // SAFETY: `_exit` has no conditions.
        unsafe {
            libc::_exit(self as i32)
        }
    }
}
