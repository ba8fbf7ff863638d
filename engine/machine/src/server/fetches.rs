//! Fetches from the base in flight, and the waiters for their results.

use super::Server;
use crate::budget::{allocated, fetch_bytes_max};
use crate::derived::Derived;
use crate::record::key;
use crate::seam::action::{Action, Fetch, FetchWhat};
use crate::seam::event::{BaseFailure, Fetched};
use crate::seam::ids::ConnId;
use crate::seam::ids::{FetchId, Generation};
use crate::state::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use zoolet_model::SessionId;

/// A waiter for a fetch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Waiter {
    /// The entry that is next to be applied.
    Apply,
    /// A request, by its unique number. It stays at the head of its pipeline until answered.
    Request(ConnId, u64),
    /// The reaper of containers.
    Reaper,
    /// The reaper of TTL znodes.
    Due,
    /// The list of subtrees whose usage is being counted.
    Counting,
    /// A list of a session's ephemerals, by its ticket.
    List(u64, SessionId),
    /// No waiter yet: an entry that is still being persisted will need the record.
    Nobody,
}

#[derive(Debug)]
struct UnderWay {
    what: FetchWhat,
    generation: Generation,
    waiters: Vec<Waiter>,
    /// Number of times this fetch failed and was repeated.
    retries: u32,
}

impl UnderWay {
    /// Returns whether a failed fetch is retried.
    ///
    /// A prefetch without a waiter is not: the waiter repeats it when it needs the record.
    fn may_be_asked_anew(&self) -> bool {
        let retries_max = if self.waiters.contains(&Waiter::Apply) { APPLY_RETRIES_MAX } else { RETRIES_MAX };
        !self.waiters.is_empty() && self.retries < retries_max
    }
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Stamp of memory when the waiter looked. Records found then must stay until the rest arrives.
    since: Stamp,
    /// Fetches not yet answered. The waiter looks again once all have arrived, not after each.
    pending: usize,
}

/// All fetches in flight, at most one per key.
///
/// So a record cannot change while it is being fetched: a record changes only while it is in
/// memory. Large data, ephemeral marks and reaper marks are written without a lookup, but are never
/// fetched as records.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    next: u64,
    under_way: BTreeMap<FetchId, UnderWay>,
    by_what: BTreeMap<FetchWhat, FetchId>,
    /// Each waiter's number of unanswered fetches.
    waits: BTreeMap<Waiter, Wait>,
    /// The same waiters, ordered by the age of the records they hold in memory.
    held: BTreeSet<(Stamp, Waiter)>,
    pub(super) asked: u64,
    /// Bytes charged for the fetches in flight.
    bytes: usize,
    /// Fetches in flight of znodes to count. Their answers are large.
    weights: usize,
}

/// Retries of a fetch after an I/O error.
///
/// A base that recovers from a passing error closes its open generations; the retry reads the
/// current one. More retries would keep clients waiting for a broken device.
const RETRIES_MAX: u32 = 1;
/// Retries of a fetch that an entry waits for. Afterwards the server stops.
const APPLY_RETRIES_MAX: u32 = 3;

impl Fetches {
    /// Returns an empty table that continues the numbering, so late answers to `before` match
    /// nothing.
    pub(super) fn after(before: &Self) -> Self {
        Self { next: before.next, asked: before.asked, ..Self::default() }
    }

    /// Adds a waiter to a fetch. Returns the number of a new fetch, or `None` if one is in flight.
    ///
    /// A waiter that needs one record twice waits for it once.
    fn ask(&mut self, what: FetchWhat, generation: Generation, waiter: Waiter) -> Option<FetchId> {
        let (id, is_new) = match self.by_what.get(&what) {
            Some(id) => (*id, false),
            None => (self.begin(UnderWay { what, generation, waiters: Vec::new(), retries: 0 }), true),
        };
        if let Some(under_way) = self.under_way.get_mut(&id)
            && waiter != Waiter::Nobody
            && !under_way.waiters.contains(&waiter)
        {
            under_way.waiters.push(waiter);
            if let Some(wait) = self.waits.get_mut(&waiter) {
                wait.pending += 1;
            }
        }
        is_new.then_some(id)
    }

    /// Registers a fetch and returns its number.
    fn begin(&mut self, question: UnderWay) -> FetchId {
        let id = FetchId(self.next);
        self.next += 1;
        self.asked += 1;
        self.bytes += cost(&question.what);
        self.weights += usize::from(matches!(question.what, FetchWhat::Weights { .. }));
        self.by_what.insert(question.what.clone(), id);
        self.under_way.insert(id, question);
        id
    }

