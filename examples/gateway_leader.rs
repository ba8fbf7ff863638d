//! One of several gateways polls the field bus and writes the readings.
//!
//! The leader keeps its office while another server of the ensemble is elected, and goes on with
//! its next session if one is lost. The writer is fenced: a gateway that was stopped for a while
//! cannot overwrite its successor's readings. On SIGTERM the leader resigns, so that another
//! gateway leads within one commit, and not after a session timeout.
//!
//! Run `cargo run --example gateway_leader -- DIRECTORY`, then send SIGTERM or press Ctrl-C.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use zoolet::recipes::{Election, Hold, OpenSession};
use zoolet::{Client, Config, Coordinator, CoordinatorExt, Error, Node, path};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into());
    let node = Node::start_async(Config::new(directory)).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    println!("gw-a stands");
    println!("{} readings written", gateway(node.client(), "gw-a", stop).await?);
    node.shutdown_async(Duration::from_secs(5)).await?;
    Ok(())
}

/// Pause between two readings. Flash wears out, and each reading is one write on every server.
const READS_EVERY: Duration = Duration::from_secs(5);

/// Leads whenever it can, until `stop` is ready; returns the number of readings written.
pub async fn gateway<O: OpenSession>(
    client: Client<O>,
    name: &'static str,
    stop: impl Future<Output = ()>,
) -> Result<u64, Error> {
    let election = |session| Election::new(session, path!("/field/leader")).described(name);
    let written = Cell::new(0);
    tokio::select! {
        // Dropped: the leader resigns.
        () = stop => Ok(written.get()),
        ended = client.lead(election, |term| poll_the_bus(term, &written)) => ended.map(|()| written.get()),
    }
}

/// Polls the bus for one term. It is paused while it is in doubt which gateway leads.
async fn poll_the_bus<C: Coordinator>(term: Hold<C>, written: &Cell<u64>) -> Result<(), Error> {
    loop {
        let reading = format!("{} by {}", written.get() + 1, term.token());
        term.fenced().put(path!("/field/reading"), reading).await?;
        written.set(written.get() + 1);
        term.session().sleep(READS_EVERY).await;
    }
}
