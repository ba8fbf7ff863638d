//! The reaper of TTL znodes: the leader proposes their deletion once they are due.
//!
//! The index under the tag [`key::DUE`] orders TTL znodes without children by due time. The reaper
//! knows a key below which nothing is left to propose. So it needs one look into the index when the
//! znode of that key is due, and none before. Without TTL znodes it sets no deadline.
//!
//! Time is ensemble time: it never decreases and depends on no wall clock. Applying the entry
//! decides: a write in flight at the proposal, with new data or a child, saves the znode.

use super::Server;
use super::admission::{Admission, Need};
use super::fetches::Waiter;
use super::history::Origin;
use crate::record::key::{self, Key};
use crate::seam::action::FetchWhat;
use crate::tree::Applied;
use crate::txn::Txn;
use zoolet_model::Zxid;
use zoolet_zab::{Mutation, mutation};

/// Pause before another look while other writes need the room, in milliseconds.
const CROWDED_MS: u64 = 20;
/// Pause before another look after a failed proposal or fetch, in milliseconds.
const RETRY_MS: u64 = 200;
/// Longest pause between two rounds, in milliseconds.
const PAUSE_MAX_MS: u64 = 1000;
/// A round has one more batch for each time of this length by which its last znode is late, in
/// milliseconds.
const LATE_MS: u64 = 1000;
/// Batches of a round. It bounds how many deletions are in flight.
const BATCHES_MAX: u64 = 16;
/// Longest time without a batch while other writes need the room, in milliseconds.
const STARVED_MS: u64 = 1000;

/// Batches in flight together. Afterwards other writes get as much time.
#[derive(Debug)]
struct Round {
    /// The last entry proposed.
    last: Zxid,
    began_ms: u64,
    batches: u64,
}

/// Progress of the present leader through the index.
#[derive(Debug)]
pub(super) struct DueReaper {
    /// The first key of the index that may still need a proposal. `None`: no key does.
    from: Option<Key>,
    /// No look into the index before this time.
    at_ms: u64,
    /// Batches that are not applied yet.
    round: Option<Round>,
    /// When the last batch was proposed.
    last_ms: u64,
    /// A fetch from the index is in flight.
    is_fetching: bool,
}

/// The state of a new leader, which knows nothing of the index.
impl Default for DueReaper {
    fn default() -> Self {
        Self { from: Some([key::DUE].into()), at_ms: 0, round: None, last_ms: 0, is_fetching: false }
    }
}

impl DueReaper {
    /// Returns the due time of the next znode, or an earlier time.
    fn due_ms(&self) -> Option<u64> {
        self.from.as_ref().map(|from| key::due_parts(from).map_or(0, |(due_ms, _)| due_ms))
    }
}

impl Server {
    /// Returns when the reaper looks into the index next.
    pub(super) fn due_deadline(&self) -> Option<u64> {
        let is_idle = self.due.round.is_none() && !self.due.is_fetching && self.state.totals().ttl > 0;
        // An event tells when writes are accepted again. Ensemble time stands still until then.
        let stands = self.refuses_renewals() || self.history.is_stalled();
        if !(is_idle && self.is_serving() && self.leads() && !stands) {
            return None;
        }
        if mutation::is_on(Mutation::ReapByWallClock) {
            return Some(self.due.at_ms);
        }
        let left_ms = self.due.due_ms()?.saturating_sub(self.history.header(self.now).ensemble_ms);
        Some(self.now.mono_ms.saturating_add(left_ms).max(self.due.at_ms))
    }

    /// Notes new keys of the index, and the end of a round, before the entry is installed.
    pub(super) fn note_due(&mut self, zxid: Zxid, applied: &Applied) {
        if let Some(Round { began_ms, .. }) = self.due.round.take_if(|round| round.last <= zxid) {
            // Other writes get as much time as the round took.
            let took_ms = self.now.mono_ms.saturating_sub(began_ms);
            self.due.at_ms = self.due.at_ms.max(self.now.mono_ms + took_ms.clamp(1, PAUSE_MAX_MS));
        }
        if applied.totals.ttl == 0 || !self.leads() {
            return;
        }
        for (key, change) in applied.changes.iter() {
            let is_new = key.first() == Some(&key::DUE) && change.after.is_some();
            if is_new && self.due.from.as_ref().is_none_or(|from| key < from) {
                self.due.from = Some(key.clone());
            }
        }
    }

