//! The flags of `profile`.

use super::super::profile::{Chosen, What};
use super::{Command, Exit, Tool, help, next, value};
use lexopt::prelude::{Long, Short, Value};
use zoolet::config::Network;

const ALLOWED: &str = "profile: allowed is profile list, profile show NAME, profile check FILE";

pub(super) fn profile(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let verb = match parser.next().map_err(Exit::usage)? {
        Some(Value(verb)) => verb.to_string_lossy().into_owned(),
        Some(Long("help") | Short('h')) => return Ok(Command::Help),
        _ => return Err(Exit::usage(ALLOWED)),
    };
    let command = format!("profile {verb}");
    if !help::has(&command) {
        return Err(Exit::usage(ALLOWED));
    }
    let (mut name, mut network, mut is_json) = (None, None, false);
    while let Some(argument) = next(parser, &command)? {
        match argument {
            Value(given) if name.is_none() && verb != "list" => name = Some(given.to_string_lossy().into_owned()),
            Long("network") => network = Some(self::network(&value(parser)?)?),
            Long("json") => is_json = true,
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("{command}: {}; see zoolet --help", other.unexpected()))),
        }
    }
    let chosen = |name: Option<String>| {
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| Exit::usage(ALLOWED))?;
        Ok(Chosen { name, network, is_json })
    };
    Ok(Command::Tool(Tool::Profile(match verb.as_str() {
        "list" => What::List,
        "show" => What::Show(chosen(name)?),
        "check" => What::Check(chosen(name)?),
        _ => return Err(Exit::usage(ALLOWED)),
    })))
}

pub(super) fn network(text: &str) -> Result<Network, Exit> {
    let known = Network::ALL.into_iter().find(|network| network.name() == text);
    known.ok_or_else(|| Exit::usage(format!("--network = {text}: allowed is lan, wifi or metered")))
}
