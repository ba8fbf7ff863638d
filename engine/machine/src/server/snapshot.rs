//! Snapshots: sending a generation of the base to a lagging peer, or replacing this server's state
//! with one received.

use super::Server;
use super::fetches::Fetches;
use super::state::State;
use crate::BaseState;
use crate::seam::action::{Action, LogRecord};
use crate::seam::checkpoint::CheckpointMeta;
use crate::seam::ids::Generation;
use crate::seam::ids::{LinkId, TransferId};
use crate::seam::peer::{NotReceived, NotSent, PeerMessage, ReceivedSnapshot};
use crate::sessions::SessionTable;
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{AppendSeq, Message};

/// First delay before requesting another snapshot after a rejected one, in milliseconds. Each
/// snapshot may wear the flash by a whole base.
const NOT_TAKEN_PAUSE_MS: u64 = 1000;
/// Maximum of that delay, which doubles after each rejection. The sender keeps a snapshot ready for
/// a minute.
const NOT_TAKEN_PAUSE_MAX_MS: u64 = 32_000;

/// A generation that can be sent.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) generation: Generation,
    pub(super) meta: CheckpointMeta,
    /// Chain hash after its last entry.
    pub(super) chain: u128,
}

/// A snapshot that a leader sends to this server.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) peer: ServerId,
    link: LinkId,
    transfer: TransferId,
    meta: CheckpointMeta,
    chain: u128,
    /// Whether its bytes are being received.
    is_asked: bool,
    received: Option<ReceivedSnapshot>,
}

impl Incoming {
    pub(super) fn new(peer: ServerId, link: LinkId, transfer: TransferId, meta: CheckpointMeta, chain: u128) -> Self {
        Self { peer, link, transfer, meta, chain, is_asked: false, received: None }
    }
}

/// The last snapshot was rejected.
#[derive(Debug)]
pub(super) struct NotTaken {
    pub(super) reason: String,
    /// When to request the next snapshot, in milliseconds.
    pub(super) until_ms: u64,
    pause_ms: u64,
}

/// A received snapshot being installed: the log records it first, then the base is switched.
#[derive(Debug)]
pub(super) struct Installing {
    /// Append of the log record that names the snapshot.
    seq: AppendSeq,
    /// Whether that record is durable.
    is_named: bool,
    is_asked: bool,
    base: u64,
    state: BaseState,
    meta: CheckpointMeta,
    chain: u128,
}

/// Sending.
impl Server {
    /// Returns the base's generation if it includes `at_least`.
    ///
    /// Otherwise requests a checkpoint that does, and returns `None`.
    pub(super) fn snapshot_of(&mut self, at_least: Zxid) -> Option<Source> {
        if self.history.is_replaced {
            return None;
        }
        if let Some(source) = self.source().filter(|source| source.meta.zxid >= at_least) {
            return Some(source);
        }
        self.upkeep.want_checkpoint(at_least);
        self.maybe_checkpoint();
        None
    }

    fn source(&self) -> Option<Source> {
        let (meta, chain) = self.upkeep.base().filter(|(meta, _)| meta.zxid > Zxid::ZERO)?.clone();
        Some(Source { generation: self.state.generation(), meta, chain })
    }

    pub(super) fn send_snapshot(&mut self, peer: ServerId, link: LinkId, message: Box<Message>, source: Source) {
        let Source { generation, meta, chain } = source;
        self.peers.transfers += 1;
        let transfer = TransferId(self.peers.transfers);
        self.peers.sending.insert(transfer, (peer, link, meta.zxid));
        let sent = self.peers.snapshots.entry(peer).or_default();
        sent.begun += 1;
        let too_late = sent.over;
        self.hold_log();
        let message = PeerMessage::Snapshot { message, transfer, meta, chain };
        self.actions.push_back(Action::PeerSend { peer, link, message });
        self.actions.push_back(Action::SendSnapshot { peer, link, transfer, generation, chain, too_late });
    }

    /// Handles the end of a transfer: the last byte was sent, or the transfer broke off.
    ///
    /// The peer still has to write and verify the snapshot. Meanwhile the log moves on and may
    /// outrun it; then the peer needs another snapshot.
    pub(super) fn on_snapshot_sent(&mut self, transfer: TransferId, result: Result<(), NotSent>) {
        let Some((peer, link, _)) = self.peers.sending.remove(&transfer) else { return };
        self.hold_log();
        let reason = match result {
            Ok(()) => {
                if let Some(sent) = self.peers.snapshots.get_mut(&peer) {
                    sent.over += 1;
                }
                return;
            }
            // It did not come too late, so the next one keeps the rate that protects the writes.
            Err(NotSent::Cancelled) => return,
            Err(NotSent::Failed(reason)) => reason,
        };
        if let Some(left_out) = self.peers.log_limit.admit(("not sent", peer), self.now.mono_ms) {
            tracing::warn!(peer = peer.as_u8(), reason, left_out, "cannot send a snapshot");
        }
        if self.peers.stream(peer, link).is_some() {
            // The peer would wait for the rest forever; on a new link it asks again.
            self.zab.handle_unreadable(self.now.mono_ms, peer);
            self.follow_zab();
        }
    }

