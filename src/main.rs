//! Parse, run, exit.

fn main() {
    walgate::cli::main().leave()
}
