//! Logs: fields first, then a constant message, to standard error. Names, counts and LSNs only: never row values,
//! SQL text or credentials.

use std::error::Error;
use std::fmt;

use tracing_subscriber::EnvFilter;

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Sets logging up, once. `verbosity`: 0 is INFO, 1 DEBUG, 2 TRACE, -1 WARN, -2 ERROR. `WALGATE_LOG` goes before it.
pub fn set_up(format: LogFormat, verbosity: i8, color: bool) {
    let level = match verbosity {
        ..=-2 => "error",
        -1 => "warn",
        0 => "info",
        1 => "walgate=debug",
        2.. => "walgate=trace",
    };
    let filter = EnvFilter::try_from_env("WALGATE_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match format {
        LogFormat::Text => builder.with_ansi(color).init(),
        LogFormat::Json => builder.json().init(),
    }
}

/// An error and its causes on one line: each layer prints only itself.
pub struct Chain<'e>(pub &'e dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
