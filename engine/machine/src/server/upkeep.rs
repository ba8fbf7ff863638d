//! Background work of a server: checkpoints, reaping of containers, and status.

use super::Server;
use super::admission::{Admission, Need};
use super::fetches::Waiter;
use super::history::Origin;
use crate::record::key::{self, Key};
use crate::seam::action::{Action, FIRST_KEYS_MAX, FetchWhat};
use crate::seam::checkpoint::{Checkpoint, CheckpointMeta};
use crate::seam::event::{List, Now};
use crate::seam::health::Shortage;
use crate::seam::ids::Generation;
use crate::sessions::Phase;
use crate::state::Changes;
use crate::state::View;
use crate::status::Status;
use crate::txn::Txn;
use std::collections::VecDeque;
use std::sync::Arc;
use zoolet_model::{SessionId, Text, Zxid};

/// First delay before retrying a failed checkpoint, in milliseconds. Doubled after each failure.
const CHECKPOINT_RETRY_MS: u64 = 1000;
const CHECKPOINT_RETRY_MAX_MS: u64 = 30_000;
/// How long one checkpoint holds writes before this server wants another voter to lead, in
/// milliseconds.
///
/// A checkpoint under load on a slow card holds writes for a few seconds.
const HELD_MS: u64 = 10_000;
/// Maximum containers proposed for reaping in one turn: as many as one answer of the base names.
const REAP_AT_ONCE: usize = FIRST_KEYS_MAX;

#[derive(Debug)]
pub(super) struct Upkeep {
    /// The last entry in the base.
    checkpointed: Zxid,
    /// Contents of the base and the chain hash after it. `None` if no checkpoint was ever written.
    base: Option<(CheckpointMeta, u128)>,
    /// Changes being written by a checkpoint, and the chain hash after them.
    writing: Option<(Arc<Changes>, CheckpointMeta, u128)>,
    /// A peer needs a checkpoint that includes this entry.
    wanted: Option<Zxid>,
    retry_at_ms: Option<u64>,
    retry_ms: u64,
    checkpoint_failure: Option<String>,
    /// Since when writes have had no room because the present checkpoint has not ended.
    held_since_ms: Option<u64>,
    /// The disk has room for deletions only. Deletions free space once they reach the base, so
    /// checkpoints follow soon.
    shortage: Option<Shortage>,
    checkpoints: u64,
    checkpoints_failed: u64,
    reap_at_ms: u64,
    /// Whether any container was reapable at the last look.
    reapable: bool,
    /// Containers still to propose, as far as the last fetch found them.
    to_reap: VecDeque<Key>,
    /// The key from which this check of all containers goes on. `None`: the next check starts over.
    reap_from: Option<Key>,
    pub(super) log_stalled: Option<Stall>,
    pub(super) sessions_expired: u64,
}

/// A log that cannot write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stall {
    pub(super) since_ms: u64,
    pub(super) is_read_only: bool,
}

impl Upkeep {
    /// Creates the state at start. As in ZooKeeper, containers are first examined one interval
    /// later.
    pub(super) fn new(base: Option<(CheckpointMeta, u128)>, now: Now, container_check_interval_ms: u32) -> Self {
        Self {
            checkpointed: base.as_ref().map_or(Zxid::ZERO, |(meta, _)| meta.zxid),
            base,
            writing: None,
            wanted: None,
            retry_at_ms: None,
            retry_ms: CHECKPOINT_RETRY_MS,
            checkpoint_failure: None,
            held_since_ms: None,
            shortage: None,
            checkpoints: 0,
            checkpoints_failed: 0,
            reap_at_ms: now.mono_ms + u64::from(container_check_interval_ms),
            reapable: false,
            to_reap: VecDeque::new(),
            reap_from: None,
            log_stalled: None,
            sessions_expired: 0,
        }
    }

