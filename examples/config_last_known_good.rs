//! A daemon that works before there is a quorum.
//!
//! It begins with the configuration that its node kept in a file, and then follows the ensemble's.
//! If the configuration is invalid, the daemon goes on with the value it has.
//!
//! `cargo run --example config_last_known_good -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::path::Path;
use zoolet::config::KeptImage;
use zoolet::recipes::{Configuration, Error, Update};
use zoolet::{Config, Node, Session, Wait, last_known_good, path};

/// Seconds between two measurements if no value was ever configured.
const DEFAULT_INTERVAL: u32 = 60;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let directory = Path::new(&directory);
    let mut interval = kept_interval(directory);
    println!("measuring every {interval} s");
    let node = Node::start(config(directory))?;
    // The daemon works meanwhile; this waits for a quorum, however long that takes.
    while let Err(error) = follow(node.session().wait()?, &mut interval, |line| {
        println!("{line}");
        true
    }) {
        // The session is over. The daemon goes on with its value, and follows with another session.
        println!("{error}; still every {interval} s");
    }
    Ok(())
}

/// Returns the configuration of a node that keeps the subtree in a file beside its data.
pub fn config(directory: &Path) -> Config {
    let mut config = Config::new(directory.join("data"));
    let (subtree, path) = (path!("/conf").clone(), directory.join("conf.image"));
    config.last_known_good = Some(KeptImage::new(subtree, path));
    config
}

/// Returns the last good value, without a node and without a quorum.
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

/// Follows the ensemble's configuration, beginning with `interval`; `tell` returns whether to go
/// on.
///
/// # Errors
/// The session is over. The interval stays.
pub fn follow(session: Session, interval: &mut u32, tell: impl Fn(String) -> bool) -> Result<(), Error> {
    let mut following = Configuration::new(session, path!("/conf/interval"), Some(*interval), parse);
    loop {
        let update = following.next().wait()?;
        *interval = following.value().copied().unwrap_or(DEFAULT_INTERVAL);
        let line = match update {
            Update::Accepted(_) => format!("measuring every {interval} s"),
            Update::Rejected(error) => format!("{error}; still every {interval} s"),
            Update::Absent => format!("nothing is configured; still every {interval} s"),
        };
        if !tell(line) {
            return Ok(());
        }
    }
}