    /// Keeps the entries after each snapshot in flight in the log.
    fn hold_log(&mut self) {
        let above = self.peers.sending.values().map(|&(_, _, zxid)| zxid).min();
        if self.peers.log_held != above {
            self.peers.log_held = above;
            self.actions.push_back(Action::HoldLog { above });
        }
    }
}

/// Receiving.
impl Server {
    pub(super) fn on_snapshot_announced(&mut self, incoming: Incoming, message: Message) {
        let (peer, link, transfer) = (incoming.peer, incoming.link, incoming.transfer);
        let Message::Snap { attempt, .. } = message else {
            return self.refuse_link(peer, link, "it sent a snapshot without a Snap");
        };
        self.zab.handle_message(self.now.mono_ms, peer, link, message, None);
        // The announcement may belong to a finished attempt or a deposed leader. Its bytes must not
        // be taken for those of the current leader.
        if self.zab.awaits_snapshot(peer, attempt) {
            self.drop_incoming(|_| true);
            self.peers.incoming = Some(incoming);
        } else {
            self.actions.push_back(Action::DropSnapshot { peer, transfer });
        }
        self.follow_zab();
        self.receive();
    }

    /// Starts the transfer of an announced snapshot. Transfers run one at a time, and not right
    /// after a rejected one.
    pub(super) fn receive(&mut self) {
        let is_too_early = self.peers.not_taken.as_ref().is_some_and(|last| self.now.mono_ms < last.until_ms);
        if self.peers.installing.is_some() || is_too_early {
            return;
        }
        if let Some(incoming) = self.peers.incoming.as_mut().filter(|incoming| !incoming.is_asked) {
            incoming.is_asked = true;
            let Incoming { peer, link, transfer, ref meta, .. } = *incoming;
            let meta = meta.clone();
            self.actions.push_back(Action::ReceiveSnapshot { peer, link, transfer, meta });
        }
    }

    pub(super) fn drop_incoming(&mut self, which: impl FnOnce(&Incoming) -> bool) {
        if self.peers.incoming.as_ref().is_some_and(which)
            && let Some(Incoming { peer, transfer, .. }) = self.peers.incoming.take()
        {
            self.actions.push_back(Action::DropSnapshot { peer, transfer });
        }
    }

    pub(super) fn on_snapshot_received(
        &mut self,
        peer: ServerId,
        transfer: TransferId,
        result: Result<ReceivedSnapshot, NotReceived>,
    ) {
        let Some(incoming) =
            self.peers.incoming.as_mut().filter(|incoming| (incoming.peer, incoming.transfer) == (peer, transfer))
        else {
            return;
        };
        let result = result.and_then(|received| {
            let is_it = received.state.meta() == incoming.meta;
            let another = || NotReceived::NotTaken("its content differs from its announcement".into());
            if is_it { Ok(received) } else { Err(another()) }
        });
        match result {
            Ok(received) => {
                let zxid = incoming.meta.zxid;
                self.peers.not_taken = None;
                incoming.received = Some(received);
                self.zab.handle_snapshot(self.now.mono_ms, zxid);
                self.follow_zab();
                // Drop the snapshot if the protocol no longer wants it.
                self.drop_incoming(|incoming| incoming.received.is_some());
            }
            Err(failure) => {
                let (NotReceived::BrokeOff(reason) | NotReceived::NotTaken(reason)) = &failure;
                if let Some(left_out) = self.peers.log_limit.admit(("not received", peer), self.now.mono_ms) {
                    tracing::warn!(peer = peer.as_u8(), reason, left_out, "cannot receive a snapshot");
                }
                self.peers.incoming = None;
                if let NotReceived::NotTaken(reason) = failure {
                    self.put_off_receiving(reason);
                }
                self.zab.handle_snapshot_failed(self.now.mono_ms);
                self.follow_zab();
            }
        }
    }

    fn put_off_receiving(&mut self, reason: String) {
        let last_ms = self.peers.not_taken.as_ref().map(|last| last.pause_ms);
        let pause_ms = last_ms.map_or(NOT_TAKEN_PAUSE_MS, |last_ms| (last_ms * 2).min(NOT_TAKEN_PAUSE_MAX_MS));
        self.peers.not_taken = Some(NotTaken { reason, until_ms: self.now.mono_ms + pause_ms, pause_ms });
    }

