//! What the disk takes: the pattern that the log writes, in the place where it would be.

mod event;
mod watch;
mod writer;

pub(super) use event::Phase;
pub(super) use watch::measure;
pub(super) use writer::SYNCS_MIN;
pub(in crate::cli) use writer::run as run_writer;

use std::path::PathBuf;
use std::time::Duration;
use zoolet_engine::store::{DeviceWear, FileSystem};

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct DiskFound {
    pub(super) directory: PathBuf,
    pub(super) file_system: FileSystem,
    /// Bytes that there was room for before; `None` when the file system has not answered.
    pub(super) free_bytes: Option<u64>,
    /// Bytes in a second, one block behind the other.
    pub(super) bytes_per_second: Option<u64>,
    /// Of blocks that were written and synced, one by one; `None` when none was.
    pub(super) syncs: Option<Syncs>,
    /// All that was written.
    pub(super) written_bytes: u64,
    /// What the device says of its life.
    pub(super) wear: Option<DeviceWear>,
    /// What had not returned when it was waited for no longer.
    pub(super) stuck: Option<Stuck>,
}

/// How long they took, microseconds. One that has not returned counts with the time that it was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Syncs {
    pub(super) count: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) max_us: u64,
}

impl Syncs {
    fn of(mut took: Vec<u64>) -> Option<Self> {
        took.sort_unstable();
        let last = took.len().checked_sub(1)?;
        let at = |percent: usize| took[(took.len() * percent / 100).min(last)];
        Some(Self { count: took.len() as u64, p50_us: at(50), p99_us: at(99), max_us: at(100) })
    }
}

/// What the disk owes an answer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stuck {
    pub(super) phase: Phase,
    pub(super) waited: Duration,
}

impl Stuck {
    /// In words.
    pub(super) fn what(self) -> &'static str {
        match self.phase {
            Phase::Preparing => "the file system has not answered",
            Phase::LayingOut | Phase::Syncing => "a sync has not returned",
            Phase::Removing => "the removal of a file has not returned",
        }
    }
}
