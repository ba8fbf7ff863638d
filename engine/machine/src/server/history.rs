//! Entries from proposal to apply.

use super::Server;
use super::fetches::Waiter;
use crate::derived::Derived;
use crate::limits::Limits;
use crate::record::chain_after;
use crate::seam::action::{Action, Append, FetchWhat, LogRecord, LogRecords};
use crate::seam::event::Now;
use crate::seam::ids::ConnId;
use crate::seam::ids::LinkId;
use crate::seam::peer::PeerEntry;
use crate::sessions::Phase;
use crate::state::Stuck;
use crate::status::ProposalBytes;
use crate::tree::{self, Applied, Buffers, Fired, Need, OpOutcome, Outcome};
use crate::txn::{self, Header, Txn, decode, encode};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use zoolet_model::{ConnectReply, ErrorCode, OpResult, Perms, Reply, ServerId, SessionId, WatchEvent, Zxid};
use zoolet_zab::{self as zab, AppendSeq};

/// Maximum entries applied per call, so that a turn of the core stays short.
const APPLY_MAX: usize = 256;

/// Capacity of the reused fetch list that is kept after a larger entry, in records.
const MISSING_KEPT: usize = 64;

/// The requester that waits for an entry's outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// No requester here: another server's entry, this server's own, or one from before a restart.
    None,
    /// A client's request.
    Request { conn: ConnId, xid: i32 },
    /// A connection whose session this entry creates.
    Connect { conn: ConnId, read_only_byte: bool },
    /// Leader: the learner that forwarded the entry, its link, and its number.
    Forwarded { peer: ServerId, link: LinkId, seq: u64 },
}

#[derive(Debug)]
struct Entry {
    zxid: Zxid,
    payload: Bytes,
    origin: Origin,
    /// Chain hash after this entry.
    chain: u128,
}

/// An in-memory entry that may be sent to peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'a> {
    pub(super) zxid: Zxid,
    pub(super) payload: &'a Bytes,
}

/// Entries appended, or about to be, and not yet applied, in strict order.
///
/// The newest applied entries stay in front of them while peers may need them and room is left.
#[derive(Debug)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    /// Number of applied entries kept at the front of `entries`.
    kept: usize,
    /// Payload bytes of the kept entries, and their maximum.
    kept_bytes: usize,
    kept_bytes_max: usize,
    /// Chain hash before the first of `entries`.
    chain_before: u128,
    /// Payload bytes of entries that are not applied.
    bytes: usize,
    /// Entries proposed by this server whose append the protocol has not requested yet.
    proposed: VecDeque<(Zxid, Bytes, Origin)>,
    /// Entries of the leader's message that is being handled.
    incoming: VecDeque<PeerEntry>,
    /// Records to hand to the log.
    unsent: Vec<LogRecord>,
    /// Chain hash before the first of `unsent`, if that is an entry.
    expect: Option<u128>,
    /// Append number of the last of `unsent`.
    unsent_seq: Option<AppendSeq>,
    /// Appends in flight to the log, with their payload bytes.
    unpersisted: VecDeque<(AppendSeq, u64)>,
    /// Payload bytes of all entries proposed and not yet persisted.
    unpersisted_bytes: u64,
    /// Size of a log segment, and its largest unused tail, in bytes. A tail stays unused because
    /// the next entry does not fit.
    segment_bytes: (u64, u64),
    log_bytes_used: u64,
    /// Checkpoint up to which the log had recycled segments at its last report.
    log_checkpoint: Zxid,
    buffer: BytesMut,
    /// Ensemble time at its last update, and the monotonic clock then, both in milliseconds.
    ensemble: (u64, u64),
    serving: bool,
    /// Clients see no older state than this: the entry committed when the current role began.
    serves_from: Zxid,
    /// The oldest unapplied entry waits for a record.
    waiting_for_base: bool,
    /// The state is being replaced by a snapshot, or must be replaced by one.
    pub(super) is_replaced: bool,
    /// The oldest unapplied entry waits for earlier requests of this connection.
    pub(super) waits_for_requests_of: Option<ConnId>,
    pub(super) acknowledged: u64,
    pub(super) proposals: ProposalBytes,
    /// Reused buffers in which entries are tried.
    buffers: Buffers,
    /// Reused list of the records an entry will need.
    missing: Vec<FetchWhat>,
    /// Watch events delivered late on purpose, for mutation tests.
    #[cfg(feature = "mutations")]
    pub(super) late_events: Vec<Action>,
}

