//! `zoolet COMMAND ...`.

mod args;
mod bench;
mod ensemble;
mod keygen;
mod notify;
mod open_files;
mod probe;
mod profile;
mod serve;
mod signals;
mod status;
mod unit;

use args::{Command, ServeOptions};
use std::{fmt, process::ExitCode};

/// A file with every key, its default and its reason.
const EXAMPLE: &str = include_str!("example.toml");
/// Every crate in the binary with its licence; a test holds it to Cargo's metadata.
const LICENCES: &str = include_str!("licences.txt");

const HELP: &str = "\
zoolet: a compact coordination server that speaks ZooKeeper's protocol

zoolet serve [OPTIONS]     serve; without options: alone, on 127.0.0.1:2181, data in ./zoolet-data
  --config FILE            zoolet.toml, or ZooKeeper's zoo.cfg as it is (any name that does not end in .toml)
  --data DIR               where the log and the base are kept
  --create                 once: DIR of the configuration file is empty and may be populated
  --listen ADDR            127.0.0.1:2181, or plain://0.0.0.0:2181 for anybody who can reach it, in clear
  --id N                   which of the servers of the configuration file this is, where its key or host name does not say it
  --profile NAME           where the numbers come from that nothing else gives: media/memory (emmc/512m), a board, or a file
  --check                  says what is wrong with the configuration, if anything, and starts nothing
  --until-eof              ends when standard input does: with whoever holds the other end of the pipe
  --log LEVEL              error, warn, info (default), debug or trace, to stderr
  --log-format FORMAT      text (default) or json
zoolet ensemble [OPTIONS]  several servers on this machine, to try and to develop with; Ctrl-C stops them, their data stays
  --servers N              3 that vote
  --observers N            0 that do not
  --base-port PORT         2181, 2182, ... for clients (TCP); 707 more, 2888, 2889, ..., for links between them (UDP)
  --data DIR               ./zoolet-ensemble: zoolet.toml, the data 1, 2, ..., the logs 1.log, 2.log, ...
zoolet status [OPTIONS]    how servers are, and what to do about what is wrong; exit code 1 when something is
  --server HOST:PORT,..    127.0.0.1:2181
  --json                   one object instead of text
zoolet keygen              prints a new site key: the secret that servers off loopback know each other by
  --out FILE               writes it there instead, mode 0600, and never over another one
  --server DATA            the public key of the server with this data directory, which zoolet.toml may pin
zoolet probe [OPTIONS]     measures this box, says what that means, and names the nearest profile; half a minute, 40 MiB written, nothing left
  --data DIR               where a server's data would be: ./zoolet-data, or where that would be made
  --peer HOST:PORT         how far away another box is; may be said several times, and nobody need listen there
  --network NETWORK        lan (default), wifi or metered, of the profile that is written
  --out FILE               writes a profile with what was measured; never over another file
  --json                   one object instead of text
zoolet profile list        what a profile can be put together from, and the boards that have one
zoolet profile show NAME   every number of a profile, with its evidence, its reason, and what the parts of memory come to
  --network NETWORK        lan, wifi or metered, instead of what the profile says
  --json                   one object instead of text
zoolet profile check FILE  whether a file is a profile whose numbers fit together
zoolet bench [OPTIONS]     measures any ZooKeeper server: 8 connections set 1,000 keys for 10 s, unless told otherwise
  --server HOST:PORT,..    127.0.0.1:2181; connections are spread over several and move on when one goes
  --op OP                  set, get, exists, children, mix, create, create-delete, watch (one set, every connection watches),
                           lock (the lock recipe, each cycle counted)
  --connections N          8
  --outstanding N          64 requests under way on each
  --size BYTES             100 in each value
  --keys N                 1000; made before, deleted after
  --distribution HOW       uniform (default), sequential or zipf
  --read-percent N         90, of a mix
  --ephemeral --sequential of what create creates
  --locks N                1, shared by all connections of lock; as many as connections: no contention
  --duration TIME          10s; or --requests N
  --warmup TIME            1s before it counts
  --rate N                 a second, sent when due and counted from then (open loop); default: as answers come
  --session-timeout TIME   10s; also for how long a lost server is looked for (at the start: not at all)
  --path PATH              /bench: everything is kept under it
  --keep                   leaves the keys for the next run
  --seed N                 1: the same keys in the same order
  --json                   one object instead of text
  --progress               a line a second on stderr, also when that is no terminal
