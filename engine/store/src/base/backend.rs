//! redb's storage backend on a [`Disk`]: accounted, checksummed, and without writes between
//! transactions.
//!
//! # Why no crash gives a false alarm and no flip is missed
//!
//! redb is a copy-on-write tree. A block that the durable header leads to is not overwritten before
//! a newer header is durable. The backend adds three rules:
//!
//! 1. redb's header is not in the base file but in the side file, twice. Each copy has its own
//!    checksum and sequence number. The header changes only inside a transaction, when redb calls
//!    `sync_data`. The order is fixed: write the checksum table, sync the side file, sync the base
//!    file. Then write and sync the first copy, then the second copy.
//! 2. A table block overwrites the older of its two copies. A new process syncs the side file
//!    before it trusts it.
//! 3. If the copies of the header differ after a crash, they are made equal before any other block
//!    is written.
//!
//! The crashes:
//!
//! - *Before the first copy is durable*: the next process finds the old header, in the second copy
//!   or in both. The blocks that it leads to were not touched. The table block that covers them is
//!   the old copy or the new one. Both agree about these blocks, because entries change only for
//!   blocks that were free. So every reachable block matches its checksum, and there is no false
//!   alarm. A torn write in a free block is never read.
//! - *After it*: table and blocks were durable before, so the new state is complete. The header is
//!   one block with one checksum, so a mix of two headers is invalid.
//!
//! The flips:
//!
//! - *In a block*: its checksum was durable before the header that leads to it, and every read
//!   compares.
//! - *In a table block*: the other copy takes its place. If that copy is older, its entries do not
//!   match. This is reported as damage and gives no wrong answer.
//! - *In a header*: the other copy is equal (rule 3), so nothing is lost.
//! - *In the base file's first block*: that block is never read.
//!
//! Rules 1 and 3 require redb's own two-phase commit. Without it redb might trust a header whose
//! pages were never synced, and its recovery would verify checksums of the whole file.

use super::{
    BaseError,
    ledger::Ledger,
    redb_panic::{self, ours},
    side::{BLOCK, HEADER_BYTES, Side},
};
use crate::disk::{Disk, DiskFile};
use redb::StorageBackend;
use std::{
    collections::HashSet,
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};
use zoolet_zab::{Mutation, mutation};

/// Free space kept on the disk in addition to redb's needs, bytes.
///
/// A file system without any space fails in untested places.
pub(super) const SPARE_BYTES: u64 = 64 << 10;

/// Operations that redb may do at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Mode {
    /// Between transactions. redb marks its header "in use" when it opens. The mark stays in
    /// memory, so opening writes nothing and works on a full or read-only disk.
    Quiet,
    /// Inside a transaction, or while redb lays out or compacts its file.
    Writing,
    /// Abandoned. The closing commit of this redb must not write to files that have been opened
    /// again.
    Shut,
}

/// One opening of a base's two files. Clones share it.
#[derive(Clone)]
pub(super) struct Backend(Arc<Shared>);

struct Shared {
    disk: Arc<dyn Disk>,
    base: Arc<dyn DiskFile>,
    side: Side,
    ledger: Arc<Ledger>,
    mode: AtomicU8,
    /// The first error. redb only repeats that an operation failed.
    fault: Mutex<Option<BaseError>>,
    /// Estimated maximum of bytes that the current transaction writes.
    estimate: AtomicU64,
    /// True if blocks were written since the table and both files were last synced.
    unsynced: AtomicBool,
    /// Offsets of the pages that the current transaction has written.
    written: Mutex<HashSet<u64>>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").finish_non_exhaustive()
    }
}

impl Backend {
    pub(super) fn new(disk: Arc<dyn Disk>, base: Arc<dyn DiskFile>, side: Side, ledger: Arc<Ledger>) -> Self {
        Self(Arc::new(Shared {
            disk,
            base,
            side,
            ledger,
            mode: AtomicU8::new(Mode::Quiet as u8),
            fault: Mutex::default(),
            estimate: AtomicU64::new(0),
            unsynced: AtomicBool::new(false),
            written: Mutex::default(),
        }))
    }