impl History {
    /// Creates a history after `checkpoint`, whose chain hash is `chain`.
    ///
    /// Up to `kept_bytes_max` payload bytes of applied entries stay in memory.
    pub(super) fn new(
        limits: &Limits,
        ensemble_ms: u64,
        log_bytes_used: u64,
        (checkpoint, chain): (Zxid, u128),
        kept_bytes_max: usize,
        now: Now,
    ) -> Self {
        let segment_bytes = u64::from(limits.log_segment_bytes);
        Self {
            entries: VecDeque::new(),
            kept: 0,
            kept_bytes: 0,
            kept_bytes_max,
            chain_before: chain,
            bytes: 0,
            proposed: VecDeque::new(),
            incoming: VecDeque::new(),
            unsent: Vec::new(),
            expect: None,
            unsent_seq: None,
            unpersisted: VecDeque::new(),
            unpersisted_bytes: 0,
            segment_bytes: (segment_bytes, u64::from(limits.frame_bytes_max).min(segment_bytes / 2)),
            log_bytes_used,
            log_checkpoint: checkpoint,
            buffer: BytesMut::new(),
            ensemble: (ensemble_ms, now.mono_ms),
            serving: false,
            serves_from: Zxid::ZERO,
            waiting_for_base: false,
            is_replaced: false,
            waits_for_requests_of: None,
            acknowledged: 0,
            proposals: ProposalBytes::default(),
            buffers: Buffers::default(),
            missing: Vec::new(),
            #[cfg(feature = "mutations")]
            late_events: Vec::new(),
        }
    }

    pub(super) fn has_what_it_needs(&mut self) {
        self.waiting_for_base = false;
    }

    /// Returns whether the oldest unapplied entry must wait although it is committed.
    fn waits(&self) -> bool {
        self.waiting_for_base || self.is_replaced || self.waits_for_requests_of.is_some()
    }

