//! Questions to the base that are under way, and who waits for the answers.

use super::Server;
use super::derived::Derived;
use crate::action::{Action, Fetch, FetchId, FetchWhat, Generation};
use crate::budget::{allocated, fetch_bytes_max};
use crate::event::{BaseFailure, ConnId, Fetched};
use crate::store::{Stamp, key};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_model::SessionId;

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Waiter {
    /// The entry whose turn it is to be applied.
    Apply,
    /// A request, by its own number; it is at the head of its connection's pipeline until it is answered.
    Request(ConnId, u64),
    /// The reaper.
    Reaper,
    /// A question for a session's ephemerals, by its ticket.
    List(u64, SessionId),
    /// Nobody yet: an entry that is still being persisted will need it.
    Nobody,
}

#[derive(Debug)]
struct UnderWay {
    what: FetchWhat,
    generation: Generation,
    waiters: Vec<Waiter>,
    /// How often it has failed and was asked anew.
    retries: u32,
}

impl UnderWay {
    /// What nobody waits for yet is asked anew by who needs it.
    fn may_be_asked_anew(&self) -> bool {
        let retries_max = if self.waiters.contains(&Waiter::Apply) { APPLY_RETRIES_MAX } else { RETRIES_MAX };
        !self.waiters.is_empty() && self.retries < retries_max
    }
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// When it looked at memory: what it found then must still be there when the rest has come.
    since: Stamp,
    /// Answers that have not come. It looks again when it has all of them, not at each.
    pending: usize,
}

/// At most one question per key is under way, so a record that is being fetched cannot change meanwhile: to change, it must be in memory.
/// (Large data, ephemerals' and reaper's marks are written without a look; they are never fetched as records.)
#[derive(Debug, Default)]
pub(super) struct Fetches {
    next: u64,
    under_way: BTreeMap<FetchId, UnderWay>,
    by_what: BTreeMap<FetchWhat, FetchId>,
    /// Who waits for how much.
    waits: BTreeMap<Waiter, Wait>,
    /// The same by age of what they found.
    held: BTreeSet<(Stamp, Waiter)>,
    pub(super) asked: u64,
    /// Of what is under way.
    bytes: usize,
}

/// How often a question is asked anew when the device said no: a base that comes back by itself from a passing error ends the generations that
/// were open, and the present one answers. More often would keep everybody waiting for a device that is broken.
const RETRIES_MAX: u32 = 1;
/// The same for an entry's question, after which the server stops.
const APPLY_RETRIES_MAX: u32 = 3;

impl Fetches {
    /// Nothing under way, and no number used twice: late answers to `before` mean nothing.
    pub(super) fn after(before: &Self) -> Self {
        Self { next: before.next, asked: before.asked, ..Self::default() }
    }

    /// Joins the question if it is under way; otherwise gives the number to ask it under. A waiter that needs one record twice waits
    /// for it once.
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

    /// The number to ask it under.
    fn begin(&mut self, question: UnderWay) -> FetchId {
        let id = FetchId(self.next);
        self.next += 1;
        self.asked += 1;
        self.bytes += cost(&question.what);
        self.by_what.insert(question.what.clone(), id);
        self.under_way.insert(id, question);
        id
    }

    /// Questions under way, and everybody who waits or holds on to something.
    pub(super) fn len(&self) -> usize {
        self.under_way.len() + self.by_what.len() + self.waits.len() + self.held.len()
    }

    fn answered(&mut self, id: FetchId) -> Option<UnderWay> {
        let under_way = self.under_way.remove(&id)?;
        self.by_what.remove(&under_way.what);
        self.bytes -= cost(&under_way.what);
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
        let held = self.waits.iter().filter(|(waiter, wait)| self.held.contains(&(wait.since, **waiter)));
        derived.extend([
            Derived::new("fetch_bytes", self.bytes, bytes),
            Derived::new("fetches_by_what", self.by_what.len(), asked.count()),
            Derived::new("fetches_under_way", self.under_way.len(), self.by_what.len()),
            Derived::new("fetches_held", self.held.len(), held.count()),
            Derived::new("fetches_waited_for", self.waits.len(), self.held.len()),
        ]);
    }
}

/// What a question takes beside its key: places in two B-trees and two mailboxes, and who waits for it.
const FETCH_BYTES: usize = 320;

/// What a question takes, counted as if each of the three threads that may hold its key had one of its own.
fn cost(what: &FetchWhat) -> usize {
    let (FetchWhat::Record(key) | FetchWhat::KeysUnder(key)) = what;
    FETCH_BYTES + 3 * allocated(key.len())
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

    /// Fetches what `waiter` did not find when it looked at `since`. Even if that is one record: a cache without room for all that it is
    /// used with would let each answer push out another, for ever.
    pub(super) fn fetch_all(&mut self, missing: Vec<FetchWhat>, waiter: Waiter, since: Stamp) {
        self.release(waiter);
        self.fetches.waits.insert(waiter, Wait { since, pending: 0 });
        self.fetches.held.insert((since, waiter));
        self.keep_what_is_held();
        let asked = if waiter == Waiter::Apply { missing.len() } else { self.portion(missing.len()) };
        missing.into_iter().take(asked).for_each(|what| self.fetch(what, waiter));
    }

    /// How many of the records that one request misses are asked for at once; it looks again when it has them and asks for the next. Half of
    /// them at least, so that it does not look for ever.
    fn portion(&self, missing: usize) -> usize {
        let room = (fetch_bytes_max(&self.limits) as usize).saturating_sub(self.fetches.bytes) / (2 * FETCH_BYTES);
        missing.min(room.max(missing.div_ceil(2)))
    }

    /// Whether nothing should be asked for ahead of its time.
    pub(super) fn fetches_are_many(&self) -> bool {
        self.fetches.bytes as u64 >= fetch_bytes_max(&self.limits)
    }

    /// `waiter` has what it waited for, or does not want it any more.
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
                // Of an older generation it is not kept: whoever waits asks again.
                self.state.memory().fetched_keys(prefix, keys, generation);
            }
            (what, found) => return self.fail(format!("fetched {found:?} for {what:?}")),
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
                Waiter::List(ticket, session) => self.list_ephemerals(ticket, session),
                Waiter::Nobody => {}
            }
        }
    }

    /// Nothing that was read from a damaged base is served: where peers can replace it, they do. Alone, a read is answered SYSTEMERROR, and the server
    /// stops before an entry, which cannot be skipped. So it is when the device says no again.
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
                // Whoever asks for a list gets no answer.
                Waiter::List(..) => self.let_go(waiter),
                Waiter::Reaper | Waiter::Nobody => {}
            }
        }
    }

    /// Those who wait for it wait on, so nothing overtakes them.
    fn fetch_anew(&mut self, failed: UnderWay) {
        let (what, generation) = (failed.what.clone(), self.state.generation());
        let id = self.fetches.begin(UnderWay { generation, retries: failed.retries + 1, ..failed });
        self.actions.push_back(Action::Fetch(Fetch { id, what, generation }));
    }
}
