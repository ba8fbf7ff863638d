//! Creates and opens a log: finds the live segments, the tail, and missing durable records.

use super::{
    AppendError, BLOCK_BYTES, Counters, Facts, Log, LogError, LogOptions, Opened,
    batch::{Header, VERSION},
    end::{self, End},
    entries::Cut,
    read::Reader,
    ring::{Ring, Segment, Spare, Stage},
    walk::{First, Step, Walk, first_facts},
};
use crate::Strategy;
use crate::disk::{Disk, DiskFile};
use std::{collections::VecDeque, convert::Infallible, sync::Arc};
use zoolet_model::Zxid;
use zoolet_zab::AppendSeq;

/// A file of the log as found on the disk.
struct Seen {
    name: String,
    file: Arc<dyn DiskFile>,
    bytes: u64,
    content: Content,
}

enum Content {
    /// Never used as a segment.
    Blank,
    /// The first batch is not intact.
    Broken,
    /// A segment, of the present turn of the ring or an earlier one.
    Intact(Box<First>),
}

/// Creating and opening.
impl Log {
    /// Creates a log whose first batch states `birth`. Files from an earlier attempt are reused.
    ///
    /// # Errors
    /// - [`LogError::Exists`]: there already is a log.
    /// - [`LogError::Options`]: the options or `birth` are invalid.
    /// - [`LogError::Damaged`]: a file holds batches of a log that cannot be read.
    /// - [`LogError::Unsupported`]: a newer release wrote a file of the log.
    /// - [`LogError::Io`]: the disk failed, or is full.
    pub fn create(disk: Arc<dyn Disk>, options: LogOptions, birth: Facts) -> Result<Self, LogError> {
        options.check()?;
        birth.check().map_err(LogError::Options)?;
        let seen = look(&*disk)?;
        if seen.iter().any(|seen| matches!(seen.content, Content::Intact(_))) {
            return Err(LogError::Exists);
        }
        refuse_orphans(&seen)?;
        let mut ring = Ring::default();
        seen.into_iter().for_each(|seen| ring.keep_unused(seen, &options));
        let mut log = Self::new(disk, options, birth, AppendSeq(1), ring, 0);
        log.append_birth().map_err(|error| error.of_recovery(""))?;
        Ok(log)
    }

    /// Opens the log of this directory.
    ///
    /// Everything reported is durable, including records that a crash had left in the page cache
    /// only.
    ///
    /// # Errors
    /// - [`LogError::Empty`]: no log was ever created completely.
    /// - [`LogError::Damaged`]: durable records are missing or have changed.
    /// - [`LogError::Options`], [`LogError::Unsupported`] and [`LogError::Io`].
    pub fn open(disk: Arc<dyn Disk>, options: LogOptions) -> Result<(Self, Opened), LogError> {
        options.check()?;
        let mut seen = look(&*disk)?;
        let (newest, first) = loop {
            let Some(newest) = take_newest(&mut seen) else {
                refuse_orphans(&seen)?;
                return Err(LogError::Empty);
            };
            // A crash may have left the tail in the page cache only. If the sync of a tail failed,
            // the page cache may show it forever without it being on the device. So the tail is
            // synced and read back from the device.
            newest.file.sync().map_err(|error| LogError::io(&newest.name, error))?;
            newest.file.forget_cached().map_err(|error| LogError::io(&newest.name, error))?;
            let again = look_at(&*disk, newest.name.clone())?;
            match again {
                Seen { content: Content::Intact(first), .. } if first.incarnation == newest.incarnation => {
                    break (newest, first);
                }
                again => seen.push(again),
            }
        };

        let disk_incarnation = first.facts.disk_incarnation;
        for unused in seen.iter().filter(|seen| !matches!(seen.content, Content::Intact(_))) {
            // A device that lost a block may return zeroes for it, so blank files are checked too.
            refuse_lost_start(unused, disk_incarnation, newest.incarnation)?;
        }
        refuse_lost_end(&newest, &first)?;

        let mut walk = Walk::start(&newest)?;
        let start = Header {
            version: VERSION,
            is_first: true,
            is_end: false,
            payload_bytes: 0,
            incarnation: newest.incarnation,
            append_seq: walk.next_seq,
            watermark: walk.facts.watermark,
            last: walk.facts.last,
            chain: walk.facts.chain,
        };
        let tail = walk.segment(&newest, None, None, &mut |_| Ok::<(), Infallible>(()))?;
        let torn_tail = judge_tail(&newest, tail, disk_incarnation)?;

        let mut ring = Ring::default();
        ring.live.push_back(newest.with_capacity(&options));
        ring.adopt(seen, disk_incarnation, &options)?;
        let opened = Opened { facts: walk.facts.clone(), appended: AppendSeq(walk.next_seq - 1), torn_tail };
        let mut log = Self::new(disk, options, walk.facts, AppendSeq(walk.next_seq), ring, tail);
        log.end = log.missing_end(start)?;
        match log.end_segment() {
            // A disk that takes no writes now must not keep a server from reading. The next append
            // writes the end.
            Ok(()) | Err(AppendError::Stalled(_)) => {}
            Err(error) => return Err(error.of_recovery("")),
        }
        log.find_cuts()?;
        Ok((log, opened))
    }

