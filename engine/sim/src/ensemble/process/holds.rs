//! Amounts that a process holds, for the invariant that everything is bounded.

use super::Process;
use crate::ensemble::host::Context;
use crate::invariant::Queue;
use zoolet_machine::Limits;
use zoolet_machine::budget::{Budget, Part};
use zoolet_zab::PEERS_MAX;

/// Bytes that one request may add beyond a bound checked before it.
///
/// A request can carry hundreds of paths, or as many large records.
const ONE_REQUEST_BYTES: u64 = 64 << 10;
/// Maximum bytes of entries in one message to a peer, and of one read from the log for it.
const ONE_MESSAGE_BYTES: u64 = 256 << 10;

/// Highest amount of each part so far; only a higher one is reported.
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

/// Returns the amount that a part may hold beyond its bound.
///
/// The bound is checked before something is admitted. The memory that it needs becomes known only
/// later.
fn beyond(part: Part, limits: &Limits) -> u64 {
    match part {
        Part::Sessions | Part::Watches => 0,
        // A full ring still takes the records that the protocol must write.
        Part::Log => limits.log_segment_bytes.into(),
        // Room is checked when an entry is proposed. Entries in flight become records later, and
        // each record is larger than its entry.
        Part::Memtable => 8 * (u64::from(limits.outstanding_bytes_max) + ONE_REQUEST_BYTES),
        // The cache's tables, and the needs of a single entry or request.
        Part::RecordCache => 4 * ONE_REQUEST_BYTES,
        Part::Peers => 2 * ONE_MESSAGE_BYTES * PEERS_MAX as u64,
        _ => ONE_REQUEST_BYTES,
    }
}

impl Process {
    /// Reports each amount that is higher than ever before.
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
