//! Measures the disk where the data would be, with the write pattern of the log.

mod event;
mod watch;
mod writer;

pub(super) use event::Phase;
pub(super) use watch::measure;
pub(super) use writer::SYNCS_MIN;
pub(in crate::cli) use writer::run as run_writer;

use std::path::PathBuf;
use std::time::Duration;
use zoolet_machine::status::DeviceWear;
use zoolet_store::FileSystem;

/// The findings about the disk.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct DiskFound {
    pub(super) directory: PathBuf,
    pub(super) file_system: FileSystem,
    /// Free bytes before the measurement; `None` if the file system did not answer.
    pub(super) free_bytes: Option<u64>,
    /// Sequential write rate in bytes per second; `None` if nothing was written.
    pub(super) bytes_per_second: Option<u64>,
    /// Times of the blocks that were written and synced singly; `None` if no sync returned.
    pub(super) syncs: Option<Syncs>,
    /// Bytes written in total.
    pub(super) written_bytes: u64,
    /// The wear that the device reports.
    pub(super) wear: Option<DeviceWear>,
    /// The operation that had not returned at the deadline.
    pub(super) stuck: Option<Stuck>,
}

/// Times of single syncs, in microseconds.
///
/// A sync that has not returned counts with the time waited for it so far.
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

/// An operation of the disk that has not returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stuck {
    pub(super) phase: Phase,
    pub(super) waited: Duration,
}

impl Stuck {
    /// Describes the operation.
    pub(super) fn what(self) -> &'static str {
        match self.phase {
            Phase::Preparing => "the file system has not answered",
            Phase::LayingOut | Phase::Syncing => "a sync has not returned",
            Phase::Removing => "the removal of a file has not returned",
        }
    }
}
