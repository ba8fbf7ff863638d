//! Links to the other members of the ensemble.

use super::Server;
use super::forward::Wanted;
use super::snapshot::{Incoming, Installing, NotTaken};
use super::stream::Stream;
use crate::derived::Derived;
use crate::seam::action::Action;
use crate::seam::ids::{Incarnation, LinkId, TransferId};
use crate::seam::log_rate_limit::LogRateLimit;
use crate::seam::peer::{Entries, PeerMessage};
use crate::txn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{Config, Fault, Message, Role};

/// Reason for closing the link to a peer with an impossible history. Such a history occurs only if
/// a disk went back in time. Both sides show it; the remote side shows at most 128 bytes.
const WENT_BACK: &str =
    "an older copy of a data directory was put back: committed entries differ; run zoolet status on the leader";

/// Reason for refusing entries that do not fit this server's log segments. The refusal repeats
/// until both servers have the same setting. If the server stopped instead, it would stop again at
/// every start.
const TOO_LARGE: &str =
    "an entry is too large for a segment of this server's log: give all servers the same log_segment_bytes";

/// Consecutive snapshots sent to one learner.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sent {
    pub(super) begun: u32,
    /// Those whose last byte was sent.
    pub(super) over: u32,
}

/// Links to peers and the transfers on them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// Rate limits for log messages about peers.
    pub(super) log_limit: LogRateLimit,
    streams: BTreeMap<ServerId, Stream>,
    /// Streams that may have something to send.
    pub(super) to_pump: BTreeSet<ServerId>,
    /// Log reads since the start.
    pub(super) reads: u64,
    /// The last number of a transfer. Each process of a server has other numbers: a transfer of its
    /// former process may still be waiting for its end at the peer.
    pub(super) transfers: u64,
    /// Transfers in flight with the last entry of each snapshot. The log continues from that entry.
    pub(super) sending: BTreeMap<TransferId, (ServerId, LinkId, Zxid)>,
    /// Leader: snapshots sent to each learner since it last received an epoch's initial history.
    pub(super) snapshots: BTreeMap<ServerId, Sent>,
    /// Entry above which the log was asked to keep everything.
    pub(super) log_held: Option<Zxid>,
    /// A snapshot announced to this server.
    pub(super) incoming: Option<Incoming>,
    /// Why the last snapshot was rejected. Cleared by an accepted one, or when this server serves.
    pub(super) not_taken: Option<NotTaken>,
    /// A snapshot that is the state from now on, but not yet the base.
    pub(super) installing: Option<Installing>,
    /// Digests of this server's state at the entries where all servers take them.
    pub(super) digests: VecDeque<(Zxid, u128)>,
    /// Learners' digests at entries that this server has not reached.
    pub(super) digests_said: BTreeMap<ServerId, VecDeque<(Zxid, u128)>>,
    /// Learners whose state differed from this leader's, each with the first such entry.
    pub(super) differs: BTreeMap<ServerId, Zxid>,
    /// Since when this server leads, in milliseconds.
    pub(super) led_since_ms: Option<u64>,
    /// Time of the last write, in milliseconds.
    pub(super) wrote_ms: Option<u64>,
}

impl Peers {
    /// Derives the transfer numbers from `number`, which must differ between processes.
    pub(super) fn new(number: u64) -> Self {
        // Halved, so that a process never comes to the end of the numbers.
        Self { transfers: number >> 1, ..Self::default() }
    }

    /// Returns the stream of exactly this link.
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

    /// Returns the peers with a link that is up.
    pub(super) fn ids(&self) -> Vec<ServerId> {
        self.streams.keys().copied().collect()
    }

    /// Returns the number of links that are up.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of waiting items and transfers in flight.
    pub(super) fn under_way(&self) -> usize {
        let waiting: usize = self.streams.values().map(Stream::len).sum();
        waiting + self.sending.len() + usize::from(self.incoming.is_some()) + usize::from(self.installing.is_some())
    }

    /// Returns the bytes held by streams.
    pub(super) fn bytes(&self) -> usize {
        self.streams.values().map(Stream::bytes).sum()
    }

    pub(super) fn derived(&self, derived: &mut Vec<Derived>) {
        self.streams.values().for_each(|stream| stream.derived(derived));
    }

    /// Schedules every stream to be examined again.
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

    /// Closes a link that the protocol drops.
    pub(super) fn close_link(&mut self, peer: ServerId, link: LinkId, fault: Fault) {
        let reason = match fault {
            Fault::WrongEnsemble => "its disk belongs to another ensemble",
            Fault::Behind => "it has fallen behind the log and must request a snapshot",
            Fault::WentBack => WENT_BACK,
            Fault::Protocol(what) => what,
        };
        if self.peers.stream(peer, link).is_some() {
            self.peers.streams.remove(&peer);
            self.on_link_lost(peer);
        }
        self.actions.push_back(Action::PeerClose { peer, link, reason });
    }

