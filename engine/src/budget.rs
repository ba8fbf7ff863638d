//! What a server holds, against what it may hold: one counter for each bound, charged by whoever fills it.

use crate::limits::Limits;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes promised for one idle connection: its task, its socket's registration, its place in the machine.
pub const CONNECTION_BYTES_MAX: u64 = 8 << 10;
/// Bytes of identities that each connection a server may have stands for. One connection may prove 64 KiB of them, all together not.
const IDENTITY_BYTES_MAX: u64 = 1 << 10;
/// Bytes promised for one session, without its record in the memtable, which is charged there.
pub const SESSION_BYTES_MAX: u64 = 512;
/// Bytes that each of the watches a server may hold stands for. One on a usual path takes less than 100; but a client chooses the paths, and a
/// path may be as long as a frame.
pub const WATCH_BYTES_MAX: u64 = 160;
/// What the watch table takes before the first watch.
const WATCH_TABLE_BYTES: u64 = 64 << 10;

/// What the base takes of memory beside its cache with an empty tree.
const BASE_BYTES: u64 = 64 << 10;
/// What of the base's files has a checksum of 4 bytes in memory.
const CHECKSUMMED_BYTES: u64 = 4 << 10;
/// What any server has memory for, of checksums of redb's file: 1 GiB of it.
const CHECKSUM_BYTES_MIN: u64 = 1 << 20;

/// What the system's allocator takes for so many bytes: granules of 16, of which 8 bytes are its own, and at least two of them.
pub(crate) const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let taken = (bytes + 8).next_multiple_of(16);
    if taken < 32 { 32 } else { taken }
}

/// What is counted. Each part has its own unit and limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// Open client connections.
    Connections,
    /// Bytes of connections, without what waits in them to be decoded, answered or sent.
    ConnectionBytes,
    /// Bytes of what clients have proved to be.
    IdentityBytes,
    /// Sessions, connected or not.
    Sessions,
    /// Bytes of sessions, without their records in the memtable.
    SessionBytes,
    /// Registered watches.
    Watches,
    /// Bytes of the watch table.
    WatchBytes,
    /// Bytes of requests read and not yet answered.
    Outstanding,
    /// Bytes of entries proposed and not yet applied.
    Unapplied,
    /// Bytes of entries that are kept for peers, or on their way to them.
    Peers,
    /// Bytes that wait to be sent on links to other servers; the limit has what QUIC may hold of them in it.
    Links,
    /// Bytes of questions to the base that are under way.
    Fetches,
    /// Bytes of answers that are put together off the core.
    Completing,
    /// Bytes waiting to be sent to clients.
    Outbound,
    /// Bytes of applied state newer than the base, the frozen part included.
    Memtable,
    /// Bytes of recently used records.
    RecordCache,
    /// Bytes of the base in memory: its blocks, the tables and filters of its runs, and redb. The limit has room for a second one, which is not counted.
    Base,
    /// Log bytes above the durable checkpoint, on disk.
    Log,
    /// Bytes of disk that all files of the data directory take.
    Disk,
}

impl Part {
    /// Every part, in the order of a snapshot.
    pub const ALL: [Self; 19] = [
        Self::Connections,
        Self::ConnectionBytes,
        Self::IdentityBytes,
        Self::Sessions,
        Self::SessionBytes,
        Self::Watches,
        Self::WatchBytes,
        Self::Outstanding,
        Self::Unapplied,
        Self::Peers,
        Self::Links,
        Self::Fetches,
        Self::Completing,
        Self::Outbound,
        Self::Memtable,
        Self::RecordCache,
        Self::Base,
        Self::Log,
        Self::Disk,
    ];