    /// Returns the number of entries that are not applied.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.kept + self.proposed.len()
    }

    /// Returns the payload bytes of entries that are not applied.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of unapplied entries: payloads, queue slots and log records.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes + self.len() * (size_of::<Entry>() + size_of::<LogRecord>())
    }

    /// Returns the bytes held by applied entries that are kept for peers.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes + self.kept * size_of::<Entry>()
    }

    /// Returns log bytes in use. They include appends in flight and the segment tails that those
    /// may waste.
    pub(super) fn log_bytes(&self) -> u64 {
        let (segment, lost) = self.segment_bytes;
        self.log_bytes_used + self.unpersisted_bytes * segment / (segment - lost).max(1)
    }

    pub(super) fn log_bytes_used(&self) -> u64 {
        self.log_bytes_used
    }

    pub(super) fn log_checkpoint(&self) -> Zxid {
        self.log_checkpoint
    }

    pub(super) fn is_serving(&self) -> bool {
        self.serving
    }

    /// Returns the two times of an entry made now.
    ///
    /// Ensemble time continues from the last entry and never decreases.
    pub(super) fn header(&self, now: Now) -> Header {
        let (ensemble_ms, at_ms) = self.ensemble;
        Header { wall_ms: now.wall_ms, ensemble_ms: ensemble_ms + now.mono_ms.saturating_sub(at_ms) }
    }

    /// Detaches all waiting requesters from unapplied entries.
    pub(super) fn forget_origins(&mut self) {
        self.entries.range_mut(self.kept..).for_each(|entry| entry.origin = Origin::None);
        self.proposed.iter_mut().for_each(|(_, _, origin)| *origin = Origin::None);
        self.waits_for_requests_of = None;
    }

    /// Raises ensemble time to at least `ensemble_ms`.
    fn continue_time(&mut self, ensemble_ms: u64, now: Now) {
        let running_ms = self.header(now).ensemble_ms;
        self.ensemble = (running_ms.max(ensemble_ms), now.mono_ms);
    }

    /// Encodes an entry with the leader's two times.
    pub(super) fn encode(&mut self, now: Now, txn: &Txn<'_>) -> Bytes {
        let header = self.header(now);
        encode(header, txn, self.buffer())
    }

    /// Returns the buffer that entries are encoded in.
    ///
    /// Many small entries share its memory, which is freed when the last of them is applied.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() < 512 {
            self.buffer.reserve(16 << 10);
        }
        &mut self.buffer
    }

    /// Returns the chain hash after the last entry.
    pub(super) fn chain(&self) -> u128 {
        self.entries.back().map_or(self.chain_before, |entry| entry.chain)
    }

    /// Returns the chain hash after the last applied entry.
    pub(super) fn chain_applied(&self) -> u128 {
        self.kept.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(self.chain_before, |entry| entry.chain)
    }

    fn push(&mut self, zxid: Zxid, payload: Bytes, origin: Origin) {
        let chain = chain_after(self.chain(), zxid, &payload);
        self.bytes += payload.len();
        self.entries.push_back(Entry { zxid, payload, origin, chain });
    }

    fn send(&mut self, zxid: Zxid, payload: Bytes) {
        if self.unsent.is_empty() {
            self.expect = Some(self.chain());
        }
        self.unpersisted_bytes += payload.len() as u64;
        self.unsent.push(LogRecord::Entry { zxid, payload });
    }

    /// Queues a fact, a record other than an entry, for the log.
    pub(super) fn record(&mut self, seq: AppendSeq, fact: LogRecord) {
        self.unsent.push(fact);
        self.unsent_seq = Some(seq);
    }

    /// Takes everything queued for the log, as one append.
    fn hand_over(&mut self, watermark: Zxid) -> Option<Append> {
        let seq = self.unsent_seq.take()?;
        let records = LogRecords::drain(&mut self.unsent);
        self.unpersisted.push_back((seq, records.iter().map(payload_bytes).sum()));
        Some(Append { seq, records, watermark, expect: self.expect.take() })
    }

    fn persisted(&mut self, seq: AppendSeq, log_bytes_used: u64) {
        self.log_bytes_used = log_bytes_used;
        while let Some(&(appended, bytes)) = self.unpersisted.front()
            && appended <= seq
        {
            self.unpersisted.pop_front();
            self.unpersisted_bytes -= bytes;
        }
    }

    /// Returns the oldest entry that is not applied.
    fn next(&self) -> Option<&Entry> {
        self.entries.get(self.kept)
    }

    /// Marks the oldest unapplied entry as applied; returns its zxid and requester.
    ///
    /// The entry stays in memory for peers while room is left.
    fn pass(&mut self) -> Option<(Zxid, Origin)> {
        let entry = self.entries.get_mut(self.kept)?;
        let passed = (entry.zxid, std::mem::replace(&mut entry.origin, Origin::None));
        let bytes = entry.payload.len();
        self.bytes -= bytes;
        self.kept += 1;
        self.kept_bytes += bytes;
        while self.kept_bytes > self.kept_bytes_max || (self.kept_bytes_max == 0 && self.kept > 0) {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.kept -= 1;
            self.kept_bytes -= oldest.payload.len();
            self.chain_before = oldest.chain;
        }
        Some(passed)
    }

    /// Removes the entries above `to`, none of which is applied. Returns their requesters.
    fn truncate(&mut self, to: Zxid) -> Vec<Origin> {
        let mut cut = Vec::new();
        while self.entries.len() > self.kept
            && self.entries.back().is_some_and(|entry| entry.zxid > to)
            && let Some(entry) = self.entries.pop_back()
        {
            self.bytes -= entry.payload.len();
            cut.push(entry.origin);
        }
        cut
    }

    /// Removes all entries: a snapshot that ends with this chain hash replaces them.
    pub(super) fn replace(&mut self, chain: u128) -> Vec<Origin> {
        let cut = self.entries.drain(..).map(|entry| entry.origin).collect();
        (self.kept, self.kept_bytes, self.bytes) = (0, 0, 0);
        self.bytes = self.proposed.iter().map(|(_, payload, _)| payload.len()).sum();
        self.chain_before = chain;
        self.waiting_for_base = false;
        self.waits_for_requests_of = None;
        cut
    }

    /// Returns the zxid of the oldest entry in memory.
    pub(super) fn oldest(&self) -> Option<Zxid> {
        self.entries.front().map(|entry| entry.zxid)
    }

    /// Returns the entries from `from` on, with the chain hash before the first of them.
    ///
    /// `None` if the entry `from` is not in memory.
    pub(super) fn held(&self, from: Zxid) -> Option<(u128, impl Iterator<Item = Held<'_>>)> {
        let at = self.entries.partition_point(|entry| entry.zxid < from);
        self.entries.get(at).filter(|entry| entry.zxid == from)?;
        let chain =
            at.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(self.chain_before, |entry| entry.chain);
        let entries = self.entries.range(at..);
        Some((chain, entries.map(|Entry { zxid, payload, .. }| Held { zxid: *zxid, payload })))
    }

    /// Returns the number of connections whose sessions these entries create.
    pub(super) fn joining(&self) -> usize {
        let entries = self.entries.range(self.kept..).map(|entry| entry.origin);
        let proposed = self.proposed.iter().map(|&(_, _, origin)| origin);
        entries.chain(proposed).filter(|origin| matches!(origin, Origin::Connect { .. })).count()
    }

    pub(super) fn derived(&self, derived: &mut Vec<Derived>) {
        let proposed = self.proposed.iter().map(|(_, payload, _)| payload.len()).sum::<usize>();
        let entries = self.entries.range(self.kept..).map(|entry| entry.payload.len()).sum::<usize>();
        let kept = self.entries.range(..self.kept).map(|entry| entry.payload.len()).sum();
        let unsent = self.unsent.iter().map(payload_bytes).sum::<u64>();
        let appended = self.unpersisted.iter().map(|&(_, bytes)| bytes).sum::<u64>();
        let unpersisted = unsent as usize + appended as usize + proposed;
        derived.extend([
            Derived::new("unapplied_payload_bytes", self.bytes, entries + proposed),
            Derived::new("kept_payload_bytes", self.kept_bytes, kept),
            Derived::new("unpersisted_bytes", self.unpersisted_bytes as usize, unpersisted),
        ]);
    }

    /// Holds the entries of a leader's message until it is handled.
    pub(super) fn bring(&mut self, entries: impl Iterator<Item = PeerEntry>) {
        self.incoming.clear();
        self.incoming.extend(entries);
    }
}

