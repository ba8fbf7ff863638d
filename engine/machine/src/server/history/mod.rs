//! Entries from proposal to apply.

mod apply;
mod log_queue;
mod outcomes;
mod propose;
mod protocol;

use crate::derived::Derived;
use crate::limits::Limits;
use crate::record::chain_after;
use crate::seam::action::{FetchWhat, LogRecord};
use crate::seam::event::Now;
use crate::seam::ids::ConnId;
use crate::seam::peer::PeerEntry;
use crate::status::ProposalBytes;
use crate::tree::Buffers;
use crate::txn::{Forwarder, Header, Txn, encode};
use bytes::{Bytes, BytesMut};
use log_queue::LogQueue;
use std::collections::VecDeque;
use zoolet_model::{SessionId, Zxid};
use zoolet_zab::{Mutation, mutation};

/// The requester that waits for an entry's outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::server) enum Origin {
    /// No requester here: another server's entry, this server's own, or one from before a restart.
    None,
    /// A client's request, with its number in this server.
    Request { conn: ConnId, xid: i32, number: u64 },
    /// A connection whose session this entry creates.
    Connect { conn: ConnId, read_only_byte: bool },
    /// A connection whose local session this entry makes global.
    Upgrade { conn: ConnId, session: SessionId },
    /// Leader: a learner forwarded the entry.
    Forwarded,
}

impl Origin {
    /// Returns the connection that requested the write.
    pub(in crate::server) fn writer(self) -> Option<ConnId> {
        if let Self::Request { conn, .. } = self { Some(conn) } else { None }
    }

    /// Returns the number of the request, which is larger than those of earlier requests; `None` if no
    /// write of a session asked for the entry.
    pub(in crate::server) fn request(self) -> Option<u64> {
        if let Self::Request { number, .. } = self { Some(number) } else { None }
    }

    /// Returns the connection here that waits for the entry.
    pub(in crate::server) fn conn(self) -> Option<ConnId> {
        match self {
            Self::Request { conn, .. } | Self::Connect { conn, .. } | Self::Upgrade { conn, .. } => Some(conn),
            Self::None | Self::Forwarded => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    zxid: Zxid,
    payload: Bytes,
    origin: Origin,
    /// Chain hash after this entry.
    chain: u128,
}

/// An in-memory entry that may be sent to peers.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Held<'a> {
    pub(in crate::server) zxid: Zxid,
    pub(in crate::server) payload: &'a Bytes,
}

/// The oldest entry that is not applied.
#[derive(Clone, Copy, Debug)]
struct Oldest {
    zxid: Zxid,
    /// Ensemble time at which it became the oldest, milliseconds.
    since_ms: u64,
    /// Ensemble time stands still because of it.
    is_stalled: bool,
}

/// Entries appended, or about to be, and not yet applied, in strict order.
///
/// The newest applied entries stay in front of them while peers may need them and room is left.
#[derive(Debug)]
pub(in crate::server) struct History {
    entries: VecDeque<Entry>,
    /// Number of applied entries kept at the front of `entries`.
    kept: usize,
    /// Payload bytes of the kept entries, and their maximum.
    kept_bytes: usize,
    kept_bytes_max: usize,
    /// Chain hash before the first of `entries`.
    chain_before: u128,
    /// Payload bytes of entries that are not applied.
    bytes: usize,
    /// Entries proposed by this server whose append the protocol has not requested yet.
    proposed: VecDeque<(Zxid, Bytes, Origin)>,
    /// Entries of the leader's message that is being handled.
    incoming: VecDeque<PeerEntry>,
    pub(in crate::server) log: LogQueue,
    buffer: BytesMut,
    /// Whether entries that this server proposes as leader enforce quotas.
    pub(in crate::server) enforces_quotas: bool,
    /// Ensemble time at its last update, and the monotonic clock then, both in milliseconds.
    ensemble: (u64, u64),
    /// Ensemble time stands still: this server knows no leader.
    time_stands: bool,
    /// The oldest unapplied entry when this leader last advanced its clock.
    oldest: Option<Oldest>,
    serving: bool,
    /// Clients see no older state than this: the entry committed when the current role began.
    serves_from: Zxid,
    /// The oldest unapplied entry waits for a record.
    waiting_for_base: bool,
    /// The state is being replaced by a snapshot, or must be replaced by one.
    pub(in crate::server) is_replaced: bool,
    /// The oldest unapplied entry waits for earlier requests of this connection.
    pub(in crate::server) waits_for_requests_of: Option<ConnId>,
    pub(in crate::server) acknowledged: u64,
    pub(in crate::server) proposals: ProposalBytes,
    /// Reused buffers in which entries are tried.
    buffers: Buffers,
    /// Reused list of the records an entry will need.
    missing: Vec<FetchWhat>,
    /// Watch events delivered late on purpose, for mutation tests.
    #[cfg(feature = "mutations")]
    pub(in crate::server) late_events: Vec<crate::Action>,
}

impl History {
    /// Creates a history after `checkpoint`, whose chain hash is `chain`.
    ///
    /// Up to `kept_bytes_max` payload bytes of applied entries stay in memory.
    pub(in crate::server) fn new(
        limits: &Limits,
        ensemble_ms: u64,
        log_bytes_used: u64,
        (checkpoint, chain): (Zxid, u128),
        kept_bytes_max: usize,
        now: Now,
    ) -> Self {
        Self {
            entries: VecDeque::new(),
            kept: 0,
            kept_bytes: 0,
            kept_bytes_max,
            chain_before: chain,
            bytes: 0,
            proposed: VecDeque::new(),
            incoming: VecDeque::new(),
            log: LogQueue::new(limits, log_bytes_used, checkpoint),
            buffer: BytesMut::new(),
            enforces_quotas: false,
            ensemble: (ensemble_ms, now.mono_ms),
            time_stands: true,
            oldest: None,
            serving: false,
            serves_from: Zxid::ZERO,
            waiting_for_base: false,
            is_replaced: false,
            waits_for_requests_of: None,
            acknowledged: 0,
            proposals: ProposalBytes::default(),
            buffers: Buffers::default(),
            missing: Vec::new(),
            #[cfg(feature = "mutations")]
            late_events: Vec::new(),
        }
    }

