//! Reading entries for a peer that lacks them, while the log goes on.
//!
//! A [`LogReader`] knows what was durable when it was made and shares the segments' files, so any thread may read. A segment that is used again
//! meanwhile is found out: its batches have another incarnation then, and the ring says so before it writes the first of them.

use super::{BLOCK_BYTES, Log, LogError, batch::Header, read::Reader, record::Record, ring::Segment, walk::decode};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use zoolet_model::Zxid;

/// Places remembered, one for each peer that catches up; the oldest goes first.
const PLACES_MAX: usize = 16;

/// A part of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries {
    /// The chain hash before the first of them.
    pub chain: u128,
    /// In order, committed or not.
    pub entries: Vec<(Zxid, Bytes)>,
}

/// Why entries cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The history does not have the entry that they should follow, or not any more: whoever asks needs a snapshot.
    Gone,
    /// They should be there and cannot be read.
    Log(LogError),
}

impl From<LogError> for ReadError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the log does not have these entries, or not any more"),
            Self::Log(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

/// A cut of the history, by Truncate or SnapEnd: what was appended before the record `seq` and is above `to` is no part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) seq: u64,
    /// Nothing is kept of the history before a snapshot, also where that ends later than it did.
    pub(super) to: Zxid,
    /// Where the history goes on: `to`, or the end of the snapshot.
    pub(super) end: Zxid,
}

impl Cut {
    pub(super) fn of(seq: u64, record: &Record<'_>) -> Option<Self> {
        match record {
            Record::Truncate { to, .. } => Some(Self { seq, to: *to, end: *to }),
            Record::SnapEnd { zxid, .. } => Some(Self { seq, to: Zxid::ZERO, end: *zxid }),
            Record::Facts { .. }
            | Record::Entry { .. }
            | Record::Promise(_)
            | Record::Epoch(_)
            | Record::Config { .. }
            | Record::SnapBegin { .. }
            | Record::Birth { .. }
            | Record::Damaged => None,
        }
    }
}

/// Where a read ended: the next chunk begins there. Also when the entry was cut off since and appended again, which was later.
struct Place {
    zxid: Zxid,
    incarnation: u64,
    /// The batch that has `zxid`.
    at: u64,
}

/// What all readers of a log share with it.
#[derive(Default)]
pub(super) struct Shared {
    /// Segments of an older incarnation are used again, or gone.
    pub(super) oldest: AtomicU64,
    places: Mutex<VecDeque<Place>>,
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, VecDeque<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a log had durable at one moment, for reading on any thread.
#[derive(Clone)]
pub struct LogReader {
    /// Those that can be read, the oldest first.
    segments: Vec<Segment>,
    /// The end of the newest.
    tail: u64,
    disk_incarnation: u128,
    floor: Zxid,
    last: Zxid,
    chain: u128,
    cuts: Vec<Cut>,
    shared: Arc<Shared>,
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("floor", &self.floor).field("last", &self.last).finish_non_exhaustive()
    }
}

/// Reading for peers.
impl Log {
    /// What is durable now, for reading on another thread.
    pub fn reader(&self) -> LogReader {
        LogReader {
            segments: self
                .ring
                .live
                .iter()
                .skip_while(|segment| segment.incarnation < self.readable)
                .cloned()
                .collect(),
            tail: self.tail,
            disk_incarnation: self.facts.disk_incarnation,
            floor: self.floor(),
            last: self.facts.last,
            chain: self.facts.chain,
            cuts: self.live_cuts().copied().collect(),
            shared: self.ring.shared.clone(),
        }
    }

    /// As [`LogReader::read_entries`].
    ///
    /// # Errors
    /// As [`LogReader::read_entries`].
    pub fn read_entries(&self, after: Zxid, to: Zxid, bytes_max: usize) -> Result<Entries, ReadError> {
        self.reader().read_entries(after, to, bytes_max)
    }

    /// The chain hash after the entry `zxid` of the history.
    ///
    /// # Errors
    /// As [`LogReader::read_entries`].
    pub fn chain_at(&self, zxid: Zxid) -> Result<u128, ReadError> {
        self.reader().read_entries(zxid, zxid, 0).map(|read| read.chain)
    }