impl Server {
    /// Proposes an entry, or forwards it to the leader.
    ///
    /// Returns false if no leader takes the entry, or the epoch has no zxids left.
    pub(super) fn propose(&mut self, txn: &Txn<'_>, origin: Origin) -> bool {
        let payload = self.history.encode(self.now, txn);
        self.propose_encoded(payload, txn, origin)
    }

    pub(super) fn propose_encoded(&mut self, payload: Bytes, txn: &Txn<'_>, origin: Origin) -> bool {
        let zxid = match self.zab.propose(self.now.mono_ms) {
            Ok(zxid) => zxid,
            Err(zab::Refused::NotLeading) => return self.forward(payload, origin),
            Err(full @ zab::Refused::EpochFull) => {
                self.fail(full.to_string());
                return false;
            }
            Err(
                zab::Refused::HandingOver
                | zab::Refused::ConfigPending
                | zab::Refused::ConfigInvalid
                | zab::Refused::NotCaughtUp(_)
                | zab::Refused::NoQuorum,
            ) => return false,
        };
        self.note_write();
        self.prefetch(txn);
        if let Origin::Forwarded { peer, link, seq } = origin {
            self.note_origin(peer, link, zxid, seq);
        }
        self.history.proposals.note(payload.len());
        self.history.bytes += payload.len();
        self.history.unpersisted_bytes += payload.len() as u64;
        self.history.proposed.push_back((zxid, payload, origin));
        true
    }

