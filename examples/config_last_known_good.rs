//! A daemon that works before there is a quorum: it begins with the configuration that its node kept in a file, then follows the ensemble's, and goes on with the
//! value it has when somebody writes nonsense.
//!
//! `cargo run --example config_last_known_good -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::path::Path;
use std::time::Duration;
use zoolet::config::KeptImage;
use zoolet::recipes::{Configuration, Error, Update};
use zoolet::{Config, Node, Session, Wait, last_known_good, path};

/// Seconds between two measurements, when nothing else was ever said.
const DEFAULT_INTERVAL: u32 = 60;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let directory = Path::new(&directory);
    let began_with = kept_interval(directory);
    println!("measuring every {began_with} s");
    let node = Node::start(config(directory))?;
    // Meanwhile the daemon works; this waits as long as it takes until a quorum is there.
    follow(node.session().wait()?, began_with, |line| {
        println!("{line}");
        true
    })?;
    Ok(())
}

/// The node keeps the subtree in a file beside its data.
pub fn config(directory: &Path) -> Config {
    let mut config = Config::new(directory.join("data"));
    let (subtree, path) = (path!("/conf").clone(), directory.join("conf.image"));
    config.last_known_good = Some(KeptImage { subtree, path, min_interval: Duration::from_secs(600) });
    config
}

/// What was good when it was seen last, without a node and without a quorum.
pub fn kept_interval(directory: &Path) -> u32 {
    match last_known_good(directory.join("conf.image")) {
        Ok(kept) => kept.get(path!("/conf/interval")).and_then(|data| parse(&data).ok()).unwrap_or(DEFAULT_INTERVAL),
        Err(error) => {
            println!("{error}");
            DEFAULT_INTERVAL
        }
    }
}

fn parse(data: &[u8]) -> Result<u32, String> {
    let text = String::from_utf8_lossy(data);
    text.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| format!("{text:?} is no number of seconds"))
}

/// Follows the ensemble's configuration; `tell` says whether to go on.
pub fn follow(session: Session, began_with: u32, tell: impl Fn(String) -> bool) -> Result<(), Error> {
    let following = Configuration::new(session, path!("/conf/interval"), Some(began_with), parse);
    let mut interval = following.wait()?;
    loop {
        let update = interval.next().wait()?;
        let value = interval.value().copied().unwrap_or(DEFAULT_INTERVAL);
        let line = match update {
            Update::Accepted(_) => format!("measuring every {value} s"),
            Update::Rejected(error) => format!("{error}; still every {value} s"),
            Update::Absent => format!("nothing is configured; still every {value} s"),
        };
        if !tell(line) {
            return Ok(());
        }
    }
}
