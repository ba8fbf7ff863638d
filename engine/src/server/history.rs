//! Entries from proposal to apply.

use super::Server;
use super::derived::Derived;
use super::fetches::Waiter;
use crate::action::{Action, Append, FetchWhat, LogRecord, LogRecords};
use crate::event::{ConnId, Now};
use crate::limits::Limits;
use crate::peer::{LinkId, PeerEntry};
use crate::session::Phase;
use crate::status::ProposalBytes;
use crate::store::log::chain_after;
use crate::tree::{self, Applied, Buffers, Fired, Need, OpOutcome, Outcome, Stuck};
use crate::txn::{self, Header, Txn, decode, encode};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use zoolet_model::{ConnectReply, ErrorCode, OpResult, Perms, Reply, ServerId, SessionId, WatchEvent, Zxid};
use zoolet_zab::{self as zab, AppendSeq};

/// Entries applied in one call, so that a turn of the core stays short.
const APPLY_MAX: usize = 256;

/// Records of which an entry that needed more leaves the places.
const MISSING_KEPT: usize = 64;

/// Who waits for an entry's outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// Nobody here: another server's, this server's own, or one from before a restart.
    None,
    /// A request.
    Request { conn: ConnId, xid: i32 },
    /// A connection whose session this entry creates.
    Connect { conn: ConnId, read_only_byte: bool },
    /// Leader: a learner that forwarded it under this number, on this link.
    Forwarded { peer: ServerId, link: LinkId, seq: u64 },
}

#[derive(Debug)]
struct Entry {
    zxid: Zxid,
    payload: Bytes,
    origin: Origin,
    /// The chain hash after it.
    chain: u128,
}

/// An entry that peers may be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'a> {
    pub(super) zxid: Zxid,
    pub(super) payload: &'a Bytes,
}

/// Entries that are appended, or about to be, and not yet applied; strictly in order. Before them the newest that are applied, as long as peers
/// may want them and there is room.
#[derive(Debug)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    /// How many of them, the oldest, are applied.
    kept: usize,
    /// Bytes of those, and how many there may be.
    kept_bytes: usize,
    kept_bytes_max: usize,
    /// The chain hash before the first of `entries`.
    chain_before: u128,
    /// Bytes of payloads that are not applied.
    bytes: usize,
    /// Proposed by this server; the protocol has not asked for their append yet.
    proposed: VecDeque<(Zxid, Bytes, Origin)>,
    /// Those of the message from the leader that is being handled.
    incoming: VecDeque<PeerEntry>,
    /// To be handed to the log.
    unsent: Vec<LogRecord>,
    /// The chain hash before the first of `unsent`, when that is an entry.
    expect: Option<u128>,
    /// The protocol's number of the last of `unsent`.
    unsent_seq: Option<AppendSeq>,
    /// Appends handed to the log and not yet persisted, with their payload bytes.
    unpersisted: VecDeque<(AppendSeq, u64)>,
    /// Bytes of all entries that are proposed and not persisted.
    unpersisted_bytes: u64,
    /// Of how many bytes of a segment at most how many are lost at its end, because the next entry does not fit.
    segment_bytes: (u64, u64),
    log_bytes_used: u64,
    /// The checkpoint up to which the log had recycled when it said so.
    log_checkpoint: Zxid,
    buffer: BytesMut,
    /// Ensemble time, and the clock it was read at.
    ensemble: (u64, u64),
    serving: bool,
    /// Nothing older is shown to clients: what was committed when this server's role began.
    serves_from: Zxid,
    /// The oldest entry waits for a record.
    waiting_for_base: bool,
    /// The state is being replaced by a snapshot, or waits for one.
    pub(super) is_replaced: bool,
    /// The oldest entry waits for what this connection asked before it.
    pub(super) waits_for_requests_of: Option<ConnId>,
    pub(super) acknowledged: u64,
    pub(super) proposals: ProposalBytes,
    /// What entries are tried in.
    buffers: Buffers,
    /// What an entry will need is collected in.
    missing: Vec<FetchWhat>,
    /// Events that are told too late, on purpose.
    #[cfg(feature = "mutations")]
    pub(super) late_events: Vec<Action>,
}

impl History {
    /// After `checkpoint`, where the chain hash is `chain`. Of applied entries so many bytes are kept.
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