    /// Fetches the records that an entry will need while the log syncs.
    fn prefetch(&mut self, txn: &Txn<'_>) {
        if self.fetches_are_many() || self.history.is_replaced {
            // The entry fetches its records when its turn comes.
            return;
        }
        let mut missing = std::mem::take(&mut self.history.missing);
        let state = &mut self.state;
        tree::needs(txn, &mut |need| match need {
            Need::Znode(_) => missing.extend(need.missing_in(state)),
            // The ephemerals that the session will own are known only when the entry's turn comes.
            Need::Ephemerals(_) => {}
        });
        tree::foreseen_names(txn, state, &mut missing);
        for what in missing.drain(..) {
            self.fetch(what, Waiter::Nobody);
        }
        missing.shrink_to(MISSING_KEPT);
        self.history.missing = missing;
    }

    /// Handles an entry recovered from the log at start.
    pub(super) fn on_recovered(&mut self, zxid: Zxid, payload: Bytes) {
        if zxid > self.state.applied() {
            self.history.push(zxid, payload.clone(), Origin::None);
            self.apply_committed();
            // Usually the entry is applied by now. If it waits behind another entry's fetches,
            // fetch its records along with those.
            if self.state.applied() < zxid
                && let Ok((header, txn)) = decode(&payload)
            {
                self.history.continue_time(header.ensemble_ms, self.now);
                self.prefetch(&txn);
            }
        }
    }

    /// Carries out the protocol's actions. Appends are collected for [`Server::next_append`].
    pub(super) fn follow_zab(&mut self) {
        while let Some(action) = self.zab.poll_action(self.now.mono_ms) {
            match action {
                zab::Action::Promise { seq, epoch } => self.history.record(seq, LogRecord::Promise(epoch)),
                zab::Action::Epoch { seq, epoch } => self.history.record(seq, LogRecord::Epoch(epoch)),
                zab::Action::Birth { seq, ensemble } => {
                    self.history.record(seq, LogRecord::Birth { ensemble: ensemble.0 })
                }
                zab::Action::Damaged { seq } => self.history.record(seq, LogRecord::Damaged),
                zab::Action::Configs { seq } => {
                    let configs = self.configs();
                    self.history.record(seq, configs);
                }
                zab::Action::Truncate { seq, to } => {
                    let cut = self.history.truncate(to);
                    self.lose(&cut);
                    self.history.record(seq, LogRecord::Truncate { to });
                }
                zab::Action::SnapEnd { seq, zxid } => self.replace_state(seq, zxid),
                zab::Action::Append { seq, from, to } => self.append(seq, from, to),
                // Committed entries are found through the protocol's watermark when entries are
                // applied.
                zab::Action::Commit { .. } => {}
                zab::Action::Become(role) => self.become_role(role),
                zab::Action::Confirmed { round, up_to } => self.on_confirmed(round, up_to),
                zab::Action::Send { peer, link, message } => self.say(peer, link, message),
                zab::Action::Close { peer, link, fault } => self.close_link(peer, link, fault),
            }
        }
        self.pump_streams();
        self.note_own_lag();
    }

    /// Returns everything collected for the log, as one append.
    pub(super) fn next_append(&mut self) -> Option<Action> {
        if self.failed {
            return None;
        }
        self.history.hand_over(self.zab.committed()).map(Action::Append)
    }

