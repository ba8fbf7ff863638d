//! The binary: command line, signals, logs. Everything else is the library's.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
