//! The options of `shell`: zkCli's with one dash, and the same with two as the other commands have them.

use super::{Address, Command, Exit, Tool, Variables, address, arguments, help, time};
use crate::cli::DEFAULT_SERVER;
use crate::cli::shell::Options;
use std::ffi::OsString;
use std::time::Duration;
use zoolet_profiles::nearest;

const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

pub(super) fn shell(parser: &mut lexopt::Parser, variables: &Variables) -> Result<Command, Exit> {
    let words: Result<Vec<String>, Exit> = parser.raw_args().map_err(Exit::usage)?.map(text).collect();
    let mut words = words?.into_iter().peekable();
    let mut options = Given::default();
    while let Some(option) = words.next_if(|word| word.starts_with('-')) {
        match option.as_str() {
            "-h" | "--help" => return Ok(Command::Help(Some("shell".to_owned()))),
            "--" => break,
            _ => options.take(&option, &mut words)?,
        }
    }
    if let Some(file) = &options.image {
        if options.server.is_some() {
            return Err(Exit::usage("shell: --image and --server exclude each other"));
        }
        let address = Address { text: file.clone(), servers: Vec::new(), root: String::new() };
        return Ok(Command::Tool(Tool::Shell(options.with(address, words.collect()))));
    }
    let address = match options.server.as_deref() {
        Some(text) => address("--server", text)?,
        None => variables.address()?.map_or_else(|| address("the default", DEFAULT_SERVER), Ok)?,
    };
    Ok(Command::Tool(Tool::Shell(options.with(address, words.collect()))))
}

/// The options as they were given.
#[derive(Default)]
struct Given {
    server: Option<String>,
    image: Option<String>,
    timeout: Option<Duration>,
    read_only: bool,
    wait_for_connection: bool,
    json: bool,
}

impl Given {
    fn with(self, address: Address, command: Vec<String>) -> Options {
        Options {
            address,
            image: self.image.map(Into::into),
            timeout: self.timeout.unwrap_or(TIMEOUT),
            read_only: self.read_only,
            wait_for_connection: self.wait_for_connection,
            json: self.json,
            command,
        }
    }

