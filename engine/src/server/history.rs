//! Entries from proposal to apply.

use super::Server;
use super::fetches::Waiter;
use crate::action::{Action, Append, LogRecord};
use crate::event::{ConnId, Now};
use crate::limits::Limits;
use crate::peer::LinkId;
use crate::session::Phase;
use crate::tree::{self, Applied, Buffers, Fired, Need, OpOutcome, Outcome, Stuck};
use crate::txn::{Header, Txn, decode, encode};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use zoolet_model::{ConnectReply, ErrorCode, OpResult, Perms, Reply, ServerId, SessionId, WatchEvent, Zxid};
use zoolet_zab::{self as zab, AppendSeq};

/// Entries applied in one call, so that a turn of the core stays short.
const APPLY_MAX: usize = 256;

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
    #[allow(dead_code, reason = "sessions across servers are on their way")]
    Forwarded { peer: ServerId, link: LinkId, seq: u64 },
}

#[derive(Debug)]
struct Entry {
    zxid: Zxid,
    payload: Bytes,
    origin: Origin,
}

/// Entries that are appended, or about to be, and not yet applied; strictly in order.
#[derive(Debug)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    /// Bytes of their payloads.
    bytes: usize,
    /// Proposed, and not yet handed to the log.
    unsent: Vec<LogRecord>,
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
    /// The oldest entry waits for a record.
    waiting_for_base: bool,
    /// The oldest entry waits for what this connection asked before it.
    pub(super) waits_for_requests_of: Option<ConnId>,
    pub(super) acknowledged: u64,
    /// What entries are tried in.
    buffers: Buffers,
}

impl History {
    pub(super) fn new(limits: &Limits, ensemble_ms: u64, log_bytes_used: u64, checkpoint: Zxid, now: Now) -> Self {
        let segment_bytes = u64::from(limits.log_segment_bytes);
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            unsent: Vec::new(),
            unpersisted: VecDeque::new(),
            unpersisted_bytes: 0,
            segment_bytes: (segment_bytes, u64::from(limits.frame_bytes_max).min(segment_bytes / 2)),
            log_bytes_used,
            log_checkpoint: checkpoint,
            buffer: BytesMut::new(),
            ensemble: (ensemble_ms, now.mono_ms),
            serving: false,
            waiting_for_base: false,
            waits_for_requests_of: None,
            acknowledged: 0,
            buffers: Buffers::default(),
        }
    }

    pub(super) fn has_what_it_needs(&mut self) {
        self.waiting_for_base = false;
    }

    /// Whether the oldest entry waits for something, although it is committed.
    fn waits(&self) -> bool {
        self.waiting_for_base || self.waits_for_requests_of.is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Their payloads, and their places here and on the way to the log.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes + self.entries.len() * (size_of::<Entry>() + size_of::<LogRecord>())
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

    /// The two times of a leader's entry. Ensemble time continues where the last entry left it and only grows.
    pub(super) fn header(&self, now: Now) -> Header {
        let (ensemble_ms, at_ms) = self.ensemble;
        Header { wall_ms: now.wall_ms, ensemble_ms: ensemble_ms + now.mono_ms.saturating_sub(at_ms) }
    }

    /// Nobody here waits any more for what is under way.
    pub(super) fn forget_origins(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.origin = Origin::None);
    }

    /// Encodes an entry with this server's two times.
    pub(super) fn encode(&mut self, now: Now, txn: &Txn<'_>) -> Bytes {
        let header = self.header(now);
        if self.buffer.capacity() < 512 {
            // Many small entries share a buffer; it goes when the last of them is applied.
            self.buffer.reserve(16 << 10);
        }
        encode(header, txn, &mut self.buffer)
    }

    fn push(&mut self, zxid: Zxid, payload: Bytes, origin: Origin) {
        self.bytes += payload.len();
        self.entries.push_back(Entry { zxid, payload, origin });
    }

    fn send(&mut self, zxid: Zxid, payload: Bytes) {
        self.unpersisted_bytes += payload.len() as u64;
        self.unsent.push(LogRecord::Entry { zxid, payload });
    }

    fn hand_over(&mut self, seq: AppendSeq) -> Vec<LogRecord> {
        let bytes = self.unsent.iter().map(payload_bytes).sum();
        self.unpersisted.push_back((seq, bytes));
        std::mem::take(&mut self.unsent)
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
}

