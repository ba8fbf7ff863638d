//! What the base has done to its files.

use crate::store::disk::{Disk, DiskFile};
use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// What the base has done to its files since the process opened it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes written, whatever for.
    pub base_bytes_written: u64,
    /// Those of them that merges wrote.
    pub merge_bytes_written: u64,
    /// Bytes read.
    pub base_bytes_read: u64,
    /// Syncs of files and of the directory.
    pub syncs: u64,
    /// Files of checkpoints that wait to be merged, now.
    pub runs: u64,
    /// How often redb was opened again after an error.
    pub reopenings: u64,
}

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) bytes_written: Count,
    pub(super) merge_bytes_written: Count,
    pub(super) bytes_read: Count,
    pub(super) syncs: Count,
    pub(super) reopenings: Count,
    /// Bytes in memory of the tables and filters of open files, whoever holds them.
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

    /// Syncs, once: what the kernel makes of a failed sync nobody can know, so after one nothing is written any more.
    pub(super) fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        self.syncing(|| file.sync())
    }

    /// The same for names.
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

    /// Free bytes without which the next step would fail as the last one did; 0 when it did not.
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
