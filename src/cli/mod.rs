//! The command line of `zoolet`: dispatches `zoolet COMMAND ...`.

mod address;
mod allocator;
mod args;
#[cfg(feature = "tools")]
mod bench;
mod blocking;
mod cgroup;
#[cfg(feature = "tools")]
mod completions;
#[cfg(feature = "tools")]
mod ensemble;
mod help;
mod keygen;
mod memory;
mod notify;
mod open_files;
#[cfg(feature = "tools")]
mod probe;
#[cfg(feature = "tools")]
mod profile_command;
#[cfg(feature = "tools")]
mod recipes;
mod serve;
#[cfg(feature = "tools")]
mod shell;
mod signals;
mod status;
mod unit;

use address::Address;
#[cfg(feature = "tools")]
use args::Tool;
use args::{Command, ServeOptions};
use std::{fmt, process::ExitCode};
use zoolet::config::without_secrets;

/// Example configuration with every key, its default and its reason.
#[cfg(any(feature = "tools", test))]
const EXAMPLE: &str = include_str!("example.toml");
/// Licences of all crates in the binary; a test compares the list with Cargo's metadata.
const LICENCES: &str = include_str!("licences.txt");

/// Configuration file of the server that an init system runs on this box.
const DEFAULT_FILE: &str = "/etc/zoolet/zoolet.toml";
/// Client address of a server that is not configured.
const DEFAULT_SERVER: &str = "127.0.0.1:2181";

/// An error that ends the process: a nonzero exit code and a line for stderr.
struct Exit {
    code: u8,
    line: String,
}

impl Exit {
    /// The command was tried and failed: exit code 1.
    fn failed(line: impl fmt::Display) -> Self {
        Self::new(1, line)
    }

    /// The request, or a file that it names, is wrong: exit code 2.
    ///
    /// The command has done nothing.
    fn usage(line: impl fmt::Display) -> Self {
        Self::new(2, line)
    }

    /// Creates an exit, and removes the secret of any private key from the line.
    fn new(code: u8, line: impl fmt::Display) -> Self {
        Self { code, line: without_secrets(&line.to_string()) }
    }
}

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let outcome = args::parse(lexopt::Parser::from_env()).and_then(|command| match command {
        Command::Serve(options) => serve::serve(options),
        Command::Status(options) => status::status(&options),
        Command::Keygen(what) => keygen::keygen(&what),
        Command::Unit(options) => unit::unit(&options),
        #[cfg(feature = "tools")]
        Command::Tool(tool) => run(tool),
        Command::Licences => say(LICENCES),
        Command::Version => say(concat!("zoolet ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Help(None) => say(&help::overview()),
        Command::Help(Some(words)) => say(&help::text(&words)),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => {
            // The shell has printed the failure of its last command. A command that zoolet ran has
            // said what was to say.
            if !exit.line.is_empty() {
                complain(&exit.line);
            }
            ExitCode::from(exit.code)
        }
    }
}

#[cfg(feature = "tools")]
fn run(tool: Tool) -> Result<(), Exit> {
    match tool {
        Tool::Bench(options) => bench::bench(options),
        Tool::Ensemble(options) => ensemble::ensemble(&options),
        Tool::Profile(what) => profile_command::profile(&what),
        Tool::Probe(options) => probe::probe(&options),
        Tool::Shell(options) => shell::shell(options),
        Tool::Measure(data) => {
            probe::measure(&data);
            Ok(())
        }
        Tool::Recipe(options) => recipes::recipe(&options),
        Tool::StartCommand(words) => Err(recipes::start_command(&words)),
        Tool::WatchCommand(words) => recipes::watch(&words),
        Tool::ConfigExample => say(EXAMPLE),
        Tool::Completions(shell) => completions::completions(shell),
    }
}

/// Prints to stdout; a reader that is gone is not an error.
///
/// Any other failure is an error. If stdout is a file on a full disk, for example, the caller would
/// continue with half a text.
fn say(text: &str) -> Result<(), Exit> {
    use std::io::{ErrorKind, Write};
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Exit::failed(format!("standard output: {error}"))),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints one line to stderr.
fn complain(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "zoolet: {line}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn ensemble_in_the_example_config_is_valid() {
        let (_, shown) = super::EXAMPLE.split_once("# [[server]]").unwrap();
        let lines = shown.lines().filter_map(|line| line.strip_prefix("# "));
        let servers = lines.fold("[[server]]\n".to_owned(), |all, line| all + line + "\n");
        let servers = servers.replace("key = \"zk1...\"", "");
        let file = std::env::temp_dir().join(format!("zoolet-example-ensemble-{}.toml", std::process::id()));
        let key = file.with_extension("key");
        std::fs::write(&key, "").unwrap();
        std::fs::write(&file, format!("site_key_file = {key:?}\n[timing]\n{servers}")).unwrap();
        let over = zoolet::config::Overrides { server_id: Some(2), ..Default::default() };
        let loaded = zoolet::config::load(&file, &over);
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(&key).unwrap();
        let ensemble = loaded.unwrap().config.ensemble.unwrap();
        assert_eq!((ensemble.members.len(), ensemble.voters()), (3, 2));
        assert_eq!(ensemble.member(1).unwrap().addresses, ["gw-a:2888", "10.0.3.11:2888"]);
    }
}
