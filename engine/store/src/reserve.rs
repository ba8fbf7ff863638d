//! Disk space that only deletions use.
//!
//! The reserve is a file whose only purpose is to occupy space. When a checkpoint, a merge or the
//! log runs out of room, the server removes the file and retries. From then on only deletions are
//! admitted, until there is room for everything again and the file is recreated. A byte count would
//! not do, because other programs write to the same disk.

use super::base::{self, Base, BaseError};
use super::capped::{signed, taken_bytes};
use super::disk::{Disk, DiskFile};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_64;
use zoolet_machine::budget::{self, Part};
use zoolet_machine::limits::Limits;
use zoolet_machine::seam::action::Checkpoint;
use zoolet_machine::seam::event::Shortage;
use zoolet_machine::status::Lack;

/// Name of the reserve file.
pub(crate) const NAME: &str = "reserve";
/// Granularity of a reserve that had to be reduced, in bytes.
const BLOCK_BYTES: u64 = 4096;
/// Bytes per write when the file is filled with noise.
const NOISE_BYTES: usize = 32 << 10;

/// The reserve file, and the space that must be free before writes are admitted.
pub struct Reserve {
    disk: Arc<dyn Disk>,
    bytes: u64,
    /// Bytes of the log at its full size.
    log_bytes_max: u64,
    /// Bytes that all files may occupy together; 0 is no bound.
    bytes_max: u64,
    /// Bytes that all files occupied at the last check.
    taken_bytes: AtomicU64,
    /// Bytes in the reserve file; 0 if there is no file.
    held_bytes: AtomicU64,
    is_short: AtomicBool,
    /// Bytes of redb's file that may have checksums in memory.
    checksummed_bytes_max: u64,
    /// The resource that is short, or has the least room left.
    least: Mutex<Shortage>,
    /// The last reported [`Reserve::shortage`].
    ///
    /// Locked while the file is removed or created, which the log thread and the checkpoint thread
    /// both do.
    reported: Mutex<Option<Shortage>>,
    /// Bytes missing at the last check.
    missing_bytes: AtomicU64,
    /// Bytes free on the disk at the last check.
    free_bytes: AtomicU64,
    /// Most spare bytes at any check: beyond the reserve, the log and merges.
    spare_bytes_max: AtomicI64,
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve")
            .field("bytes", &self.bytes)
            .field("held_bytes", &self.held_bytes)
            .finish_non_exhaustive()
    }
}

impl Reserve {
    /// Takes over the reserve file of an earlier process, if there is one.
    ///
    /// The reserve is as large as the disk allows: at least as large as that file, and at most
    /// [`Limits::disk_reserve_bytes`]. The file itself is created or extended by
    /// [`Reserve::recheck`].
    pub fn open(disk: Arc<dyn Disk>, limits: &Limits) -> Self {
        let mut reserve = Self {
            disk,
            bytes: limits.disk_reserve_bytes.into(),
            log_bytes_max: u64::from(limits.log_segment_bytes) * u64::from(limits.log_segments),
            held_bytes: AtomicU64::new(0),
            bytes_max: limits.disk_bytes_max,
            taken_bytes: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            checksummed_bytes_max: budget::checksummed_bytes_max(limits),
            least: Mutex::new(Shortage::Disk),
            reported: Mutex::new(None),
            missing_bytes: AtomicU64::new(0),
            free_bytes: AtomicU64::new(0),
            spare_bytes_max: AtomicI64::new(0),
        };
        let wanted = reserve.bytes;
        let held = reserve.find(wanted).unwrap_or(0);
        reserve.bytes = reserve.fitting_bytes().max(held);
        reserve.held_bytes = AtomicU64::new(held);
        if held == 0 {
            let _ = reserve.disk.remove(NAME);
        }
        reserve
    }

    /// Returns the size of an earlier process's file, after cutting it to `wanted`.
    ///
    /// The file is not replaced by one of the size that fits: on a full disk, another program would
    /// take the freed space first.
    fn find(&self, wanted: u64) -> io::Result<u64> {
        let file = self.disk.open(NAME)?;
        let there = file.len()?;
        if there > wanted {
            file.set_len(wanted)?;
        }
        Ok(there.min(wanted))
    }