    pub(in crate::server) fn has_what_it_needs(&mut self) {
        self.waiting_for_base = false;
    }

    /// Returns whether the oldest unapplied entry must wait although it is committed.
    fn waits(&self) -> bool {
        self.waiting_for_base || self.is_replaced || self.waits_for_requests_of.is_some()
    }

    /// Returns the number of entries that are not applied.
    pub(in crate::server) fn len(&self) -> usize {
        self.entries.len() - self.kept + self.proposed.len()
    }

    /// Returns the payload bytes of entries that are not applied.
    pub(in crate::server) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of unapplied entries: payloads, queue slots and log records.
    pub(in crate::server) fn held_bytes(&self) -> usize {
        self.bytes + self.len() * (size_of::<Entry>() + size_of::<LogRecord>())
    }

    /// Returns the bytes held by applied entries that are kept for peers.
    pub(in crate::server) fn kept_bytes(&self) -> usize {
        self.kept_bytes + self.kept * size_of::<Entry>()
    }

    pub(in crate::server) fn is_serving(&self) -> bool {
        self.serving
    }

    /// Returns the header of an entry made now.
    ///
    /// Ensemble time continues from the last entry and never decreases.
    pub(in crate::server) fn header(&self, now: Now) -> Header {
        let (ensemble_ms, at_ms) = self.ensemble;
        let passed_ms = if self.time_stands { 0 } else { now.mono_ms.saturating_sub(at_ms) };
        Header {
            wall_ms: now.wall_ms,
            ensemble_ms: ensemble_ms.saturating_add(passed_ms),
            enforces_quotas: self.enforces_quotas,
            forwarder: None,
        }
    }

    /// Detaches all waiting requesters from unapplied entries.
    pub(in crate::server) fn forget_origins(&mut self) {
        self.entries.range_mut(self.kept..).for_each(|entry| entry.origin = Origin::None);
        self.proposed.iter_mut().for_each(|(_, _, origin)| *origin = Origin::None);
    }

    /// Raises ensemble time to at least `ensemble_ms`.
    pub(in crate::server) fn continue_time(&mut self, ensemble_ms: u64, now: Now) {
        let running_ms = self.header(now).ensemble_ms;
        self.ensemble = (running_ms.max(ensemble_ms), now.mono_ms);
    }

    /// Takes over ensemble time from the leader's newest entry.
    ///
    /// This server's clock may run faster than the leader's. If it kept its own time, then as the
    /// next leader it would be ahead by the drift since its start, and TTL znodes would go early.
    fn follow_time(&mut self, ensemble_ms: u64, now: Now) {
        if mutation::is_on(Mutation::LearnerClockAhead) {
            return self.continue_time(ensemble_ms, now);
        }
        self.ensemble = (ensemble_ms, now.mono_ms);
    }

