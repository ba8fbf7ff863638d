//! The other members, and the one link that each may have.

use super::link::Link;
use super::lock;
use crate::peer::settings::PeerMember;
use quinn::ClientConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::{Mutex, MutexGuard, watch};
use zoolet_engine::peer::LinkId;
use zoolet_model::ServerId;

/// Addresses of one member that are known at a time.
const FOUND_MAX: usize = 16;

/// A member and its link.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: ServerId,
    /// As configured, in order.
    pub(super) addresses: Vec<String>,
    /// How it is dialled. Made once: a server that is alone dials for days.
    pub(super) dialling: ClientConfig,
    link: watch::Sender<Option<Arc<Link>>>,
    /// Where it was dialled or linked lately, the latest last.
    found_at: std::sync::Mutex<Vec<SocketAddr>>,
    /// Its last link ended as soon as there was one.
    is_flapping: AtomicBool,
    /// Whoever decides about a link to it does so alone.
    door: Mutex<()>,
}

impl Member {
    pub(super) fn new(member: &PeerMember, dialling: ClientConfig) -> Self {
        let addresses = member.addresses.clone();
        let (link, found_at) = (watch::Sender::new(None), Default::default());
        let is_flapping = AtomicBool::new(false);
        Self { id: member.id, addresses, dialling, link, found_at, is_flapping, door: Mutex::new(()) }
    }

    /// It is there, or so its name says.
    pub(super) fn on_found(&self, address: SocketAddr) {
        let mut found_at = lock(&self.found_at);
        found_at.retain(|other| *other != address);
        if found_at.len() == FOUND_MAX {
            found_at.remove(0);
        }
        found_at.push(address);
    }

    /// Whether it is there, as far as is known.
    pub(super) fn is_found_at(&self, address: SocketAddr) -> bool {
        lock(&self.found_at).contains(&address)
    }

    /// Its link, if there is one.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.link.borrow().clone()
    }

    /// Its link, if it is that one.
    pub(super) fn link_with(&self, id: LinkId) -> Option<Arc<Link>> {
        self.link.borrow().as_ref().filter(|link| link.id == id).cloned()
    }

    /// From now on this is its link. Only behind the door, and when there is none.
    pub(super) fn on_linked(&self, link: Arc<Link>) {
        self.link.send_replace(Some(link));
    }

    /// That link is gone.
    pub(super) fn on_link_gone(&self, id: LinkId) {
        self.link.send_if_modified(|link| {
            let was_it = link.as_ref().is_some_and(|link| link.id == id);
            if was_it {
                *link = None;
            }
            was_it
        });
    }

    /// Whether its last link ended as soon as there was one. Of such nothing is told before one stands.
    pub(super) fn is_flapping(&self) -> bool {
        self.is_flapping.load(Relaxed)
    }

    /// Its link stands. Whether the one before did not.
    pub(super) fn on_link_stands(&self) -> bool {
        self.is_flapping.swap(false, Relaxed)
    }

    /// Its link has ended and did not stand.
    pub(super) fn on_link_flaps(&self) {
        self.is_flapping.store(true, Relaxed);
    }

    /// Waits for a link.
    pub(super) async fn linked(&self) {
        // The sender is this member itself, so it does not go away.
        let _ = self.link.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until there is none.
    pub(super) async fn unlinked(&self) {
        let _ = self.link.subscribe().wait_for(Option::is_none).await;
    }

    /// Waits for one's turn to decide about its link.
    pub(super) async fn door(&self) -> MutexGuard<'_, ()> {
        self.door.lock().await
    }
}