    /// Returns whether only deletions should be admitted.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Relaxed)
    }

    /// Returns the resource that is short; `None` if writes are admitted.
    pub fn shortage(&self) -> Option<Shortage> {
        self.is_short().then(|| *lock(&self.least))
    }

    /// Returns the resource that is short, and the missing bytes.
    ///
    /// `None` if writes are admitted.
    pub fn lack(&self) -> Option<Lack> {
        let [free_bytes, missing_bytes] = [&self.free_bytes, &self.missing_bytes].map(|bytes| bytes.load(Relaxed));
        self.shortage().map(|of| Lack { of, free_bytes, missing_bytes })
    }

    /// Returns the bytes that all files occupied at the last check.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Relaxed)
    }

    /// Returns the bytes within reach: free space plus this server's files.
    ///
    /// # Errors
    /// The disk's error if it cannot report its files or its free space.
    pub fn reachable_bytes(&self) -> io::Result<u64> {
        let names = self.disk.list()?;
        Ok(taken_bytes(&*self.disk, names.iter())? + self.disk.free_bytes()?)
    }

    /// Returns the reserve that fits on the disk, in bytes.
    ///
    /// Without a reserve, deletions on a full disk could not be merged and would free nothing. A
    /// disk too small for the whole reserve therefore keeps half of its room beyond the log's ring.
    fn fitting_bytes(&self) -> u64 {
        let beyond_ring = self.reachable_bytes().map_or(u64::MAX, |bytes| bytes.saturating_sub(self.log_bytes_max));
        if beyond_ring >= self.bytes + self.bytes / 4 {
            return self.bytes;
        }
        (beyond_ring / 2 / BLOCK_BYTES * BLOCK_BYTES).min(self.bytes)
    }

    /// Writes a checkpoint; gives up the reserve if there is no other room.
    ///
    /// # Errors
    /// [`BaseError`] from [`Base::checkpoint`].
    pub fn checkpoint(&self, base: &Base, checkpoint: &Checkpoint) -> Result<(), BaseError> {
        self.with_room(|| base.checkpoint(checkpoint))
    }

    /// Merges one step; gives up the reserve if there is no other room.
    ///
    /// [`Base::merge`] runs eagerly while space is short. While memory is short and nothing is left
    /// to merge, redb's file is truncated. Returns whether more is left to merge.
    ///
    /// # Errors
    /// [`BaseError`] from [`Base::merge`] or [`Base::compact`].
    pub fn merge(&self, base: &Base) -> Result<bool, BaseError> {
        self.with_room(|| {
            let more = base.merge(self.is_short())?;
            if !more && self.shortage() == Some(Shortage::Memory) {
                base.compact(self.missing_bytes.load(Relaxed))?;
            }
            Ok(more)
        })
    }

    fn with_room<T>(&self, mut write: impl FnMut() -> Result<T, BaseError>) -> Result<T, BaseError> {
        match write() {
            Err(BaseError::NoSpace) if self.give_up() => write(),
            outcome => outcome,
        }
    }

    /// Gives up the reserve for a log that found the disk full.
    ///
    /// A delete cannot be recorded before the log grows. Returns the shortage from now on if a
    /// retry can succeed, else `None`. The caller tells the state machine first: otherwise newly
    /// admitted writes would take the space that deletions need.
    pub fn make_way(&self, stalled: &io::Error) -> Option<Shortage> {
        if !is_full(stalled) || !self.give_up() {
            return None;
        }
        let mut least = lock(&self.least);
        if *least == Shortage::Memory {
            *least = Shortage::Disk;
        }
        *lock(&self.reported) = Some(*least);
        Some(*least)
    }

    fn give_up(&self) -> bool {
        let _reported = lock(&self.reported);
        self.is_short.store(true, Relaxed);
        self.held_bytes.swap(0, Relaxed) > 0 && self.disk.remove(NAME).is_ok()
    }

    /// Checks the available room and recreates the file if there is enough.
    ///
    /// Returns whether [`Reserve::shortage`] differs from the last report by `recheck` or
    /// [`Reserve::make_way`]. Called after each checkpoint and merge, and periodically while space
    /// is short.
    pub fn recheck(&self, base: &Base) -> bool {
        let mut reported = lock(&self.reported);
        let was_short = self.is_short();
        // A failed check is no reason to refuse writes; a checkpoint that fails is.
        let is_short = self.look(base, was_short).unwrap_or(was_short);
        self.is_short.store(is_short, Relaxed);
        let shortage = self.shortage();
        std::mem::replace(&mut *reported, shortage) != shortage
    }

    /// Returns whether room is short.
    ///
    /// Writes are admitted only while every run could be merged and the log could grow to its full
    /// size. A deletion frees nothing until it is merged, and a merge needs the space of its runs
    /// twice.
    fn look(&self, base: &Base, was_short: bool) -> io::Result<bool> {
        let room = self.room(base)?;
        // On a tie the bound comes first: a capped disk never reports more free than its bound
        // leaves.
        let rooms =
            [(room.of_bound, Shortage::Bound), (room.of_disk, Shortage::Disk), (room.of_memory, Shortage::Memory)];
        let (free, least) = rooms.into_iter().min_by_key(|(free, _)| *free).unwrap_or((room.of_disk, Shortage::Disk));
        *lock(&self.least) = least;
        let held = self.held_bytes.load(Relaxed);
        let to_make = self.bytes - held;
        let beyond_reserve = self.most_beyond_reserve(room.of_disk - signed(to_make));
        // Cap the margin: on a disk hardly larger than log and reserve, even deleting everything
        // would not free all of it.
        let margin = if was_short { margin_bytes(self.bytes).min(beyond_reserve / 2) } else { 0 };
        let needed = signed(margin + to_make);
        self.missing_bytes.store((needed - free).max(0).unsigned_abs(), Relaxed);
        if free < needed {
            // Without its reserve, a server admits writes as long as everything but the reserve has
            // room: a small disk does not count as full.
            return Ok(was_short || free < 0);
        }
        // If creating the file fails for another reason than space, the server runs without it.
        Ok(to_make > 0 && self.make(held).is_err_and(|error| held == 0 && is_full(&error)))
    }

    /// Returns the most bytes ever free beyond the reserve, the current check included.
    fn most_beyond_reserve(&self, now: i64) -> u64 {
        self.spare_bytes_max.fetch_max(now, Relaxed).max(now).max(0).unsigned_abs()
    }

    /// Creates the file, or extends a file of `held` bytes. Without enough room nothing changes.
    fn make(&self, held: u64) -> io::Result<()> {
        let file = if held == 0 { self.disk.create(NAME) } else { self.disk.open(NAME) };
        let made = file.and_then(|file| self.fill(&*file, held).inspect_err(|_| drop(file.set_len(held))));
        match &made {
            Ok(()) => self.held_bytes.store(self.bytes, Relaxed),
            Err(_) if held == 0 => drop(self.disk.remove(NAME)),
            Err(_) => {}
        }
        made
    }

    fn fill(&self, file: &dyn DiskFile, from: u64) -> io::Result<()> {
        match file.allocate(self.bytes)? {
            0 => Ok(()),
            // The file system cannot reserve space, so `allocate` wrote zeroes.
            _ => fill_with_noise(file, from..self.bytes),
        }
    }

    /// Computes the room left after merging all runs and growing the log fully.
    fn room(&self, base: &Base) -> io::Result<Room> {
        let names = self.disk.list()?;
        let (of_bases, others) = names.iter().partition::<Vec<_>, _>(|name| base::id_of(name).is_some());
        let (of_own, of_coming) =
            of_bases.into_iter().partition::<Vec<_>, _>(|name| base::id_of(name) == Some(base.id()));
        let of = |names: Vec<&String>| taken_bytes(&*self.disk, names.into_iter());
        let (own, coming) = (of(of_own)?, of(of_coming)?);
        let taken = own + coming + of(others)?;
        self.taken_bytes.store(taken, Relaxed);
        let segments = names.iter().filter(|name| name.ends_with(".log"));
        let log_bytes = segments.map(|name| self.disk.open(name)?.len()).sum::<io::Result<u64>>()?;
        let needed = signed(base.run_bytes() + self.log_bytes_max.saturating_sub(log_bytes));
        let free_bytes = self.disk.free_bytes()?;
        self.free_bytes.store(free_bytes, Relaxed);
        let of_disk = signed(free_bytes) - needed;
        let of_memory =
            signed(self.checksummed_bytes_max) - signed(base.checksummed_bytes()) - signed(base.run_bytes());
        if self.bytes_max == 0 {
            return Ok(Room { of_disk, of_bound: i64::MAX, of_memory });
        }
        let second = signed(second_base_bytes(own, coming));
        Ok(Room { of_disk, of_bound: signed(self.bytes_max) - signed(taken) - second - needed, of_memory })
    }
}

