//! Reads entries for a peer that lacks them, while the log goes on.
//!
//! A [`LogReader`] knows what was durable when it was created. It shares the segments' files, so
//! any thread may read. A segment may be recycled during a read. The reader notices, because the
//! new batches have another incarnation, and the ring announces it before it writes the first of
//! them.

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

/// Positions remembered, one per peer that catches up. The oldest is evicted first.
const PLACES_MAX: usize = 16;

/// A contiguous part of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries {
    /// Chain hash before the first entry.
    pub chain: u128,
    /// Entries in order, committed or not.
    pub entries: Vec<(Zxid, Bytes)>,
}

/// Why entries cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The history lacks the entry that they should follow, or has dropped it. The peer needs a
    /// snapshot.
    Gone,
    /// They should be in the log but cannot be read.
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
            Self::Gone => f.write_str("these entries are not in the log, or no longer"),
            Self::Log(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

/// A cut of the history by Truncate or SnapEnd.
///
/// It removes every entry above `to` that was appended before the record `seq`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) seq: u64,
    /// Last entry kept. A snapshot keeps nothing of the history before it, even if the snapshot
    /// ends later, so this is [`Zxid::ZERO`].
    pub(super) to: Zxid,
    /// Entry after which the history goes on: `to`, or the last entry of the snapshot.
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

/// Where a read ended, so that the next chunk begins there.
///
/// It stays valid if the entry was cut off since and appended again, because the new copy stands
/// later in the log.
struct Place {
    zxid: Zxid,
    incarnation: u64,
    /// Position of the batch that holds `zxid`.
    at: u64,
}

/// State that all readers of a log share with it.
#[derive(Default)]
pub(super) struct Shared {
    /// Segments with an older incarnation are recycled or removed.
    pub(super) oldest: AtomicU64,
    places: Mutex<VecDeque<Place>>,
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, VecDeque<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The durable content of a log at one moment. Any thread can read it.
#[derive(Clone)]
pub struct LogReader {
    /// Readable segments, oldest first.
    segments: Vec<Segment>,
    /// End of the newest segment.
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
    /// Returns a reader of everything that is durable now, for any thread.
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

    /// See [`LogReader::read_entries`].
    ///
    /// # Errors
    /// See [`LogReader::read_entries`].
    pub fn read_entries(&self, after: Zxid, to: Zxid, bytes_max: usize) -> Result<Entries, ReadError> {
        self.reader().read_entries(after, to, bytes_max)
    }

    /// Returns the chain hash after the entry `zxid` of the history.
    ///
    /// # Errors
    /// See [`LogReader::read_entries`].
    pub fn chain_at(&self, zxid: Zxid) -> Result<u128, ReadError> {
        self.reader().read_entries(zxid, zxid, 0).map(|read| read.chain)
    }

    /// Returns the entry above which all entries can be read. It grows as segments are recycled.
    pub fn floor(&self) -> Zxid {
        let start = self.oldest().map_or(self.facts.last, |segment| segment.start_last);
        self.live_cuts().fold(start, |floor, cut| if cut.to == cut.end { floor.min(cut.to) } else { cut.end })
    }

    /// Returns the oldest readable segment.
    fn oldest(&self) -> Option<&Segment> {
        self.ring.live.iter().find(|segment| segment.incarnation >= self.readable)
    }

    /// Returns the cuts in readable segments.
    fn live_cuts(&self) -> impl Iterator<Item = &Cut> {
        let before = self.oldest().map_or(self.facts.cuts, |segment| segment.start_cuts);
        let count = usize::try_from(self.facts.cuts - before).unwrap_or(usize::MAX);
        self.cuts.iter().skip(self.cuts.len().saturating_sub(count))
    }

    /// Adds new cuts, and drops those in segments that are gone.
    pub(super) fn keep_cuts(&mut self, cuts: Vec<Cut>) {
        self.cuts.extend(cuts);
        let before = self.ring.live.front().map_or(0, |segment| segment.start_cuts);
        while self.cuts.len() as u64 > self.facts.cuts.saturating_sub(before) {
            self.cuts.pop_front();
        }
    }
}

/// State of a walk between two records.
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
                self.chain = zoolet_machine::record::chain_after(self.chain, *zxid, payload);
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

/// The request, and the entries collected so far.
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
    /// Returns the entry above which all entries can be read.
    pub fn floor(&self) -> Zxid {
        self.floor
    }

    /// Returns the last entry that was durable when this reader was created.
    pub fn last(&self) -> Zxid {
        self.last
    }

    /// Returns the entries after `after`, up to `to` or the last durable entry.
    ///
    /// `after` is an entry of the history or [`Zxid::ZERO`]. Reading stops after the entry that
    /// brings the payloads to `bytes_max` bytes or more. At least one entry is returned, if there
    /// is one.
    ///
    /// The read begins at the segment that holds `after`. A chunk that follows another begins at
    /// the batch where that one ended.
    ///
    /// # Errors
    /// [`ReadError::Gone`] if the history does not have `after`, or not any more.
    /// [`ReadError::Log`] if the entries cannot be read.
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

    /// Returns a segment and a batch from which every entry after `after` can be found.
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

    /// Remembers that the last entry found is in this batch.
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

    /// Returns true if the entry `zxid`, appended as record `seq`, is still in the history.
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

    /// Begins to collect entries once the walk has just passed the surviving entry `after`.
    fn look(&self, now: &At, wish: &mut Wish) {
        if wish.found.is_none() && now.last == wish.after && self.survives(now.seq, wish.after) {
            wish.found = Some(Entries { chain: now.chain, entries: Vec::new() });
        }
    }
}