    /// Leaves `paused_ms` of the time between `before` and `now` out of ensemble time.
    ///
    /// Ensemble time never falls below its value at `before`, which entries may carry already. Nor
    /// does this skip beyond `now`: ensemble time would stand still until the clock has caught up.
    pub(in crate::server) fn skip_time(&mut self, paused_ms: u64, before: Now, now: Now) {
        let from_ms = self.ensemble.1.max(before.mono_ms);
        self.ensemble = (self.header(before).ensemble_ms, (from_ms + paused_ms).min(now.mono_ms));
    }

    /// Stops ensemble time once entries wait and none has been applied for `stall_ms`.
    ///
    /// Ensemble time never falls below its value at `before`.
    pub(in crate::server) fn wait_for_progress(&mut self, stall_ms: u64, before: Now, now: Now) {
        let reached_ms = self.header(before).ensemble_ms;
        self.oldest = self.oldest_unapplied().map(|zxid| match self.oldest {
            Some(oldest) if oldest.zxid == zxid => oldest,
            _ => Oldest { zxid, since_ms: reached_ms, is_stalled: false },
        });
        let Some(Oldest { since_ms, .. }) = self.oldest else { return };
        let end_ms = reached_ms.max(since_ms.saturating_add(stall_ms));
        let excess_ms = self.header(now).ensemble_ms.saturating_sub(end_ms);
        self.skip_time(excess_ms, before, now);
        self.oldest = self.oldest.map(|oldest| Oldest { is_stalled: excess_ms > 0, ..oldest });
    }

    /// Returns whether [`History::wait_for_progress`] has stopped ensemble time and no entry was
    /// applied since.
    pub(in crate::server) fn is_stalled(&self) -> bool {
        self.oldest.is_some_and(|oldest| oldest.is_stalled && self.oldest_unapplied() == Some(oldest.zxid))
    }

    fn oldest_unapplied(&self) -> Option<Zxid> {
        self.next().map(|entry| entry.zxid).or_else(|| self.proposed.front().map(|(zxid, ..)| *zxid))
    }

    /// Stops ensemble time at `at_ms` of the monotonic clock.
    ///
    /// Without a leader no client can renew a TTL znode.
    fn stop_time(&mut self, at_ms: u64, now: Now) {
        let at_ms = if mutation::is_on(Mutation::OutageCounts) { now.mono_ms } else { at_ms };
        self.ensemble = (self.header(Now { mono_ms: at_ms, ..now }).ensemble_ms, now.mono_ms);
        self.time_stands = true;
    }

    /// Lets ensemble time go on after [`History::stop_time`].
    fn resume_time(&mut self, now: Now) {
        if std::mem::take(&mut self.time_stands) && !mutation::is_on(Mutation::OutageCounts) {
            self.ensemble.1 = now.mono_ms;
        }
    }

    /// Encodes an entry with the leader's header, and its forwarder if a learner encodes it.
    pub(in crate::server) fn encode(&mut self, now: Now, txn: &Txn<'_>, forwarder: Option<Forwarder>) -> Bytes {
        let header = Header { forwarder, ..self.header(now) };
        encode(header, txn, self.buffer())
    }

    /// Returns the buffer that entries are encoded in.
    ///
    /// Many small entries share its memory, which is freed when the last of them is applied.
    pub(in crate::server) fn buffer(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() < 512 {
            self.buffer.reserve(16 << 10);
        }
        &mut self.buffer
    }

    /// Returns the chain hash after the last entry.
    pub(in crate::server) fn chain(&self) -> u128 {
        self.entries.back().map_or(self.chain_before, |entry| entry.chain)
    }

    /// Returns the chain hash after the last applied entry.
    pub(in crate::server) fn chain_applied(&self) -> u128 {
        self.kept.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(self.chain_before, |entry| entry.chain)
    }

    fn push(&mut self, zxid: Zxid, payload: Bytes, origin: Origin) {
        let chain = chain_after(self.chain(), zxid, &payload);
        self.bytes += payload.len();
        self.entries.push_back(Entry { zxid, payload, origin, chain });
    }

    /// Returns the oldest entry that is not applied.
    fn next(&self) -> Option<&Entry> {
        self.entries.get(self.kept)
    }

    /// Marks the oldest unapplied entry as applied; returns its zxid and requester.
    ///
    /// The entry stays in memory for peers while room is left.
    fn pass(&mut self) -> Option<(Zxid, Origin)> {
        let entry = self.entries.get_mut(self.kept)?;
        let passed = (entry.zxid, std::mem::replace(&mut entry.origin, Origin::None));
        let bytes = entry.payload.len();
        self.bytes -= bytes;
        self.kept += 1;
        self.kept_bytes += bytes;
        while self.kept_bytes > self.kept_bytes_max || (self.kept_bytes_max == 0 && self.kept > 0) {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.kept -= 1;
            self.kept_bytes -= oldest.payload.len();
            self.chain_before = oldest.chain;
        }
        Some(passed)
    }

