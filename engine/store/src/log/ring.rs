//! The ring of segments: which are live, which is next, and how the next one is prepared.

use super::{AppendError, Counters, LogOptions, entries::Shared};
use crate::Strategy;
use crate::disk::{Disk, DiskFile};
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, atomic::Ordering},
};
use zoolet_model::Zxid;

/// Zeroes written per step of preparing a segment, bytes.
const FILL_BYTES: u64 = 256 << 10;

/// A segment that holds records.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    /// Capacity, bytes.
    pub(super) bytes: u64,
    /// Counts the uses of segment files. The live segments have consecutive incarnations.
    pub(super) incarnation: u64,
    /// Of the entries before the first batch, the last one still in the history, or a later one.
    pub(super) start_last: Zxid,
    /// Number of cuts of the history before the first batch.
    pub(super) start_cuts: u64,
}

/// A file without needed records.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) stage: Stage,
}

/// Progress of turning a file into a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Space is not reserved yet.
    Allocate,
    /// Zeroes are written up to this offset. Otherwise the first write to each block would also
    /// write to the file system's journal.
    Fill(u64),
    /// File and name are not durable.
    Sync,
    /// The next batch can be written.
    Ready,
}

/// All files of the log.
///
/// Invariant: the incarnations of `live` are consecutive, the newest last.
#[derive(Default)]
pub(super) struct Ring {
    pub(super) live: VecDeque<Segment>,
    /// Files of earlier uses, found at the start.
    pub(super) free: Vec<Spare>,
    /// Files to be removed: of the wrong size, or unusable under the strategy.
    pub(super) stale: Vec<String>,
    /// Names that new files must not get.
    pub(super) taken: Vec<String>,
    /// Incarnation before that of the first segment.
    pub(super) before: u64,
    /// The next segment.
    pub(super) spare: Option<Spare>,
    /// Shared with readers on other threads.
    pub(super) shared: Arc<Shared>,
}

impl Ring {
    /// Returns the index of the newest segment with no entry above `zxid` before it.
    ///
    /// No older segment is needed to continue from `zxid`.
    pub(super) fn start_of(&self, zxid: Zxid) -> Option<usize> {
        self.live.iter().rposition(|segment| segment.start_last <= zxid)
    }

    pub(super) fn bytes_since(&self, checkpoint: Zxid, tail: u64) -> u64 {
        let start = self.start_of(checkpoint).unwrap_or(0);
        let full = self.live.len().saturating_sub(1);
        self.live.range(start.min(full)..full).map(|segment| segment.bytes).sum::<u64>() + tail
    }

    /// Prepares `spare` completely, however long it takes. Held segments are recycled last, the
    /// oldest first.
    pub(super) fn make_ready(
        &mut self,
        disk: &dyn Disk,
        options: &LogOptions,
        checkpoint: Zxid,
        hold: Option<Zxid>,
        segments_max: usize,
        counters: &mut Counters,
    ) -> Result<&Spare, AppendError> {
        let mut spare = match self.spare.take() {
            Some(spare) => spare,
            None => match self.choose(disk, options, held(checkpoint, hold), segments_max) {
                Err(AppendError::Stalled(_)) if hold.is_some() => {
                    let oldest = self.live.get(1).map_or(checkpoint, |second| second.start_last.min(checkpoint));
                    self.choose(disk, options, oldest, segments_max)?
                }
                chosen => chosen?,
            },
        };
        while spare.stage != Stage::Ready {
            if let Err(error) = spare.advance(disk, options, counters) {
                self.spare = Some(spare);
                return Err(error);
            }
        }
        Ok(self.spare.insert(spare))
    }

    /// Does one step of preparing the next segment in advance. Returns true if more remains.
    pub(super) fn prepare_step(
        &mut self,
        disk: &dyn Disk,
        options: &LogOptions,
        checkpoint: Zxid,
        counters: &mut Counters,
    ) -> Result<bool, AppendError> {
        if let Some(spare) = &mut self.spare {
            if spare.stage != Stage::Ready {
                spare.advance(disk, options, counters)?;
            }
            return Ok(spare.stage != Stage::Ready);
        }
        // A recyclable segment stays readable until it is needed. A growing log needs no
        // preparation.
        let is_waiting = options.strategy == Strategy::Recycle
            && self.free.is_empty()
            && self.recyclable(checkpoint) == 0
            && self.live.len() < options.segments as usize;
        if is_waiting {
            self.spare = Some(self.create(disk, options)?);
        }
        Ok(is_waiting)
    }

    /// Removes every segment that is not needed to continue from `checkpoint`. A removal that fails
    /// is retried later.
    pub(super) fn delete_up_to(&mut self, disk: &dyn Disk, checkpoint: Zxid) {
        while self.recyclable(checkpoint) > 0 && disk.remove(&self.live[0].name).is_ok() {
            self.let_go();
        }
        self.stale.retain(|name| disk.remove(name).is_err());
    }

