//! What the base has done to its files, across all openings of them in one process.

use crate::store::disk::DiskFile;
use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// What the base has done to its files since the process opened it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes written to the base file.
    pub base_bytes_written: u64,
    /// Bytes written to the side file.
    pub side_bytes_written: u64,
    /// Bytes read from the base file.
    pub base_bytes_read: u64,
    /// Syncs of either file.
    pub syncs: u64,
    /// How often the files were opened again after an error.
    pub reopenings: u64,
}

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) base_bytes_written: Count,
    pub(super) side_bytes_written: Count,
    pub(super) base_bytes_read: Count,
    pub(super) syncs: Count,
    pub(super) reopenings: Count,
    sync_failed: AtomicBool,
    missing_bytes: AtomicU64,
}

#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Ledger {
    pub(super) fn counters(&self) -> Counters {
        Counters {
            base_bytes_written: self.base_bytes_written.now(),
            side_bytes_written: self.side_bytes_written.now(),
            base_bytes_read: self.base_bytes_read.now(),
            syncs: self.syncs.now(),
            reopenings: self.reopenings.now(),
        }
    }

    /// Syncs, once: what the kernel makes of a failed sync nobody can know, so after one nothing is written any more.
    pub(super) fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        if self.sync_failed() {
            return Err(io::Error::other("an earlier sync of the base failed"));
        }
        self.syncs.add(1);
        file.sync().inspect_err(|_| self.sync_failed.store(true, Ordering::Release))
    }

    pub(super) fn sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::Acquire)
    }

    /// Free bytes without which the next checkpoint would fail as the last one did; 0 when it did not.
    pub(super) fn missing_bytes(&self) -> u64 {
        self.missing_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_missing_bytes(&self, bytes: u64) {
        self.missing_bytes.store(bytes, Ordering::Relaxed);
    }
}