impl Server {
    /// Proposes an entry; false when this server does not lead or its epoch is used up.
    pub(super) fn propose(&mut self, txn: &Txn<'_>, origin: Origin) -> bool {
        let payload = self.history.encode(self.now, txn);
        self.propose_encoded(payload, txn, origin)
    }

    pub(super) fn propose_encoded(&mut self, payload: Bytes, txn: &Txn<'_>, origin: Origin) -> bool {
        let zxid = match self.zab.propose(self.now.mono_ms) {
            Ok(zxid) => zxid,
            Err(zab::Refused::NotLeading | zab::Refused::HandingOver) => return self.forward(payload, origin),
            Err(refused) => {
                self.fail(refused.to_string());
                return false;
            }
        };
        self.prefetch(txn);
        self.history.push(zxid, payload.clone(), origin);
        self.history.send(zxid, payload);
        true
    }

    /// What the entry will need is fetched while the log syncs.
    fn prefetch(&mut self, txn: &Txn<'_>) {
        if self.fetches_are_many() {
            // It asks when its turn has come.
            return;
        }
        let mut missing = Vec::new();
        let state = &mut self.state;
        tree::needs(txn, &mut |need| match need {
            Need::Znode(_) => missing.extend(need.missing_in(state)),
            // What the session owns by then is known only when its turn comes.
            Need::Ephemerals(_) => {}
        });
        missing.append(&mut tree::foreseen_names(txn, state));
        for what in missing {
            self.fetch(what, Waiter::Nobody);
        }
    }

    /// An entry of the log, handed in at start.
    pub(super) fn on_recovered(&mut self, zxid: Zxid, payload: Bytes) {
        if zxid > self.state.applied() {
            self.history.push(zxid, payload.clone(), Origin::None);
            self.apply_committed();
            // Mostly it is applied by now. What it needs while it waits for another's records is fetched with those.
            if self.state.applied() < zxid
                && let Ok((_, txn)) = decode(&payload)
            {
                self.prefetch(&txn);
            }
        }
    }

    /// Carries out what the protocol wants done; everything it wants appended goes out as one append.
    pub(super) fn follow_zab(&mut self) {
        let mut last = None;
        while let Some(action) = self.zab.poll_action(self.now.mono_ms) {
            match action {
                zab::Action::Promise { seq, epoch } => {
                    self.history.unsent.push(LogRecord::Promise(epoch));
                    last = Some(seq);
                }
                zab::Action::Epoch { seq, epoch } => {
                    self.history.unsent.push(LogRecord::Epoch(epoch));
                    last = Some(seq);
                }
                zab::Action::Birth { seq, ensemble } => {
                    self.history.unsent.push(LogRecord::Birth { ensemble: ensemble.0 });
                    last = Some(seq);
                }
                zab::Action::Configs { seq } => {
                    let committed = Bytes::copy_from_slice(&self.zab.config().encode());
                    let pending = self.zab.pending_config().map(|pending| Bytes::copy_from_slice(&pending.encode()));
                    let last_seen = pending.unwrap_or_else(|| committed.clone());
                    self.history.unsent.push(LogRecord::Config { committed, last_seen });
                    last = Some(seq);
                }
                zab::Action::Append { seq, from, .. } => {
                    if from.counter() == 0 {
                        let config = self.zab.config();
                        let payload = if config.version == from {
                            let config = config.encode();
                            self.history.encode(self.now, &Txn::Membership(&config))
                        } else {
                            self.history.encode(self.now, &Txn::NoOp)
                        };
                        self.history.push(from, payload.clone(), Origin::None);
                        self.history.send(from, payload);
                    }
                    last = Some(seq);
                }
                zab::Action::Commit { .. } => {}
                zab::Action::Become(role @ zab::Role::Leading) => {
                    self.on_role(role);
                    let ensemble_ms = self.state.totals().ensemble_ms.max(self.history.ensemble.0);
                    self.history.ensemble = (ensemble_ms, self.now.mono_ms);
                }
                zab::Action::Become(role @ zab::Role::Looking) => {
                    self.history.serving = false;
                    self.on_role(role);
                }
                zab::Action::Confirmed { round, up_to } => self.on_confirmed(round, up_to),
                zab::Action::Truncate { .. }
                | zab::Action::SnapEnd { .. }
                | zab::Action::Become(zab::Role::Following(_) | zab::Role::Observing(_))
                | zab::Action::Send { .. }
                | zab::Action::Close { .. } => self.fail(format!("one server alone does nothing like {action:?}")),
            }
        }
        if let Some(seq) = last {
            let records = self.history.hand_over(seq);
            self.actions.push_back(Action::Append(Append {
                seq,
                records,
                watermark: self.zab.committed(),
                expect: None,
            }));
        }
    }

