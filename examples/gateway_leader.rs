//! One of several gateways polls the field bus and writes the readings.
//!
//! The writer is fenced: a gateway that was stopped for a while cannot overwrite its successor's
//! readings. On SIGTERM the leader resigns, so that another gateway leads within one commit, and
//! not after a session timeout.
//!
//! Run `cargo run --example gateway_leader -- DIRECTORY`, then send SIGTERM or press Ctrl-C.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use zoolet::recipes::{Election, Error, Leadership};
use zoolet::{Bytes, Config, Node, Session, path};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    println!("gw-a stands");
    println!("{} readings written", gateway(node.session().await?, "gw-a", stop).await?);
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// Pause between two readings. Flash wears out, and each reading is one write on every server.
const READS_EVERY: Duration = Duration::from_secs(5);
/// Maximum time to resign. Without a quorum a resignation cannot be sent; the leadership then ends
/// with the session.
const RESIGNS_WITHIN: Duration = Duration::from_secs(2);

/// Leads whenever it can, until `stop` is ready; returns the number of readings written.
pub async fn gateway(session: Session, name: &'static str, stop: impl Future<Output = ()>) -> Result<u64, Error> {
    let election = Election::new(session.clone(), path!("/field/leader")).described(name);
    let (mut stop, mut written) = (pin!(stop), 0);
    loop {
        let leadership = tokio::select! {
            () = &mut stop => return Ok(written),
            leadership = election.campaign() => leadership?,
        };
        tokio::select! {
            () = &mut stop => {
                drop(tokio::time::timeout(RESIGNS_WITHIN, leadership.resign()).await);
                return Ok(written);
            }
            // Ends as soon as it is in doubt whether this gateway leads. Then it campaigns again.
            _ = leadership.run(poll_the_bus(&leadership, &mut written)) => {}
        }
    }
}

async fn poll_the_bus(leadership: &Leadership<Session>, written: &mut u64) -> Result<(), Error> {
    loop {
        let reading = Bytes::from(format!("{} by {}", *written + 1, leadership.token()));
        match leadership.fenced().set(path!("/field/reading"), reading.clone(), -1).await {
            Ok(_) => *written += 1,
            Err(Error::Session(zoolet::Error::Refused(zoolet::ErrorCode::NoNode))) => {
                leadership.fenced().create(path!("/field/reading"), reading).await?;
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(READS_EVERY).await;
    }
}