/// Returns the smallest useful [`Limits::disk_bytes_max`], in bytes.
///
/// With log and reserve at full size, a checkpoint of a full memtable still leaves writes admitted,
/// even after a shortage. Every checkpoint would exceed a smaller bound.
pub fn disk_bytes_min(limits: &Limits) -> u64 {
    let reserve = u64::from(limits.disk_reserve_bytes);
    // A checkpoint writes one memtable; records that fill blocks badly double its size.
    let run = Part::Memtable.limit(limits);
    let taken = Part::Log.limit(limits) + reserve + run;
    taken + second_base_bytes(run, 0) + run + margin_bytes(reserve)
}

/// Returns the bytes still needed for a second base beside the current one.
///
/// A member whose base is unusable receives a snapshot as a second base of about the same size.
/// `coming` bytes of it are already there.
const fn second_base_bytes(own: u64, coming: u64) -> u64 {
    base::copy_bytes_max(own).saturating_sub(coming)
}

/// Returns the extra room that must be free before a shortage ends; prevents flapping.
const fn margin_bytes(reserve: u64) -> u64 {
    reserve / 8
}

/// Fills a range with bytes that do not compress.
///
/// Compressing file systems such as UBIFS would reserve no space for zeroes.
fn fill_with_noise(file: &dyn DiskFile, range: Range<u64>) -> io::Result<()> {
    let mut piece = Vec::with_capacity(NOISE_BYTES);
    for at in range.clone().step_by(NOISE_BYTES) {
        piece.clear();
        let end = range.end.min(at + NOISE_BYTES as u64);
        (at..end).step_by(8).for_each(|word| piece.extend_from_slice(&xxh3_64(&word.to_le_bytes()).to_le_bytes()));
        file.write_at(at, &piece[..(end - at) as usize])?;
    }
    Ok(())
}