    /// The name in metrics, its unit last.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::ConnectionBytes => "connection_bytes",
            Self::IdentityBytes => "identity_bytes",
            Self::Sessions => "sessions",
            Self::SessionBytes => "session_bytes",
            Self::Watches => "watches",
            Self::WatchBytes => "watch_bytes",
            Self::Outstanding => "outstanding_bytes",
            Self::Unapplied => "unapplied_bytes",
            Self::Peers => "peer_bytes",
            Self::Links => "link_bytes",
            Self::Fetches => "fetch_bytes",
            Self::Completing => "completing_bytes",
            Self::Outbound => "outbound_bytes",
            Self::Memtable => "memtable_bytes",
            Self::RecordCache => "record_cache_bytes",
            Self::Base => "base_memory_bytes",
            Self::Log => "log_bytes",
            Self::Disk => "disk_bytes",
        }
    }

    /// Whether it counts bytes of memory; the others count things, or bytes of disk.
    pub const fn is_memory(self) -> bool {
        !matches!(self, Self::Connections | Self::Sessions | Self::Watches | Self::Log | Self::Disk)
    }

    /// What these limits allow it.
    pub(crate) fn limit(self, limits: &Limits) -> u64 {
        match self {
            Self::Connections => limits.connections_max.into(),
            Self::ConnectionBytes => u64::from(limits.connections_max) * CONNECTION_BYTES_MAX,
            Self::IdentityBytes => identity_bytes_max(limits),
            Self::Sessions => limits.sessions_max.into(),
            Self::SessionBytes => u64::from(limits.sessions_max) * SESSION_BYTES_MAX,
            Self::Watches => limits.watches_max.into(),
            Self::WatchBytes => watch_bytes_max(limits),
            Self::Outstanding | Self::Unapplied | Self::Peers => limits.outstanding_bytes_max.into(),
            // Of a server that is alone. Who makes links knows for how many they are: `Budget::allow`.
            Self::Links => 0,
            Self::Fetches => fetch_bytes_max(limits),
            Self::Completing => limits.outbound_bytes_max.into(),
            Self::Outbound => limits.outbound_bytes_total_max.into(),
            // Admission waits at twice the size that starts a checkpoint.
            Self::Memtable => u64::from(limits.memtable_bytes) * 2,
            Self::RecordCache => limits.record_cache_bytes.into(),
            Self::Base => base_bytes_max(limits),
            Self::Log => u64::from(limits.log_segment_bytes) * u64::from(limits.log_segments),
            Self::Disk => limits.disk_bytes_max,
        }
    }
}

/// What all clients together may have proved to be, bytes.
pub(crate) fn identity_bytes_max(limits: &Limits) -> u64 {
    // One client may always prove something.
    (u64::from(limits.connections_max) * IDENTITY_BYTES_MAX).max(64 << 10)
}

/// What the watch table may take.
pub(crate) fn watch_bytes_max(limits: &Limits) -> u64 {
    u64::from(limits.watches_max) * WATCH_BYTES_MAX + WATCH_TABLE_BYTES
}

/// What the base may take, and a second one beside it: a snapshot becomes one while the first is there still.
fn base_bytes_max(limits: &Limits) -> u64 {
    let cache = u64::from(limits.base_cache_bytes);
    // A page of 4 KiB costs 4,224 bytes.
    2 * (cache + cache / 32 + checksum_bytes_max(limits) + BASE_BYTES) + run_table_bytes_max(limits)
}

/// What tables and filters of runs may take. One that comes as a snapshot has none.
pub(crate) fn run_table_bytes_max(limits: &Limits) -> u64 {
    u64::from(limits.memtable_bytes) / 2
}

/// What the checksums of one base's redb file may take.
fn checksum_bytes_max(limits: &Limits) -> u64 {
    u64::from(limits.base_cache_bytes / 2).max(CHECKSUM_BYTES_MIN)
}

/// How far redb's file may be written: beyond that it has more checksums than there is memory for.
pub(crate) fn checksummed_bytes_max(limits: &Limits) -> u64 {
    checksum_bytes_max(limits) / 4 * CHECKSUMMED_BYTES
}

/// What questions to the base may take before no more are asked ahead of time or for another request.
pub(crate) fn fetch_bytes_max(limits: &Limits) -> u64 {
    u64::from(limits.record_cache_bytes / 2).max(256 << 10)
}

/// The counters of one server, shared by its threads.
#[derive(Debug)]
pub struct Budget {
    parts: [Counter; Part::ALL.len()],
}

#[derive(Debug)]
struct Counter {
    limit: AtomicU64,
    current: AtomicU64,
    peak: AtomicU64,
}

/// One counter as it was at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Which.
    pub part: Part,
    /// What it may reach.
    pub limit: u64,
    /// What is held.
    pub current: u64,
    /// The most ever held.
    pub peak: u64,
}

impl Budget {
    /// All parts empty, limited as `limits` says.
    pub fn new(limits: &Limits) -> Self {
        Self {
            parts: Part::ALL.map(|part| Counter {
                limit: AtomicU64::new(part.limit(limits)),
                current: AtomicU64::new(0),
                peak: AtomicU64::new(0),
            }),
        }
    }

