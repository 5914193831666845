//! What is wrong with a configuration: all of it at once, each fault with the place where it was written, the
//! key, the value and the remedy. Values that hold secrets are never shown.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A file can have as many faults as it has lines; a person reads this many before mending the first.
const FAULTS_SHOWN_MAX: usize = 20;

/// Characters shown of a value.
const VALUE_SHOWN_MAX: usize = 60;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read the configuration file `{path}` (another can be named with `--config` or `WALGATE_CONFIG`)")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    Faults(Faults),
}

/// Every fault that was found, in the order of the file; at least one.
#[derive(Debug)]
pub struct Faults(Vec<Fault>);

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    pub(super) origin: Origin,
    /// Dotted; `None` where the text could not be read as keys and values.
    pub(super) key: Option<String>,
    /// As written, before variables were replaced; `None` where it is missing or a secret.
    pub(super) value: Option<String>,
    /// What is wrong and what to do; reads on after the key.
    pub(super) why: String,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    File {
        path: Arc<str>,
        line: usize,
    },
    /// The file, at no line of it: a key is missing there.
    Nowhere {
        path: Arc<str>,
    },
    Environment {
        variable: String,
    },
    Setting,
}

impl Faults {
    pub(super) fn new(mut faults: Vec<Fault>) -> Option<Self> {
        faults.sort();
        faults.dedup();
        (!faults.is_empty()).then_some(Self(faults))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(f, "{only}"),
            faults => {
                write!(f, "{} faults in the configuration", faults.len())?;
                faults.iter().take(FAULTS_SHOWN_MAX).try_for_each(|fault| write!(f, "\n  {fault}"))?;
                match faults.len().checked_sub(FAULTS_SHOWN_MAX) {
                    None | Some(0) => Ok(()),
                    Some(more) => write!(f, "\n  … and {more} more"),
                }
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        match (&self.key, &self.value) {
            (None, _) => {}
            (Some(key), None) => write!(f, "`{}` ", printable(key.chars()))?,
            (Some(key), Some(value)) => write!(f, "`{} = {}` ", printable(key.chars()), shortened(value))?,
        }
        f.write_str(&self.why)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.escape_debug()),
            Self::Nowhere { path } => write!(f, "{}", path.escape_debug()),
            Self::Environment { variable } => write!(f, "environment variable {}", variable.escape_debug()),
            Self::Setting => f.write_str("--set"),
        }
    }
}

fn shortened(value: &str) -> String {
    let mut characters = value.chars();
    let mut text = printable(characters.by_ref().take(VALUE_SHOWN_MAX));
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

/// Control characters are escaped, all others stay as they are.
fn printable(characters: impl Iterator<Item = char>) -> String {
    characters.flat_map(|character| if character.is_control() { character.escape_debug().collect() } else { vec![character] }).collect()
}