    /// Whether the oldest entry waits for something, although it is committed.
    fn waits(&self) -> bool {
        self.waiting_for_base || self.is_replaced || self.waits_for_requests_of.is_some()
    }

    /// Entries that are not applied.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.kept + self.proposed.len()
    }

    /// Bytes of their payloads.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Their payloads, and their places here and on the way to the log.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes + self.len() * (size_of::<Entry>() + size_of::<LogRecord>())
    }

    /// What is kept of applied entries.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes + self.kept * size_of::<Entry>()
    }

    /// Log bytes in use, with those that are on their way and what they may waste.
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

    /// The two times of an entry that is made now. Ensemble time continues where the last entry left it and only grows.
    pub(super) fn header(&self, now: Now) -> Header {
        let (ensemble_ms, at_ms) = self.ensemble;
        Header { wall_ms: now.wall_ms, ensemble_ms: ensemble_ms + now.mono_ms.saturating_sub(at_ms) }
    }

    /// Nobody here waits any more for what is under way.
    pub(super) fn forget_origins(&mut self) {
        self.entries.range_mut(self.kept..).for_each(|entry| entry.origin = Origin::None);
        self.proposed.iter_mut().for_each(|(_, _, origin)| *origin = Origin::None);
        self.waits_for_requests_of = None;
    }

    /// Ensemble time is not less than this now.
    fn continue_time(&mut self, ensemble_ms: u64, now: Now) {
        let running_ms = self.header(now).ensemble_ms;
        self.ensemble = (running_ms.max(ensemble_ms), now.mono_ms);
    }

    /// Encodes an entry with the leader's two times.
    pub(super) fn encode(&mut self, now: Now, txn: &Txn<'_>) -> Bytes {
        let header = self.header(now);
        encode(header, txn, self.buffer())
    }

    /// The buffer that entries are encoded in. Many small ones share it; it goes when the last of them is applied.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() < 512 {
            self.buffer.reserve(16 << 10);
        }
        &mut self.buffer
    }

    /// The chain hash after the last entry.
    pub(super) fn chain(&self) -> u128 {
        self.entries.back().map_or(self.chain_before, |entry| entry.chain)
    }

    /// The chain hash after the last applied entry.
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

    /// A fact for the log.
    pub(super) fn record(&mut self, seq: AppendSeq, fact: LogRecord) {
        self.unsent.push(fact);
        self.unsent_seq = Some(seq);
    }

    /// All that the log is to be handed, as one append.
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

    /// The oldest entry that is not applied.
    fn next(&self) -> Option<&Entry> {
        self.entries.get(self.kept)
    }

    /// It is applied now: gives who asked for it, and keeps it for peers while there is room.
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

    /// Entries above `to` go; none of them is applied.
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

    /// All entries go: a snapshot that ends with this chain hash takes their place.
    pub(super) fn replace(&mut self, chain: u128) -> Vec<Origin> {
        let cut = self.entries.drain(..).map(|entry| entry.origin).collect();
        (self.kept, self.kept_bytes, self.bytes) = (0, 0, 0);
        self.bytes = self.proposed.iter().map(|(_, payload, _)| payload.len()).sum();
        self.chain_before = chain;
        self.waiting_for_base = false;
        self.waits_for_requests_of = None;
        cut
    }

    /// The oldest entry that is in memory.
    pub(super) fn oldest(&self) -> Option<Zxid> {
        self.entries.front().map(|entry| entry.zxid)
    }

    /// Entries from `from` on, if they are in memory, with the chain hash before the first of them.
    pub(super) fn held(&self, from: Zxid) -> Option<(u128, impl Iterator<Item = Held<'_>>)> {
        let at = self.entries.partition_point(|entry| entry.zxid < from);
        self.entries.get(at).filter(|entry| entry.zxid == from)?;
        let chain =
            at.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(self.chain_before, |entry| entry.chain);
        let entries = self.entries.range(at..);
        Some((chain, entries.map(|Entry { zxid, payload, .. }| Held { zxid: *zxid, payload })))
    }

    /// Connections whose sessions these entries begin.
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

    /// Entries of a message from the leader, until it is handled.
    pub(super) fn bring(&mut self, entries: impl Iterator<Item = PeerEntry>) {
        self.incoming.clear();
        self.incoming.extend(entries);
    }
}

