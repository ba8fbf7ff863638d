//! Links to the other members of the ensemble.

use super::Server;
use super::derived::Derived;
use super::forward::Wanted;
use super::snapshot::{Incoming, Installing, NotTaken};
use super::stream::Stream;
use crate::action::Action;
use crate::notices::Notices;
use crate::peer::{Entries, Incarnation, LinkId, PeerMessage, TransferId};
use crate::txn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{Config, Fault, Message, Role};

/// What closes the link to a peer whose history cannot be, if no disk went back in time. Both sides read it, one of them no more than 128 bytes.
const WENT_BACK: &str = "an older copy of a data directory was put back: the two differ in what is committed; ask zoolet status of the leader";

/// It goes on for as long as the two are configured so. A server that stopped would do so again at every start.
const TOO_LARGE: &str =
    "an entry is too large for a segment of this server's log: give all servers the same log_segment_bytes";

/// Snapshots that a learner got one after the other.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sent {
    pub(super) begun: u32,
    /// Those of them that went out to the last byte, or that the learner gave up.
    pub(super) over: u32,
}

/// What goes on between this server and the others.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// What was said of them lately.
    pub(super) notices: Notices,
    streams: BTreeMap<ServerId, Stream>,
    /// Streams that something happened to.
    pub(super) to_pump: BTreeSet<ServerId>,
    /// Questions put to the log since the start.
    pub(super) reads: u64,
    /// Snapshots sent since the start.
    pub(super) transfers: u64,
    /// Those that are being sent, and the last entry in each: the log goes on from there.
    pub(super) sending: BTreeMap<TransferId, (ServerId, LinkId, Zxid)>,
    /// Leader: how many were sent to each learner since it last had the initial history of an epoch.
    pub(super) snapshots: BTreeMap<ServerId, Sent>,
    /// What the log was asked to keep.
    pub(super) log_held: Option<Zxid>,
    /// A snapshot for this server.
    pub(super) incoming: Option<Incoming>,
    /// Why the last one was not taken, until one is or this server serves.
    pub(super) not_taken: Option<NotTaken>,
    /// One that is the state from now on, and the base not yet.
    pub(super) installing: Option<Installing>,
    /// Digests of this server's state at points that all servers take it at.
    pub(super) digests: VecDeque<(Zxid, u128)>,
    /// Those of learners, at points that this server has not come to.
    pub(super) digests_said: BTreeMap<ServerId, VecDeque<(Zxid, u128)>>,
    /// Where the state of another server was not this one's.
    pub(super) differs: Option<(ServerId, Zxid)>,
    /// Since when this server leads, milliseconds.
    pub(super) led_since_ms: Option<u64>,
    /// When something was written last, milliseconds.
    pub(super) wrote_ms: Option<u64>,
}

impl Peers {
    /// The stream of this very link.
    pub(super) fn stream(&mut self, peer: ServerId, link: LinkId) -> Option<&mut Stream> {
        self.streams.get_mut(&peer).filter(|stream| stream.link == link)
    }

    pub(super) fn stream_of(&mut self, peer: ServerId) -> Option<&mut Stream> {
        self.streams.get_mut(&peer)
    }

    pub(super) fn streams(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.values_mut()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ServerId, &mut Stream)> {
        self.streams.iter_mut().map(|(&peer, stream)| (peer, stream))
    }

    /// Peers with a link that is up.
    pub(super) fn ids(&self) -> Vec<ServerId> {
        self.streams.keys().copied().collect()
    }

    /// Links that are up.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Everything that waits or is waited for.
    pub(super) fn under_way(&self) -> usize {
        let waiting: usize = self.streams.values().map(Stream::len).sum();
        waiting + self.sending.len() + usize::from(self.incoming.is_some()) + usize::from(self.installing.is_some())
    }

