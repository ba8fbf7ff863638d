//! A daemon that works before there is a quorum.
//!
//! It begins with the last good value, which it keeps in a file, and then follows the ensemble's. If
//! the configuration is invalid, the daemon goes on with the value it has, also after a restart. It
//! goes on with the next session when one is lost.
//!
//! `cargo run --example config_last_known_good -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::path::{Path, PathBuf};
use zoolet::recipes::{OpenSession, Update};
use zoolet::{Client, Config, Error, KeptFile, Node, Wait, path};

/// Seconds between two measurements if no value was ever configured.
const DEFAULT_INTERVAL: u32 = 60;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    println!("measuring every {} s", kept_interval(&directory));
    let node = Node::start(Config::new(directory.join("data")))?;
    // The daemon works meanwhile; this waits for a quorum, however long that takes.
    follow(node.client(), &directory, |line| println!("{line}")).wait()?;
    Ok(())
}

/// Returns the last good value, without a node and without a quorum.
pub fn kept_interval(directory: &Path) -> u32 {
    kept(directory).read().ok().flatten().and_then(|data| parse(&data).ok()).unwrap_or(DEFAULT_INTERVAL)
}

fn kept(directory: &Path) -> KeptFile {
    KeptFile::new(directory.join("interval"))
}

fn parse(data: &[u8]) -> Result<u32, String> {
    let text = String::from_utf8_lossy(data);
    text.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| format!("{text:?} is no number of seconds"))
}

/// Follows the ensemble's configuration over all sessions, beginning with the value in the file.
///
/// # Errors
/// No session can be opened any more.
pub async fn follow<O: OpenSession>(
    client: Client<O>,
    directory: &Path,
    mut tell: impl FnMut(String),
) -> Result<(), Error> {
    let mut interval = kept_interval(directory);
    let mut following = client.configuration_with(path!("/conf/interval"), Some(interval), parse);
    loop {
        let update = following.next().await?;
        interval = following.recipe().value().copied().unwrap_or(interval);
        tell(match update {
            Update::Accepted(data) => match kept(directory).write(data) {
                Ok(()) => format!("measuring every {interval} s"),
                Err(error) => format!("measuring every {interval} s, which cannot be kept: {error}"),
            },
            Update::Rejected(error) => format!("{error}; still every {interval} s"),
            Update::Absent => format!("nothing is configured; still every {interval} s"),
            _ => continue,
        });
    }
}
