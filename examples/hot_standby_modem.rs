//! Two boxes share one radio channel: the box that holds the lock transmits.
//!
//! A radio cannot check a fencing token. So it learns the instant until which it may transmit, and
//! stops by itself. The other box is not granted the lock before that instant.
//!
//! `cargo run --example hot_standby_modem -- DIRECTORY`; it ends when `/modem/off` is created.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use zoolet::recipes::{EventHandle, Lock, Reset, SafeUntil};
use zoolet::{Config, Error, Node, Session, Wait, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First: once the node of a dead process is back, the locks of that process are free.
    println!("{:?}", Link::Down);
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    // If its session ends, the box stands by again with the next one.
    node.client().run(|session| standby(session, |link| println!("{link:?}"))).wait()?;
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// A command to the modem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Transmit, and stop at this instant of the session's clock unless there is another `Up`.
    Up(SafeUntil),
    /// Do not transmit.
    Down,
}

/// Transmits only while this box holds the lock, until `/modem/off` exists or the session ends.
pub async fn standby(session: Session, modem: impl FnMut(Link)) -> Result<(), Error> {
    // The signal stays, so that a suspended session does not miss it.
    let off = EventHandle::new(session.clone(), path!("/modem/off"), Reset::Manual);
    either(off.wait(), transmit(session, modem)).await
}

async fn transmit(session: Session, modem: impl FnMut(Link)) -> Result<(), Error> {
    let (lock, modem) = (Lock::new(session, path!("/modem/channel")), RefCell::new(modem));
    // In doubt nothing tells the modem to go on, so it stops by itself at the last instant. If the
    // lock is lost, the modem is switched off, and the box queues again.
    lock.hold(async |hold| {
        let radio = Radio(&modem);
        let mut instants = hold.safe_instants();
        while let Some(safe_until) = instants.next().await {
            (radio.0.borrow_mut())(Link::Up(safe_until));
        }
    })
    .await
}

/// Switches the modem off when the lock is lost, before it is released otherwise.
struct Radio<'a, M: FnMut(Link)>(&'a RefCell<M>);

impl<M: FnMut(Link)> Drop for Radio<'_, M> {
    fn drop(&mut self) {
        (self.0.borrow_mut())(Link::Down);
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
