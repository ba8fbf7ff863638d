//! Links to the other members of the ensemble.

use super::Server;
use crate::action::{Action, Generation};
use crate::peer::{Incarnation, LinkId, LogRange, LogReadFailure, PeerMessage, ReadId, ReceivedSnapshot, TransferId};
use std::collections::BTreeMap;
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::Role;

/// Who can be spoken to.
#[derive(Debug, Default)]
pub(super) struct Peers {
    up: BTreeMap<ServerId, LinkId>,
}

impl Server {
    pub(super) fn on_peer_up(&mut self, peer: ServerId, link: LinkId, _disk: Incarnation, process: u64) {
        if self.peers.up.insert(peer, link).is_some() {
            self.on_peer_lost(peer);
        }
        self.on_peer_process(peer, process);
    }

    pub(super) fn on_peer_down(&mut self, peer: ServerId, link: LinkId) {
        if self.peers.up.get(&peer) == Some(&link) {
            self.peers.up.remove(&peer);
            self.on_peer_lost(peer);
        }
    }

    pub(super) fn on_peer_message(&mut self, peer: ServerId, link: LinkId, message: PeerMessage) {
        if self.peers.up.get(&peer) != Some(&link) {
            // Of a link that was replaced or closed meanwhile.
            return;
        }
        match message {
            PeerMessage::Forward { epoch, seq, conn, payload } if self.leads_in(epoch) => {
                self.on_forward(peer, link, seq, conn, payload);
            }
            PeerMessage::Revalidate { epoch, conn, session, secret, timeout_ms } if self.leads_in(epoch) => {
                self.on_revalidate(peer, conn, session, secret, timeout_ms);
            }
            PeerMessage::Touch { epoch, sessions } if self.leads_in(epoch) => self.on_touch(peer, &sessions),
            PeerMessage::Forward { .. } | PeerMessage::Revalidate { .. } | PeerMessage::Touch { .. } => {}
            PeerMessage::Refused { seq, code } if self.leader() == Some(peer) => self.on_refused(seq, code),
            PeerMessage::Revalidated { conn, session, up_to } if self.leader() == Some(peer) => {
                self.on_revalidated(conn, session, up_to);
            }
            PeerMessage::Moved { session, conn } if self.leader() == Some(peer) => self.on_moved(session, conn),
            PeerMessage::Refused { .. } | PeerMessage::Revalidated { .. } | PeerMessage::Moved { .. } => {}
            PeerMessage::Digest { .. } => {}
        }
    }

    /// Says something to a peer, after everything that was said before; false when there is no link to it.
    pub(super) fn send_to(&mut self, peer: ServerId, message: PeerMessage) -> bool {
        let Some(&link) = self.peers.up.get(&peer) else { return false };
        self.actions.push_back(Action::PeerSend { peer, link, message });
        true
    }

    /// Whom this server follows or observes, once that one is established.
    pub(super) fn leader(&self) -> Option<ServerId> {
        match self.zab.role() {
            Role::Following(leader) | Role::Observing(leader) => Some(leader),
            Role::Looking | Role::Leading => None,
        }
    }

    pub(super) fn on_log_read(&mut self, _id: ReadId, _result: Result<LogRange, LogReadFailure>) {}

    pub(super) fn on_log_floor(&mut self, _floor: Zxid) {}

    pub(super) fn on_snapshot_sent(&mut self, _transfer: TransferId, _result: Result<(), String>) {}

    pub(super) fn on_snapshot_received(
        &mut self,
        _peer: ServerId,
        _transfer: TransferId,
        _result: Result<ReceivedSnapshot, String>,
    ) {
    }

    pub(super) fn on_snapshot_installed(&mut self, _generation: Generation) {}
}
