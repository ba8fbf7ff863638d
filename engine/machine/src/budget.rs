//! Memory and disk accounting: one counter and limit for each bounded resource.
//!
//! The owner of a resource charges its counter.

use crate::limits::Limits;
use crate::sessions::Waiting;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes promised for one idle connection: task, socket registration, place in the machine.
pub const CONNECTION_BYTES_MAX: u64 = 8 << 10;
/// Bytes of identities allowed per permitted connection, as a shared pool.
///
/// One connection may prove 64 KiB of identities, but not all connections together.
const IDENTITY_BYTES_MAX: u64 = 1 << 10;
/// Bytes promised for one session, without its record, which the memtable is charged for.
pub const SESSION_BYTES_MAX: u64 = 512;
/// Bytes that an unanswered request takes beside its frame: its places in two queues.
///
/// One is the machine's queue of the connection, the other the client port's. A queue that grows has
/// up to twice the places that it needs.
pub const REQUEST_BYTES: usize = 2 * (size_of::<Waiting>() + 24);
/// Bytes budgeted for each watch that a server may hold.
///
/// A watch on a usual path takes less than 100. The client chooses the path, which may be as long
/// as a frame.
pub const WATCH_BYTES_MAX: u64 = 160;
/// Bytes budgeted for an empty watch table.
const WATCH_TABLE_BYTES: u64 = 64 << 10;

/// Bytes that the base of an empty tree takes beside its cache.
const BASE_BYTES: u64 = 64 << 10;
/// Bytes of the base's file covered by one 4-byte checksum in memory.
const CHECKSUMMED_BYTES: u64 = 4 << 10;
/// Minimum memory for checksums of redb's file: enough for 1 GiB of file.
const CHECKSUM_BYTES_MIN: u64 = 1 << 20;

/// Returns the bytes that glibc's allocator takes for an allocation.
///
/// The allocator uses granules of 16 bytes, at least two of them, and keeps 8 bytes for itself. Other
/// allocators differ: jemalloc rounds up to one of four sizes per power of two.
pub const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let taken = (bytes + 8).next_multiple_of(16);
    if taken < 32 { 32 } else { taken }
}

/// Parts whose unused bytes the spare cache may use.
///
/// The machine bounds the spare cache after each turn. Other threads charge connections and links,
/// whose whole limit therefore counts as used.
pub const LENDERS: [Part; 5] =
    [Part::ConnectionBytes, Part::IdentityBytes, Part::SessionBytes, Part::WatchBytes, Part::Links];

/// A counted resource. Each part has its own unit and limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// Open client connections.
    Connections,
    /// Bytes of connections, without data waiting to be decoded, answered or sent.
    ConnectionBytes,
    /// Bytes of the identities that clients have proved.
    IdentityBytes,
    /// Sessions, connected or not.
    Sessions,
    /// Bytes of sessions, without their records in the memtable.
    SessionBytes,
    /// Registered watches.
    Watches,
    /// Bytes of the watch table.
    WatchBytes,
    /// Bytes of requests read and not yet answered. The client port adds [`REQUEST_BYTES`] for each.
    Outstanding,
    /// Bytes of entries proposed and not yet applied.
    Unapplied,
    /// Bytes of entries kept for peers or in flight to them.
    Peers,
    /// Bytes waiting to be sent to other servers. The limit includes QUIC's own buffers.
    Links,
    /// Bytes of fetches in flight to the base.
    Fetches,
    /// Bytes of replies being completed off the core thread.
    Completing,
    /// Bytes waiting to be sent to clients.
    Outbound,
    /// Bytes of applied state newer than the base, including the frozen memtable.
    Memtable,
    /// Bytes of recently used records, and of znodes fetched to be counted for quotas.
    RecordCache,
    /// Bytes of the spare cache: records in memory that is reserved for the parts in [`LENDERS`] and
    /// not in use.
    ///
    /// The machine changes the limit whenever those parts grow or shrink.
    SpareCache,
    /// Bytes of the base in memory.
    ///
    /// It includes the base's blocks, the tables and filters of its runs, and redb. The limit
    /// leaves room for a second base, which is not counted.
    Base,
    /// Log bytes on disk above the durable checkpoint.
    Log,
    /// Disk bytes of all files in the data directory.
    Disk,
}

impl Part {
    /// Every part, in the order of [`Budget::snapshot`].
    pub const ALL: [Self; 20] = [
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
        Self::SpareCache,
        Self::Base,
        Self::Log,
        Self::Disk,
    ];

