//! Two boxes share one radio channel: whoever holds the lock transmits. A radio cannot check a fencing token, so the link goes down as soon as it is in
//! doubt whether the lock is still held, and the other box is not granted it before that instant.
//!
//! `cargo run --example hot_standby_modem -- DIRECTORY`; it ends when `/modem/off` is created.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::recipes::{Error, Holding, Lock};
use zoolet::{Config, Node, Session, Wait, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    let session = node.session().wait()?;
    standby(session, |link| println!("{link:?}")).wait()?;
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// What the modem is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// It transmits.
    Up,
    /// It does not.
    Down,
}

/// Transmits whenever this box holds the lock, and never else, until `/modem/off` is there.
pub async fn standby(session: Session, mut modem: impl FnMut(Link)) -> Result<(), Error> {
    let lock = Lock::new(session.clone(), path!("/modem/channel"));
    let off = async {
        while let Ok((None, watch)) = session.exists_and_watch(path!("/modem/off")).await {
            watch.await;
        }
    };
    let mut off = std::pin::pin!(off);
    loop {
        let Some(grant) = either(&mut off, lock.acquire()).await else { return Ok(()) };
        let grant = grant?;
        let mut holdings = grant.holdings();
        while let Some(holding) = either(&mut off, holdings.next()).await.flatten() {
            modem(if holding == Holding::Held { Link::Up } else { Link::Down });
            if holding == Holding::Lost {
                break;
            }
        }
        modem(Link::Down);
        drop(holdings);
        if session.exists(path!("/modem/off")).await?.is_some() {
            return grant.release().await;
        }
    }
}

/// What `work` gives, or `None` when `stop` is ready before.
async fn either<S: Future<Output = ()> + Unpin, T>(stop: &mut S, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        if std::pin::Pin::new(&mut *stop).poll(context).is_ready() {
            return std::task::Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}
