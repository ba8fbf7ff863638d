//! Two boxes share one radio channel: whoever holds the lock transmits. A radio cannot check a fencing token, so it is told until when it may transmit,
//! and stops by itself: a box that stands still cannot tell it to. The other box is not granted the lock before that instant.
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
    // Before all else: when the node of a process that died is back, what that process held is free at once.
    println!("{:?}", Link::Down);
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    // Its session may end: then the box stands by again with another one.
    while let Err(error) = standby(node.session().wait()?, |link| println!("{link:?}")).wait() {
        println!("{error}");
    }
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// What the modem is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// It transmits, and stops by itself at this instant of the session's clock unless it is told again.
    Up(Instant),
    /// It does not.
    Down,
}

/// Transmits whenever this box holds the lock, and never else, until `/modem/off` is there.
///
/// # Errors
/// The session is over.
pub async fn standby(session: Session, modem: impl FnMut(Link)) -> Result<(), Error> {
    // Off is a signal that stays, though the session may be suspended when it comes.
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
        // Ends as soon as it is in doubt whether the lock is still held; then the box stands in line again.
        let _: Result<(), Error> = grant.run(transmitting).await;
    }
}

/// Goes down however it ends, and before the lock is given up: what was declared last is dropped first.
struct Radio<'a, M: FnMut(Link)>(&'a mut M);

impl<M: FnMut(Link)> Drop for Radio<'_, M> {
    fn drop(&mut self) {
        (self.0)(Link::Down);
    }
}

/// What is ready first.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Pending => other.as_mut().poll(context),
        ready => ready,
    })
    .await
}
