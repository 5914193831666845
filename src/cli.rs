//! The command line: what is typed becomes a call of one verb, and its outcome an exit status.

mod check;
mod rebuild;
mod run;
mod schema;
mod status;

use std::io::IsTerminal as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::config::Config;
use crate::exit::Exit;
use crate::telemetry::{self, LogFormat};

const STATUSES: &str = "Exit statuses: 0 done, 1 faults found, 2 usage or configuration, 10 source, 11 sink, 12 store, 20 a person has to decide, \
     21 another instance took over.";

/// Change data capture for PostgreSQL: every committed change delivered once, and rebuilt by difference when the log is lost.
#[derive(Debug, Parser)]
#[command(name = "walgate", version, after_help = STATUSES)]
struct Arguments {
    /// The configuration file.
    #[arg(long, global = true, env = "WALGATE_CONFIG", default_value = "consumer.toml")]
    config: PathBuf,
    /// Sets a key of the configuration, for example `--set source.slot=other`. May be repeated.
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// More of the log; twice for all of it.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Less of the log: warnings only, twice for errors only.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    quiet: u8,
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    color: Color,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Streams until stopped; loads or rebuilds by itself where needed.
    Run {
        /// Do not wait for another instance: shut it out of the sink, and end its connections to the source.
        #[arg(long)]
        take_over: bool,
    },
    /// Looks at configuration, source, sink and store; names each fault and what mends it; changes nothing.
    Check {
        #[arg(long)]
        json: bool,
    },
    /// Where things stand: asks the running service, or reads the store when none runs.
    Status {
        #[arg(long)]
        json: bool,
    },
    /// Sends the differences between the tables and what subscribers hold; beside a running service, or alone.
    Rebuild {
        /// `schema.table`; may be repeated. Without it all tables.
        #[arg(long = "table", value_name = "SCHEMA.TABLE")]
        tables: Vec<String>,
        /// Every row instead of the differences: for new subscribers and re-created topics.
        #[arg(long)]
        resend: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Do not wait for the end.
        #[arg(long)]
        detach: bool,
    },
    /// Prints the JSON Schemas of what subscribers read: all, one by name, or that of a published table with its columns.
    Schema {
        /// A name in `schemas/`, such as `event`, or `schema.table`.
        name: Option<String>,
    },
}

/// Parses the command line and does what it says.
#[must_use]
pub fn main() -> Exit {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let printed = error.print();
            return if printed.is_ok() && !error.use_stderr() { Exit::Success } else { Exit::Usage };
        }
    };
    let color = match arguments.color {
        Color::Auto => std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        Color::Always => true,
        Color::Never => false,
    };
    let verbosity = i8::try_from(arguments.verbose.min(2)).unwrap_or(2) - i8::try_from(arguments.quiet.min(2)).unwrap_or(2);
    telemetry::set_up(arguments.log_format, verbosity, color);
    if let Verb::Schema { name } = &arguments.verb
        && let Some(printed) = schema::shipped(name.as_deref())
    {
        return said(printed);
    }
    let config = match Config::load(&arguments.config, &arguments.settings) {
        Ok(config) => config,
        Err(error) => {
            complain(&telemetry::Chain(&error).to_string());
            return Exit::Usage;
        }
    };
    let outcome = match arguments.verb {
        Verb::Run { take_over } => run::execute(config, take_over),
        Verb::Check { json } => check::execute(&config, json),
        Verb::Status { json } => status::execute(&config, json),
        Verb::Rebuild { tables, resend, yes, detach } => rebuild::execute(config, tables, resend, yes, detach),
        Verb::Schema { name } => schema::of_published(&config, &name.unwrap_or_default()),
    };
    said(outcome)
}

fn said(outcome: anyhow::Result<Exit>) -> Exit {
    outcome.unwrap_or_else(|error| {
        // Who read our output has read enough.
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
            return Exit::Success;
        }
        complain(&format!("{error:#}"));
        Exit::Source
    })
}

fn complain(text: &str) {
    // Nobody is left to tell when standard error is gone.
    let _gone = writeln!(std::io::stderr().lock(), "walgate: {text}").is_err();
}
