//! Boxes restart one after the other. The next box goes down once the one before has reported that
//! it is well again. A box that does not come back stops the others.
//!
//! `cargo run --example rolling_restart -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::recipes::{Permit, RollingRestart};
use zoolet::{Config, Error, Node, Session, Wait, path};

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

/// Called on a box that is told to restart. Afterwards the box exits, and its supervisor starts it
/// again.
pub async fn goes_down(session: &Session, name: &str) -> Result<Permit, Error> {
    RollingRestart::new(session.clone(), path!("/restarts"), 1).begin(name).await
}

/// Called on a box whenever it starts; returns whether it is well.
///
/// A box that was told to restart and is not well keeps its permit, so no other box restarts.
pub async fn comes_up(session: &Session, name: &str, is_well: impl FnOnce() -> bool) -> Result<bool, Error> {
    let gate = RollingRestart::new(session.clone(), path!("/restarts"), 1);
    let was_told = gate.down().await?.iter().any(|down| down == name);
    // Asked once, so that the result returned is the one that was acted upon.
    let is_well = is_well();
    if was_told && is_well {
        gate.done(name).await?;
    }
    Ok(is_well)
}
