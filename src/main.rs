//! Parse, run, exit.

use std::process::ExitCode;

fn main() -> ExitCode {
    walgate::cli::main().into()
}
