//! What is handed to a device, counted by what it is for.
//!
//! At the one seam that every write of the store passes, so that nothing of it is left out. What a file system writes of its own (journal, inodes,
//! directories) is not seen here, and what a device makes of the blocks it is given neither.

use super::base;
use super::disk::{Disk, DiskFile};
use super::log::BLOCK_BYTES;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What bytes are written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Batches of the log.
    Log,
    /// Space made ready before it is used: zeroes in segments of the log, once in the life of each, and where a file system reserves nothing without writing.
    Prepared,
    /// Checkpoints and merges.
    Base,
    /// Bases that come from peers.
    Snapshot,
    /// Images beside the store.
    Image,
    /// All else: the marker.
    Other,
}

impl Cause {
    /// Every one.
    pub const ALL: [Self; 6] = [Self::Log, Self::Prepared, Self::Base, Self::Snapshot, Self::Image, Self::Other];

    /// Its name in status and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Prepared => "prepared",
            Self::Base => "base",
            Self::Snapshot => "snapshot",
            Self::Image => "image",
            Self::Other => "other",
        }
    }
}

/// Bytes by cause, in whole blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written([u64; Cause::ALL.len()]);

impl Written {
    /// Those of one cause.
    pub const fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Without [`Cause::Prepared`], which says nothing of days to come.
    pub fn recurring(&self) -> u64 {
        self.total() - self.of(Cause::Prepared)
    }

    /// These, with so many more of one cause.
    #[must_use]
    pub fn with(mut self, cause: Cause, bytes: u64) -> Self {
        self.0[cause as usize] += bytes;
        self
    }
}

/// Counts what all disks that share it are given.
#[derive(Debug)]
pub struct Meter {
    bytes: [AtomicU64; Cause::ALL.len()],
    /// Whose files are no snapshot's.
    base: AtomicU64,
}

/// No base is current yet: those that are made at the start are nobody else's.
const ANY_BASE: u64 = u64::MAX;

impl Default for Meter {
    fn default() -> Self {
        Self { bytes: Default::default(), base: AtomicU64::new(ANY_BASE) }
    }
}

impl Meter {
    /// What was written so far.
    pub fn written(&self) -> Written {
        Written(std::array::from_fn(|cause| self.bytes[cause].load(Relaxed)))
    }

    /// This is the base that is written to; what is written to another one is a snapshot that comes in.
    pub fn serve_base(&self, id: u64) {
        self.base.store(id, Relaxed);
    }

    fn add(&self, cause: Cause, bytes: u64) {
        self.bytes[cause as usize].fetch_add(bytes, Relaxed);
    }
}

/// A disk whose writes are counted.
pub struct MeteredDisk<D> {
    disk: D,
    meter: Arc<Meter>,
    /// What everything on it is for; `None` of a store, whose files say it.
    cause: Option<Cause>,
}

impl<D> std::fmt::Debug for MeteredDisk<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredDisk").field("meter", &self.meter).finish_non_exhaustive()
    }
}

impl<D> MeteredDisk<D> {
    /// The disk of a store.
    pub const fn new(disk: D, meter: Arc<Meter>) -> Self {
        Self { disk, meter, cause: None }
    }

    /// A disk that is written for one thing.
    pub const fn all_for(disk: D, meter: Arc<Meter>, cause: Cause) -> Self {
        Self { disk, meter, cause: Some(cause) }
    }

    fn metered(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let kind = self.cause.map_or_else(|| Kind::of(name), Kind::All);
        Arc::new(MeteredFile { file, meter: Arc::clone(&self.meter), kind, last_block: AtomicU64::new(NO_BLOCK) })
    }
}

impl<D: Disk> Disk for MeteredDisk<D> {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.metered(name, self.disk.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.metered(name, self.disk.create(name)?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn taken_bytes(&self, name: &str) -> io::Result<u64> {
        self.disk.taken_bytes(name)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.disk.is_in_place()
    }
}

/// What a file is, as its name says.
#[derive(Clone, Copy)]
enum Kind {
    All(Cause),
    /// Of the base of this number.
    Base(u64),
}

impl Kind {
    fn of(name: &str) -> Self {
        match base::id_of(name) {
            Some(id) => Self::Base(id),
            None if name.ends_with(".log") => Self::All(Cause::Log),
            None => Self::All(Cause::Other),
        }
    }
}

const NO_BLOCK: u64 = u64::MAX;

struct MeteredFile {
    file: Arc<dyn DiskFile>,
    meter: Arc<Meter>,
    kind: Kind,
    /// The last block of the last write that was not synced since: the next one may go on in it, and the page goes to the device once.
    last_block: AtomicU64,
}

impl MeteredFile {
    fn cause(&self) -> Cause {
        match self.kind {
            Kind::All(cause) => cause,
            Kind::Base(id) => match self.meter.base.load(Relaxed) {
                current if current == id || current == ANY_BASE => Cause::Base,
                _ => Cause::Snapshot,
            },
        }
    }

    /// Counted also when it fails: some of it may have been written.
    fn count(&self, cause: Cause, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let block = u64::from(BLOCK_BYTES);
        let (first, last) = (bytes.start / block, (bytes.end - 1) / block);
        let again = u64::from(self.last_block.swap(last, Relaxed) == first);
        self.meter.add(cause, (last + 1 - first - again) * block);
    }
}

impl DiskFile for MeteredFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.count(self.cause(), offset..offset + bytes.len() as u64);
        self.file.write_at(offset, bytes)
    }

    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        self.count(Cause::Prepared, range.clone());
        self.file.write_zeroes(range)
    }

    fn sync(&self) -> io::Result<()> {
        self.last_block.store(NO_BLOCK, Relaxed);
        self.file.sync()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<u64> {
        let written = self.file.allocate(bytes)?;
        self.meter.add(Cause::Prepared, written);
        Ok(written)
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.file.forget_cached()
    }
}
