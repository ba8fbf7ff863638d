//! The binary: command line, signals, logs. The library does everything else.

mod cli;
#[cfg(test)]
mod quantity_table;

// Mutations break rules of the protocol, for tests. Cargo unites the features of everything it
// builds together, so a binary built beside the tests would contain them.
const _: () = assert!(!zoolet_zab::mutation::ARE_COMPILED_IN, "build the binary without the feature `mutations`");

fn main() -> std::process::ExitCode {
    cli::main()
}
