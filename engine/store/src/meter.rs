//! Counts bytes written to a device, by cause.
//!
//! Every write of the store passes through this layer, so the count is complete. It excludes writes
//! of the file system itself (journal, inodes, directories) and write amplification inside the
//! device.

use super::base;
use super::disk::{Disk, DiskFile};
use super::log::BLOCK_BYTES;
use super::reserve;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zoolet_machine::status::{Cause, Written};

/// Counts the writes of all disks that share it.
#[derive(Debug)]
pub struct Meter {
    bytes: [AtomicU64; Cause::ALL.len()],
    /// Id of the current base; writes to any other base count as snapshot.
    base: AtomicU64,
}

/// No base is current yet: a base created at the start counts as [`Cause::Base`].
const ANY_BASE: u64 = u64::MAX;

impl Default for Meter {
    fn default() -> Self {
        Self { bytes: Default::default(), base: AtomicU64::new(ANY_BASE) }
    }
}

impl Meter {
    /// Returns the bytes written so far.
    pub fn written(&self) -> Written {
        Written::new(std::array::from_fn(|cause| self.bytes[cause].load(Relaxed)))
    }

    /// Sets the current base; writes to any other base count as [`Cause::Snapshot`].
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
    /// The cause of all writes; `None` for a store, where the file name tells.
    cause: Option<Cause>,
}

impl<D> std::fmt::Debug for MeteredDisk<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredDisk").field("meter", &self.meter).finish_non_exhaustive()
    }
}

impl<D> MeteredDisk<D> {
    /// Wraps the disk of a store.
    pub const fn new(disk: D, meter: Arc<Meter>) -> Self {
        Self { disk, meter, cause: None }
    }

    /// Wraps a disk whose writes all have one cause.
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

/// Kind of a file, by its name.
#[derive(Clone, Copy)]
enum Kind {
    All(Cause),
    /// A file of the base with this id.
    Base(u64),
}

impl Kind {
    fn of(name: &str) -> Self {
        match base::id_of(name) {
            Some(id) => Self::Base(id),
            None if name.ends_with(".log") => Self::All(Cause::Log),
            // Written only to take space, where the file system cannot reserve it.
            None if name == reserve::NAME => Self::All(Cause::Prepared),
            None => Self::All(Cause::Other),
        }
    }
}

const NO_BLOCK: u64 = u64::MAX;

struct MeteredFile {
    file: Arc<dyn DiskFile>,
    meter: Arc<Meter>,
    kind: Kind,
    /// Last block written since the last sync.
    ///
    /// If the next write starts in the same block, the page reaches the device only once.
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

    /// Counts a write in advance: a failed write may have written a part.
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