    /// Finds the cuts of the history in the live segments.
    ///
    /// Most logs have no cuts, and are not read for this. A damaged segment may not be needed any
    /// more. Then only the segments after it can be read.
    fn find_cuts(&mut self) -> Result<(), LogError> {
        for start in 0..self.ring.live.len() {
            let segment = &self.ring.live[start];
            self.readable = segment.incarnation;
            if segment.start_cuts == self.facts.cuts {
                return Ok(());
            }
            let mut cuts = VecDeque::new();
            let walked = Walk::all(self.ring.live.range(start..), self.tail, &mut |step: Step<'_>| {
                cuts.extend(Cut::of(step.seq, step.record));
                Ok::<(), Infallible>(())
            });
            match walked.map_err(LogError::from) {
                Ok(_) => {
                    let first = self.facts.cuts - cuts.len() as u64;
                    for (number, cut) in (first..).zip(&cuts) {
                        self.ring.cut(cut.to, |segment| segment.start_cuts <= number);
                    }
                    self.cuts = cuts;
                    return Ok(());
                }
                Err(LogError::Damaged { .. } | LogError::Unsupported { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the end that the segment before the newest lacks, if a crash prevented it.
    ///
    /// `start` is the header with which the newest segment starts.
    fn missing_end(&self, start: Header) -> Result<Option<End>, LogError> {
        let Some(before) = self.ring.live.len().checked_sub(2).and_then(|position| self.ring.live.get(position)) else {
            return Ok(None);
        };
        // As with the tail, an end that the page cache shows may not be on the device.
        let on_device = before.file.sync().and_then(|()| before.file.forget_cached());
        on_device.map_err(|error| LogError::io(&before.name, error))?;
        let mut reader = Reader::new(&before.name, &*before.file)?;
        if end::find(&mut reader, before.incarnation, self.facts.disk_incarnation)?.is_some() {
            return Ok(None);
        }
        let walked = Walk::start(before).and_then(|mut walk| {
            let tail = walk.segment(before, None, None, &mut |_| Ok::<(), Infallible>(()))?;
            Ok((walk, tail))
        });
        match walked {
            Ok((walk, tail)) if (walk.next_seq, walk.facts.chain) == (start.append_seq, start.chain) => {
                let reported = self.appended();
                End::of(before, tail, &self.options, start, reported).map_err(|error| error.of_recovery(&before.name))
            }
            // The damaged part may not be needed any more. A reader that needs it gets the error.
            Ok(_) | Err(LogError::Damaged { .. } | LogError::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn new(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        facts: Facts,
        next_seq: AppendSeq,
        ring: Ring,
        tail: u64,
    ) -> Self {
        let (checkpoint, buffer, counters) = (Zxid::ZERO, Vec::new(), Counters::default());
        let (hold, cuts, readable, end, failure) = (None, VecDeque::new(), 0, None, None);
        Self {
            disk,
            options,
            facts,
            next_seq,
            ring,
            tail,
            checkpoint,
            hold,
            cuts,
            readable,
            end,
            buffer,
            counters,
            failure,
        }
    }
}

impl Ring {
    /// Sorts the other files. Segments that lead up to the newest without a gap are live; all
    /// others are no longer needed.
    fn adopt(&mut self, mut seen: Vec<Seen>, disk_incarnation: u128, options: &LogOptions) -> Result<(), LogError> {
        seen.sort_by_key(|seen| std::cmp::Reverse(seen.content.incarnation()));
        for seen in seen {
            let oldest = self.live.front().map_or(0, |segment| segment.incarnation);
            if let Content::Intact(first) = &seen.content {
                if first.facts.disk_incarnation != disk_incarnation {
                    return Err(LogError::damaged(&seen.name, 0, "this segment was written for another disk"));
                }
                if first.incarnation == oldest {
                    return Err(LogError::damaged(&seen.name, 0, "this segment exists twice"));
                }
            }
            match seen.content {
                Content::Intact(first) if first.incarnation + 1 == oldest => {
                    self.live.push_front(segment(seen.name, seen.file, seen.bytes, &first));
                }
                Content::Intact(_) | Content::Blank | Content::Broken => self.keep_unused(seen, options),
            }
        }
        Ok(())
    }

    fn keep_unused(&mut self, seen: Seen, options: &LogOptions) {
        let segment_bytes = u64::from(options.segment_bytes);
        let count = self.live.len() + self.free.len();
        if options.strategy == Strategy::Append || seen.bytes > segment_bytes || count >= options.segments as usize {
            self.stale.push(seen.name);
            return;
        }
        // A file that was a segment is written in full. Any other file may have been left half
        // prepared.
        let is_written = seen.bytes == segment_bytes && !matches!(seen.content, Content::Blank);
        let stage = if is_written { Stage::Ready } else { Stage::Allocate };
        self.free.push(Spare { name: seen.name, file: seen.file, stage });
    }
}

impl Segment {
    fn with_capacity(self, options: &LogOptions) -> Self {
        let bytes = match options.strategy {
            Strategy::Recycle => self.bytes,
            Strategy::Append => self.bytes.max(u64::from(options.segment_bytes)),
        };
        Self { bytes, ..self }
    }
}

impl Content {
    fn incarnation(&self) -> u64 {
        match self {
            Self::Blank | Self::Broken => 0,
            Self::Intact(first) => first.incarnation,
        }
    }
}

/// Returns every file of the log with its first batch.
fn look(disk: &dyn Disk) -> Result<Vec<Seen>, LogError> {
    let names = disk.list().map_err(|error| LogError::io("", error))?;
    names.into_iter().filter(|name| is_segment(name)).map(|name| look_at(disk, name)).collect()
}

fn look_at(disk: &dyn Disk, name: String) -> Result<Seen, LogError> {
    let file = disk.open(&name).map_err(|error| LogError::io(&name, error))?;
    let mut reader = Reader::new(&name, &*file)?;
    let bytes = reader.file_bytes();
    let content = match first_facts(&mut reader, &name)? {
        Some(first) => Content::Intact(Box::new(first)),
        None if reader.is_blank(0)? => Content::Blank,
        None => Content::Broken,
    };
    Ok(Seen { name, file, bytes, content })
}

pub(super) fn is_segment(name: &str) -> bool {
    let number = name.strip_prefix("seg-").and_then(|rest| rest.strip_suffix(".log"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn segment(name: String, file: Arc<dyn DiskFile>, bytes: u64, first: &First) -> Segment {
    let (start_last, start_cuts) = (first.facts.last, first.facts.cuts);
    Segment { name, file, bytes, incarnation: first.incarnation, start_last, start_cuts }
}

fn take_newest(seen: &mut Vec<Seen>) -> Option<Segment> {
    let newest = (0..seen.len()).max_by_key(|&position| seen[position].content.incarnation());
    let position = newest.filter(|&position| matches!(seen[position].content, Content::Intact(_)))?;
    let Seen { name, file, bytes, content } = seen.swap_remove(position);
    match content {
        Content::Intact(first) => Some(segment(name, file, bytes, &first)),
        Content::Blank | Content::Broken => None,
    }
}

/// Tells a torn tail from damage. Returns the position of a torn tail.
///
/// One batch is in flight at a time, so nothing was written after a torn batch. An intact batch of
/// the same incarnation after it proves that the broken batch had been acknowledged.
fn judge_tail(newest: &Segment, tail: u64, disk_incarnation: u128) -> Result<Option<(String, u64)>, LogError> {
    let mut reader = Reader::new(&newest.name, &*newest.file)?;
    let mut at = tail + u64::from(BLOCK_BYTES);
    while at < reader.file_bytes() {
        if let Some(header) = reader.header(at)?
            && header.incarnation == newest.incarnation
            && reader.batch(at, Some(disk_incarnation))?.is_some()
        {
            let what = format!("this batch is not intact, and an intact batch follows at byte {at}");
            return Err(LogError::damaged(&newest.name, tail, what));
        }
        at += u64::from(BLOCK_BYTES);
    }
    let is_torn = reader.header(tail)?.is_some_and(|header| header.incarnation == newest.incarnation);
    Ok(is_torn.then(|| (newest.name.clone(), tail)))
}

/// Fails if the newest segment shows that the end of its file or its successor is lost.
fn refuse_lost_end(newest: &Segment, first: &First) -> Result<(), LogError> {
    let mut reader = Reader::new(&newest.name, &*newest.file)?;
    let bytes = reader.file_bytes();
    if bytes < first.file_bytes {
        let what = format!("this file has {bytes} bytes instead of {}", first.file_bytes);
        return Err(LogError::damaged(&newest.name, bytes, what));
    }
    match end::find(&mut reader, first.incarnation, first.facts.disk_incarnation)? {
        Some(at) => Err(LogError::damaged(&newest.name, at, "the segment after this one is missing")),
        None => Ok(()),
    }
}

/// Fails if a file without an intact first batch was a segment newer than all known ones.
///
/// Without an intact first batch a segment was never begun, unless newer batches follow in its
/// file. A power cut leaves no such batches. The second batch of a segment is written when the
/// first is durable, and leftovers of an older incarnation are older than `newest`.
fn refuse_lost_start(unused: &Seen, disk_incarnation: u128, newest: u64) -> Result<(), LogError> {
    let mut reader = Reader::new(&unused.name, &*unused.file)?;
    let mut at = u64::from(BLOCK_BYTES);
    while at < reader.file_bytes() {
        if let Some(header) = reader.header(at)?
            && header.incarnation > newest
            && reader.batch(at, Some(disk_incarnation))?.is_some()
        {
            let what = format!("the first batch is not intact, and an intact batch follows at byte {at}");
            return Err(LogError::damaged(&unused.name, 0, what));
        }
        at += u64::from(BLOCK_BYTES);
    }
    Ok(())
}

/// Fails if batches remain without any intact segment.
///
/// Then nothing can be verified. A log whose creation was interrupted has no second batch.
fn refuse_orphans(seen: &[Seen]) -> Result<(), LogError> {
    for seen in seen {
        let mut reader = Reader::new(&seen.name, &*seen.file)?;
        let mut at = u64::from(BLOCK_BYTES);
        while at < reader.file_bytes() {
            if reader.header(at)?.is_some() {
                return Err(LogError::damaged(
                    &seen.name,
                    0,
                    "no segment starts with intact facts, but batches follow",
                ));
            }
            at += u64::from(BLOCK_BYTES);
        }
    }
    Ok(())
}