    /// Appends entries proposed here, received from the leader, or made by the protocol itself.
    fn append(&mut self, seq: AppendSeq, from: Zxid, to: Zxid) {
        let mut next = Some(from);
        self.history.unsent_seq = Some(seq);
        while let Some(zxid) = next.filter(|zxid| *zxid <= to) {
            next = zxid.next();
            let (payload, origin) = match (self.history.proposed.front(), self.history.incoming.front()) {
                (Some((proposed, ..)), _) if *proposed == zxid => {
                    let Some((_, payload, origin)) = self.history.proposed.pop_front() else { return };
                    self.history.bytes -= payload.len();
                    self.history.unpersisted_bytes -= payload.len() as u64;
                    (payload, origin)
                }
                (_, Some(incoming)) if incoming.zxid == zxid => {
                    let Some(PeerEntry { payload, origin, .. }) = self.history.incoming.pop_front() else { return };
                    let origin = if origin == 0 { Origin::None } else { self.claim_forwarded(origin) };
                    // Entries that this release cannot decode are accepted too: apply is total.
                    if let Ok((header, txn)) = decode(&payload) {
                        self.history.continue_time(header.ensemble_ms, self.now);
                        self.prefetch(&txn);
                    }
                    (payload, origin)
                }
                _ => match self.entry_of_the_protocol(zxid) {
                    Some(payload) => (payload, Origin::None),
                    None => return self.fail(format!("entry {zxid:?} is to be appended, and nobody has it")),
                },
            };
            self.history.send(zxid, payload.clone());
            self.history.push(zxid, payload, origin);
        }
    }

    /// Closes the connections that wait for these entries, because the outcome is unknown.
    ///
    /// The entries were cut off, or no server will report their outcome to this one.
    pub(super) fn lose(&mut self, cut: &[Origin]) {
        for origin in cut {
            match *origin {
                Origin::Request { conn, .. } => self.close(conn),
                Origin::Connect { conn, .. } => {
                    self.joining.lose(&mut self.sessions, conn);
                    self.close(conn);
                }
                Origin::None | Origin::Forwarded { .. } => {}
            }
        }
    }

    /// Returns an epoch's first entry, or one that changes the membership. `None` for any other.
    fn entry_of_the_protocol(&mut self, zxid: Zxid) -> Option<Bytes> {
        let config = [self.zab.pending_config(), Some(self.zab.config())];
        let config = config.into_iter().flatten().find(|config| config.version == zxid).map(zab::Config::encode);
        match config {
            Some(config) => Some(self.history.encode(self.now, &Txn::Membership(&config))),
            None if zxid.counter() == 0 => Some(self.history.encode(self.now, &Txn::NoOp)),
            None => None,
        }
    }

    pub(super) fn on_persisted(&mut self, seq: AppendSeq, log_bytes_used: u64, checkpoint: Zxid) {
        self.history.persisted(seq, log_bytes_used);
        self.history.log_checkpoint = checkpoint;
        self.zab.handle_persisted(self.now.mono_ms, seq);
        self.follow_zab();
        self.maybe_install(seq);
        self.maybe_checkpoint();
        self.apply_committed();
    }

    pub(super) fn has_committed_work(&self) -> bool {
        !self.failed
            && !self.history.waits()
            && self.history.next().is_some_and(|entry| entry.zxid <= self.zab.applicable())
    }