    /// Returns the number of fetches in flight and of waiters, over all tables.
    pub(super) fn len(&self) -> usize {
        self.under_way.len() + self.by_what.len() + self.waits.len() + self.held.len()
    }

    fn answered(&mut self, id: FetchId) -> Option<UnderWay> {
        let under_way = self.under_way.remove(&id)?;
        self.by_what.remove(&under_way.what);
        self.bytes -= cost(&under_way.what);
        self.weights -= usize::from(matches!(under_way.what, FetchWhat::Weights { .. }));
        Some(under_way)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn derived(&self, derived: &mut Vec<Derived>) {
        let bytes = self.under_way.values().map(|question| cost(&question.what)).sum();
        let asked = self
            .by_what
            .iter()
            .filter(|(what, id)| self.under_way.get(id).is_some_and(|question| question.what == **what));
        let weights = self.by_what.keys().filter(|what| matches!(what, FetchWhat::Weights { .. })).count();
        let held = self.waits.iter().filter(|(waiter, wait)| self.held.contains(&(wait.since, **waiter)));
        derived.extend([
            Derived::new("fetch_bytes", self.bytes, bytes),
            Derived::new("weights_fetches", self.weights, weights),
            Derived::new("fetches_by_what", self.by_what.len(), asked.count()),
            Derived::new("fetches_under_way", self.under_way.len(), self.by_what.len()),
            Derived::new("fetches_held", self.held.len(), held.count()),
            Derived::new("fetches_waited_for", self.waits.len(), self.held.len()),
        ]);
    }
}

/// Bytes that a fetch takes besides its key. They cover two B-tree slots, two mailbox slots and the
/// waiters.
const FETCH_BYTES: usize = 320;

/// Fetches of znodes to count that are in flight above which no more are fetched ahead.
const WEIGHTS_AHEAD: usize = 4;

/// Returns the bytes charged for a fetch.
///
/// Up to three threads may hold its key; each is charged as if it had a copy.
fn cost(what: &FetchWhat) -> usize {
    let bytes = match what {
        FetchWhat::Record(key) | FetchWhat::KeysUnder(key) | FetchWhat::FirstKeys(key) => allocated(key.len()),
        FetchWhat::Weights { from, to } => allocated(from.len()) + allocated(to.len()),
    };
    FETCH_BYTES + 3 * bytes
}

impl Server {
    pub(super) fn fetch(&mut self, what: FetchWhat, waiter: Waiter) {
        debug_assert!(
            !matches!(&what, FetchWhat::Record(key) if key.first() != Some(&key::ZNODE)),
            "only znodes are fetched"
        );
        let generation = self.state.generation();
        if let Some(id) = self.fetches.ask(what.clone(), generation, waiter) {
            self.actions.push_back(Action::Fetch(Fetch { id, what, generation }));
        }
    }

    /// Fetches the records that `waiter` did not find when it looked at `since`.
    ///
    /// The records found then stay in memory until the rest arrives, even if only one is missing.
    /// Otherwise, in a cache smaller than the working set, each fetched record could evict another
    /// forever.
    pub(super) fn fetch_all(&mut self, missing: Vec<FetchWhat>, waiter: Waiter, since: Stamp) {
        self.release(waiter);
        self.fetches.waits.insert(waiter, Wait { since, pending: 0 });
        self.fetches.held.insert((since, waiter));
        self.keep_what_is_held();
        let asked = if waiter == Waiter::Apply { missing.len() } else { self.portion(missing.len()) };
        missing.into_iter().take(asked).for_each(|what| self.fetch(what, waiter));
    }

    /// Returns how many of one request's missing records to fetch at once.
    ///
    /// The request looks again once these have arrived, and then fetches more. At least half are
    /// fetched, which bounds the number of rounds.
    fn portion(&self, missing: usize) -> usize {
        let room = (fetch_bytes_max(&self.limits) as usize).saturating_sub(self.fetches.bytes) / (2 * FETCH_BYTES);
        missing.min(room.max(missing.div_ceil(2)))
    }

    /// Returns whether fetches in flight exceed the bound for prefetching.
    pub(super) fn fetches_are_many(&self) -> bool {
        self.fetches.bytes as u64 >= fetch_bytes_max(&self.limits)
    }

