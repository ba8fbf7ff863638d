//! Questions to the base that are under way, and who waits for the answers.

use super::Server;
use crate::action::{Action, Fetch, FetchId, FetchWhat, Generation};
use crate::event::{BaseFailure, ConnId, Fetched};
use std::collections::BTreeMap;

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiter {
    /// The entry whose turn it is to be applied.
    Apply,
    /// The request at the head of a connection's pipeline.
    Request(ConnId),
    /// The reaper.
    Reaper,
    /// Nobody yet: an entry that is still being persisted will need it.
    Nobody,
}

#[derive(Debug)]
struct UnderWay {
    what: FetchWhat,
    generation: Generation,
    waiters: Vec<Waiter>,
}

/// At most one question per key is under way, so a record that is being fetched cannot change meanwhile: to change, it must be in memory.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    next: u64,
    under_way: BTreeMap<FetchId, UnderWay>,
    by_what: BTreeMap<FetchWhat, FetchId>,
    /// Who waits for more than one record: none of what was fetched may be dropped before the last has come.
    holders: Vec<Waiter>,
    pub(super) asked: u64,
}

impl Fetches {
    /// Joins the question if it is under way; otherwise gives the number to ask it under.
    fn ask(&mut self, what: FetchWhat, generation: Generation, waiter: Waiter) -> Option<FetchId> {
        if let Some(id) = self.by_what.get(&what) {
            let waiters = self.under_way.get_mut(id).map(|under_way| &mut under_way.waiters);
            if let Some(waiters) = waiters
                && waiter != Waiter::Nobody
                && !waiters.contains(&waiter)
            {
                waiters.push(waiter);
            }
            return None;
        }
        let id = FetchId(self.next);
        self.next += 1;
        self.asked += 1;
        let waiters = if waiter == Waiter::Nobody { Vec::new() } else { vec![waiter] };
        self.by_what.insert(what.clone(), id);
        self.under_way.insert(id, UnderWay { what, generation, waiters });
        Some(id)
    }

    fn answered(&mut self, id: FetchId) -> Option<UnderWay> {
        let under_way = self.under_way.remove(&id)?;
        self.by_what.remove(&under_way.what);
        Some(under_way)
    }
}

impl Server {
    pub(super) fn fetch(&mut self, what: FetchWhat, waiter: Waiter) {
        let generation = self.state.generation();
        if let Some(id) = self.fetches.ask(what.clone(), generation, waiter) {
            self.actions.push_back(Action::Fetch(Fetch { id, what, generation }));
        }
    }

    pub(super) fn fetch_all(&mut self, missing: Vec<FetchWhat>, waiter: Waiter) {
        // Even for one record: the others that it will be used with may be in the cache now, and a cache without room for all of them
        // would let each answer push out another, for ever.
        if !self.fetches.holders.contains(&waiter) {
            self.fetches.holders.push(waiter);
            self.state.memory().hold(true);
        }
        missing.into_iter().for_each(|what| self.fetch(what, waiter));
    }

    /// `waiter` has what it waited for, or does not want it any more.
    pub(super) fn let_go(&mut self, waiter: Waiter) {
        if let Some(at) = self.fetches.holders.iter().position(|&holder| holder == waiter) {
            self.fetches.holders.swap_remove(at);
            self.state.memory().hold(!self.fetches.holders.is_empty());
        }
    }

    pub(super) fn on_fetched(&mut self, id: FetchId, result: Result<Fetched, BaseFailure>) {
        let Some(UnderWay { what, generation, waiters }) = self.fetches.answered(id) else { return };
        match (what, result) {
            (FetchWhat::Record(key), Ok(Fetched::Record(record))) => self.state.memory().fetched(key, record),
            (FetchWhat::KeysUnder(prefix), Ok(Fetched::Keys(keys))) => {
                // Of an older generation it is not kept: whoever waits asks again.
                self.state.memory().fetched_keys(prefix, keys, generation);
            }
            (_, Err(failure)) => return self.on_fetch_failed(&waiters, &failure),
            (what, Ok(found)) => return self.fail(format!("fetched {found:?} for {what:?}")),
        }
        self.wake(&waiters);
    }

    fn wake(&mut self, waiters: &[Waiter]) {
        for waiter in waiters {
            match *waiter {
                Waiter::Apply => self.apply_committed(),
                Waiter::Request(conn) => self.unblock(conn),
                Waiter::Reaper => self.reap(),
                Waiter::Nobody => {}
            }
        }
    }

    /// Nothing that was read from a damaged base is served: a read is answered SYSTEMERROR. An entry cannot be skipped, so the server stops.
    fn on_fetch_failed(&mut self, waiters: &[Waiter], failure: &BaseFailure) {
        for waiter in waiters {
            match *waiter {
                Waiter::Apply => {
                    let what = match failure {
                        BaseFailure::Damaged(what) => format!("the base is damaged: {what}"),
                        BaseFailure::Io(what) => format!("the base cannot be read: {what}"),
                    };
                    return self.fail(what);
                }
                Waiter::Request(conn) => self.refuse_head(conn),
                Waiter::Reaper | Waiter::Nobody => {}
            }
        }
    }
}
