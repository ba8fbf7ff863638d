//! The other members, with at most one link each.

use super::link::Link;
use super::lock;
use crate::peer::settings::PeerMember;
use quinn::ClientConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::{Mutex, MutexGuard, watch};
use zoolet_machine::seam::peer::LinkId;
use zoolet_model::ServerId;

/// Maximum number of addresses remembered for one member.
const FOUND_MAX: usize = 16;

/// A member and its link.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: ServerId,
    /// Configured addresses, in order.
    pub(super) addresses: Vec<String>,
    /// Configuration for dialling the member. Built once, because a lone server dials for days.
    pub(super) dialling: ClientConfig,
    link: watch::Sender<Option<Arc<Link>>>,
    /// Addresses of recent attempts and links, newest last.
    found_at: std::sync::Mutex<Vec<SocketAddr>>,
    /// Address of the last link.
    linked_at: std::sync::Mutex<Option<SocketAddr>>,
    /// Set if the last link ended before it counted as lasting.
    is_flapping: AtomicBool,
    /// Serializes the decisions about the member's link.
    deciding: Mutex<()>,
}

impl Member {
    pub(super) fn new(member: &PeerMember, dialling: ClientConfig) -> Self {
        let addresses = member.addresses.clone();
        let (link, found_at) = (watch::Sender::new(None), Default::default());
        let is_flapping = AtomicBool::new(false);
        let linked_at = Default::default();
        Self { id: member.id, addresses, dialling, link, found_at, linked_at, is_flapping, deciding: Mutex::new(()) }
    }

    /// Records an address of the member, from a name lookup or a link.
    pub(super) fn on_found(&self, address: SocketAddr) {
        let mut found_at = lock(&self.found_at);
        found_at.retain(|other| *other != address);
        if found_at.len() == FOUND_MAX {
            found_at.remove(0);
        }
        found_at.push(address);
    }

    /// Returns whether the member is known to be at `address`.
    pub(super) fn is_found_at(&self, address: SocketAddr) -> bool {
        lock(&self.found_at).contains(&address)
    }

    /// Returns the member's link, if any.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.link.borrow().clone()
    }

    /// Returns the member's link, if it has this id.
    pub(super) fn link_with(&self, id: LinkId) -> Option<Arc<Link>> {
        self.link.borrow().as_ref().filter(|link| link.id == id).cloned()
    }

    /// Sets the member's link. The caller has locked `deciding`, and there is no link.
    pub(super) fn on_linked(&self, link: Arc<Link>) {
        *lock(&self.linked_at) = Some(link.remote);
        self.link.send_replace(Some(link));
    }

    /// Returns whether the last link was to `address`, which is not IPv4 written as IPv6.
    pub(super) fn was_linked_at(&self, address: SocketAddr) -> bool {
        *lock(&self.linked_at) == Some(address)
    }

    /// Removes the link with this id.
    pub(super) fn on_link_gone(&self, id: LinkId) {
        self.link.send_if_modified(|link| {
            let was_it = link.as_ref().is_some_and(|link| link.id == id);
            if was_it {
                *link = None;
            }
            was_it
        });
    }

    /// Returns whether the last link ended before it counted as lasting.
    ///
    /// While this is set, links are not announced until one lasts.
    pub(super) fn is_flapping(&self) -> bool {
        self.is_flapping.load(Relaxed)
    }

    /// Records that the link lasts; returns whether the previous one did not.
    pub(super) fn on_link_stands(&self) -> bool {
        self.is_flapping.swap(false, Relaxed)
    }

    /// Records that a link ended before it counted as lasting.
    pub(super) fn on_link_flaps(&self) {
        self.is_flapping.store(true, Relaxed);
    }

    /// Waits for a link.
    pub(super) async fn linked(&self) {
        // The sender lives in this member, so it cannot be dropped during the wait.
        let _ = self.link.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until there is no link.
    pub(super) async fn unlinked(&self) {
        let _ = self.link.subscribe().wait_for(Option::is_none).await;
    }

    /// Waits for the right to decide about the member's link.
    pub(super) async fn lock_decision(&self) -> MutexGuard<'_, ()> {
        self.deciding.lock().await
    }
}