    /// Applies committed entries in order, from memory.
    ///
    /// An entry waits if it needs a record from the base. It also waits if its session has an
    /// earlier request without an outcome.
    pub(super) fn apply_committed(&mut self) {
        if self.history.waits() {
            return;
        }
        for _ in 0..APPLY_MAX {
            let Some(entry) = self.history.next().filter(|entry| entry.zxid <= self.zab.applicable()) else {
                break;
            };
            if let Origin::Request { conn, .. } = entry.origin
                && !self.is_next_of(conn)
            {
                self.history.waits_for_requests_of = Some(conn);
                break;
            }
            let buffers = std::mem::take(&mut self.history.buffers);
            let Some(entry) = self.history.next() else { break };
            let asked_elsewhere = match entry.origin {
                Origin::Request { .. } | Origin::Connect { .. } => None,
                Origin::None | Origin::Forwarded { .. } => txn::writer(&entry.payload),
            };
            let since = self.state.memory_ref().stamp();
            let (totals, digest) = (*self.state.totals(), self.state.digest());
            match tree::apply(&mut self.state, totals, digest, entry.zxid, &entry.payload, buffers) {
                Ok(applied) => {
                    self.on_applied(applied);
                    if let Some(session) = asked_elsewhere {
                        self.leave_to_its_owner(session);
                    }
                }
                Err(Stuck::Missing(missing)) => {
                    self.history.waiting_for_base = true;
                    return self.fetch_all(missing, Waiter::Apply, since);
                }
                Err(Stuck::Damaged(what)) => return self.fail(what.into()),
            }
        }
        self.answer_syncs();
        self.end_known_orphans();
        self.maybe_resume();
        self.admit_waiting();
    }

    /// Installs an entry's changes, fires watches and answers its requester, all in one step.
    fn on_applied(&mut self, mut applied: Applied) {
        let Some((zxid, origin)) = self.history.pass() else { return };
        self.let_go(Waiter::Apply);
        self.state.install(zxid, &mut applied);
        self.note_reapable();
        self.note_digest(zxid);
        self.note_own_lag();
        self.serve_if_ready();
        for fired in &applied.fired {
            self.fire(zxid, fired);
        }
        let outcome = std::mem::replace(&mut applied.outcome, Outcome::Nothing);
        self.history.buffers = applied.into_buffers();
        self.settle(zxid, origin, outcome);
        self.maybe_checkpoint();
    }

    fn become_role(&mut self, role: zab::Role) {
        self.history.serving = false;
        self.history.serves_from = self.zab.committed();
        match role {
            zab::Role::Looking => {
                // A leader that hands over sends its last message in the turn in which it stops
                // leading.
                self.pump_streams();
                self.clear_streams();
            }
            zab::Role::Leading => {
                // All of its history is committed now, and is applied before anything it proposes.
                let ensemble_ms = self.state.totals().ensemble_ms;
                self.history.continue_time(ensemble_ms, self.now);
            }
            zab::Role::Following(_) | zab::Role::Observing(_) => {}
        }
        self.peers.led_since_ms = (role == zab::Role::Leading).then_some(self.now.mono_ms);
        self.on_role(role);
        self.serve_if_ready();
    }

    /// Starts serving clients once everything committed at this server's admission is applied.
    ///
    /// This includes the first entry of the leader's epoch. Before that, entries read back from the
    /// log, or missed while the server was away, would show clients an outdated state.
    pub(super) fn serve_if_ready(&mut self) {
        let is_ready = !self.history.serving
            && self.zab.role() != zab::Role::Looking
            && !self.history.is_replaced
            && self.state.applied() >= self.history.serves_from;
        if is_ready {
            self.history.serving = true;
            // If the log sufficed to catch up, a rejected snapshot no longer matters.
            self.peers.not_taken = None;
            self.on_serving();
        }
    }

    fn fire(&mut self, zxid: Zxid, fired: &Fired) {
        let Self { watches, connections, actions, .. } = self;
        watches.fire(fired.kind, &fired.path, &mut |conn| {
            // A watch is used up even when its owner may not see the event (surface 5.3).
            let told = connections.get(&conn).is_some_and(|connection| {
                connection.phase != Phase::Closed && connection.identity.may(Perms::READ, &fired.acl)
            });
            if told {
                let event = WatchEvent { kind: fired.kind, path: fired.path.clone(), zxid: zxid.as_i64() };
                #[cfg(feature = "mutations")]
                if zab::mutation::is_on(zab::Mutation::EventAtTail) {
                    return self.history.late_events.push(Action::Notify { conn, event });
                }
                actions.push_back(Action::Notify { conn, event });
            }
        });
    }