    /// Removes the entries above `to`, none of which is applied. Returns their requesters and
    /// payloads.
    fn truncate(&mut self, to: Zxid) -> Vec<(Origin, Bytes)> {
        self.waits_for_requests_of = None;
        let mut cut = Vec::new();
        while self.entries.len() > self.kept
            && self.entries.back().is_some_and(|entry| entry.zxid > to)
            && let Some(entry) = self.entries.pop_back()
        {
            self.bytes -= entry.payload.len();
            cut.push((entry.origin, entry.payload));
        }
        cut
    }

    /// Removes all entries: a snapshot that ends with this chain hash replaces them.
    pub(in crate::server) fn replace(&mut self, chain: u128) -> Vec<Origin> {
        let cut = self.entries.drain(..).map(|entry| entry.origin).collect();
        (self.kept, self.kept_bytes, self.bytes) = (0, 0, 0);
        self.bytes = self.proposed.iter().map(|(_, payload, _)| payload.len()).sum();
        self.chain_before = chain;
        self.waiting_for_base = false;
        self.waits_for_requests_of = None;
        cut
    }

    /// Returns the zxid of the oldest entry in memory.
    pub(in crate::server) fn oldest(&self) -> Option<Zxid> {
        self.entries.front().map(|entry| entry.zxid)
    }

    /// Returns the entries from `from` on, with the chain hash before the first of them.
    ///
    /// `None` if the entry `from` is not in memory.
    pub(in crate::server) fn held(&self, from: Zxid) -> Option<(u128, impl Iterator<Item = Held<'_>>)> {
        let at = self.entries.partition_point(|entry| entry.zxid < from);
        self.entries.get(at).filter(|entry| entry.zxid == from)?;
        let chain =
            at.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(self.chain_before, |entry| entry.chain);
        let entries = self.entries.range(at..);
        Some((chain, entries.map(|Entry { zxid, payload, .. }| Held { zxid: *zxid, payload })))
    }

    /// Returns the number of connections whose sessions these entries create.
    pub(in crate::server) fn joining(&self) -> usize {
        let entries = self.entries.range(self.kept..).map(|entry| entry.origin);
        let proposed = self.proposed.iter().map(|&(_, _, origin)| origin);
        entries.chain(proposed).filter(|origin| matches!(origin, Origin::Connect { .. })).count()
    }

    /// Returns the connections that requested writes that are not applied.
    pub(in crate::server) fn writers(&self) -> impl Iterator<Item = ConnId> + '_ {
        let entries = self.entries.range(self.kept..).map(|entry| entry.origin);
        let proposed = self.proposed.iter().map(|&(_, _, origin)| origin);
        entries.chain(proposed).filter_map(Origin::writer)
    }

    pub(in crate::server) fn derived(&self, derived: &mut Vec<Derived>) {
        let proposed = self.proposed.iter().map(|(_, payload, _)| payload.len()).sum::<usize>();
        let entries = self.entries.range(self.kept..).map(|entry| entry.payload.len()).sum::<usize>();
        let kept = self.entries.range(..self.kept).map(|entry| entry.payload.len()).sum();
        let (unpersisted, queued) = self.log.derived();
        derived.extend([
            Derived::new("unapplied_payload_bytes", self.bytes, entries + proposed),
            Derived::new("kept_payload_bytes", self.kept_bytes, kept),
            Derived::new("unpersisted_bytes", unpersisted, queued + proposed),
        ]);
    }

    /// Holds the entries of a leader's message until it is handled.
    pub(in crate::server) fn bring(&mut self, entries: impl Iterator<Item = PeerEntry>) {
        self.incoming.clear();
        self.incoming.extend(entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_time_never_turns_ensemble_time_back() {
        let at = |mono_ms| Now { mono_ms, wall_ms: 0 };
        let mut history = History::new(&Limits::default(), 500, 0, (Zxid::ZERO, 0), 0, at(1000));
        history.resume_time(at(1000));
        let (before, now) = (at(1040), at(2100));
        let reads = |history: &History| [before, now, at(2110)].map(|then| history.header(then).ensemble_ms);
        assert_eq!(reads(&history), [540, 1600, 1610]);
        history.skip_time(1000, before, now);
        assert_eq!(reads(&history), [540, 600, 610]);
        history.skip_time(50, before, now);
        assert_eq!(reads(&history), [540, 550, 560], "the second skip comes on top of the first");
        history.skip_time(5000, before, now);
        assert_eq!(reads(&history), [540, 540, 550], "time goes on at once");
    }
}