    /// The entries above it can be read; it grows as segments are used again.
    pub fn floor(&self) -> Zxid {
        let start = self.oldest().map_or(self.facts.last, |segment| segment.start_last);
        self.live_cuts().fold(start, |floor, cut| if cut.to == cut.end { floor.min(cut.to) } else { cut.end })
    }

    /// The oldest segment that can be read.
    fn oldest(&self) -> Option<&Segment> {
        self.ring.live.iter().find(|segment| segment.incarnation >= self.readable)
    }

    /// The cuts in segments that can be read.
    fn live_cuts(&self) -> impl Iterator<Item = &Cut> {
        let before = self.oldest().map_or(self.facts.cuts, |segment| segment.start_cuts);
        let count = usize::try_from(self.facts.cuts - before).unwrap_or(usize::MAX);
        self.cuts.iter().skip(self.cuts.len().saturating_sub(count))
    }

    /// What was cut just now, and nothing of segments that are gone.
    pub(super) fn keep_cuts(&mut self, cuts: Vec<Cut>) {
        self.cuts.extend(cuts);
        let before = self.ring.live.front().map_or(0, |segment| segment.start_cuts);
        while self.cuts.len() as u64 > self.facts.cuts.saturating_sub(before) {
            self.cuts.pop_front();
        }
    }
}

/// What a walk knows between two records.
struct At {
    seq: u64,
    last: Zxid,
    chain: u128,
}

impl At {
    fn before(header: &Header) -> Self {
        Self { seq: header.append_seq, last: header.last, chain: header.chain }
    }

    fn pass(&mut self, record: &Record<'_>) {
        match record {
            Record::Entry { zxid, payload } => {
                self.chain = super::chain_after(self.chain, *zxid, payload);
                self.last = *zxid;
            }
            Record::Truncate { to: zxid, chain } | Record::SnapEnd { zxid, chain, .. } => {
                (self.last, self.chain) = (*zxid, *chain);
            }
            Record::Facts { .. }
            | Record::Promise(_)
            | Record::Epoch(_)
            | Record::Config { .. }
            | Record::SnapBegin { .. }
            | Record::Birth { .. }
            | Record::Damaged => {}
        }
        self.seq += u64::from(record.is_numbered());
    }
}

/// What is collected on the way.
struct Wish {
    after: Zxid,
    to: Zxid,
    bytes_max: usize,
    bytes: usize,
    found: Option<Entries>,
}

impl Wish {
    fn is_done(&self) -> bool {
        let last = self.found.as_ref().map(|found| found.entries.last().map_or(self.after, |(zxid, _)| *zxid));
        last.is_some_and(|last| last >= self.to || (last > self.after && self.bytes >= self.bytes_max))
    }
}

impl LogReader {
    /// The entries above it can be read.
    pub fn floor(&self) -> Zxid {
        self.floor
    }

    /// The last entry that was durable when this reader was made.
    pub fn last(&self) -> Zxid {
        self.last
    }