    /// What streams hold, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.streams.values().map(Stream::bytes).sum()
    }

    pub(super) fn derived(&self, derived: &mut Vec<Derived>) {
        self.streams.values().for_each(|stream| stream.derived(derived));
    }

    /// Every stream is looked at again.
    pub(super) fn pump_all(&mut self) {
        self.to_pump.extend(self.streams.keys());
    }
}

impl Server {
    pub(super) fn on_peer_up(&mut self, peer: ServerId, link: LinkId, disk: Incarnation) {
        if self.peers.streams.insert(peer, Stream::new(link)).is_some() {
            self.on_link_lost(peer);
        }
        self.zab.handle_link_up(self.now.mono_ms, peer, link, disk);
        self.follow_zab();
        self.tell_health(peer);
    }

    pub(super) fn on_peer_down(&mut self, peer: ServerId, link: LinkId) {
        if self.peers.stream(peer, link).is_some() {
            self.peers.streams.remove(&peer);
            self.on_link_lost(peer);
        }
        self.zab.handle_link_down(self.now.mono_ms, peer, link);
        self.follow_zab();
    }

    fn on_link_lost(&mut self, peer: ServerId) {
        self.drop_incoming(|incoming| incoming.peer == peer);
        self.peers.digests_said.remove(&peer);
        self.healths.forget(peer);
        self.on_peer_lost(peer);
    }

    /// The protocol drops a link.
    pub(super) fn close_link(&mut self, peer: ServerId, link: LinkId, fault: Fault) {
        let reason = match fault {
            Fault::WrongEnsemble => "its disk belongs to another ensemble",
            Fault::Behind => "it has fallen behind the log, and shall ask for a snapshot",
            Fault::WentBack => WENT_BACK,
            Fault::Protocol(what) => what,
        };
        if self.peers.stream(peer, link).is_some() {
            self.peers.streams.remove(&peer);
            self.on_link_lost(peer);
        }
        self.actions.push_back(Action::PeerClose { peer, link, reason });
    }

    /// A peer said what no server of this release says.
    pub(super) fn refuse_link(&mut self, peer: ServerId, link: LinkId, what: &'static str) {
        self.zab.handle_link_down(self.now.mono_ms, peer, link);
        self.close_link(peer, link, Fault::Protocol(what));
        self.follow_zab();
    }

    pub(super) fn on_peer_message(&mut self, peer: ServerId, link: LinkId, message: PeerMessage) {
        if self.peers.stream(peer, link).is_none() {
            // Of a link that was replaced or closed meanwhile.
            return;
        }
        match message {
            PeerMessage::Zab(message) => self.on_protocol(peer, link, *message),
            PeerMessage::Entries(entries) => self.on_entries(peer, link, entries),
            PeerMessage::Snapshot { message, transfer, meta, chain } => {
                self.on_snapshot_announced(Incoming::new(peer, link, transfer, meta, chain), *message);
            }
            PeerMessage::Forward { epoch, seq, conn, since, payload } if self.leads_in(epoch) => {
                // What is proposed goes to the log and to the learners with everything else that is proposed until actions are polled.
                return self.on_forward(peer, link, Wanted { seq, conn, since, payload });
            }
            PeerMessage::Revalidate { epoch, conn, session, secret, timeout_ms } if self.leads_in(epoch) => {
                self.on_revalidate(peer, conn, session, secret, timeout_ms);
            }
            PeerMessage::Touch { epoch, sessions, of_this_process } if self.leads_in(epoch) => {
                self.on_touch(peer, &sessions, of_this_process);
            }
            PeerMessage::Alive { epoch, claim } if self.leads_in(epoch) => self.on_alive(peer, claim),
            PeerMessage::Forward { .. }
            | PeerMessage::Revalidate { .. }
            | PeerMessage::Touch { .. }
            | PeerMessage::Alive { .. } => {}
            PeerMessage::Refused { seq, code } if self.leader() == Some(peer) => self.on_refused(seq, code),
            PeerMessage::Revalidated { conn, session, up_to, since } if self.leader() == Some(peer) => {
                self.on_revalidated(conn, session, up_to, since);
                self.answer_syncs();
            }
            PeerMessage::Moved { session, conn } if self.leader() == Some(peer) => self.on_moved(session, conn),
            PeerMessage::Refused { .. } | PeerMessage::Revalidated { .. } | PeerMessage::Moved { .. } => {}
            PeerMessage::Digest { zxid, digest } => self.on_digest(peer, zxid, digest),
            PeerMessage::Health(health) => self.on_health(peer, health),
        }
        self.follow_zab();
        self.apply_committed();
    }