    /// Returns when to start the transfer of a waiting snapshot.
    pub(super) fn receive_at_ms(&self) -> Option<u64> {
        let waits = self.peers.incoming.as_ref().is_some_and(|incoming| !incoming.is_asked);
        self.peers.not_taken.as_ref().map(|last| last.until_ms).filter(|_| waits && self.peers.installing.is_none())
    }

    /// Makes the received snapshot the history, with the append `seq`.
    ///
    /// The snapshot's entries are the state from then on, so no entry of the old history is applied
    /// any more.
    pub(super) fn replace_state(&mut self, seq: AppendSeq, zxid: Zxid) {
        let incoming = self.peers.incoming.take();
        let Some(Incoming { meta, chain, received: Some(ReceivedSnapshot { base, state }), .. }) = incoming else {
            return self.fail(format!("cannot end the history at {zxid:?}: its snapshot is missing"));
        };
        self.history.log.fact(seq, LogRecord::SnapEnd { base, zxid, chain });
        let cut = self.history.replace(chain);
        self.lose(&cut);
        self.history.is_replaced = true;
        self.peers.installing = Some(Installing { seq, is_named: false, is_asked: false, base, state, meta, chain });
        self.zab.set_installing(self.now.mono_ms, true);
        // Clients of the old state may have missed any number of changes.
        self.close_all();
    }

    /// Handles a damaged base; returns whether peers can repair it.
    ///
    /// A member serves nothing more from the base and asks for a snapshot to replace it.
    pub(super) fn lose_base(&mut self, what: &str) -> bool {
        let has_others = self.zab.config().voters().any(|voter| voter.id != self.zab.id());
        // A read-only disk cannot store a snapshot. It still serves readers what is sound.
        let is_repairable = has_others && !self.has_read_only_disk();
        if is_repairable && !self.history.is_replaced {
            tracing::error!(what, "the base is damaged; this server requests a snapshot to replace it");
            self.history.is_replaced = true;
            self.close_all();
            self.zab.handle_state_lost(self.now.mono_ms);
            self.follow_zab();
        }
        is_repairable
    }

    fn close_all(&mut self) {
        let open: Vec<_> = self.connections.keys().copied().collect();
        open.into_iter().for_each(|conn| self.close(conn));
    }

    /// Switches to the new base once the log names it durably.
    pub(super) fn maybe_install(&mut self, persisted: AppendSeq) {
        if let Some(installing) = &mut self.peers.installing {
            installing.is_named |= installing.seq <= persisted;
            self.install_when_quiet();
        }
    }

    /// Installs the snapshot, but not while a checkpoint of the old state is being written.
    ///
    /// That checkpoint would end up in the new base. It may hang.
    pub(super) fn install_when_quiet(&mut self) {
        let is_quiet = !self.upkeep.is_writing();
        let due = self.peers.installing.as_mut().filter(|it| is_quiet && it.is_named && !it.is_asked);
        if let Some(installing) = due {
            installing.is_asked = true;
            let base = installing.base;
            self.actions.push_back(Action::InstallSnapshot { base });
        }
    }

    pub(super) fn on_snapshot_installed(&mut self, generation: Generation) {
        let Some(Installing { state, meta, chain, .. }) = self.peers.installing.take() else { return };
        debug_assert!(!self.leads(), "a server that installs a snapshot does not stand for election");
        self.zab.set_installing(self.now.mono_ms, false);
        self.close_all();
        let cache_bytes_max = self.limits.record_cache_bytes as usize;
        self.state = State::new(Some(state), cache_bytes_max, self.settings.counted_at_once(), self.seed);
        let garbage = self.state.memory().thaw(generation);
        self.actions.push_back(Action::ReleaseGenerations { below: generation, garbage });
        let mut sessions = SessionTable::default();
        for (id, session) in self.state.sessions() {
            sessions.insert(id, session, self.now.mono_ms);
        }
        self.joining.lose_all(&mut self.sessions);
        sessions.adopt_sources(&self.sessions);
        self.sessions = sessions;
        self.history.continue_time(self.state.totals().ensemble_ms, self.now);
        self.make_room_for_global();
        self.fetches = Fetches::after(&self.fetches);
        self.peers.digests.clear();
        self.peers.differs.clear();
        self.upkeep.replaced(meta, chain);
        self.history.is_replaced = false;
        self.on_state_replaced();
        self.receive();
        self.serve_if_ready();
        self.apply_committed();
    }
}
