//! What the store asks of a disk: one directory of named files.
//!
//! The real one is [`super::FsDisk`]; the simulator's keeps what a process crash and what a power loss would leave apart. Every
//! error keeps its [`std::io::ErrorKind`], because a full disk and a read-only one are answered, while a failed
//! [`DiskFile::sync`] is fatal.

use std::{io, ops::Range, sync::Arc};

/// Zeroes of one write. An allocator keeps what a thread had once, so a server that nobody uses holds so much of them for ever.
const ZEROES_BYTES: usize = 32 << 10;

/// One directory. Names are plain file names, never paths.
pub trait Disk: Send + Sync {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates an empty file; the name is durable only after [`Disk::sync_directory`].
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when there is one.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Removes a file; durable only after [`Disk::sync_directory`].
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames over `to`; durable only after [`Disk::sync_directory`].
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no `from`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// The names of all files, sorted.
    ///
    /// # Errors
    /// Whatever reading the directory says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes creations, removals and renames durable.
    ///
    /// # Errors
    /// Fatal, as for [`DiskFile::sync`].
    fn sync_directory(&self) -> io::Result<()>;

    /// Bytes that can still be written.
    ///
    /// # Errors
    /// Whatever asking the file system says.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Bytes that a file takes on the device, which are not those in it: holes take none, and what is reserved takes its room before it is written.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none.
    fn taken_bytes(&self, name: &str) -> io::Result<u64>;

    /// Whether the next start will find what is written now: the directory is at its path, and each open file has its
    /// name in it. Files that somebody removed, moved away or replaced stay open, and are written on.
    ///
    /// # Errors
    /// Whatever asking the file system says; then nothing is known.
    fn is_in_place(&self) -> io::Result<bool>;
}

#[allow(clippy::len_without_is_empty, reason = "nothing asks a file that")]
/// One file. Positions are byte offsets; a write beyond the end extends the file.
pub trait DiskFile: Send + Sync {
    /// Bytes in the file.
    ///
    /// # Errors
    /// Whatever the device says.
    fn len(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the file is shorter.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`; not durable before [`DiskFile::sync`].
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`], [`io::ErrorKind::ReadOnlyFilesystem`] or the device's error; then any part may have been
    /// written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes zeroes, in pieces, where nothing is yet, so that blocks are there to be overwritten.
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
    /// Fail-stop: the kernel may already have dropped the pages, so a second call proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Cuts or extends with zeroes.
    ///
    /// # Errors
    /// As for [`DiskFile::write_at`].
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Extends to `bytes` with space that is really reserved, so that later writes inside cannot run out of it. Never shrinks. Says how many bytes were
    /// written for that: none where space can be reserved without.
    ///
    /// # Errors
    /// As for [`DiskFile::write_at`].
    fn allocate(&self, bytes: u64) -> io::Result<u64>;

    /// Makes the next reads come from the device, as far as the file has nothing unwritten. After a failed sync the page cache
    /// may show what is not on the device and will never be written; a process that starts after that must not believe it.
    ///
    /// # Errors
    /// Whatever the device says.
    fn forget_cached(&self) -> io::Result<()>;
}