    /// Closes the link to a peer whose message no server of this release sends.
    pub(super) fn refuse_link(&mut self, peer: ServerId, link: LinkId, what: &'static str) {
        self.zab.handle_link_down(self.now.mono_ms, peer, link);
        self.close_link(peer, link, Fault::Protocol(what));
        self.follow_zab();
    }

    pub(super) fn on_peer_message(&mut self, peer: ServerId, link: LinkId, message: PeerMessage) {
        if self.peers.stream(peer, link).is_none() {
            // The message belongs to a link that was replaced or closed meanwhile.
            return;
        }
        match message {
            PeerMessage::Zab(message) => self.on_protocol(peer, link, *message),
            PeerMessage::Entries(entries) => self.on_entries(peer, link, entries),
            PeerMessage::Snapshot { message, transfer, meta, chain } => {
                self.on_snapshot_announced(Incoming::new(peer, link, transfer, meta, chain), *message);
            }
            PeerMessage::Forward { epoch, attempt, conn, since, payload } if self.leads_in(epoch) => {
                self.zab.answer_learners(self.now.mono_ms);
                // Return early: the proposal goes to the log and the learners together with all
                // others made before actions are polled.
                return self.on_forward(peer, link, Wanted { attempt, conn, since, payload });
            }
            PeerMessage::Revalidate { epoch, conn, session, secret, timeout_ms } if self.leads_in(epoch) => {
                // The pings of its confirmation end with the first quorum. All of those to this
                // learner may be lost.
                self.zab.answer_learners(self.now.mono_ms);
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
            PeerMessage::Refused { number, code } => self.on_refused(peer, number, code),
            PeerMessage::Revalidated { conn, session, up_to, since } if self.leader() == Some(peer) => {
                self.on_revalidated(conn, session, up_to, since);
                self.answer_syncs();
            }
            PeerMessage::Moved { session, conn } if self.leader() == Some(peer) => self.on_moved(session, conn),
            PeerMessage::Revalidated { .. } | PeerMessage::Moved { .. } => {}
            PeerMessage::Digest { zxid, digest } => self.on_digest(peer, zxid, digest),
            PeerMessage::Health(health) => self.on_health(peer, health),
        }
        self.follow_zab();
        self.apply_committed();
    }

    fn on_protocol(&mut self, peer: ServerId, link: LinkId, message: Message) {
        if matches!(message, Message::Proposal { .. } | Message::Snap { .. }) {
            return self.refuse_link(peer, link, "it sent a Proposal without entries, or a Snap without a snapshot");
        }
        if let Message::Ack { attempt, to, .. } = message
            && let Some(stream) = self.peers.stream(peer, link)
        {
            stream.acked(attempt, to);
            self.peers.to_pump.insert(peer);
        }
        if matches!(message, Message::Ping { .. }) {
            // The Pong reports whether the disk has room.
            self.note_health();
        }
        self.zab.handle_message(self.now.mono_ms, peer, link, message, None);
    }

    /// Hands entries to the protocol, which decides whether they are appended.
    ///
    /// An entry that changes the membership goes alone, with its configuration.
    fn on_entries(&mut self, peer: ServerId, link: LinkId, message: Entries) {
        let Entries { attempt, epoch, from, to, committed, chain_before, entries } = message;
        let mut expected = Some(from);
        for entry in &entries {
            if expected != Some(entry.zxid) || entry.zxid > to {
                return self.refuse_link(peer, link, "its entries do not match the range in their message");
            }
            expected = entry.zxid.next();
        }
        if entries.last().is_none_or(|last| last.zxid != to) {
            return self.refuse_link(peer, link, "its entries do not match the range in their message");
        }
        if self.zab.is_awaited(peer, attempt, epoch, from) {
            if chain_before != self.history.chain() {
                // Write nothing of this: the leader's history and this one differ where they must
                // be equal.
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
                    let is_plain = |entry: &&crate::seam::peer::PeerEntry| txn::membership(&entry.payload).is_none();
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

    /// Returns the server that this one follows or observes, once that leader is established.
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

    /// Lets the protocol judge silence, after everything readable was handled.
    pub(super) fn on_protocol_due(&mut self) {
        self.note_busy();
        self.note_health();
        self.zab.handle_deadline(self.now.mono_ms);
        self.follow_zab();
        self.end_known_orphans();
        if self.quorum_lacks_room() {
            // Refuse writes that wait for entries in flight: such entries may never be committed.
            self.admit_waiting();
        }
    }
}