    /// What the part may reach.
    pub fn limit(&self, part: Part) -> u64 {
        self.counter(part).limit.load(Relaxed)
    }

    /// Sets what the part may reach, where that does not follow from limits alone.
    pub fn allow(&self, part: Part, limit: u64) {
        self.counter(part).limit.store(limit, Relaxed);
    }

    /// What the part holds.
    pub fn current(&self, part: Part) -> u64 {
        self.counter(part).current.load(Relaxed)
    }

    /// Whether the part has reached its limit.
    pub fn is_full(&self, part: Part) -> bool {
        self.current(part) >= self.limit(part)
    }

    /// Adds `amount` unless the part would then exceed its limit; says whether it did.
    #[must_use = "what was not charged must not be held"]
    pub fn try_charge(&self, part: Part, amount: u64) -> bool {
        let (counter, limit) = (self.counter(part), self.limit(part));
        let charged = counter
            .current
            .fetch_update(Relaxed, Relaxed, |current| current.checked_add(amount).filter(|sum| *sum <= limit));
        if let Ok(before) = charged {
            counter.peak.fetch_max(before + amount, Relaxed);
        }
        charged.is_ok()
    }

    /// Adds `amount` whatever the limit says: for what is already held and is bounded elsewhere.
    pub fn charge(&self, part: Part, amount: u64) {
        let counter = self.counter(part);
        let before = counter.current.fetch_add(amount, Relaxed);
        counter.peak.fetch_max(before.saturating_add(amount), Relaxed);
    }

    /// Gives back what was charged.
    pub fn release(&self, part: Part, amount: u64) {
        let before = self.counter(part).current.fetch_sub(amount, Relaxed);
        debug_assert!(before >= amount, "{} released {amount} of {before}", part.name());
    }

    /// Charges `amount` instead of the `charged` of before.
    pub fn recharge(&self, part: Part, charged: &mut u64, amount: u64) {
        let before = std::mem::replace(charged, amount);
        if amount > before {
            self.charge(part, amount - before);
        } else if amount < before {
            self.release(part, before - amount);
        }
    }

    /// Sets what the part holds, for an owner that counts by itself.
    pub fn set(&self, part: Part, amount: u64) {
        let counter = self.counter(part);
        counter.current.store(amount, Relaxed);
        counter.peak.fetch_max(amount, Relaxed);
    }

    /// Every counter, for metrics.
    pub fn snapshot(&self) -> [Reading; Part::ALL.len()] {
        Part::ALL.map(|part| {
            let counter = self.counter(part);
            Reading {
                part,
                limit: counter.limit.load(Relaxed),
                current: counter.current.load(Relaxed),
                peak: counter.peak.load(Relaxed),
            }
        })
    }

    fn counter(&self, part: Part) -> &Counter {
        &self.parts[part as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_charged_beyond_its_limit_by_try_charge() {
        let budget = Budget::new(&Limits { connections_max: 2, ..Limits::default() });
        assert!(budget.try_charge(Part::Connections, 2));
        assert!(!budget.try_charge(Part::Connections, 1));
        assert!(!budget.try_charge(Part::Connections, u64::MAX));
        budget.release(Part::Connections, 1);
        assert!(budget.try_charge(Part::Connections, 1));
    }

    /// A tree that grows until it is refused, and its copy beside it while a server takes that in.
    #[test]
    fn the_base_may_take_what_two_of_the_longest_files_need_for_their_checksums() {
        for base_cache_bytes in [0, 1 << 20, 32 << 20] {
            let limits = Limits { base_cache_bytes, ..Limits::default() };
            let checksums = checksummed_bytes_max(&limits) / CHECKSUMMED_BYTES * 4;
            assert!(checksummed_bytes_max(&limits) >= 1 << 30);
            assert!(base_bytes_max(&limits) >= 2 * (checksums + u64::from(base_cache_bytes)));
        }
    }

    #[test]
    fn the_peak_outlives_what_was_held() {
        let budget = Budget::new(&Limits::default());
        budget.charge(Part::Outbound, 70);
        budget.release(Part::Outbound, 30);
        let reading = budget.snapshot()[Part::Outbound as usize];
        assert_eq!((reading.part, reading.current, reading.peak), (Part::Outbound, 40, 70));
    }

    #[test]
    fn parts_are_listed_in_the_order_of_their_numbers() {
        for (position, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, position);
        }
    }
}