    /// Answers the requester of an entry, and updates the session table.
    fn settle(&mut self, zxid: Zxid, origin: Origin, outcome: Outcome) {
        match outcome {
            Outcome::SessionCreated(session) => {
                let id = SessionId(zxid.as_i64());
                self.sessions.insert(id, session, self.now.mono_ms);
                self.on_session_began(id);
                self.note_busy();
                if let Origin::Connect { conn, read_only_byte } = origin {
                    let reply = ConnectReply {
                        timeout_ms: i32::try_from(session.timeout_ms).unwrap_or(i32::MAX),
                        session: id,
                        secret: session.secret,
                        read_only_byte,
                    };
                    self.on_session_created(conn, reply);
                }
            }
            Outcome::SessionRenewed(session, timeout_ms) => {
                if let Some(timeout_ms) = timeout_ms {
                    self.sessions.renew(session, timeout_ms, self.now.mono_ms);
                    self.note_busy();
                }
            }
            Outcome::SessionClosed(session) => self.on_session_closed(zxid, origin, session),
            Outcome::Write(result) => self.on_outcome(zxid, origin, result.map(reply_to_write)),
            Outcome::Multi(result) => self.on_outcome(zxid, origin, reply_to_multi(result)),
            Outcome::Nothing | Outcome::Reaped(_) => {}
        }
    }

    fn on_outcome(&mut self, zxid: Zxid, origin: Origin, result: Result<Reply, ErrorCode>) {
        if let Origin::Request { conn, xid } = origin {
            self.history.acknowledged += 1;
            self.reply(conn, xid, zxid.as_i64(), result);
            self.on_write_done(conn);
        }
    }
}

fn payload_bytes(record: &LogRecord) -> u64 {
    if let LogRecord::Entry { payload, .. } = record { payload.len() as u64 } else { 0 }
}

fn reply_to_write(outcome: OpOutcome) -> Reply {
    match outcome {
        OpOutcome::Created { path, stat, with_stat: true } => Reply::PathStat(path, stat),
        OpOutcome::Created { path, with_stat: false, .. } => Reply::Path(path),
        OpOutcome::Deleted | OpOutcome::Checked => Reply::Empty,
        OpOutcome::DataSet(stat) | OpOutcome::AclSet(stat) => Reply::Stat(stat),
    }
}

/// Builds the reply to a multi.
///
/// # Errors
/// [`ErrorCode::MarshallingError`] fails the whole multi, as in ZooKeeper (surface 2.4).
fn reply_to_multi(result: Result<Vec<OpOutcome>, tree::MultiFailure>) -> Result<Reply, ErrorCode> {
    let results = match result {
        Ok(outcomes) => outcomes.into_iter().map(result_of_op).collect(),
        Err(failure) if failure.code == ErrorCode::MarshallingError => return Err(failure.code),
        Err(failure) => (0..failure.ops).map(|at| OpResult::Failed(code_at(at, failure))).collect(),
    };
    Ok(Reply::Multi(results))
}

fn result_of_op(outcome: OpOutcome) -> OpResult {
    match outcome {
        OpOutcome::Created { path, stat, with_stat: true } => OpResult::CreateStat(path, stat),
        OpOutcome::Created { path, with_stat: false, .. } => OpResult::Create(path),
        OpOutcome::Deleted => OpResult::Delete,
        OpOutcome::DataSet(stat) | OpOutcome::AclSet(stat) => OpResult::SetData(stat),
        OpOutcome::Checked => OpResult::Check,
    }
}

/// Returns the error that one operation of a failed multi reports (surface 2.4).
fn code_at(at: usize, failure: tree::MultiFailure) -> Option<ErrorCode> {
    match at.cmp(&failure.at) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal => Some(failure.code),
        std::cmp::Ordering::Greater => Some(ErrorCode::RuntimeInconsistency),
    }
}