    pub(super) fn on_due(&mut self) {
        if self.due_deadline().is_some_and(|at_ms| at_ms <= self.now.mono_ms) {
            self.reap_due();
        }
    }

    /// Proposes the deletion of the next TTL znodes that are due, or fetches their keys.
    pub(super) fn reap_due(&mut self) {
        self.due.is_fetching = false;
        while self.is_serving() && self.leads() && self.due.at_ms <= self.now.mono_ms && self.reap_batch() {}
    }

    /// Proposes one batch. Returns whether the round may have another one.
    ///
    /// Batches in flight together take about as long as one. So the later the reaper is, the more
    /// batches it proposes before it pauses.
    fn reap_batch(&mut self) -> bool {
        let now_ms = self.now.mono_ms;
        let Some(from) = self.due.from.clone() else { return false };
        let is_starved = self.due.last_ms + STARVED_MS <= now_ms;
        if self.is_crowded() && !is_starved {
            self.due.at_ms = now_ms + CROWDED_MS;
            return false;
        }
        if !self.may_reap(is_starved) {
            self.retry_due();
            return false;
        }
        let Some(first) = self.state.memory().first_keys(&from) else {
            self.due.is_fetching = true;
            self.fetch(FetchWhat::FirstKeys(from), Waiter::Due);
            return false;
        };
        self.due.from = first.next;
        let ensemble_ms = self.history.header(self.now).ensemble_ms;
        let (mut late_ms, mut is_whole) = (0, true);
        for key in first.keys {
            let Some((due_ms, path)) = key::due_parts(&key) else { continue };
            if due_ms > ensemble_ms && !mutation::is_on(Mutation::ReapByWallClock) {
                (self.due.from, is_whole) = (Some(key), false);
                break;
            }
            if !(self.may_reap(is_starved) && self.propose(&Txn::Reap { path }, Origin::None)) {
                (self.due.from, is_whole) = (Some(key), false);
                self.retry_due();
                break;
            }
            let last = self.zab.last();
            self.due.round.get_or_insert(Round { last, began_ms: now_ms, batches: 0 }).last = last;
            (self.due.last_ms, late_ms) = (now_ms, ensemble_ms.saturating_sub(due_ms));
        }
        if mutation::is_on(Mutation::ReapByWallClock) {
            (self.due.from, self.due.at_ms) = (DueReaper::default().from, now_ms + RETRY_MS);
        }
        let Some(round) = self.due.round.as_mut().filter(|_| is_whole) else { return false };
        round.batches += 1;
        round.batches <= late_ms / LATE_MS && round.batches < BATCHES_MAX
    }

    /// Returns whether a deletion may be proposed now.
    ///
    /// On a saturated server the queue of writes may be full for a long time. A batch that has waited
    /// `STARVED_MS` needs no room in it.
    fn may_reap(&self, is_starved: bool) -> bool {
        let may_pass = is_starved && self.upkeep.log_stalled.is_none() && !self.is_full(Need::Delete);
        may_pass || self.admission(Need::Delete) == Admission::Go
    }

    pub(super) fn retry_due(&mut self) {
        (self.due.is_fetching, self.due.at_ms) = (false, self.now.mono_ms + RETRY_MS);
    }

    /// Returns whether other writes need the room that is left before the next checkpoint.
    fn is_crowded(&self) -> bool {
        let memtable = self.limits.memtable_bytes as usize;
        let is_filling = self.upkeep.is_writing()
            && (self.state.memory_ref().memtable_bytes() >= memtable + memtable / 2
                || self.history.log.bytes() >= self.log_room(Need::Write) / 4 * 3);
        let is_busy = self.history.bytes() >= self.limits.outstanding_bytes_max as usize / 2;
        is_filling || is_busy || !self.waiting_for_room.is_empty() || self.fetches_are_many()
    }
}
