//! The disk interface of the store: one directory of named files.
//!
//! [`super::FsDisk`] is the real one. The simulator's disk distinguishes the effects of a process
//! crash and of a power loss. Every error keeps its [`std::io::ErrorKind`]: a full or read-only
//! disk is handled, while a failed [`DiskFile::sync`] is fatal.

use std::{io, ops::Range, sync::Arc};

/// Bytes of zeroes per write. The allocator never returns a thread's buffer, so even an idle server
/// retains this much.
const ZEROES_BYTES: usize = 32 << 10;

/// One directory. Names are plain file names, never paths.
pub trait Disk: Send + Sync {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the file does not exist.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates an empty file; the name is durable only after [`Disk::sync_directory`].
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the file exists.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Removes a file; durable only after [`Disk::sync_directory`].
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the file does not exist.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames over `to`; durable only after [`Disk::sync_directory`].
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if `from` does not exist.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Returns the names of all files, sorted.
    ///
    /// # Errors
    /// The error from reading the directory.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes creations, removals and renames durable.
    ///
    /// # Errors
    /// Fatal, as for [`DiskFile::sync`].
    fn sync_directory(&self) -> io::Result<()>;

    /// Returns the bytes that can still be written.
    ///
    /// # Errors
    /// The file system's error.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Returns the bytes that a file occupies on the device.
    ///
    /// This differs from its length: holes occupy nothing, and reserved space counts before it is
    /// written.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the file does not exist.
    fn taken_bytes(&self, name: &str) -> io::Result<u64>;

    /// Returns whether the next start will find the data written now.
    ///
    /// The directory must be at its path and hold each open file under its name. A file that
    /// another program removed, moved or replaced stays open, and writes to it still succeed.
    ///
    /// # Errors
    /// The file system's error; the answer is then unknown.
    fn is_in_place(&self) -> io::Result<bool>;
}

#[allow(clippy::len_without_is_empty, reason = "nothing asks a file that")]
/// One file. Positions are byte offsets; a write beyond the end extends the file.
pub trait DiskFile: Send + Sync {
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// The device's error.
    fn len(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`; durable only after [`DiskFile::sync`].
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`], [`io::ErrorKind::ReadOnlyFilesystem`] or the device's error.
    /// Any part may then have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes zeroes over an unused range, in pieces, to allocate its blocks.
    ///
    /// # Errors
    /// As for [`DiskFile::write_at`].
    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        let zeroes = vec![0; ZEROES_BYTES];
        for at in range.clone().step_by(ZEROES_BYTES) {
            let length = ZEROES_BYTES.min((range.end - at) as usize);
            self.write_at(at, &zeroes[..length])?;
        }
        Ok(())
    }

    /// Makes every write and length change of this file durable (fdatasync).
    ///
    /// # Errors
    /// Fatal: the kernel may already have dropped the pages, so a second call proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeroes.
    ///
    /// # Errors
    /// As for [`DiskFile::write_at`].
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Extends the file to `bytes` of reserved space.
    ///
    /// Later writes inside cannot run out of space. Never shrinks. Returns the bytes written to
    /// reserve the space: 0 where the file system can reserve without writing.
    ///
    /// # Errors
    /// As for [`DiskFile::write_at`].
    fn allocate(&self, bytes: u64) -> io::Result<u64>;

    /// Drops this file's cached pages, so that reads reach the device.
    ///
    /// Unwritten pages stay. After a failed sync, the page cache may hold data that is not on the
    /// device and never will be. A process that starts afterwards must not trust the cache.
    ///
    /// # Errors
    /// The device's error.
    fn forget_cached(&self) -> io::Result<()>;
}