/// Spare bytes for each resource; negative if there are too few.
struct Room {
    of_disk: i64,
    of_bound: i64,
    /// Bytes of redb's file that may still get checksums in memory.
    of_memory: i64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsDisk;
    use crate::base::Options;
    use bytes::Bytes;
    use zoolet_machine::record::key;
    use zoolet_machine::seam::action::CheckpointMeta;
    use zoolet_model::Zxid;

    /// A base and a reserve with no bound except memory.
    struct Trial {
        directory: std::path::PathBuf,
        disk: Arc<dyn Disk>,
        base: Base,
        reserve: Reserve,
        zxid: u64,
    }

    impl Drop for Trial {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    impl Trial {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("zoolet-reserve-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let disk: Arc<dyn Disk> = Arc::new(FsDisk::open(&directory).unwrap());
            let base = Base::create(Arc::clone(&disk), 0, Options::default()).unwrap();
            let limits = Limits { disk_reserve_bytes: 0, disk_bytes_max: 0, ..Limits::default() };
            let reserve = Reserve::open(Arc::clone(&disk), &limits);
            Self { directory, disk, base, reserve, zxid: 0 }
        }

        /// Checkpoints half-page values, or their deletion, and merges everything into redb.
        fn write(&mut self, numbers: Range<u32>, value: Option<&[u8]>) {
            self.zxid += 1;
            let meta = CheckpointMeta { zxid: Zxid::from_bits(self.zxid).unwrap(), digest: 0, totals: Bytes::new() };
            let value = value.map(Bytes::copy_from_slice);
            let changes = numbers.map(|number| (key::data(&format!("/{number:08}")).unwrap(), value.clone()));
            let checkpoint = Checkpoint { changes: Arc::new(changes.collect()), meta };
            self.reserve.checkpoint(&self.base, &checkpoint).unwrap();
            while self.base.merge(true).unwrap() {}
        }

