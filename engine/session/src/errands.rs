//! What a session does for owners who no longer wait.

use crate::size::request_bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use zoolet_coordinator::{Errand, Left};
use zoolet_engine::Budget;
use zoolet_engine::budget::Part;
use zoolet_model::{ErrorCode, Reply, Request};

/// Their xids go down from here: below those of pings and of what nobody hears.
const XID_FIRST: i32 = -1000;

#[derive(Debug)]
struct Entry {
    errand: Errand,
    /// What it was charged with.
    bytes: u64,
}

impl Entry {
    fn on_another_connection(self) -> Self {
        Self { errand: self.errand.on_another_connection(), ..self }
    }
}

/// Errands that are not done. As many as there were guards and attempts of owners, and charged to the budget as requests are: so new requests wait
/// while errands take the room.
#[derive(Debug)]
pub(crate) struct Errands {
    /// Sent and not answered, in the order of sending.
    sent: VecDeque<(i32, Entry)>,
    /// To be sent with the next ping, or when the session is connected again.
    left: VecDeque<Entry>,
    xid: i32,
    budget: Arc<Budget>,
}

impl Errands {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { sent: VecDeque::new(), left: VecDeque::new(), xid: XID_FIRST, budget }
    }

    /// Whether an answer is to one of these.
    pub(crate) fn has_xid(xid: i32) -> bool {
        xid <= XID_FIRST
    }

    /// Sends one now.
    pub(crate) fn run(&mut self, errand: Errand, send: impl FnMut(i32, Request)) {
        let entry = self.charge(errand);
        self.send(entry, send);
    }

    /// Keeps one until the session is connected.
    pub(crate) fn keep(&mut self, errand: Errand) {
        // What it is to clear away may still be under way on the connection that ended.
        let entry = self.charge(errand.on_another_connection());
        self.left.push_back(entry);
    }

    fn charge(&self, errand: Errand) -> Entry {
        let bytes = request_bytes(&errand.request());
        self.budget.charge(Part::Outstanding, bytes);
        Entry { errand, bytes }
    }

    fn send(&mut self, entry: Entry, mut send: impl FnMut(i32, Request)) {
        send(self.xid, entry.errand.request());
        self.sent.push_back((self.xid, entry));
        self.xid = self.xid.checked_sub(1).unwrap_or(XID_FIRST);
    }

    /// Everything that was left for later goes now.
    pub(crate) fn send_left(&mut self, mut send: impl FnMut(i32, Request)) {
        while let Some(entry) = self.left.pop_front() {
            self.send(entry, &mut send);
        }
    }

    /// An answer. What follows at once is sent, if that is still possible.
    pub(crate) fn answered(
        &mut self,
        xid: i32,
        answer: &Result<Reply, ErrorCode>,
        send: Option<impl FnMut(i32, Request)>,
    ) {
        let Some(place) = self.sent.iter().position(|(sent, _)| *sent == xid) else { return };
        let Some((_, Entry { errand, bytes })) = self.sent.remove(place) else { return };
        match (errand.answered(answer), send) {
            (Left::Now(errand), Some(send)) => self.send(Entry { errand, bytes }, send),
            (Left::Later(errand), Some(_)) => self.left.push_back(Entry { errand, bytes }),
            (Left::Nothing, _) | (_, None) => self.budget.release(Part::Outstanding, bytes),
        }
    }

    /// Nobody will answer any more: what was sent is to be sent again, before what was not.
    pub(crate) fn unsend(&mut self) {
        let unsent: Vec<_> = self.sent.drain(..).map(|(_, entry)| entry).chain(self.left.drain(..)).collect();
        self.left.extend(unsent.into_iter().map(Entry::on_another_connection));
    }

    /// The session is over.
    pub(crate) fn clear(&mut self) {
        let all = self.sent.drain(..).map(|(_, entry)| entry).chain(self.left.drain(..));
        all.for_each(|entry| self.budget.release(Part::Outstanding, entry.bytes));
    }
}

impl Drop for Errands {
    fn drop(&mut self) {
        self.clear();
    }
}
