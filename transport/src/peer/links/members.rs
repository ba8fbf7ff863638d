//! The other members, and the one link that each may have.

use super::link::Link;
use crate::peer::settings::PeerMember;
use quinn::ClientConfig;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard, watch};
use zoolet_engine::peer::LinkId;
use zoolet_model::ServerId;

/// A member and its link.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: ServerId,
    /// As configured, in order.
    pub(super) addresses: Vec<String>,
    /// How it is dialled. Made once: a server that is alone dials for days.
    pub(super) dialling: ClientConfig,
    link: watch::Sender<Option<Arc<Link>>>,
    /// Whoever decides about a link to it does so alone.
    door: Mutex<()>,
}

impl Member {
    pub(super) fn new(member: &PeerMember, dialling: ClientConfig) -> Self {
        let addresses = member.addresses.clone();
        Self { id: member.id, addresses, dialling, link: watch::Sender::new(None), door: Mutex::new(()) }
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
