//! The binary: command line, signals, logs. Everything else is the library's.

mod cli;

// Tests break rules on purpose. Cargo unites the features of whatever is built together, so a binary that was built beside them would ship that.
const _: () = assert!(!zoolet_zab::mutation::ARE_COMPILED_IN, "build the binary without the feature `mutations`");

fn main() -> std::process::ExitCode {
    cli::main()
}
