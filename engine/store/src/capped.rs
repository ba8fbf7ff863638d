//! A disk with a limit on the bytes that its files occupy.
//!
//! A box has one disk, and other programs need room on it too, so the data directory has a byte
//! bound. Writes beyond the bound fail like writes to a full disk. Everything that handles full
//! disks then applies: the reserve, refused writes, deletions that still succeed.
//!
//! The bound applies to the bytes that files occupy on the device. The file system knows that
//! number, but is not asked for each write. Instead each write is subtracted in full from the room
//! left at the last count, as if it overwrote nothing. A write that exceeds this estimate triggers
//! a new count.

use super::disk::{Disk, DiskFile};
use super::log::BLOCK_BYTES;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// Limits `disk` to `bytes_max` bytes on the device; 0 means no limit.
pub fn capped(disk: Arc<dyn Disk>, bytes_max: u64) -> Arc<dyn Disk> {
    if bytes_max == 0 {
        return disk;
    }
    let share = Share { disk, bytes_max, left: AtomicI64::new(0), writing: RwLock::new(()) };
    Arc::new(CappedDisk(Arc::new(share)))
}

struct Share {
    disk: Arc<dyn Disk>,
    bytes_max: u64,
    /// Lower bound of the room left, in bytes.
    ///
    /// A write that exceeds it forces a new count. Negative if unknown.
    left: AtomicI64,
    /// Held shared by a write that takes room, and exclusively during a count.
    ///
    /// The file system's figures do not include data still on its way to the device.
    writing: RwLock<()>,
}

impl Share {
    /// Runs `write`, which takes at most `bytes` more on the device.
    fn take<T>(&self, bytes: u64, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if bytes == 0 {
            return write();
        }
        let bytes = signed(bytes);
        let shared = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        if self.left.fetch_sub(bytes, Relaxed) >= bytes {
            return write();
        }
        drop(shared);
        let _alone = self.writing.write().unwrap_or_else(PoisonError::into_inner);
        let left = signed(self.bytes_max) - signed(self.all_bytes()?);
        if left < bytes {
            self.left.store(left, Relaxed);
            let what = format!("{bytes} more bytes would exceed disk_bytes_max = {}", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        self.left.store(left - bytes, Relaxed);
        write()
    }

    fn all_bytes(&self) -> io::Result<u64> {
        taken_bytes(&*self.disk, self.disk.list()?.iter())
    }
}

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns the bytes that these files occupy on the device.
pub(super) fn taken_bytes<'a>(disk: &dyn Disk, names: impl Iterator<Item = &'a String>) -> io::Result<u64> {
    let mut taken = 0;
    for name in names {
        match disk.taken_bytes(name) {
            Ok(bytes) => taken += bytes,
            // The file may have been removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

struct CappedDisk(Arc<Share>);

impl CappedDisk {
    fn file(&self, file: Arc<dyn DiskFile>, ready: u64) -> Arc<dyn DiskFile> {
        Arc::new(CappedFile { share: Arc::clone(&self.0), file, ready: AtomicU64::new(ready) })
    }
}

impl Disk for CappedDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.0.disk.open(name)?;
        let bytes = file.len()?;
        // A file that occupies less than its length has holes.
        let ready = if self.0.disk.taken_bytes(name)? < bytes { NEVER } else { bytes };
        Ok(self.file(file, ready))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.0.disk.create(name)?, 0))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.disk.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.disk.list()
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.0.disk.sync_directory()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let left = self.0.bytes_max.saturating_sub(self.0.all_bytes()?);
        Ok(self.0.disk.free_bytes()?.min(left))
    }

    fn taken_bytes(&self, name: &str) -> io::Result<u64> {
        self.0.disk.taken_bytes(name)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.0.disk.is_in_place()
    }
}

/// `ready` of a file with holes: no write is known to hit allocated space.
const NEVER: u64 = u64::MAX;

struct CappedFile {
    share: Arc<Share>,
    file: Arc<dyn DiskFile>,
    /// Allocated bytes at the start of the file; overwriting them takes no room.
    ready: AtomicU64,
}

impl CappedFile {
    /// Runs `write`, after which the file has room for `range`.
    fn take<T>(&self, range: Range<u64>, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let block = u64::from(BLOCK_BYTES);
        let (first, end) = (range.start / block * block, range.end.div_ceil(block) * block);
        let ready = self.ready.load(Relaxed);
        if ready == NEVER {
            return self.share.take(end - first, write);
        }
        if range.end <= ready {
            return write();
        }
        if range.start > ready {
            // The gap before this write is a hole from now on.
            self.ready.store(NEVER, Relaxed);
            return self.share.take(end - first, write);
        }
        let written = self.share.take(end.saturating_sub(ready.div_ceil(block) * block), write)?;
        self.ready.fetch_max(range.end, Relaxed);
        Ok(written)
    }
}

impl DiskFile for CappedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.take(offset..offset + bytes.len() as u64, || self.file.write_at(offset, bytes))
    }

    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        self.take(range.clone(), || self.file.write_zeroes(range))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        // Truncation returns the space it cuts. An extension adds a hole without space.
        if self.ready.load(Relaxed) != NEVER {
            self.ready.fetch_min(bytes, Relaxed);
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<u64> {
        if bytes == 0 {
            return self.file.allocate(0);
        }
        self.take(0..bytes, || self.file.allocate(bytes))
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.file.forget_cached()
    }
}