    /// Returns whether a checkpoint is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    pub(super) fn is_checkpoint_failing(&self) -> bool {
        self.checkpoint_failure.is_some()
    }

    /// Returns how long writes have had no room because a checkpoint has not ended, in milliseconds.
    fn held_ms(&self, now_ms: u64) -> u64 {
        self.held_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms))
    }

    /// Returns whether the present checkpoint has held writes for too long.
    pub(super) fn is_checkpoint_hanging(&self, now_ms: u64) -> bool {
        self.held_ms(now_ms) >= HELD_MS
    }

    pub(super) fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }

    /// Returns the contents of the base and the chain hash after it.
    pub(super) fn base(&self) -> Option<&(CheckpointMeta, u128)> {
        self.base.as_ref()
    }

    /// Requests a checkpoint that includes `at_least`, as soon as that entry is applied.
    pub(super) fn want_checkpoint(&mut self, at_least: Zxid) {
        self.wanted = self.wanted.max(Some(at_least));
    }

    /// Resets the state after a received snapshot has replaced the base.
    pub(super) fn replaced(&mut self, meta: CheckpointMeta, chain: u128) {
        self.checkpointed = meta.zxid;
        self.base = Some((meta, chain));
        (self.writing, self.wanted, self.held_since_ms) = (None, None, None);
        (self.checkpoint_failure, self.retry_ms) = (None, CHECKPOINT_RETRY_MS);
        self.forget_reaping();
    }

    /// Ends the check of containers. The next one begins with the first container.
    pub(super) fn forget_reaping(&mut self) {
        self.to_reap.clear();
        self.reap_from = None;
    }

    /// Returns the next deadline. The reaper sets no deadline while nothing is reapable, so an idle
    /// server sleeps.
    pub(super) fn next_deadline(&self, may_reap: bool, reapable: bool) -> Option<u64> {
        let reap = (may_reap && (reapable || !self.to_reap.is_empty())).then_some(self.reap_at_ms);
        [self.retry_at_ms, reap].into_iter().flatten().min()
    }
}

impl Server {
    /// Starts a checkpoint if memory, the log or a peer needs one.
    ///
    /// Age alone never starts one: an idle server writes nothing.
    pub(super) fn maybe_checkpoint(&mut self) {
        let memory = self.state.memory_ref();
        if memory.is_frozen() || self.upkeep.checkpoint_failure.is_some() || self.history.is_replaced {
            return;
        }
        let segment = u64::from(self.limits.log_segment_bytes);
        // In a short ring, writes already wait for room before half of it is used; waiting for half
        // would hang them forever.
        let half_ring =
            (segment * u64::from(self.limits.log_segments) / 2).min(self.log_room(Need::Write) - segment / 2);
        // A log report from before the last checkpoint counts bytes that are free by now.
        let log_knows = self.history.log.checkpoint() >= self.upkeep.checkpointed;
        let log_asks =
            log_knows && self.history.log.bytes_used() >= half_ring && self.state.applied() > self.upkeep.checkpointed;
        let applied = self.state.applied();
        let peer_asks =
            self.upkeep.wanted.is_some_and(|wanted| wanted <= applied && applied > self.upkeep.checkpointed);
        if memory.active_bytes() >= self.limits.memtable_bytes as usize || log_asks || peer_asks {
            self.freeze();
        }
    }

    fn freeze(&mut self) {
        let (changes, meta) = self.state.freeze();
        self.upkeep.writing = Some((changes, meta, self.history.chain_applied()));
        self.write_checkpoint();
    }

    fn write_checkpoint(&mut self) {
        if let Some((changes, meta, _)) = &self.upkeep.writing {
            let checkpoint = Checkpoint { changes: changes.clone(), meta: meta.clone() };
            self.actions.push_back(Action::Checkpoint(checkpoint));
        }
    }

    /// Notes since when writes have had no room because a checkpoint has not ended.
    ///
    /// A checkpoint that hangs returns no error. Time during which writes have room does not count:
    /// a long checkpoint on a slow card is healthy.
    pub(super) fn note_held_writes(&mut self) {
        // After a failure writes are refused, and have a reason already.
        let waits = self.upkeep.is_writing() && !self.upkeep.is_checkpoint_failing();
        let is_held = waits && self.is_full(Need::Write);
        self.upkeep.held_since_ms = is_held.then(|| self.upkeep.held_since_ms.unwrap_or(self.now.mono_ms));
    }

