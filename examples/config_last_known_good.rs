//! A daemon that works before there is a quorum.
//!
//! It begins with the last good value, which it keeps in a file, and then follows the ensemble's. If
//! the configuration is invalid, the daemon goes on with the value it has, also after a restart. It
//! goes on with the next session when one is lost.
//!
//! `cargo run --example config_last_known_good -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use zoolet::recipes::{OpenSession, Update};
use zoolet::{Client, Config, Error, Node, Wait, path};

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
    fs::read(directory.join("interval")).ok().and_then(|data| parse(&data).ok()).unwrap_or(DEFAULT_INTERVAL)
}

/// Replaces the file in one step: after a crash the old or the new value is there.
fn keep(directory: &Path, data: &[u8]) -> io::Result<()> {
    let (new, path) = (directory.join("interval.new"), directory.join("interval"));
    let mut file = File::create(&new)?;
    file.write_all(data)?;
    file.sync_all()?;
    fs::rename(new, path)?;
    File::open(directory)?.sync_all()
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
    let kept = Some(interval);
    let mut following = client.configuration_with(path!("/conf/interval"), kept, parse);
    loop {
        let update = following.next().await?;
        interval = following.recipe().value().copied().unwrap_or(interval);
        tell(match update {
            Update::Accepted(data) => match keep(directory, &data) {
                Ok(()) => format!("measuring every {interval} s"),
                Err(error) => format!("measuring every {interval} s, which cannot be kept: {error}"),
            },
            Update::Rejected(error) => format!("{error}; still every {interval} s"),
            Update::Absent => format!("nothing is configured; still every {interval} s"),
            _ => continue,
        });
    }
}