    /// Begins a transaction that writes at most about `estimate` bytes.
    pub(super) fn begin_writing(&self, estimate: u64) -> io::Result<()> {
        self.0.estimate.store(estimate, Ordering::Relaxed);
        self.0.noting(self.0.side.seal())?;
        self.0.written().clear();
        self.0.mode.store(Mode::Writing as u8, Ordering::Release);
        Ok(())
    }

    /// Ends the transaction, which is durable now.
    pub(super) fn end_writing(&self) {
        *self.0.written() = HashSet::new();
        self.0.mode.store(Mode::Quiet as u8, Ordering::Release);
    }

    /// Refuses every operation from now on.
    pub(super) fn shut(&self) {
        self.0.mode.store(Mode::Shut as u8, Ordering::Release);
    }

    /// Returns true if this opening was abandoned because the files were opened again.
    pub(super) fn is_shut(&self) -> bool {
        self.0.mode() == Mode::Shut
    }

    /// Runs `work`, which calls redb. A panic of redb becomes damage.
    ///
    /// redb asserts some properties of its file that the checksums cannot verify. Such a panic is
    /// stored as the first error, unless there is one already.
    pub(super) fn guarded<T, E: From<BaseError>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        redb_panic::guarded(&self.0.disk, self.0.side.id(), work).unwrap_or_else(|| {
            let damage = redb_panic::damage();
            self.0.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| damage.clone());
            Err(damage.into())
        })
    }

    /// Returns the first error.
    pub(super) fn fault(&self) -> Option<BaseError> {
        self.0.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn file_bytes(&self) -> io::Result<u64> {
        self.0.base.len()
    }

    /// Checks that the file is as long as redb's header says.
    ///
    /// redb panics over some truncated files, without a useful message.
    pub(super) fn check_length(&self) -> Result<(), BaseError> {
        let mut header = [0; HEADER_BYTES];
        self.0.side.read_header(0, &mut header)?;
        let (needed, there) = (layout_bytes(&header), self.0.len()?);
        if there < needed {
            return Err(BaseError::Damaged(format!("redb's file is cut short: {there} of {needed} bytes")));
        }
        Ok(())
    }

    /// Returns the bytes of the file up to its highest block with a checksum in memory.
    pub(super) fn checksummed_bytes(&self) -> u64 {
        self.0.side.checksummed_bytes()
    }

    /// Returns the memory of the checksums, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.side.memory_bytes()
    }
}