    /// Returns the name in metrics, its unit last.
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
            Self::SpareCache => "spare_cache_bytes",
            Self::Base => "base_memory_bytes",
            Self::Log => "log_bytes",
            Self::Disk => "disk_bytes",
        }
    }

    /// Returns whether the part counts bytes of memory.
    ///
    /// The other parts count objects or bytes of disk.
    pub const fn is_memory(self) -> bool {
        !matches!(self, Self::Connections | Self::Sessions | Self::Watches | Self::Log | Self::Disk)
    }

    /// Returns the part's limit under `limits`.
    pub fn limit(self, limits: &Limits) -> u64 {
        match self {
            Self::Connections => limits.connections_max.into(),
            Self::ConnectionBytes => u64::from(limits.connections_max) * CONNECTION_BYTES_MAX,
            Self::IdentityBytes => identity_bytes_max(limits),
            Self::Sessions => limits.sessions_max.into(),
            Self::SessionBytes => u64::from(limits.sessions_max) * SESSION_BYTES_MAX,
            Self::Watches => limits.watches_max.into(),
            Self::WatchBytes => watch_bytes_max(limits),
            Self::Outstanding | Self::Unapplied | Self::Peers => limits.outstanding_bytes_max.into(),
            // A standalone server has no links. The owner of the links knows their number and calls
            // `Budget::allow`.
            Self::Links => 0,
            Self::Fetches => fetch_bytes_max(limits),
            Self::Completing => limits.outbound_bytes_max.into(),
            Self::Outbound => limits.outbound_bytes_total_max.into(),
            // Admission waits at twice the size that starts a checkpoint.
            Self::Memtable => u64::from(limits.memtable_bytes) * 2,
            Self::RecordCache => limits.record_cache_bytes.into(),
            Self::SpareCache => limits.spare_cache_bytes.into(),
            Self::Base => base_bytes_max(limits),
            Self::Log => u64::from(limits.log_segment_bytes) * u64::from(limits.log_segments),
            Self::Disk => limits.disk_bytes_max,
        }
    }
}

/// Returns the maximum bytes of all clients' identities together.
pub(crate) fn identity_bytes_max(limits: &Limits) -> u64 {
    // At least the 64 KiB that one client may prove.
    (u64::from(limits.connections_max) * IDENTITY_BYTES_MAX).max(64 << 10)
}

/// Returns the maximum bytes of the watch table.
pub(crate) fn watch_bytes_max(limits: &Limits) -> u64 {
    u64::from(limits.watches_max) * WATCH_BYTES_MAX + WATCH_TABLE_BYTES
}

/// Returns the maximum bytes of two bases.
///
/// While a received snapshot becomes the base, the previous base still exists.
fn base_bytes_max(limits: &Limits) -> u64 {
    let cache = u64::from(limits.base_cache_bytes);
    // A page of 4 KiB costs 4,224 bytes.
    2 * (cache + cache / 32 + checksum_bytes_max(limits) + BASE_BYTES) + run_table_bytes_max(limits)
}

/// Returns the maximum bytes of run tables and filters. A received base has no runs.
pub fn run_table_bytes_max(limits: &Limits) -> u64 {
    u64::from(limits.memtable_bytes) / 2
}

/// Returns the maximum bytes of checksums for one base's redb file.
fn checksum_bytes_max(limits: &Limits) -> u64 {
    u64::from(limits.base_cache_bytes / 2).max(CHECKSUM_BYTES_MIN)
}

/// Returns the largest redb file whose checksums fit in memory, in bytes.
pub fn checksummed_bytes_max(limits: &Limits) -> u64 {
    checksum_bytes_max(limits) / 4 * CHECKSUMMED_BYTES
}

/// Returns the fetch bytes in flight above which the server stops prefetching.
///
/// Near it, a request also fetches its missing records in portions.
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

/// One counter at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The counted part.
    pub part: Part,
    /// Maximum allowed.
    pub limit: u64,
    /// Amount held now.
    pub current: u64,
    /// Highest amount held so far.
    pub peak: u64,
}

impl Budget {
    /// Creates empty counters with the limits from `limits`.
    pub fn new(limits: &Limits) -> Self {
        Self {
            parts: Part::ALL.map(|part| Counter {
                limit: AtomicU64::new(part.limit(limits)),
                current: AtomicU64::new(0),
                peak: AtomicU64::new(0),
            }),
        }
    }

    /// Returns the part's limit.
    pub fn limit(&self, part: Part) -> u64 {
        self.counter(part).limit.load(Relaxed)
    }

    /// Sets the part's limit, when it does not follow from [`Limits`] alone.
    pub fn allow(&self, part: Part, limit: u64) {
        self.counter(part).limit.store(limit, Relaxed);
    }

    /// Returns the amount that the part holds.
    pub fn current(&self, part: Part) -> u64 {
        self.counter(part).current.load(Relaxed)
    }