zoolet unit systemd|procd  prints what systemd, or OpenWrt's procd, needs to start this binary
  --config FILE            /etc/zoolet/zoolet.toml
  --binary FILE            instead of this one
zoolet config example      prints a zoolet.toml with every key and its default
zoolet licences            prints the licences of everything in this binary
zoolet --version | --help

Exit codes: 0 done, 1 failed, 2 bad usage or configuration.
";

/// Why the process ends with something else than 0.
struct Exit {
    code: u8,
    line: String,
}

impl Exit {
    fn failed(line: impl fmt::Display) -> Self {
        Self { code: 1, line: line.to_string() }
    }

    fn usage(line: impl fmt::Display) -> Self {
        Self { code: 2, line: line.to_string() }
    }
}

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let outcome = args::parse(lexopt::Parser::from_env()).and_then(|command| match command {
        Command::Serve(options) => serve::serve(options),
        Command::Bench(options) => bench::bench(options),
        Command::Ensemble(options) => ensemble::ensemble(&options),
        Command::Status(options) => status::status(&options),
        Command::Keygen(what) => keygen::keygen(&what),
        Command::Profile(what) => profile::profile(&what),
        Command::Probe(options) => probe::probe(&options),
        Command::Unit(options) => unit::unit(&options),
        Command::ConfigExample => say(EXAMPLE),
        Command::Licences => say(LICENCES),
        Command::Version => say(concat!("zoolet ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Help => say(HELP),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => {
            complain(&exit.line);
            ExitCode::from(exit.code)
        }
    }
}

/// Prints to stdout; a reader that has gone away is not our failure.
fn say(text: &str) -> Result<(), Exit> {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    Ok(())
}

/// Prints one line to stderr.
fn complain(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "zoolet: {line}");
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    /// Keys of `[limits]`, `[settings]` and `[timing]` that are numbers.
    const NUMBERS: usize = 16 + 7 + 6;

    /// With the numbers said that are those of the profile.
    #[test]
    fn the_example_is_the_defaults() {
        let is_number = |line: &str| {
            line.split_once(" = ").is_some_and(|(key, value)| {
                key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                    && value.starts_with(|c: char| c.is_ascii_digit())
            })
        };
        let (numbers, _) = super::EXAMPLE.split_once("# The servers").unwrap();
        let said: Vec<&str> = numbers
            .lines()
            .map(|line| {
                line.strip_prefix("# ").filter(|rest| is_number(rest) && !rest.starts_with("id = ")).unwrap_or(line)
            })
            .collect();
        assert_eq!(said.iter().filter(|line| is_number(line)).count(), NUMBERS, "{said:?}");
        let file = std::env::temp_dir().join(format!("zoolet-example-{}.toml", std::process::id()));
        std::fs::File::create(&file).unwrap().write_all(said.join("\n").as_bytes()).unwrap();
        let loaded = zoolet::config::load(&file, &zoolet::config::Overrides::default());
        std::fs::remove_file(&file).unwrap();
        let config = loaded.unwrap().config;
        let defaults = zoolet::Config::new("zoolet-data");
        assert_eq!((config.limits, config.settings), (defaults.limits, defaults.settings));
        assert_eq!((config.data, config.profile), (defaults.data, defaults.profile));
    }

    #[test]
    fn the_example_of_an_ensemble_is_one() {
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

    #[test]
    fn the_example_names_every_four_letter_word() {
        let line = super::EXAMPLE.lines().find(|line| line.starts_with("four_letter_words")).unwrap();
        let named: Vec<_> = line.split_once("# of ").unwrap().1.split(';').next().unwrap().split(' ').collect();
        let known: Vec<_> = zoolet_transport::server::Word::ALL.iter().map(|word| word.text()).collect();
        assert_eq!(named, known);
    }
}