    fn take(&mut self, option: &str, words: &mut impl Iterator<Item = String>) -> Result<(), Exit> {
        let (name, joined) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let mut value = || joined.map(str::to_owned).or_else(|| words.next()).filter(|value| !value.is_empty());
        match name {
            "-r" | "--read-only" | "-waitforconnection" | "--wait-for-connection" | "--json" if joined.is_some() => {
                return Err(Exit::usage(format!("shell: {name} takes no value")));
            }
            "-server" => self.server = Some(value().ok_or_else(|| missing("server"))?),
            "--server" => self.server = Some(value().ok_or_else(|| missing("server"))?),
            "--image" => self.image = Some(value().ok_or_else(|| missing("image"))?),
            "-timeout" => self.timeout = Some(milliseconds(&value().ok_or_else(|| missing("timeout"))?)?),
            "--timeout" => {
                self.timeout = Some(time("timeout", &value().ok_or_else(|| missing("timeout"))?, TIMEOUT_MIN)?);
            }
            "-r" | "--read-only" => self.read_only = true,
            "-waitforconnection" | "--wait-for-connection" => self.wait_for_connection = true,
            "--json" => self.json = true,
            "-client-configuration" => {
                return Err(Exit::usage(
                    "shell: -client-configuration: files of Java properties are not supported; use the options of zoolet shell --help",
                ));
            }
            // With a value behind it, that value would become the command.
            _ if !name.starts_with("--") && is_known(&name[1..]) => {
                return Err(Exit::usage(format!("shell: invalid option '{name}'; did you mean -{name}?")));
            }
            // zkCli ignores options that it does not know.
            _ if !name.starts_with("--") => {}
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

fn is_known(name: &str) -> bool {
    help::commands_of("shell").iter().any(|command| command.options.iter().any(|choice| choice.name == name))
}

fn missing(name: &str) -> Exit {
    let table = help::commands_of("shell");
    let choice = table.iter().flat_map(|command| &command.options).find(|choice| choice.name == name);
    let (usage, says) = choice.map_or_else(Default::default, |choice| (choice.usage(), choice.says));
    Exit::usage(format!("shell: --{name}: its value is missing; write {usage}: {says}"))
}

fn unknown(option: &str) -> Exit {
    let table = help::commands_of("shell");
    let names = table.iter().flat_map(|command| &command.options).map(|choice| choice.name);
    Exit::usage(match nearest(option.trim_start_matches('-'), names) {
        Some(near) => format!("shell: invalid option '{option}'; did you mean --{near}?"),
        None => format!("shell: invalid option '{option}'; see zoolet shell --help"),
    })
}

/// Parses zkCli's -timeout, which has no unit.
fn milliseconds(text: &str) -> Result<Duration, Exit> {
    let ms = text.parse::<u32>().ok().filter(|ms| (1..=86_400_000).contains(ms));
    let ms = ms.ok_or_else(|| Exit::usage(format!("-timeout = {text}: allowed is 1 to 86400000 milliseconds")))?;
    Ok(Duration::from_millis(ms.into()))
}

fn text(argument: OsString) -> Result<String, Exit> {
    arguments::text(argument)
}

#[cfg(test)]
mod tests {
    use super::super::parse_in;
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        let parser = lexopt::Parser::from_args(["shell"].into_iter().chain(line.split_whitespace()));
        match parse_in(parser, &Variables { server: "env:1/root".into(), ..Variables::default() }) {
            Ok(Command::Tool(Tool::Shell(options))) => Ok(options),
            Ok(_) => panic!("not shell"),
            Err(exit) => Err(format!("{} {}", exit.code, exit.line)),
        }
    }

    #[test]
    fn options_of_zkcli_and_their_long_forms_are_accepted() {
        for line in [
            "-server a:1,b:2/app -timeout 5000 -r -waitforconnection ls -s /",
            "--server a:1,b:2/app --timeout 5s --read-only --wait-for-connection ls -s /",
            "-unknown --server=a:1,b:2/app --timeout=5s -r -waitforconnection -- ls -s /",
        ] {
            let options = parsed(line).unwrap();
            assert_eq!((options.address.servers.join(" "), options.address.root.as_str()), ("a:1 b:2".into(), "/app"));
            assert_eq!((options.timeout, options.read_only), (Duration::from_secs(5), true), "{line}");
            assert!(options.wait_for_connection && !options.json);
            assert_eq!(options.command, ["ls", "-s", "/"], "{line}");
        }
        let options = parsed("--json").unwrap();
        assert_eq!((options.address.text.as_str(), options.timeout), ("env:1/root", TIMEOUT));
        assert!(options.json && options.command.is_empty());
    }

    #[test]
    fn wrong_options_are_named_with_the_allowed_values() {
        for (line, expected) in [
            ("-server", "2 shell: --server: its value is missing; write --server HOST:PORT,..: connect"),
            ("--server a:x", "2 --server = a:x: allowed is HOST:PORT"),
            ("-timeout x", "2 -timeout = x: allowed is 1 to 86400000 milliseconds"),
            ("--timeout 5", "2 --timeout = 5: allowed is a time from 1 ms to 24 h"),
            ("--sever a:1", "2 shell: invalid option '--sever'; did you mean --server?"),
            ("--frob", "2 shell: invalid option '--frob'; see zoolet shell --help"),
            ("-image f ls /", "2 shell: invalid option '-image'; did you mean --image?"),
            ("--json=false ls /", "2 shell: --json takes no value"),
            ("-r=no ls /", "2 shell: -r takes no value"),
            ("-json ls /", "2 shell: invalid option '-json'; did you mean --json?"),
            ("-wait-for-connection=1 ls /", "2 shell: invalid option '-wait-for-connection'; did you mean --wait-for"),
            ("-client-configuration f", "2 shell: -client-configuration: "),
        ] {
            let refused = parsed(line).err().unwrap();
            assert!(refused.starts_with(expected), "{line}: {refused}");
        }
    }
}
