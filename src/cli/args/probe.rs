//! The flags of `probe`.

use super::super::probe::Options;
use super::{Command, Exit, Tool, next, profile, value};
use lexopt::prelude::{Long, Short};

pub(super) fn probe(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let mut options = Options::default();
    while let Some(argument) = next(parser, "probe")? {
        match argument {
            Long("data") => options.data = value(parser)?.into(),
            Long("peer") => peer(&mut options.peers, value(parser)?)?,
            Long("network") => options.network = profile::network(&value(parser)?)?,
            Long("out") => options.out = Some(out(&value(parser)?)?),
            Long("json") => options.is_json = true,
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("probe: {}; see zoolet --help", other.unexpected()))),
        }
    }
    Ok(Command::Tool(Tool::Probe(options)))
}

/// As many as an ensemble may have servers beside this one.
const PEERS_MAX: usize = 16;

fn peer(peers: &mut Vec<String>, address: String) -> Result<(), Exit> {
    if peers.len() >= PEERS_MAX {
        return Err(Exit::usage(format!("--peer: {PEERS_MAX} are asked at most")));
    }
    peers.push(address);
    Ok(())
}

/// A profile that is a file is known by the end of its name.
fn out(text: &str) -> Result<std::path::PathBuf, Exit> {
    if text.ends_with(".toml") {
        Ok(text.into())
    } else {
        Err(Exit::usage(format!("--out = {text}: allowed is a file that ends in .toml")))
    }
}