    pub(super) fn on_checkpointed(&mut self, generation: Generation) {
        if let Some((_, meta, chain)) = self.upkeep.writing.take() {
            self.upkeep.checkpointed = meta.zxid;
            self.upkeep.wanted = self.upkeep.wanted.filter(|wanted| *wanted > meta.zxid);
            self.upkeep.base = Some((meta, chain));
        }
        self.upkeep.checkpoints += 1;
        (self.upkeep.checkpoint_failure, self.upkeep.held_since_ms) = (None, None);
        self.upkeep.retry_ms = CHECKPOINT_RETRY_MS;
        let garbage = self.state.memory().thaw(generation);
        self.actions.push_back(Action::ReleaseGenerations { below: generation, garbage });
        self.maybe_checkpoint();
        self.admit_waiting();
        self.peers.pump_all();
        self.pump_streams();
        self.install_when_quiet();
    }

    /// Schedules a retry of a failed checkpoint.
    ///
    /// Memory and the log absorb writes while they have room. The retry writes the changes that
    /// still exist by then.
    pub(super) fn on_checkpoint_failed(&mut self, reason: String) {
        self.upkeep.checkpoints_failed += 1;
        self.upkeep.checkpoint_failure = Some(reason);
        (self.upkeep.writing, self.upkeep.held_since_ms) = (None, None);
        self.state.memory().unfreeze();
        self.upkeep.retry_at_ms = Some(self.now.mono_ms + self.upkeep.retry_ms);
        self.upkeep.retry_ms = (self.upkeep.retry_ms * 2).min(CHECKPOINT_RETRY_MAX_MS);
        // Writes that waited for this checkpoint are refused instead.
        self.ready.extend(std::mem::take(&mut self.waiting_for_room));
        self.install_when_quiet();
        self.note_health();
    }

    /// Notes whether space is short; meanwhile only deletions are admitted.
    pub(super) fn on_space(&mut self, shortage: Option<Shortage>) {
        self.upkeep.shortage = shortage;
        if shortage.is_some() {
            self.upkeep.retry_at_ms.get_or_insert(self.now.mono_ms + CHECKPOINT_RETRY_MS);
        } else if self.upkeep.checkpoint_failure.is_none() {
            self.upkeep.retry_at_ms = None;
        }
        self.ready.extend(std::mem::take(&mut self.waiting_for_room));
        self.note_health();
    }

