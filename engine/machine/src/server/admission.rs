//! Admission control: room for one more entry in memory and in the log.

use super::Server;
use crate::seam::health::{QUORUM_LACKS_ROOM, Refusal};
use crate::txn::{Op, Txn};
use zoolet_model::{Class, Request, WriteOp};
use zoolet_zab::{Mutation, mutation};

/// Purpose of an entry. The fuller the log and memory are, the fewer kinds are admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// Any write.
    Write,
    /// A write that frees space.
    Delete,
    /// The beginning of a session, which its client needs even to read or delete; or a changed
    /// timeout.
    Session,
}

/// Whether a write may be proposed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// Propose it.
    Go,
    /// Wait until something was persisted, applied or checkpointed.
    Wait,
    /// Refuse with SYSTEMERROR until the disk has room again.
    Refuse,
}

/// Returns the need of a request. A full disk still accepts requests that only delete.
pub(super) fn need(request: &Request) -> Need {
    let deletes = |write: &WriteOp| matches!(write, WriteOp::Delete { .. } | WriteOp::Check { .. });
    let changes_the_tree = matches!(request.class(), Class::Write(_) | Class::Multi(_));
    if changes_the_tree && request.ops().iter().all(deletes) { Need::Delete } else { Need::Write }
}

/// Returns the need of an entry. `None` for a session's end, which is always admitted.
pub(super) fn need_of(txn: &Txn<'_>) -> Option<Need> {
    let deletes = |op: &Op<'_>| matches!(op, Op::Delete { .. } | Op::Check { .. });
    let is_delete = match txn {
        Txn::Write { op, .. } => deletes(op),
        Txn::Multi { ops, .. } => ops.iter().all(deletes),
        Txn::CreateSession { .. } | Txn::RenewSession { .. } | Txn::UpgradeSession { .. } => {
            return Some(Need::Session);
        }
        Txn::CloseSession { .. } => return None,
        Txn::NoOp | Txn::Reap { .. } | Txn::CountUsage { .. } | Txn::Membership(_) => false,
    };
    Some(if is_delete { Need::Delete } else { Need::Write })
}

impl Server {
    /// Checks for room for one more write.
    ///
    /// A leader needs room in memory and in the log; a learner needs room for forwards in flight.
    pub(super) fn admission(&self, need: Need) -> Admission {
        if self.upkeep.log_stalled.is_some() {
            return Admission::Refuse;
        }
        // The clients of kept writes have waited longer, and may have requested this write behind them.
        if need != Need::Session && self.asks_kept_first() {
            return Admission::Wait;
        }
        if self.leader().is_some() {
            // The leader refuses writes that its disk has no room for. A learner accepts all
            // committed entries and applies them as memory allows.
            return self.forwards.admission(need);
        }
        self.room(need)
    }

    /// Checks for room for a new client's session.
    ///
    /// Thousands of clients may wait for their sessions. While writes wait too, a learner asks for at
    /// most 256 sessions at once, so that the writes go on.
    pub(super) fn admission_of_newcomer(&self) -> Admission {
        let writes_wait = self.asks_kept_first() || !self.waiting_for_room.is_empty();
        match self.admission(Need::Session) {
            Admission::Go if writes_wait && self.forwards.begins_many() => Admission::Wait,
            admission => admission,
        }
    }

    /// Checks for a leader's room, whichever entries wait.
    pub(super) fn room(&self, need: Need) -> Admission {
        if self.upkeep.log_stalled.is_some() {
            return Admission::Refuse;
        }
        if need == Need::Write && (self.upkeep.shortage().is_some() || self.quorum_lacks_room()) {
            return Admission::Refuse;
        }
        // Session entries are small and their number is bounded: other clients' large writes must
        // not block them.
        if need != Need::Session && self.history.bytes() >= self.limits.outstanding_bytes_max as usize {
            return Admission::Wait;
        }
        match (self.is_full(need), self.upkeep.is_checkpoint_failing()) {
            (false, _) => Admission::Go,
            (true, false) => Admission::Wait,
            (true, true) => Admission::Refuse,
        }
    }

    /// Returns whether the log or memory has no room for this before a checkpoint.
    pub(super) fn is_full(&self, need: Need) -> bool {
        let memtable = self.limits.memtable_bytes as usize;
        let memory_room = match need {
            Need::Write => memtable * 2,
            Need::Delete => memtable * 2 + memtable / 4,
            Need::Session => usize::MAX,
        };
        self.history.log.bytes() >= self.log_room(need) || self.state.memory_ref().memtable_bytes() >= memory_room
    }

    /// Checks for room for a session's end. Only forwards in flight bound it.
    ///
    /// A leader drops the link of a learner that forwards more than its limit.
    pub(super) fn admission_of_end(&self) -> Admission {
        let is_bounded = self.leader().is_some() && !mutation::is_on(Mutation::EndsUnbounded);
        match self.forwards.admission(Need::Session) {
            _ if self.asks_kept_first() => Admission::Wait,
            admission if is_bounded => admission,
            _ => Admission::Go,
        }
    }

    /// Returns the log bytes that may be in use when one more entry is admitted.
    ///
    /// The last segment is reserved for rotation and for sessions' ends, which are always admitted.
    /// The one before it also takes the other session entries, and the third-last also takes
    /// deletes.
    pub(super) fn log_room(&self, need: Need) -> u64 {
        let reserve = match need {
            Need::Write => 3,
            Need::Delete => 2,
            Need::Session => 1,
        };
        u64::from(self.limits.log_segment_bytes) * u64::from(self.limits.log_segments.saturating_sub(reserve).max(1))
    }

    /// Returns why this server refuses every write now, for an operator.
    ///
    /// `None` while it accepts, forwards or delays writes.
    pub fn refusing_writes(&self) -> Option<&'static str> {
        match self.admission(Need::Write) {
            Admission::Go | Admission::Wait => None,
            Admission::Refuse => Some(match self.refusal() {
                Some(refusal) if refusal.lacks_room() => refusal.why(),
                _ if self.quorum_lacks_room() => QUORUM_LACKS_ROOM,
                refusal => refusal.unwrap_or(Refusal::Checkpoint).why(),
            }),
        }
    }

    /// Retries writes that waited for room: those of a lost leader's time first, then learners',
    /// because they have waited longer.
    pub(super) fn admit_waiting(&mut self) {
        self.propose_kept();
        self.take_all_forwarded();
        if !self.waiting_for_room.is_empty() && self.admission(Need::Write) != Admission::Wait {
            self.ready.extend(std::mem::take(&mut self.waiting_for_room));
        }
    }

    /// Releases the bytes of a completion that was carried out or whose connection is gone.
    pub(super) fn on_completed(&mut self, bytes: u64) {
        self.completing_bytes = self.completing_bytes.saturating_sub(bytes);
        if self.completing_bytes < u64::from(self.limits.outbound_bytes_max) {
            self.ready.extend(std::mem::take(&mut self.waiting_for_room));
        }
    }
}