    /// Returns true if no segment can be begun before the next checkpoint.
    pub(super) fn is_full(&self, options: &LogOptions, checkpoint: Zxid) -> bool {
        self.spare.is_none()
            && self.free.is_empty()
            && self.live.len() >= options.segments as usize
            && self.recyclable(checkpoint) == 0
    }

    /// Cuts the history at `to`, for the segments that `began` before the cut.
    ///
    /// Entries above `to` that precede these segments are no longer needed.
    pub(super) fn cut(&mut self, to: Zxid, began: impl Fn(&Segment) -> bool) {
        for segment in self.live.iter_mut().filter(|segment| began(segment)) {
            segment.start_last = segment.start_last.min(to);
        }
    }

    /// Drops the oldest segment, which will be recycled or removed. Readers see this before any of
    /// it is overwritten.
    fn let_go(&mut self) -> Option<Segment> {
        let oldest = self.live.pop_front();
        let next = oldest.as_ref().map_or(0, |segment| segment.incarnation + 1);
        self.shared.oldest.store(next, Ordering::Release);
        oldest
    }

    /// Returns how many of the oldest segments can be recycled.
    ///
    /// They hold no entry above `checkpoint`, and a later segment restates their facts.
    fn recyclable(&self, checkpoint: Zxid) -> usize {
        self.start_of(checkpoint).unwrap_or(0)
    }

    fn choose(
        &mut self,
        disk: &dyn Disk,
        options: &LogOptions,
        checkpoint: Zxid,
        segments_max: usize,
    ) -> Result<Spare, AppendError> {
        while let Some(name) = self.stale.last() {
            disk.remove(name).map_err(AppendError::of_write)?;
            self.stale.pop();
        }
        if let Some(spare) = self.free.pop() {
            return Ok(spare);
        }
        while self.recyclable(checkpoint) > 0 {
            // The extra segment for facts is removed again.
            let fits = options.strategy == Strategy::Recycle
                && self.live[0].bytes == u64::from(options.segment_bytes)
                && self.live.len() <= options.segments as usize;
            if !fits {
                disk.remove(&self.live[0].name).map_err(AppendError::of_write)?;
            }
            if let Some(Segment { name, file, .. }) = self.let_go()
                && fits
            {
                return Ok(Spare { name, file, stage: Stage::Ready });
            }
        }
        if self.live.len() >= segments_max {
            return Err(full());
        }
        self.create(disk, options)
    }

    fn create(&self, disk: &dyn Disk, options: &LogOptions) -> Result<Spare, AppendError> {
        let is_free = |name: &String| {
            self.live.iter().all(|segment| segment.name != *name)
                && self.free.iter().all(|spare| spare.name != *name)
                && !self.stale.contains(name)
                && !self.taken.contains(name)
        };
        let name = (0u32..).map(|number| format!("seg-{number:02}.log")).find(is_free).unwrap_or_default();
        let file = disk.create(&name).map_err(AppendError::of_write)?;
        let stage = match options.strategy {
            Strategy::Recycle => Stage::Allocate,
            Strategy::Append => Stage::Sync,
        };
        Ok(Spare { name, file, stage })
    }
}

pub(super) fn full() -> AppendError {
    let what = "every segment holds entries that no checkpoint contains yet";
    // Differs from the kind for a full disk: freeing space on the disk would not help.
    AppendError::Stalled(io::Error::new(io::ErrorKind::WouldBlock, what))
}

/// Returns the entry up to which segments may be recycled while `hold` is set.
pub(super) fn held(checkpoint: Zxid, hold: Option<Zxid>) -> Zxid {
    hold.map_or(checkpoint, |hold| checkpoint.min(hold))
}

impl Spare {
    fn advance(&mut self, disk: &dyn Disk, options: &LogOptions, counters: &mut Counters) -> Result<(), AppendError> {
        let segment_bytes = u64::from(options.segment_bytes);
        self.stage = match self.stage {
            Stage::Allocate => {
                self.file.allocate(segment_bytes).map_err(AppendError::of_write)?;
                Stage::Fill(0)
            }
            Stage::Fill(at) => {
                let end = segment_bytes.min(at + FILL_BYTES);
                self.file.write_zeroes(at..end).map_err(AppendError::of_write)?;
                counters.prepared_bytes += end - at;
                if end < segment_bytes { Stage::Fill(end) } else { Stage::Sync }
            }
            Stage::Sync => {
                counters.fdatasyncs += 1;
                self.file.sync().map_err(AppendError::Fatal)?;
                disk.sync_directory().map_err(AppendError::Fatal)?;
                Stage::Ready
            }
            Stage::Ready => Stage::Ready,
        };
        Ok(())
    }
}
