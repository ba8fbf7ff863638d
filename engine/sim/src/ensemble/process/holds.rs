//! What a process holds, for the invariant that everything is bounded.

use super::Process;
use crate::ensemble::host::Context;
use crate::invariant::Queue;
use zoolet_engine::Limits;
use zoolet_engine::budget::{Budget, Part};
use zoolet_zab::PEERS_MAX;

/// What one request may make the machine hold beyond a bound that is checked before it: hundreds of paths, and as many large records.
const ONE_REQUEST_BYTES: u64 = 64 << 10;
/// Entries for one peer in one message, and what is read of the log at once for it, at most.
const ONE_MESSAGE_BYTES: u64 = 256 << 10;

/// The most that was held of each part until now: only more than that is news.
#[derive(Debug)]
pub(super) struct Holds {
    budget: Budget,
    beyond: [u64; Part::ALL.len()],
    peaks: [u64; Part::ALL.len()],
    links: usize,
}

impl Holds {
    pub(super) fn new(limits: &Limits) -> Self {
        let beyond = Part::ALL.map(|part| beyond(part, limits));
        Self { budget: Budget::new(limits), beyond, peaks: [0; Part::ALL.len()], links: 0 }
    }
}

/// What a part may hold beyond its bound, which is looked at before something is taken in, and what that will need known only later.
fn beyond(part: Part, limits: &Limits) -> u64 {
    match part {
        Part::Sessions | Part::Watches => 0,
        // A full ring goes on taking what the protocol has to note.
        Part::Log => limits.log_segment_bytes.into(),
        // Room is looked for when an entry is proposed; those under way become records later, each larger than its entry.
        Part::Memtable => 8 * (u64::from(limits.outstanding_bytes_max) + ONE_REQUEST_BYTES),
        // Its tables, and what a single entry or request needs at once.
        Part::RecordCache => 4 * ONE_REQUEST_BYTES,
        Part::Peers => 2 * ONE_MESSAGE_BYTES * PEERS_MAX as u64,
        _ => ONE_REQUEST_BYTES,
    }
}

impl Process {
    /// Tells what is held more than ever.
    pub(super) fn note_holds(&mut self, cx: &mut Context<'_>) {
        self.server.account(&self.holds.budget);
        for (at, part) in Part::ALL.into_iter().enumerate() {
            let (held, limit) = (self.holds.budget.current(part), self.holds.budget.limit(part));
            if held > self.holds.peaks[at] {
                self.holds.peaks[at] = held;
                cx.around.witness.holds(cx.now_us, cx.id, Queue::Part(part), held, limit + self.holds.beyond[at]);
            }
        }
        let links = self.peers.links();
        if links > self.holds.links {
            self.holds.links = links;
            cx.around.witness.holds(cx.now_us, cx.id, Queue::Named("links"), links as u64, PEERS_MAX as u64);
        }
    }
}