    /// Handles a log that cannot write now and keeps retrying.
    ///
    /// Connections that wait for a write are closed, because its outcome is unknown. New writes are
    /// refused until the log resumes; reads continue.
    pub(super) fn on_log_stalled(&mut self, is_read_only: bool) {
        let since_ms = self.upkeep.log_stalled.map_or(self.now.mono_ms, |stall| stall.since_ms);
        self.upkeep.log_stalled = Some(Stall { since_ms, is_read_only });
        self.zab.set_disk_refuses(self.now.mono_ms, is_read_only);
        let waiting: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| !connection.proposed.is_empty() || connection.phase == Phase::Joining)
            .map(|(&conn, _)| conn)
            .collect();
        waiting.into_iter().for_each(|conn| self.close(conn));
        self.ready.extend(std::mem::take(&mut self.waiting_for_room));
        self.note_health();
    }

    pub(super) fn on_log_resumed(&mut self) {
        self.upkeep.log_stalled = None;
        self.end_reading();
        self.zab.set_disk_refuses(self.now.mono_ms, false);
        self.note_health();
    }

    pub(super) fn on_upkeep_due(&mut self) {
        let now_ms = self.now.mono_ms;
        if self.upkeep.retry_at_ms.is_some_and(|at| at <= now_ms) {
            self.upkeep.retry_at_ms = self.upkeep.shortage.map(|_| now_ms + CHECKPOINT_RETRY_MS);
            let is_needed = self.upkeep.checkpoint_failure.is_some() || self.state.memory_ref().active_bytes() > 0;
            if is_needed && !self.state.memory_ref().is_frozen() && !self.history.is_replaced {
                self.freeze();
            }
        }
        if self.upkeep.reap_at_ms <= now_ms && self.is_serving() && self.leads() {
            self.reap();
        }
    }

    /// Realigns the reaping schedule when containers become reapable.
    ///
    /// Containers are examined once per interval, as in ZooKeeper, but the server skips this while
    /// nothing is reapable. Without the realignment, a container that becomes empty after an idle
    /// hour would be reaped at once.
    pub(super) fn note_reapable(&mut self) {
        let reapable = self.state.totals().reapable > 0;
        let was_reapable = std::mem::replace(&mut self.upkeep.reapable, reapable);
        let slept_ms = self.now.mono_ms.saturating_sub(self.upkeep.reap_at_ms);
        if reapable && !was_reapable && self.upkeep.to_reap.is_empty() && slept_ms > 0 {
            let interval_ms = u64::from(self.settings.container_check_interval_ms).max(1);
            self.upkeep.reap_at_ms += slept_ms.next_multiple_of(interval_ms);
            self.upkeep.reap_from = None;
        }
    }

    /// Proposes the deletion of containers that have lost all their children.
    ///
    /// A check of all containers takes one answer of the base after another. Applying the entry
    /// decides whether a container is still reapable.
    pub(super) fn reap(&mut self) {
        // The answer of the base may come after this server has lost the lead.
        if !(self.is_serving() && self.leads()) {
            return;
        }
        let interval_ms = u64::from(self.settings.container_check_interval_ms);
        while self.upkeep.to_reap.is_empty() {
            if self.state.totals().reapable == 0 {
                return;
            }
            let from = self.upkeep.reap_from.clone().unwrap_or_else(|| [key::REAPABLE].into());
            let Some(first) = self.state.memory().first_keys(&from) else {
                self.upkeep.reap_at_ms = self.now.mono_ms + interval_ms;
                return self.fetch(FetchWhat::FirstKeys(from), Waiter::Reaper);
            };
            // Until the next checkpoint the base also has the keys of reaped containers. An answer
            // that names only those leads to the next one.
            self.upkeep.to_reap = first.keys.into();
            self.upkeep.reap_from = first.next;
            if self.upkeep.reap_from.is_none() {
                break;
            }
        }
        let mut proposed = 0;
        while self.admission(Need::Delete) == Admission::Go {
            let Some(key) = self.upkeep.to_reap.pop_front() else { break };
            if let Ok(path) = std::str::from_utf8(&key[1..]) {
                self.propose(&Txn::Reap { path }, Origin::None);
                proposed += 1;
            }
        }
        let is_batch_over = self.upkeep.to_reap.is_empty();
        let pause_ms = if is_batch_over && self.upkeep.reap_from.is_none() {
            interval_ms
        } else {
            let counted = if is_batch_over { proposed } else { REAP_AT_ONCE };
            (60_000 * counted as u64 / u64::from(self.settings.containers_per_minute_max.max(1))).max(1)
        };
        self.upkeep.reap_at_ms = self.now.mono_ms + pause_ms;
    }

    pub(super) fn on_status(&mut self, ticket: u64) {
        let totals = self.state.totals();
        let connections = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.phase == Phase::Open)
            .filter_map(|(&conn, connection)| {
                let live = self.live(connection.session)?;
                Some((conn, connection.session, live.timeout_ms))
            })
            .collect();
        let now_ms = self.now.mono_ms;
        let status = Status {
            id: Some(self.zab.id()),
            role: self.role_name(),
            epoch: self.zab.epoch(),
            leader: self.zab.leader(),
            leader_silent_ms: self.zab.leader_heard_ms(now_ms).map_or(0, |heard_ms| now_ms.saturating_sub(heard_ms)),
            behind: self.behind(),
            behind_ms: self.healths.own_behind_ms(now_ms, self.state.applied()),
            differs: self.peers.differs.first_key_value().map(|(&peer, &zxid)| (peer, zxid)),
            went_back: self.zab.refused(),
            members: self.zab.config().members().iter().map(|member| (member.id, member.kind)).collect(),
            members_since: self.zab.config().version,
            is_counted: self.zab.is_voter(),
            is_born: self.zab.config().is_born(),
            meets_born: self.zab.meets_born(),
            uncounted: self.uncounted(),
            learners: self.learner_statuses(),
            snapshots: self.peers.snapshots.iter().map(|(&id, sent)| (id, sent.begun)).max_by_key(|&(_, sent)| sent),
            snapshot_not_taken: self.peers.not_taken.as_ref().map(|last| last.reason.clone()),
            led_ms: self.peers.led_since_ms.map(|since| now_ms.saturating_sub(since)),
            proposals: self.history.proposals,
            pending_syncs: self.syncs.len() as u64,
            zxid: self.state.applied(),
            digest: self.state.digest(),
            refusing_writes: self.refusing_writes(),
            refusal: self.refusal(),
            writes_held_ms: self.upkeep.held_ms(now_ms),
            said: self.healths.members(now_ms),
            is_read_only: self.upkeep.log_stalled.is_some_and(|stall| stall.is_read_only),
            znodes: totals.znodes,
            data_bytes: totals.data_bytes,
            ephemerals: totals.ephemerals,
            sessions: self.sessions() as u64,
            read_only_ms: self.read_only_ms(),
            local_sessions: self.locals.table().len() as u64,
            connections,
            watches: u64::from(self.watches.watches()),
            watched_paths: u64::from(self.watches.paths()),
            watching_connections: self.watches.connections() as u64,
            outstanding: self.outstanding() as u64,
            unapplied: self.history.len() as u64,
            held: self.held().into(),
            checkpoints: self.upkeep.checkpoints,
            checkpoints_failed: self.upkeep.checkpoints_failed,
            fetches: self.fetches.asked,
            writes_acknowledged: self.history.acknowledged,
            sessions_expired: self.upkeep.sessions_expired,
            sessions_max: self.limits.sessions_max.into(),
            sessions_refused: self.refusing.refusals.sessions,
            sessions_refused_of_address: self.refusing.refusals.sessions_of_address.count,
            local_sessions_displaced: self.refusing.refusals.locals_displaced,
            super_guesses: self.refusing.refusals.super_guesses.count,
            quotas: totals.quotas,
            quotas_counting: totals.counting,
            quota_refusals: self.quota_refusals().clone(),
            ..Status::default()
        };
        self.actions.push_back(Action::Status { ticket, status: Box::new(status) });
    }

    /// Answers a request for one page of a long list.
    pub(super) fn on_list(&mut self, ticket: u64, list: List) {
        let mut status = Status::default();
        match list {
            List::Watches { by, from, rows_max } => {
                status.next = self.watches.page(by, from, rows_max, &mut |conn, path| {
                    if let Some(connection) = self.connections.get(&conn) {
                        status.listed.push((connection.session, path.into()));
                    }
                });
            }
            List::Deadlines => {
                status.deadlines = self.sessions.deadlines(self.now.mono_ms);
                if !self.leads() {
                    // The leader ends sessions. This server hears only the clients connected to it.
                    status.timeouts = Some(self.sessions.timeouts());
                    let is_here = |id| self.sessions.lookup(id).is_some_and(|live| live.conn().is_some());
                    status.deadlines.retain(|&(_, id)| is_here(id));
                }
                let local =
                    self.settings.local_sessions || self.read_only_ms().is_some() || !self.locals.table().is_empty();
                status.local_deadlines = local.then(|| self.locals.table().deadlines(self.now.mono_ms));
            }
            List::Ephemerals(session) => return self.list_ephemerals(ticket, session),
        }
        self.actions.push_back(Action::Status { ticket, status: Box::new(status) });
    }

    /// Answers with a session's ephemerals, or fetches them and is called again.
    pub(super) fn list_ephemerals(&mut self, ticket: u64, session: SessionId) {
        let (prefix, waiter) = (key::ephemerals_prefix(session), Waiter::List(ticket, session));
        let mut status = Status::default();
        if self.state.ephemerals(session) != Some(0) {
            let Some(keys) = self.state.keys_under(&prefix) else {
                let since = self.state.memory_ref().stamp();
                return self.fetch_all(vec![FetchWhat::KeysUnder(prefix)], waiter, since);
            };
            let paths = keys.iter().map(|key| String::from_utf8_lossy(&key[prefix.len()..]));
            status.listed = paths.map(|path| (session, Text::from(&*path))).collect();
            self.state.memory().forget_keys(&prefix);
        }
        self.let_go(waiter);
        self.actions.push_back(Action::Status { ticket, status: Box::new(status) });
    }
}
