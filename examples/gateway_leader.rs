//! One of several gateways polls the field bus and writes what it reads. The writer is fenced: a gateway that was stopped for a while cannot write
//! over what its successor wrote. On SIGTERM it resigns, so that another one leads within one commit and not after a session timeout.
//!
//! `cargo run --example gateway_leader -- DIRECTORY`, and SIGTERM or Ctrl-C.
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

/// Between two readings: flash has so many writes and no more, and each of these is one on every server.
const READS_EVERY: Duration = Duration::from_secs(5);
/// Without a quorum nobody can be told that it resigns; the end of its session says so in the end.
const RESIGNS_WITHIN: Duration = Duration::from_secs(2);

/// Leads whenever it can, until `stop`. Gives how much it has written.
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
            // Ends as soon as nobody can say whether this is still the leader: then it stands again.
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
