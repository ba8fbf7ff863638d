//! Two boxes share one radio channel: the box that holds the lock transmits.
//!
//! A radio cannot check a fencing token. So it learns the instant until which it may transmit, and
//! stops by itself. The other box is not granted the lock before that instant.
//!
//! `cargo run --example hot_standby_modem -- DIRECTORY`; it ends when `/modem/off` is created.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use zoolet::recipes::{Coordinator, Error, EventHandle, Instant, Lock, Reset};
use zoolet::{Config, Node, Session, Wait, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First: once the node of a dead process is back, the locks of that process are free.
    println!("{:?}", Link::Down);
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    // If its session ends, the box stands by again with another one.
    while let Err(error) = standby(node.session().wait()?, |link| println!("{link:?}")).wait() {
        println!("{error}");
    }
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// A command to the modem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Transmit, and stop at this instant of the session's clock unless there is another `Up`.
    Up(Instant),
    /// Do not transmit.
    Down,
}

/// Transmits only while this box holds the lock, until `/modem/off` exists or the session ends.
pub async fn standby(session: Session, modem: impl FnMut(Link)) -> Result<(), Error> {
    // The signal stays, so that a suspended session does not miss it.
    let off = EventHandle::new(session.clone(), path!("/modem/off"), Reset::Manual);
    either(off.wait(), transmit(session, modem)).await
}

async fn transmit(session: Session, mut modem: impl FnMut(Link)) -> Result<(), Error> {
    let lock = Lock::new(session.clone(), path!("/modem/channel"));
    loop {
        let grant = lock.acquire().await?;
        let radio = Radio(&mut modem);
        let transmitting = async {
            loop {
                if session.now() < grant.safe_until() {
                    (radio.0)(Link::Up(grant.safe_until()));
                }
                session.timer(session.now() + session.timeout() / 16).await;
            }
        };
        // Ends as soon as the lock is in doubt. Then the box queues again.
        let _: Result<(), Error> = grant.run(transmitting).await;
    }
}

/// Switches the modem off before the lock is released: the value declared last is dropped first.
struct Radio<'a, M: FnMut(Link)>(&'a mut M);

impl<M: FnMut(Link)> Drop for Radio<'_, M> {
    fn drop(&mut self) {
        (self.0)(Link::Down);
    }
}

/// Returns the output of the future that is ready first.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Pending => other.as_mut().poll(context),
        ready => ready,
    })
    .await
}
