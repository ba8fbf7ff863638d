//! The minimum for an embedder: a node in this process, a session and a znode.
//!
//! `cargo run --example embedded_min -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::path::PathBuf;
use std::time::Duration;
use zoolet::{Config, Node, Version, Wait, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into()).into())?);
    Ok(())
}

/// Counts the starts of this program in the znode's version.
pub fn run(data: PathBuf) -> Result<String, Box<dyn std::error::Error>> {
    let node = Node::start(Config::new(data))?;
    node.ready().wait()?;
    let session = node.session().wait()?;
    session.ensure(path!("/starts")).wait()?;
    let stat = session.set(path!("/starts"), "one more", Version::Any).wait()?;
    session.close().wait()?;
    node.shutdown(Duration::from_secs(5))?;
    Ok(format!("started {} times", stat.version))
}