    fn on_protocol(&mut self, peer: ServerId, link: LinkId, message: Message) {
        if matches!(message, Message::Proposal { .. } | Message::Snap { .. }) {
            return self.refuse_link(peer, link, "a Proposal without entries, or a Snap without a snapshot");
        }
        if let Message::Ack { attempt, to, .. } = message
            && let Some(stream) = self.peers.stream(peer, link)
        {
            stream.acked(attempt, to);
            self.peers.to_pump.insert(peer);
        }
        if matches!(message, Message::Ping { .. }) {
            // The Pong says whether there is room.
            self.note_health();
        }
        self.zab.handle_message(self.now.mono_ms, peer, link, message, None);
    }

    /// Hands entries to the protocol, which says whether they are appended. One that changes the membership goes alone, with what it says.
    fn on_entries(&mut self, peer: ServerId, link: LinkId, message: Entries) {
        let Entries { attempt, epoch, from, to, committed, chain_before, entries } = message;
        let mut expected = Some(from);
        for entry in &entries {
            if expected != Some(entry.zxid) || entry.zxid > to {
                return self.refuse_link(peer, link, "entries that are not those of their message");
            }
            expected = entry.zxid.next();
        }
        if entries.last().is_none_or(|last| last.zxid != to) {
            return self.refuse_link(peer, link, "entries that are not those of their message");
        }
        if self.zab.is_awaited(peer, attempt, epoch, from) {
            if chain_before != self.history.chain() {
                // Nothing of it may be written: its history and this one differ where they should be equal.
                self.zab.handle_diverged(self.now.mono_ms);
                return self.follow_zab();
            }
            let max = self.limits.payload_bytes_max();
            if entries.iter().any(|entry| entry.payload.len() > max) {
                return self.refuse_link(peer, link, TOO_LARGE);
            }
        }
        let mut entries = VecDeque::from(entries);
        while let Some(first) = entries.front() {
            let (from, config) = (first.zxid, txn::membership(&first.payload).and_then(Config::decode));
            let count = match &config {
                Some(_) => 1,
                None => {
                    let is_plain = |entry: &&crate::peer::PeerEntry| txn::membership(&entry.payload).is_none();
                    entries.iter().skip(1).take_while(is_plain).count() + 1
                }
            };
            let Some(to) = entries.get(count - 1).map(|last| last.zxid) else { return };
            self.history.bring(entries.drain(..count));
            let message = Message::Proposal { attempt, epoch, from, to, committed };
            self.zab.handle_message(self.now.mono_ms, peer, link, message, config);
            self.follow_zab();
            self.history.bring(std::iter::empty());
        }
    }

    /// Whom this server follows or observes, once that one is established.
    pub fn leader(&self) -> Option<ServerId> {
        match self.zab.role() {
            Role::Looking | Role::Leading => None,
            Role::Following(leader) | Role::Observing(leader) => Some(leader),
        }
    }

    pub(super) fn on_log_floor(&mut self, floor: Zxid) {
        self.zab.handle_log_floor(floor);
        self.follow_zab();
    }

    /// Everything readable was handled: the protocol judges silence.
    pub(super) fn on_protocol_due(&mut self) {
        self.note_busy();
        self.note_health();
        self.zab.handle_deadline(self.now.mono_ms);
        self.follow_zab();
        self.end_known_orphans();
    }
}
