//! Cleanup requests whose owners no longer wait for the answer.

use crate::size::request_bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use zoolet_coordinator::{Errand, Left, Shared};
use zoolet_machine::Budget;
use zoolet_machine::budget::Part;
use zoolet_model::{ErrorCode, Reply, Request};

/// First xid of an errand; later ones count down. They lie below the xids of other requests without
/// a slot.
const XID_FIRST: i32 = -1000;

#[derive(Debug)]
struct Entry {
    errand: Errand,
    /// Bytes charged to the budget.
    bytes: u64,
}

impl Entry {
    fn on_another_connection(self) -> Self {
        Self { errand: self.errand.on_another_connection(), ..self }
    }
}

/// The errands that a sent request serves.
#[derive(Debug)]
enum Asked {
    One(Entry),
    /// All errands with this shared request that existed when it was sent.
    All(Shared, Vec<Entry>),
}

impl Asked {
    fn into_entries(self) -> impl Iterator<Item = Entry> {
        let (one, all) = match self {
            Self::One(entry) => (Some(entry), Vec::new()),
            Self::All(_, entries) => (None, entries),
        };
        one.into_iter().chain(all)
    }
}

/// Unfinished errands of a session.
///
/// There are at most as many as there were guards and attempts of owners. Errands are charged to
/// the budget like requests, so new requests wait while errands use it up.
#[derive(Debug)]
pub(crate) struct Errands {
    /// Sent and unanswered requests, in the order of sending.
    sent: VecDeque<(i32, Asked)>,
    /// For each shared request in flight, the errands that came after it; they share the next one.
    shared: BTreeMap<Shared, Vec<Entry>>,
    /// Errands to send with the next ping, or after a reconnect.
    left: VecDeque<Entry>,
    xid: i32,
    budget: Arc<Budget>,
}

impl Errands {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { sent: VecDeque::new(), shared: BTreeMap::new(), left: VecDeque::new(), xid: XID_FIRST, budget }
    }

    /// Returns whether `xid` belongs to an errand.
    pub(crate) fn has_xid(xid: i32) -> bool {
        xid <= XID_FIRST
    }

    /// Sends an errand now.
    pub(crate) fn run(&mut self, errand: Errand, send: impl FnMut(i32, Request)) {
        let entry = self.charge(errand);
        self.send(entry, send);
    }

    /// Keeps an errand until the session is connected.
    pub(crate) fn keep(&mut self, errand: Errand) {
        // The create that this errand cleans up may still be in flight on the old connection.
        let entry = self.charge(errand.on_another_connection());
        self.left.push_back(entry);
    }

    fn charge(&self, errand: Errand) -> Entry {
        let bytes = request_bytes(&errand.request());
        self.budget.charge(Part::Outstanding, bytes);
        Entry { errand, bytes }
    }

    fn send(&mut self, entry: Entry, send: impl FnMut(i32, Request)) {
        match entry.errand.shared() {
            None => self.ask(Asked::One(entry), send),
            Some(shared) => match self.shared.get_mut(&shared) {
                Some(waiting) => waiting.push(entry),
                None => self.ask_for_all(shared, vec![entry], send),
            },
        }
    }

    fn ask_for_all(&mut self, shared: Shared, entries: Vec<Entry>, send: impl FnMut(i32, Request)) {
        self.shared.insert(shared.clone(), Vec::new());
        self.ask(Asked::All(shared, entries), send);
    }

    fn ask(&mut self, asked: Asked, mut send: impl FnMut(i32, Request)) {
        let first = match &asked {
            Asked::One(entry) => Some(entry),
            Asked::All(_, entries) => entries.first(),
        };
        let Some(first) = first else { return };
        send(self.xid, first.errand.request());
        self.sent.push_back((self.xid, asked));
        self.xid = self.xid.checked_sub(1).unwrap_or(XID_FIRST);
    }

    /// Sends every errand that was left for later.
    pub(crate) fn send_left(&mut self, mut send: impl FnMut(i32, Request)) {
        let mut together: BTreeMap<Shared, Vec<Entry>> = BTreeMap::new();
        while let Some(entry) = self.left.pop_front() {
            match entry.errand.shared() {
                None => self.send(entry, &mut send),
                Some(shared) => together.entry(shared).or_default().push(entry),
            }
        }
        for (shared, mut entries) in together {
            match self.shared.get_mut(&shared) {
                Some(waiting) => waiting.append(&mut entries),
                None => self.ask_for_all(shared, entries, &mut send),
            }
        }
    }

    /// Handles an answer and sends the errand's next request, if `send` still allows it.
    pub(crate) fn answered(
        &mut self,
        xid: i32,
        answer: &Result<Reply, ErrorCode>,
        mut send: Option<impl FnMut(i32, Request)>,
    ) {
        let Some(place) = self.sent.iter().position(|(sent, _)| *sent == xid) else { return };
        let Some((_, asked)) = self.sent.remove(place) else { return };
        match asked {
            Asked::One(Entry { errand, bytes }) => self.go_on(errand.answered(answer), bytes, send.as_mut()),
            Asked::All(shared, entries) => {
                let waiting = self.shared.remove(&shared).unwrap_or_default();
                match &mut send {
                    Some(send) if !waiting.is_empty() => self.ask_for_all(shared, waiting, send),
                    _ => waiting.iter().for_each(|entry| self.budget.release(Part::Outstanding, entry.bytes)),
                }
                let (errands, bytes): (Vec<_>, Vec<_>) =
                    entries.into_iter().map(|Entry { errand, bytes }| (errand, bytes)).unzip();
                for (left, bytes) in Errand::all_answered(errands, answer).zip(bytes) {
                    self.go_on(left, bytes, send.as_mut());
                }
            }
        }
    }

    fn go_on(&mut self, left: Left, bytes: u64, send: Option<&mut impl FnMut(i32, Request)>) {
        match (left, send) {
            (Left::Now(errand), Some(send)) => self.send(Entry { errand, bytes }, send),
            (Left::Later(errand), Some(_)) => self.left.push_back(Entry { errand, bytes }),
            (Left::Nothing, _) | (_, None) => self.budget.release(Part::Outstanding, bytes),
        }
    }

    /// Removes and returns all errands, sent ones first.
    fn take_all(&mut self) -> Vec<Entry> {
        let sent = self.sent.drain(..).flat_map(|(_, asked)| asked.into_entries());
        let shared = std::mem::take(&mut self.shared).into_values().flatten();
        sent.chain(shared).chain(self.left.drain(..)).collect()
    }

    /// Moves all errands back to the unsent ones: the connection is gone.
    ///
    /// Sent errands come first, so that they are sent again before the others.
    pub(crate) fn unsend(&mut self) {
        let unsent = self.take_all();
        self.left.extend(unsent.into_iter().map(Entry::on_another_connection));
    }

    /// Drops all errands: the session is over.
    pub(crate) fn clear(&mut self) {
        self.take_all().iter().for_each(|entry| self.budget.release(Part::Outstanding, entry.bytes));
    }
}

impl Drop for Errands {
    fn drop(&mut self) {
        self.clear();
    }
}