impl Shared {
    fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Acquire) {
            0 => Mode::Quiet,
            1 => Mode::Writing,
            _ => Mode::Shut,
        }
    }

    fn noting<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && self.mode() != Mode::Shut
        {
            let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
            fault.get_or_insert_with(|| BaseError::from_io(error));
        }
        result
    }

    fn written(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> io::Result<()> {
        if self.mode() == Mode::Shut {
            Err(io::Error::other("this open file of the base was given up"))
        } else {
            Ok(())
        }
    }

    fn len(&self) -> io::Result<u64> {
        // A reservation that a crash interrupted may end inside a block.
        Ok(self.base.len()? / BLOCK as u64 * BLOCK as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.open()?;
        if let Some(offset) = in_header(offset) {
            return self.side.read_header(offset, buffer);
        }
        let first = whole_blocks(offset, buffer.len())?;
        self.base.read_at(offset, buffer)?;
        self.ledger.bytes_read.add(buffer.len() as u64);
        for (block, bytes) in (first..).zip(buffer.chunks_exact(BLOCK)) {
            let is_verified = !mutation::is_on(Mutation::PageUnverified);
            if is_verified && crc32c::crc32c(bytes) != self.side.checksum(block) {
                let message = format!("block {block} of the base does not match its checksum");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.open()?;
        if let Some(offset) = in_header(offset) {
            return self.side.write_header(offset, bytes);
        }
        let first = whole_blocks(offset, bytes.len())?;
        let changed = self.side.note(first, bytes)?;
        let again = !self.written().insert(offset);
        if again && !changed && self.holds(offset, bytes) {
            return Ok(());
        }
        self.unsynced.store(true, Ordering::Release);
        self.ledger.bytes_written.add(bytes.len() as u64);
        let result = self.base.write_at(offset, bytes);
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::StorageFull) {
            self.ledger.set_missing_bytes(self.estimate.load(Ordering::Relaxed) + SPARE_BYTES);
        }
        result
    }

    /// Returns true if the file already holds exactly these bytes.
    ///
    /// With a small cache redb evicts dirty leaves. At the commit it reads each again to compute
    /// its checksum and writes it once more, unchanged. Without this check a transaction would wear
    /// the flash twice. Only pages that this transaction wrote are skipped. Older equal bytes may
    /// exist in the page cache only, left by a process whose sync failed.
    fn holds(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut block = [0; BLOCK];
        (offset..)
            .step_by(BLOCK)
            .zip(bytes.chunks_exact(BLOCK))
            .all(|(offset, bytes)| self.base.read_at(offset, &mut block).is_ok_and(|()| block == bytes))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        if self.mode() != Mode::Writing {
            return Err(io::Error::other("the base can change its length only in a checkpoint or a merge"));
        }
        let now = self.len()?;
        if bytes > now {
            return self.grow(now, bytes);
        }
        self.base.set_len(bytes)?;
        self.side.truncate(bytes.div_ceil(BLOCK as u64));
        Ok(())
    }

    /// Extends the file without reserving space.
    ///
    /// redb doubles its file and then uses little of the new half: 259 of 514 MiB after fifty
    /// checkpoints of 10,000 among a million znodes. So a block takes space when it is first
    /// written, and keeps it. A transaction runs out of space here if it needs more than is free.
    /// It runs out of space in a write if another writer took the rest meanwhile.
    fn grow(&self, now: u64, bytes: u64) -> io::Result<()> {
        let needed = self.estimate.load(Ordering::Relaxed).min(bytes - now) + SPARE_BYTES;
        if self.disk.free_bytes()? < needed {
            self.ledger.set_missing_bytes(needed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.side.reserve(bytes / BLOCK as u64)?;
        self.base.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.open()?;
        if self.mode() == Mode::Quiet {
            return Ok(());
        }
        if !self.side.header_changed() {
            return self.ledger.sync(&*self.base);
        }
        if self.unsynced.swap(false, Ordering::AcqRel) {
            self.side.write_table()?;
            self.side.sync()?;
            self.ledger.sync(&*self.base)?;
        }
        self.side.persist_header()
    }
}

/// Returns the length of the file that redb's header describes (redb format 3), bytes.
///
/// The file is one page, then regions of a few header pages and data pages each. The last region is
/// smaller. Returns 0 if the header was not written yet.
fn layout_bytes(header: &[u8; HEADER_BYTES]) -> u64 {
    // From offset 12: page size, header pages and data pages per region, whole regions, data pages
    // of the last region.
    let number =
        |at: usize| u64::from(u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
    let (page_bytes, header_pages, data_pages) = (number(12), number(16), number(20));
    let (regions, last_data_pages) = (number(24), number(28));
    let whole = regions.saturating_mul(header_pages + data_pages);
    let last = if last_data_pages > 0 { header_pages + last_data_pages } else { 0 };
    page_bytes.saturating_mul(whole.saturating_add(last).saturating_add(1))
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        ours(|| self.0.noting(self.0.len()))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        ours(|| self.0.noting(self.0.read(offset, buffer)))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        ours(|| self.0.noting(self.0.set_len(bytes)))
    }

    fn sync_data(&self) -> io::Result<()> {
        ours(|| self.0.noting(self.0.sync_data()))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        ours(|| self.0.noting(self.0.write(offset, bytes)))
    }
}

/// Returns the offset within the header; `None` outside redb's part of the first block.
fn in_header(offset: u64) -> Option<usize> {
    usize::try_from(offset).ok().filter(|&offset| offset < HEADER_BYTES)
}

/// Returns the number of the first block. Fails unless the range consists of whole blocks, like all
/// of redb's pages.
fn whole_blocks(offset: u64, bytes: usize) -> io::Result<u64> {
    if offset.is_multiple_of(BLOCK as u64) && bytes.is_multiple_of(BLOCK) {
        Ok(offset / BLOCK as u64)
    } else {
        Err(io::Error::new(io::ErrorKind::Unsupported, "redb's pages are no longer whole blocks"))
    }
}
