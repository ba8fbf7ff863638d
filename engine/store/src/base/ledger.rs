//! Counts of the base's file operations.

use crate::disk::{Disk, DiskFile};
use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// File operations of the base since this process opened it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes written, for any purpose.
    pub base_bytes_written: u64,
    /// Bytes of these that merges wrote.
    pub merge_bytes_written: u64,
    /// Bytes read.
    pub base_bytes_read: u64,
    /// Syncs of files and of the directory.
    pub syncs: u64,
    /// Current number of runs that wait to be merged.
    pub runs: u64,
    /// Number of times that redb was reopened after an error.
    pub reopenings: u64,
}

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) bytes_written: Count,
    pub(super) merge_bytes_written: Count,
    pub(super) bytes_read: Count,
    pub(super) syncs: Count,
    pub(super) reopenings: Count,
    /// Memory of the tables and filters of all open runs, bytes.
    pub(super) table_bytes: Count,
    sync_failed: AtomicBool,
    missing_bytes: AtomicU64,
}

#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn take(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Ledger {
    pub(super) fn counters(&self) -> Counters {
        Counters {
            base_bytes_written: self.bytes_written.now(),
            merge_bytes_written: self.merge_bytes_written.now(),
            base_bytes_read: self.bytes_read.now(),
            syncs: self.syncs.now(),
            runs: 0,
            reopenings: self.reopenings.now(),
        }
    }

    /// Syncs a file; fails without a sync if an earlier one failed.
    ///
    /// After a failed sync the state of the unsynced blocks is unknown, so nothing is written any
    /// more.
    pub(super) fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        self.syncing(|| file.sync())
    }

    /// Syncs the directory under the same rule.
    pub(super) fn sync_directory(&self, disk: &dyn Disk) -> io::Result<()> {
        self.syncing(|| disk.sync_directory())
    }

    fn syncing(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if self.sync_failed() {
            return Err(io::Error::other("an earlier sync of the base failed"));
        }
        self.syncs.add(1);
        sync().inspect_err(|_| self.sync_failed.store(true, Ordering::Release))
    }

    /// Returns the free bytes that the next step needs in order not to fail like the last one.
    ///
    /// 0 if the last step did not run out of space.
    pub(super) fn missing_bytes(&self) -> u64 {
        self.missing_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_missing_bytes(&self, bytes: u64) {
        self.missing_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::Acquire)
    }
}
