//! Looks for a server that accepts writes, while the session is at one without a leader.
//!
//! As in ZooKeeper's client, each probe asks the next server of the list with the four-letter word `isro`. A server
//! that does not allow this word answers something else than `rw`, and the session stays.

use super::role;
use super::servers::{Server, Servers};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Bounds of the pause before a probe; it doubles from one to the next.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The result of a search.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) server: Server,
    /// The pause before the next probe, should the server give no session with writes after all.
    pub(super) pause: Duration,
}

/// Returns the first server that says that it accepts writes; waits until there is one.
pub(super) async fn find_writable(mut servers: Servers, mut pause: Duration) -> Found {
    loop {
        sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
        let mut next = servers.next().await;
        if next.is_none() {
            servers.begin_round();
            next = servers.next().await;
        }
        if let Some(Ok(server)) = next
            && let Ok(Ok(answer)) = timeout(server.patience, role::ask(server.address, b"isro")).await
            && answer.trim() == "rw"
        {
            return Found { server, pause };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::actor::{Actor, Order};
    use super::super::fake::{Fake, Running, Seen, connect};
    use super::super::rooted::Root;
    use super::super::{State, Status};
    use crate::cli::shell::failure::{Failure, code};
    use std::sync::Arc;
    use tokio::sync::{mpsc, oneshot, watch};
    use zoolet_model::Request;

    const NOT_ALLOWED: &str = "isro is not executed because it is not in the whitelist.";

    fn open(servers: &[&Running]) -> (mpsc::UnboundedSender<Order>, watch::Receiver<Status>) {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (actor, status) = Actor::new(connect(servers), Arc::new(|_| {}), Root::default(), inbox);
        tokio::spawn(actor.run());
        (orders, status)
    }

    async fn wait_for(status: &mut watch::Receiver<Status>, state: State) -> Status {
        status.wait_for(|status| status.state == state).await.unwrap().clone()
    }

    #[tokio::test]
    async fn session_moves_to_a_server_that_accepts_writes_and_is_a_new_one() {
        let mut lost = Fake { is_read_only: true, isro: "ro", ..Fake::default() }.start().await;
        let mut leads = Fake { isro: "rw", ..Fake::default() }.start().await;
        let (_orders, mut status) = open(&[&lost, &leads]);
        assert_eq!(wait_for(&mut status, State::ConnectedReadOnly).await.server, lost.name);
        assert_eq!(wait_for(&mut status, State::Connected).await.server, leads.name);
        assert_eq!((lost.next().await, leads.next().await), (Seen::Session(0), Seen::Probe));
        assert_eq!(leads.next().await, Seen::Session(0));
    }

    #[tokio::test]
    async fn session_stays_while_no_server_says_that_it_accepts_writes() {
        let lost = Fake { is_read_only: true, isro: "ro", ..Fake::default() }.start().await;
        let mut silent = Fake { isro: NOT_ALLOWED, ..Fake::default() }.start().await;
        let (_orders, mut status) = open(&[&lost, &silent]);
        wait_for(&mut status, State::ConnectedReadOnly).await;
        assert_eq!((silent.next().await, silent.next().await), (Seen::Probe, Seen::Probe));
        assert_eq!((status.borrow().state, status.borrow().connection), (State::ConnectedReadOnly, 1));
    }

    #[tokio::test]
    async fn session_moves_only_when_no_request_is_in_flight() {
        let mut lost = Fake { is_read_only: true, isro: "ro", ..Fake::default() }.start().await;
        let mut leads = Fake { isro: "rw", ..Fake::default() }.start().await;
        let (orders, mut status) = open(&[&lost, &leads]);
        wait_for(&mut status, State::ConnectedReadOnly).await;
        let (answer, answered) = oneshot::channel();
        let request = Request::Exists { path: "/a".into(), watch: false };
        assert!(orders.send(Order::Ask { request, path: None, answer }).is_ok());
        assert_eq!((lost.next().await, lost.next().await), (Seen::Session(0), Seen::Request(1)));
        assert_eq!(leads.next().await, Seen::Probe);
        lost.refuse(1, code::NO_NODE);
        let refused = Failure::Refused { code: code::NO_NODE, path: None, why: String::new() };
        assert_eq!(answered.await.unwrap().err(), Some(refused));
        assert_eq!(wait_for(&mut status, State::Connected).await.server, leads.name);
    }
}