        fn shortage(&self) -> Option<Shortage> {
            self.reserve.recheck(&self.base);
            self.reserve.shortage()
        }
    }

    #[test]
    fn base_beyond_its_checksum_memory_reports_a_memory_shortage() {
        let Trial { base, reserve, .. } = &mut Trial::new("written");
        assert!(!reserve.recheck(base) && reserve.shortage().is_none());
        reserve.checksummed_bytes_max = base.checksummed_bytes() - 1;
        assert!(reserve.recheck(base));
        assert_eq!(reserve.lack().map(|lack| (lack.of, lack.missing_bytes)), Some((Shortage::Memory, 1)));
        reserve.checksummed_bytes_max = base.checksummed_bytes();
        assert!(reserve.recheck(base) && reserve.shortage().is_none());
    }

    /// redb doubles a full file, and the new half has no checksums yet.
    ///
    /// A bound on the file length would therefore refuse writes at half of the allowed memory.
    #[test]
    fn unused_half_of_a_redb_file_needs_no_checksum_memory() {
        let mut trial = Trial::new("doubled");
        let mut numbers = 0..250;
        // Stop right after a doubling.
        while trial.base.checksummed_bytes() < 4 << 20
            || trial.base.file_bytes() < trial.base.checksummed_bytes() / 3 * 5
        {
            assert!(numbers.end < 100_000, "the file never was doubled");
            trial.write(numbers.clone(), Some(&[3; 2000]));
            numbers = numbers.end..numbers.end + 250;
        }
        let (written, bytes) = (trial.base.checksummed_bytes(), trial.base.file_bytes());
        trial.reserve.checksummed_bytes_max = (written + bytes) / 2;
        assert_eq!(trial.shortage(), None, "{written} of {bytes} bytes are written");
        let base = Base::open(Arc::clone(&trial.disk), 0, Options::default()).unwrap();
        assert!(base.checksummed_bytes() <= written, "opened again: {} of {bytes} bytes", base.checksummed_bytes());
    }

    #[test]
    fn few_deletes_end_a_small_memory_shortage() {
        let mut trial = Trial::new("deletes");
        trial.write(0..4000, Some(&[3; 2000]));
        while trial.base.merge(true).unwrap() {}
        let before = trial.base.checksummed_bytes();
        trial.reserve.checksummed_bytes_max = before - 1;
        assert_eq!(trial.shortage(), Some(Shortage::Memory));
        trial.write(0..20, None);
        assert_eq!(trial.shortage(), Some(Shortage::Memory), "the file was cut already");
        assert!(!trial.reserve.merge(&trial.base).unwrap());
        assert_eq!(trial.shortage(), None, "{before} bytes before, {} now", trial.base.checksummed_bytes());
        let memory_bytes = trial.base.memory_bytes();
        trial.write(20..4000, None);
        assert!(trial.base.checksummed_bytes() < before / 2 && trial.base.memory_bytes() < memory_bytes);
        // The truncated file grows again; another process must find all records in it.
        trial.write(0..2000, Some(&[4; 2000]));
        let base = Base::open(Arc::clone(&trial.disk), 0, Options::default()).unwrap();
        let (mut found, reader) = (0, base.reader());
        reader
            .scan(b"", None, &mut |_, _| {
                found += 1;
                true
            })
            .unwrap();
        assert_eq!(found, 2000);
    }
}