    pub(super) fn on_persisted(&mut self, seq: AppendSeq, log_bytes_used: u64, checkpoint: Zxid) {
        self.history.persisted(seq, log_bytes_used);
        self.history.log_checkpoint = checkpoint;
        self.zab.handle_persisted(self.now.mono_ms, seq);
        self.follow_zab();
        self.maybe_checkpoint();
        self.apply_committed();
    }

    pub(super) fn has_committed_work(&self) -> bool {
        !self.failed
            && !self.history.waits()
            && self.history.entries.front().is_some_and(|entry| entry.zxid <= self.zab.applicable())
    }

    /// Applies what is committed, in order, from memory. An entry that needs a record waits for it, and so does one whose session asked for
    /// something before it that needs one.
    pub(super) fn apply_committed(&mut self) {
        if self.history.waits() {
            return;
        }
        for _ in 0..APPLY_MAX {
            let Some(entry) = self.history.entries.front().filter(|entry| entry.zxid <= self.zab.applicable()) else {
                break;
            };
            if let Origin::Request { conn, .. } = entry.origin
                && !self.is_next_of(conn)
            {
                self.history.waits_for_requests_of = Some(conn);
                break;
            }
            let Some(entry) = self.history.entries.front() else { break };
            let since = self.state.memory_ref().stamp();
            let (totals, digest) = (*self.state.totals(), self.state.digest());
            let buffers = std::mem::take(&mut self.history.buffers);
            match tree::apply(&mut self.state, totals, digest, entry.zxid, &entry.payload, buffers) {
                Ok(applied) => self.on_applied(applied),
                Err(Stuck::Missing(missing)) => {
                    self.history.waiting_for_base = true;
                    return self.fetch_all(missing, Waiter::Apply, since);
                }
                Err(Stuck::Damaged(what)) => return self.fail(what.into()),
            }
        }
        self.answer_syncs();
        self.admit_waiting();
    }

    /// Installs an entry's changes, fires watches, fills the slot: one step, nothing in between.
    fn on_applied(&mut self, mut applied: Applied) {
        let Some(Entry { zxid, payload, origin }) = self.history.entries.pop_front() else { return };
        self.history.bytes -= payload.len();
        self.let_go(Waiter::Apply);
        self.fetches.apply_retries = 0;
        self.state.install(zxid, &mut applied);
        self.note_reapable();
        // Not the opening of an earlier epoch that is read back from the log at start.
        if zxid == Zxid::first_of(self.zab.epoch()) && self.zab.role() == zab::Role::Leading {
            self.history.serving = true;
            self.on_serving();
        }
        for fired in &applied.fired {
            self.fire(zxid, fired);
        }
        let outcome = std::mem::replace(&mut applied.outcome, Outcome::Nothing);
        self.history.buffers = applied.into_buffers();
        self.settle(zxid, origin, outcome);
        self.maybe_checkpoint();
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
                self.on_session_began(origin);
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
