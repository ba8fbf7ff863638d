//! The flags of `probe`.

use super::super::probe::Options;
use super::{Command, Exit, Tool, next, profile, value};
use lexopt::prelude::{Long, Short};
use zoolet::config::peer_address;

pub(super) fn probe(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let mut options = Options::default();
    while let Some(argument) = next(parser, "probe")? {
        match argument {
            Long("data") => options.data = value(parser)?.into(),
            Long("peer") => peer(&mut options.peers, &value(parser)?)?,
            Long("network") => options.network = profile::network(&value(parser)?)?,
            Long("out") => options.out = Some(out(&value(parser)?)?),
            Long("json") => options.is_json = true,
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("probe: {}; see zoolet --help", other.unexpected()))),
        }
    }
    Ok(Command::Tool(Tool::Probe(options)))
}

/// Maximum number of peers: the most servers of an ensemble.
const PEERS_MAX: usize = 16;

fn peer(peers: &mut Vec<String>, address: &str) -> Result<(), Exit> {
    if peers.len() >= PEERS_MAX {
        return Err(Exit::usage(format!("--peer: at most {PEERS_MAX} are allowed")));
    }
    peers.push(peer_address("--peer", address).map_err(Exit::usage)?);
    Ok(())
}

/// The output must end in `.toml`, because that suffix marks a profile as a file.
fn out(text: &str) -> Result<std::path::PathBuf, Exit> {
    if text.ends_with(".toml") {
        Ok(text.into())
    } else {
        Err(Exit::usage(format!("--out = {text}: allowed is a file that ends in .toml")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn peers(address: &str) -> Result<Vec<String>, (u8, String)> {
        match parse(lexopt::Parser::from_args(["probe", "--peer", address])) {
            Ok(Command::Tool(Tool::Probe(options))) => Ok(options.peers),
            Ok(_) => panic!("not probe"),
            Err(exit) => Err((exit.code, exit.line)),
        }
    }

    #[test]
    fn a_box_is_a_host_and_its_port_is_that_of_links_when_none_is_said() {
        for (said, asked) in [
            ("gw-b", "gw-b:2888"),
            ("gw-b:22", "gw-b:22"),
            ("10.0.3.11", "10.0.3.11:2888"),
            ("fd00::7", "[fd00::7]:2888"),
            ("[fd00::7]:22", "[fd00::7]:22"),
        ] {
            assert_eq!(peers(said).unwrap(), [asked]);
        }
        for said in ["gw-b:", "gw-b:0", "gw-b:65536", "gw-b:udp", ":2888", "gw b", "gw:b:1", "udp://gw-b:2888"] {
            let line = format!("--peer = {said}: allowed is HOST:PORT, or HOST alone for port 2888");
            assert_eq!(peers(said).unwrap_err(), (2, line));
        }
    }
}