    /// Returns whether the part has reached its limit.
    pub fn is_full(&self, part: Part) -> bool {
        self.current(part) >= self.limit(part)
    }

    /// Adds `amount` unless that would exceed the limit; returns whether it was added.
    #[must_use = "hold the memory only if it was charged"]
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

    /// Adds `amount` regardless of the limit, for memory already held and bounded elsewhere.
    pub fn charge(&self, part: Part, amount: u64) {
        let counter = self.counter(part);
        let before = counter.current.fetch_add(amount, Relaxed);
        counter.peak.fetch_max(before.saturating_add(amount), Relaxed);
    }

    /// Gives back a charged amount.
    pub fn release(&self, part: Part, amount: u64) {
        let before = self.counter(part).current.fetch_sub(amount, Relaxed);
        debug_assert!(before >= amount, "{} released {amount} of {before}", part.name());
    }

    /// Replaces a former charge by `amount` and stores that in `charged`.
    pub fn recharge(&self, part: Part, charged: &mut u64, amount: u64) {
        let before = std::mem::replace(charged, amount);
        if amount > before {
            self.charge(part, amount - before);
        } else if amount < before {
            self.release(part, before - amount);
        }
    }

    /// Sets the amount held, for an owner that counts by itself.
    pub fn set(&self, part: Part, amount: u64) {
        let counter = self.counter(part);
        counter.current.store(amount, Relaxed);
        counter.peak.fetch_max(amount, Relaxed);
    }

    /// Returns the maximum bytes of the spare cache at this moment.
    ///
    /// It is [`Limits::spare_cache_bytes`] less the bytes of [`LENDERS`].
    pub fn spare_bytes_max(&self, limits: &Limits) -> u64 {
        let held = |part| match part {
            Part::ConnectionBytes | Part::Links => self.limit(part),
            _ => self.current(part),
        };
        u64::from(limits.spare_cache_bytes).saturating_sub(LENDERS.map(held).iter().sum())
    }

    /// Returns the bound of the spare cache when every part in [`LENDERS`] is at its limit.
    pub fn spare_bytes_own(&self, limits: &Limits) -> u64 {
        let lent = LENDERS.map(|part| self.limit(part));
        u64::from(limits.spare_cache_bytes).saturating_sub(lent.iter().sum())
    }

    /// Returns every counter, for metrics.
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
    fn try_charge_never_exceeds_the_limit_of_a_part() {
        let budget = Budget::new(&Limits { connections_max: 2, ..Limits::default() });
        assert!(budget.try_charge(Part::Connections, 2));
        assert!(!budget.try_charge(Part::Connections, 1));
        assert!(!budget.try_charge(Part::Connections, u64::MAX));
        budget.release(Part::Connections, 1);
        assert!(budget.try_charge(Part::Connections, 1));
    }

    /// A tree that has grown to its limit, and a second copy that arrives as a snapshot.
    #[test]
    fn base_budget_covers_the_checksums_of_two_files_of_maximum_size() {
        for base_cache_bytes in [0, 1 << 20, 32 << 20] {
            let limits = Limits { base_cache_bytes, ..Limits::default() };
            let checksums = checksummed_bytes_max(&limits) / CHECKSUMMED_BYTES * 4;
            assert!(checksummed_bytes_max(&limits) >= 1 << 30);
            assert!(base_bytes_max(&limits) >= 2 * (checksums + u64::from(base_cache_bytes)));
        }
    }

    #[test]
    fn spare_cache_keeps_only_its_own_bytes_when_every_lender_is_at_its_limit() {
        for spare_cache_bytes in [0, 1, 16 << 20, u32::MAX] {
            let limits = Limits { spare_cache_bytes, ..Limits::default() };
            let budget = Budget::new(&limits);
            budget.allow(Part::Links, 1 << 20);
            for part in LENDERS {
                assert!(budget.spare_bytes_own(&limits) <= budget.spare_bytes_max(&limits));
                budget.set(part, budget.limit(part));
            }
            assert_eq!(budget.spare_bytes_own(&limits), budget.spare_bytes_max(&limits));
        }
    }

    #[test]
    fn peak_remains_after_a_release() {
        let budget = Budget::new(&Limits::default());
        budget.charge(Part::Outbound, 70);
        budget.release(Part::Outbound, 30);
        let reading = budget.snapshot()[Part::Outbound as usize];
        assert_eq!((reading.part, reading.current, reading.peak), (Part::Outbound, 40, 70));
    }

    #[test]
    fn all_parts_are_listed_in_the_order_of_their_numbers() {
        for (position, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, position);
        }
    }
}
