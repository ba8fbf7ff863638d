//! A daemon creates a znode that shows its presence, and the reply is lost. It checks whether the
//! znode is its own before it tries again.
//!
//! `cargo run --example testing_lost_reply --features testing`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::testing::MemoryEnsemble;
use zoolet::{CreateOptions, Error, Path, Session, path};

fn main() -> Result<(), Error> {
    println!("{}", run()?);
    Ok(())
}

/// The daemon: creates `path` as its own; returns the number of attempts.
async fn be_there(session: &Session, path: &Path) -> Result<u32, Error> {
    for attempts in 1.. {
        match session.create_with(path, None, &CreateOptions::ephemeral()).await {
            Ok(_) => return Ok(attempts),
            // The create may have been done or not.
            Err(error) if error.is_disconnection() => {}
            Err(exists) if exists.is_node_exists() => match session.exists(path).await {
                Ok(Some(stat)) if stat.ephemeral_owner == session.id().0 => return Ok(attempts),
                Ok(Some(_)) => return Err(exists),
                Ok(None) => {}
                Err(error) if error.is_disconnection() => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
        session.connected().await?;
    }
    unreachable!("it goes on until it knows")
}

/// Loses the reply to the daemon's create; returns the number of attempts as text.
pub fn run() -> Result<String, Error> {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let (daemon, other) = (ensemble.session(), ensemble.session());
    ensemble.lose_next_reply(&daemon);
    let attempts = ensemble.run(be_there(&daemon, path!("/alive")))?;
    ensemble.run(other.sync())?;
    let stat = ensemble.run(other.exists(path!("/alive")))?.expect("it is there");
    assert_eq!(stat.ephemeral_owner, daemon.id().0, "found again, and not taken for another session's");
    // The znode belongs to the daemon's session: when that ends, the znode goes.
    drop(daemon);
    ensemble.advance(Duration::from_secs(1));
    assert_eq!(ensemble.run(other.exists(path!("/alive")))?, None);
    Ok(format!("there after {attempts} attempts"))
}
