//! The options of `probe`.

use super::{Arguments, Exit, profile_args};
use crate::cli::probe::Options;
use zoolet::config::peer_address;

pub(super) fn probe(arguments: &Arguments) -> Result<Options, Exit> {
    let mut options = Options { peers: peers(arguments.values("peer"))?, ..Options::default() };
    arguments.set("data", &mut options.data, |_, text| Ok(text.into()))?;
    arguments.set("network", &mut options.network, |_, text| profile_args::network(text))?;
    arguments.set("out", &mut options.out, |_, text| out(text).map(Some))?;
    options.is_json = arguments.has("json");
    Ok(options)
}

/// Maximum number of peers: the most servers of an ensemble.
const PEERS_MAX: usize = 16;

fn peers<'a>(addresses: impl Iterator<Item = &'a str>) -> Result<Vec<String>, Exit> {
    let peers: Vec<String> =
        addresses.map(|address| peer_address("--peer", address).map_err(Exit::usage)).collect::<Result<_, _>>()?;
    if peers.len() > PEERS_MAX {
        return Err(Exit::usage(format!("--peer: at most {PEERS_MAX} are allowed")));
    }
    Ok(peers)
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
    use super::super::{Command, Tool, parse};

    fn peers(address: &str) -> Result<Vec<String>, (u8, String)> {
        match parse(lexopt::Parser::from_args(["probe", "--peer", address])) {
            Ok(Command::Tool(Tool::Probe(options))) => Ok(options.peers),
            Ok(_) => panic!("not probe"),
            Err(exit) => Err((exit.code, exit.line)),
        }
    }

    #[test]
    fn peer_without_a_port_gets_the_link_port() {
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
