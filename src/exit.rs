//! Every exit status. Scripts rely on the numbers; the README explains them.

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

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
