//! Walks the records of consecutive segments as they were appended, and verifies that they continue
//! each other.

use super::{
    BLOCK_BYTES, Facts, LogError, ReplayError,
    batch::Header,
    read::Reader,
    record::{Malformed, Record},
    ring::Segment,
};

/// One record of a walk.
pub(super) struct Step<'a> {
    /// The facts before the record.
    pub(super) before: &'a Facts,
    /// The record's append number. For restated facts, the number of the next record.
    pub(super) seq: u64,
    pub(super) record: &'a Record<'a>,
}

/// Position of a walk.
pub(super) struct Walk {
    pub(super) facts: Facts,
    /// Append number of the next record.
    pub(super) next_seq: u64,
}

impl Walk {
    /// Starts with the facts that `segment` restates.
    pub(super) fn start(segment: &Segment) -> Result<Self, LogError> {
        let mut reader = Reader::new(&segment.name, &*segment.file)?;
        match first_facts(&mut reader, &segment.name)? {
            Some(first) if first.incarnation == segment.incarnation => {
                Ok(Self { facts: first.facts, next_seq: first.next_seq })
            }
            _ => Err(LogError::damaged(&segment.name, 0, "the batch that restates the facts is not intact")),
        }
    }

    /// Walks all `segments`, the oldest first, and ends at `tail` in the newest.
    pub(super) fn all<'a, E>(
        segments: impl Iterator<Item = &'a Segment>,
        tail: u64,
        visit: &mut dyn FnMut(Step<'_>) -> Result<(), E>,
    ) -> Result<Option<Self>, ReplayError<E>> {
        let mut segments = segments.peekable();
        let Some(first) = segments.peek() else { return Ok(None) };
        let mut walk = Self::start(first)?;
        let mut before = None;
        while let Some(segment) = segments.next() {
            let stop = segments.peek().is_none().then_some(tail);
            let end = walk.segment(segment, before, stop, visit)?;
            before = Some((segment, end));
        }
        Ok(Some(walk))
    }

    /// Walks one segment up to `stop`, and returns the offset where it ended.
    ///
    /// Without `stop` it ends at the first batch that is not intact. `before` is the previous
    /// segment with its end. If the first batch does not continue it, the damage is there.
    pub(super) fn segment<E>(
        &mut self,
        segment: &Segment,
        before: Option<(&Segment, u64)>,
        stop: Option<u64>,
        visit: &mut dyn FnMut(Step<'_>) -> Result<(), E>,
    ) -> Result<u64, ReplayError<E>> {
        let mut reader = Reader::new(&segment.name, &*segment.file)?;
        let mut at = 0;
        while stop != Some(at) {
            // An earlier use of the file may have left intact batches, even from a newer release.
            // They do not belong to this segment.
            let is_ours = reader.header(at)?.is_some_and(|header| header.incarnation == segment.incarnation);
            let batch = if is_ours { reader.batch(at, Some(self.facts.disk_incarnation))? } else { None };
            let is_next = |header: &Header| header.is_first == (at == 0) && !header.is_end;
            let Some((header, mut records)) = batch.filter(|(header, _)| is_next(header)) else {
                if stop.is_some() || at == 0 {
                    return Err(LogError::damaged(&segment.name, at, "an acknowledged batch is not intact").into());
                }
                return Ok(at);
            };
            let here = (header.append_seq, header.last, header.chain);
            if here != (self.next_seq, self.facts.last, self.facts.chain) {
                return Err(match before {
                    Some((before, end)) if at == 0 => LogError::damaged(
                        &before.name,
                        end,
                        format!("records between here and {} are missing", segment.name),
                    ),
                    _ => LogError::damaged(&segment.name, at, "a batch does not continue the one before it"),
                }
                .into());
            }
            let mut is_first = header.is_first;
            while !records.is_empty() {
                let record = decode(&mut records, &segment.name, at)?;
                let numbered = record.is_numbered();
                if numbered == is_first {
                    return Err(LogError::damaged(&segment.name, at, "facts are restated in the wrong place").into());
                }
                is_first = false;
                visit(Step { before: &self.facts, seq: self.next_seq, record: &record }).map_err(ReplayError::Visit)?;
                self.facts.pass(&record).map_err(|what| LogError::damaged(&segment.name, at, what))?;
                self.next_seq += u64::from(numbered);
            }
            self.facts.commit(header.watermark);
            at += (header.batch_bytes() as u64).next_multiple_of(u64::from(BLOCK_BYTES));
        }
        Ok(at)
    }
}

/// Maximum append number, incarnation or number of cuts. They grow by one, so larger ones were
/// never written, and additions to smaller ones cannot overflow.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Content of a segment's first batch.
pub(super) struct First {
    pub(super) facts: Facts,
    pub(super) incarnation: u64,
    /// Append number of the first record.
    pub(super) next_seq: u64,
    /// Length of the file when the segment was begun, bytes; 0 if it grows.
    pub(super) file_bytes: u64,
}

/// Reads the first batch of a file; `None` if it is not intact.
pub(super) fn first_facts(reader: &mut Reader<'_>, name: &str) -> Result<Option<First>, LogError> {
    let Some((header, mut records)) = reader.batch(0, None)? else { return Ok(None) };
    if !header.is_first {
        return Ok(None);
    }
    match decode(&mut records, name, 0)? {
        Record::Facts { facts, file_bytes } => {
            let is_possible = (1..=NUMBER_MAX).contains(&header.append_seq)
                && (1..=NUMBER_MAX).contains(&header.incarnation)
                && facts.cuts <= NUMBER_MAX;
            if !is_possible {
                return Err(LogError::damaged(name, 0, "a number in it exceeds its maximum"));
            }
            let (incarnation, next_seq) = (header.incarnation, header.append_seq);
            Ok(Some(First { facts: *facts, incarnation, next_seq, file_bytes }))
        }
        _ => Err(LogError::damaged(name, 0, "a segment does not start with the facts")),
    }
}

pub(super) fn decode<'a>(records: &mut &'a [u8], name: &str, at: u64) -> Result<Record<'a>, LogError> {
    Record::decode(records).map_err(|malformed| match malformed {
        Malformed::UnknownKind(kind) => {
            LogError::Unsupported { file: name.to_owned(), what: format!("record kind {kind}") }
        }
        Malformed::Content(what) => LogError::damaged(name, at, what),
    })
}