    /// The entries after `after`, an entry of the history or [`Zxid::ZERO`], up to `to` or the last durable one, as many as have `bytes_max` bytes of
    /// payload or just more; at least one, if there is one.
    ///
    /// Begins at the segment that has `after`; the chunk that follows another begins at the batch where that ended.
    ///
    /// # Errors
    /// [`ReadError::Gone`] and [`ReadError::Log`].
    pub fn read_entries(&self, after: Zxid, to: Zxid, bytes_max: usize) -> Result<Entries, ReadError> {
        if after == self.last {
            return Ok(Entries { chain: self.chain, entries: Vec::new() });
        }
        if after < self.floor || after > self.last {
            return Err(ReadError::Gone);
        }
        let (first, at) = self.place_of(after);
        let mut wish = Wish { after, to, bytes_max, bytes: 0, found: None };
        let begun = self.segments.get(first).map_or(0, |segment| segment.incarnation);
        let walked = self.walk(first, at, &mut wish);
        match (walked, wish.found) {
            (Ok(()), Some(found)) => Ok(found),
            (Ok(()), None) => Err(ReadError::Gone),
            (Err(_), _) if self.shared.oldest.load(Ordering::Acquire) > begun => Err(ReadError::Gone),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Segment and batch from which on everything after `after` is found.
    fn place_of(&self, after: Zxid) -> (usize, u64) {
        let places = self.shared.places();
        let place = places.iter().find(|place| place.zxid == after);
        let remembered = place.and_then(|place| {
            let segment = self.segments.iter().position(|segment| segment.incarnation == place.incarnation)?;
            Some((segment, place.at))
        });
        remembered.unwrap_or_else(|| {
            let first = self.segments.iter().rposition(|segment| segment.start_last <= after);
            (first.unwrap_or(0), 0)
        })
    }

    /// The last entry found is in this batch.
    fn remember(&self, wish: &Wish, segment: &Segment, at: u64) {
        let Some(&(zxid, _)) = wish.found.as_ref().and_then(|found| found.entries.last()) else { return };
        let place = Place { zxid, incarnation: segment.incarnation, at };
        let mut places = self.shared.places();
        places.retain(|known| known.zxid != place.zxid);
        if places.len() == PLACES_MAX {
            places.pop_front();
        }
        places.push_back(place);
    }

    /// Whether what was appended as `seq` is in the history.
    fn survives(&self, seq: u64, zxid: Zxid) -> bool {
        self.cuts.iter().all(|cut| cut.seq < seq || zxid <= cut.to)
    }

    fn walk(&self, first: usize, mut at: u64, wish: &mut Wish) -> Result<(), LogError> {
        let mut here: Option<At> = None;
        let mut before: Option<(&Segment, u64)> = None;
        for (position, segment) in self.segments.iter().enumerate().skip(first) {
            let stop = (position + 1 == self.segments.len()).then_some(self.tail);
            let mut reader = Reader::new(&segment.name, &*segment.file)?;
            while stop != Some(at) {
                let is_ours = reader.header(at)?.is_some_and(|header| header.incarnation == segment.incarnation);
                let batch = if is_ours { reader.batch(at, Some(self.disk_incarnation))? } else { None };
                let batch = batch.filter(|(header, _)| header.is_first == (at == 0) && !header.is_end);
                let Some((header, mut records)) = batch else {
                    if stop.is_some() || at == 0 || here.is_none() {
                        return Err(LogError::damaged(&segment.name, at, "an acknowledged batch is not intact"));
                    }
                    break;
                };
                let now = here.get_or_insert_with(|| At::before(&header));
                if (now.seq, now.last, now.chain) != (header.append_seq, header.last, header.chain) {
                    return Err(match before {
                        Some((before, end)) if at == 0 => {
                            let what = format!("records between here and {} are missing", segment.name);
                            LogError::damaged(&before.name, end, what)
                        }
                        _ => LogError::damaged(&segment.name, at, "a batch does not continue the one before it"),
                    });
                }
                while !records.is_empty() {
                    self.look(now, wish);
                    if wish.is_done() {
                        self.remember(wish, segment, at);
                        return Ok(());
                    }
                    let record = decode(&mut records, &segment.name, at)?;
                    if let (Record::Entry { zxid, payload }, Some(found)) = (&record, &mut wish.found)
                        && *zxid > wish.after
                        && self.survives(now.seq, *zxid)
                    {
                        if *zxid > wish.to {
                            self.remember(wish, segment, at);
                            return Ok(());
                        }
                        found.entries.push((*zxid, Bytes::copy_from_slice(payload)));
                        wish.bytes += payload.len();
                    }
                    now.pass(&record);
                }
                self.look(now, wish);
                if wish.is_done() {
                    self.remember(wish, segment, at);
                    return Ok(());
                }
                at += (header.batch_bytes() as u64).next_multiple_of(u64::from(BLOCK_BYTES));
            }
            before = Some((segment, at));
            at = 0;
        }
        Ok(())
    }

    /// Whether the history that counts ends here with the entry that is asked for.
    fn look(&self, now: &At, wish: &mut Wish) {
        if wish.found.is_none() && now.last == wish.after && self.survives(now.seq, wish.after) {
            wish.found = Some(Entries { chain: now.chain, entries: Vec::new() });
        }
    }
}