    /// Returns whether this may be fetched before its entry's turn.
    ///
    /// Entries may wait long, and znodes that were fetched to be counted stay until then.
    pub(super) fn may_prefetch(&self, what: &FetchWhat) -> bool {
        let are_many = self.fetches.weights >= WEIGHTS_AHEAD || self.state.memory_ref().weights_are_many();
        !(are_many && matches!(what, FetchWhat::Weights { .. }))
    }

    /// Releases a waiter that has its records, or no longer needs them.
    pub(super) fn let_go(&mut self, waiter: Waiter) {
        if self.release(waiter) {
            self.keep_what_is_held();
        }
    }

    fn release(&mut self, waiter: Waiter) -> bool {
        let released = self.fetches.waits.remove(&waiter);
        released.is_some_and(|wait| self.fetches.held.remove(&(wait.since, waiter)))
    }

    fn keep_what_is_held(&mut self) {
        let oldest = self.fetches.held.first().map(|&(since, _)| since);
        self.state.memory().keep_from(oldest);
    }

    pub(super) fn on_fetched(&mut self, id: FetchId, result: Result<Fetched, BaseFailure>) {
        let Some(question) = self.fetches.answered(id) else { return };
        let found = match result {
            Ok(found) => found,
            Err(failure) => return self.on_fetch_failed(question, &failure),
        };
        let UnderWay { what, generation, waiters, .. } = question;
        match (what, found) {
            (FetchWhat::Record(key), Fetched::Record(record)) => self.state.memory().fetched(key, record),
            (FetchWhat::KeysUnder(prefix), Fetched::Keys(keys)) => {
                // Keys of an older generation are not kept; the waiter asks again.
                self.state.memory().fetched_keys(prefix, keys, generation);
            }
            (FetchWhat::FirstKeys(from), Fetched::FirstKeys { keys, is_cut }) => {
                self.state.memory().fetched_first_keys(from, keys, is_cut, generation);
            }
            (FetchWhat::Weights { from, to }, Fetched::Weights(found, is_end)) => {
                self.state.memory().fetched_weights((from, to), found, is_end, generation);
            }
            (what, found) => return self.fail(format!("the base answered {what:?} with {found:?}")),
        }
        self.wake(&waiters);
    }

    fn wake(&mut self, waiters: &[Waiter]) {
        for waiter in waiters {
            if let Some(wait) = self.fetches.waits.get_mut(waiter) {
                wait.pending = wait.pending.saturating_sub(1);
                if wait.pending > 0 {
                    continue;
                }
            }
            match *waiter {
                Waiter::Apply => {
                    self.history.has_what_it_needs();
                    self.apply_committed();
                }
                Waiter::Request(conn, number) => self.unblock(conn, number),
                Waiter::Reaper => self.reap(),
                Waiter::Due => self.reap_due(),
                Waiter::Counting => self.count_usages(),
                Waiter::List(ticket, session) => self.list_ephemerals(ticket, session),
                Waiter::Nobody => {}
            }
        }
    }

    /// Handles a failed fetch. No data read from a damaged base is served.
    ///
    /// A member with peers replaces the base with a snapshot. A standalone server answers reads
    /// with SYSTEMERROR, and stops at an entry, because an entry cannot be skipped. The same
    /// applies if an I/O error repeats.
    fn on_fetch_failed(&mut self, question: UnderWay, failure: &BaseFailure) {
        match failure {
            BaseFailure::Damaged(what) if self.lose_base(what) => return,
            BaseFailure::Io(_) if question.may_be_asked_anew() => return self.fetch_anew(question),
            BaseFailure::Damaged(_) | BaseFailure::Io(_) => {}
        }
        for waiter in question.waiters {
            match waiter {
                Waiter::Apply => {
                    let what = match failure {
                        BaseFailure::Damaged(what) => format!("the base is damaged: {what}"),
                        BaseFailure::Io(what) => format!("the base cannot be read: {what}"),
                    };
                    return self.fail(what);
                }
                Waiter::Request(conn, number) => self.refuse_head(conn, number),
                // A list request gets no answer.
                Waiter::List(..) => self.let_go(waiter),
                Waiter::Due => self.retry_due(),
                Waiter::Reaper | Waiter::Counting | Waiter::Nobody => {}
            }
        }
    }

    /// Repeats a failed fetch. Its waiters keep waiting, so no later request overtakes them.
    fn fetch_anew(&mut self, failed: UnderWay) {
        let (what, generation) = (failed.what.clone(), self.state.generation());
        let id = self.fetches.begin(UnderWay { generation, retries: failed.retries + 1, ..failed });
        self.actions.push_back(Action::Fetch(Fetch { id, what, generation }));
    }
}
