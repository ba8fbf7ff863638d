//! Boxes restart one after the other: the next one goes down when the one before has said that it is well again. A box that does not come back stops
//! the others.
//!
//! `cargo run --example rolling_restart -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::recipes::{Error, Permit, RollingRestart};
use zoolet::{Config, Node, Session, Wait, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    for name in ["gw-a", "gw-b", "gw-c"] {
        let before = node.session().wait()?;
        goes_down(&before, name).wait()?;
        println!("{name} is down, and its process ends");
        drop(before);
        let after = node.session().wait()?;
        println!("{name} is up, and well: {}", comes_up(&after, name, || true).wait()?);
    }
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// What a box does that is told to restart: when this is done it exits, and whoever looks after it starts it again.
pub async fn goes_down(session: &Session, name: &str) -> Result<Permit, Error> {
    RollingRestart::new(session.clone(), path!("/restarts"), 1)?.begin(name).await
}

/// What it does when it starts, for whatever reason. Gives whether it is well; if it is not, nobody else restarts.
pub async fn comes_up(session: &Session, name: &str, is_well: impl FnOnce() -> bool) -> Result<bool, Error> {
    let gate = RollingRestart::new(session.clone(), path!("/restarts"), 1)?;
    let was_told = gate.down().await?.iter().any(|down| down == name);
    // Asked once: what is told is what was acted upon.
    let is_well = is_well();
    if was_told && is_well {
        gate.done(name).await?;
    }
    Ok(is_well)
}