impl Server {
    /// Proposes an entry, or forwards it to the leader; false when there is none, or its epoch is used up.
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

    /// What the entry will need is fetched while the log syncs.
    fn prefetch(&mut self, txn: &Txn<'_>) {
        if self.fetches_are_many() || self.history.is_replaced {
            // It asks when its turn has come.
            return;
        }
        let mut missing = std::mem::take(&mut self.history.missing);
        let state = &mut self.state;
        tree::needs(txn, &mut |need| match need {
            Need::Znode(_) => missing.extend(need.missing_in(state)),
            // What the session owns by then is known only when its turn comes.
            Need::Ephemerals(_) => {}
        });
        tree::foreseen_names(txn, state, &mut missing);
        for what in missing.drain(..) {
            self.fetch(what, Waiter::Nobody);
        }
        missing.shrink_to(MISSING_KEPT);
        self.history.missing = missing;
    }

    /// An entry of the log, handed in at start.
    pub(super) fn on_recovered(&mut self, zxid: Zxid, payload: Bytes) {
        if zxid > self.state.applied() {
            self.history.push(zxid, payload.clone(), Origin::None);
            self.apply_committed();
            // Mostly it is applied by now. What it needs while it waits for another's records is fetched with those.
            if self.state.applied() < zxid
                && let Ok((header, txn)) = decode(&payload)
            {
                self.history.continue_time(header.ensemble_ms, self.now);
                self.prefetch(&txn);
            }
        }
    }

    /// Carries out what the protocol wants done. What it wants appended is collected: [`Server::next_append`].
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
                // It is asked for when entries are applied.
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

    /// Everything that was collected, as one append.
    pub(super) fn next_append(&mut self) -> Option<Action> {
        if self.failed {
            return None;
        }
        self.history.hand_over(self.zab.committed()).map(Action::Append)
    }

    /// Appends entries that were proposed here or came from the leader; those that the protocol itself decides on are made.
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
                    // It need not mean anything to this release: apply is total.
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

    /// What these asked for will not be, or is not told by anybody any more: their connections end, the outcome is unknown.
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

    /// The first entry of an epoch, or one that changes the membership.
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

    /// Applies what is committed, in order, from memory. An entry that needs a record waits for it, and so does one whose session asked for
    /// something before it that needs one.
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

    /// Installs an entry's changes, fires watches, fills the slot: one step, nothing in between.
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
                // A leader that hands over says so in the turn in which it stops to lead.
                self.pump_streams();
                self.clear_streams();
            }
            zab::Role::Leading => {
                // All of its history is committed now, and applied before anything it proposes.
                let ensemble_ms = self.state.totals().ensemble_ms;
                self.history.continue_time(ensemble_ms, self.now);
            }
            zab::Role::Following(_) | zab::Role::Observing(_) => {}
        }
        self.peers.led_since_ms = (role == zab::Role::Leading).then_some(self.now.mono_ms);
        self.on_role(role);
        self.serve_if_ready();
    }

    /// Clients are served when everything is applied that was committed as this server was taken in, the first entry of the leader's epoch among it.
    /// Not earlier: what is read back from the log, or was missed while it was away, is older than anybody may be shown.
    pub(super) fn serve_if_ready(&mut self) {
        let is_ready = !self.history.serving
            && self.zab.role() != zab::Role::Looking
            && !self.history.is_replaced
            && self.state.applied() >= self.history.serves_from;
        if is_ready {
            self.history.serving = true;
            // Whatever it was taken in by: a log that reached back to it will do as well as a snapshot.
            self.peers.not_taken = None;
            self.on_serving();
        }
    }

    fn fire(&mut self, zxid: Zxid, fired: &Fired) {
        let Self { watches, connections, actions, .. } = self;
        watches.fire(fired.kind, &fired.path, &mut |conn| {
            // A watch is used up even when its owner may not be told (surface 5.3).
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

    /// Tells whoever asked, and follows sessions.
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

/// # Errors
/// What ZooKeeper stumbles over inside a multi fails all of it (surface 2.4).
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

/// What each operation of a failed multi is told (surface 2.4).
fn code_at(at: usize, failure: tree::MultiFailure) -> Option<ErrorCode> {
    match at.cmp(&failure.at) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal => Some(failure.code),
        std::cmp::Ordering::Greater => Some(ErrorCode::RuntimeInconsistency),
    }
}
