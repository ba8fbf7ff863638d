//! Appends: drafts batches from pending records, and makes each durable with one write and one
//! fdatasync.

use super::{
    AppendError, END_BYTES, Facts, Log, LogError, Persisted, ReadError,
    batch::{HEADER_BYTES, Header, VERSION, payload_bytes},
    end::End,
    entries::Cut,
    error::Failure,
    record::{Record, encoded_bytes},
    ring::{Segment, full},
};
use crate::Strategy;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_model::Zxid;
use zoolet_zab::{AppendSeq, Mutation, mutation};

/// Size at which a batch is closed, bytes. A larger record is a batch by itself.
const BATCH_BYTES: usize = 512 << 10;
/// Capacity of the batch buffer kept between appends, bytes.
const BUFFER_KEPT_BYTES: usize = 256 << 10;

/// A batch in the buffer, and the log's state once it is durable.
struct Draft {
    header: Header,
    facts: Facts,
    records: u64,
    entries: u64,
    entry_bytes: u64,
    cuts: Vec<Cut>,
    /// Last entry of the base that becomes the current one.
    base: Option<Zxid>,
}

/// The command that makes records durable.
impl Log {
    /// Makes all of `appends` durable.
    ///
    /// They become one batch, unless a segment ends or `appends` contains a truncation. Records
    /// whose numbers are already durable are skipped, so a stalled call may be repeated as it is.
    /// An append without records makes its watermark durable.
    ///
    /// # Errors
    /// - [`AppendError::Stalled`]: a leading part of `appends` may be durable; otherwise the log is
    ///   unchanged.
    /// - [`AppendError::Fatal`]: every further call fails. An append that continues another history
    ///   ([`Append::expect`]) fails in this way too, and none of its records is written. The caller
    ///   should have checked the history.
    pub fn append(&mut self, appends: &[Append]) -> Result<Persisted, AppendError> {
        self.check_alive()?;
        let outcome = self.append_all(appends);
        self.judge(outcome)
    }

    pub(super) fn check_alive(&self) -> Result<(), AppendError> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.again()))
    }

    /// Remembers a fatal outcome.
    pub(super) fn judge<T>(&mut self, outcome: Result<T, AppendError>) -> Result<T, AppendError> {
        if let Err(AppendError::Fatal(error)) = &outcome {
            self.failure = Some(Failure::of(error));
        }
        outcome
    }

    /// Writes the first batch of a new log.
    pub(super) fn append_birth(&mut self) -> Result<(), AppendError> {
        let facts = self.facts.clone();
        let mut buffer = vec![0; HEADER_BYTES];
        self.facts_record().encode(&mut buffer);
        let header = self.header(true, facts.watermark, &buffer);
        self.persist(
            Draft { header, facts, records: 0, entries: 0, entry_bytes: 0, cuts: Vec::new(), base: None },
            buffer,
        )
    }

    fn append_all(&mut self, appends: &[Append]) -> Result<Persisted, AppendError> {
        let batches = self.counters.batches;
        self.end_segment()?;
        while let Some((draft, buffer)) = self.draft(appends)? {
            self.persist(draft, buffer)?;
        }
        self.counters.appends += u64::from(self.counters.batches > batches);
        Ok(Persisted { seq: self.appended(), used_bytes: self.used_bytes() })
    }

    /// Drafts the next batch; `None` if everything is durable.
    fn draft(&mut self, appends: &[Append]) -> Result<Option<(Draft, Vec<u8>)>, AppendError> {
        let first = appends.iter().flat_map(|append| self.waiting(append)).next().map(|(_, record)| record);
        if first.is_none() && !self.is_watermark_news(appends) {
            return Ok(None);
        }
        let taken = self.tail + u64::from(END_BYTES);
        let room = self.ring.live.back().map_or(0, |newest| newest.bytes.saturating_sub(taken)) as usize;
        let rotates = HEADER_BYTES + first.map_or(0, encoded_bytes) > room;
        let room = if rotates { self.options.segment_bytes.saturating_sub(END_BYTES) as usize } else { room };
        // A promise or a truncation must not wait for a checkpoint that can only come after it. So
        // facts may take one extra segment.
        let is_tight = rotates || self.ring.live.len() > self.options.segments as usize;
        let is_for_facts = is_tight && self.ring.is_full(&self.options, self.checkpoint);
        if is_for_facts && first.is_some_and(|record| matches!(record, LogRecord::Entry { .. })) {
            return Err(full());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.resize(HEADER_BYTES, 0);
        if rotates {
            self.facts_record().encode(&mut buffer);
        }

        let mut facts = self.facts.clone();
        let (mut records, mut entries, mut entry_bytes) = (0, 0, 0);
        let (mut watermark, mut cuts, mut base) = (Zxid::ZERO, Vec::new(), None);
        let mut diverges = false;
        'batch: for append in appends {
            diverges = self.diverges(append, facts.chain);
            if diverges {
                break 'batch;
            }
            for (taken, (seq, record)) in self.waiting(append).enumerate() {
                let bytes = encoded_bytes(record);
                let is_over = buffer.len() + bytes > if records == 0 { room } else { room.min(BATCH_BYTES) };
                // The chain hash at a truncation's end is read from durable batches, so a
                // truncation begins a batch.
                let is_cut = matches!(record, LogRecord::Truncate { .. });
                let is_late = is_for_facts && matches!(record, LogRecord::Entry { .. });
                if is_over || is_late || (is_cut && records > 0) {
                    if taken > 0 {
                        let rest = self.waiting(append).skip(taken).map(|(_, record)| record);
                        watermark = watermark.max(watermark_before(append.watermark, rest));
                    }
                    break 'batch;
                }
                if seq != self.next_seq.0 + records {
                    return Err(AppendError::misuse(format!(
                        "append {seq} cannot follow append {}",
                        self.next_seq.0 + records - 1
                    )));
                }
                if taken == 0 && mutation::is_on(Mutation::WatermarkAtFirstRecord) {
                    facts.commit(append.watermark);
                }
                let chain = if let LogRecord::Truncate { to } = record { self.chain_of_cut(*to)? } else { 0 };
                let record = Record::of(record, chain);
                facts.pass(&record).map_err(AppendError::misuse)?;
                cuts.extend(Cut::of(seq, &record));
                if let Record::SnapEnd { zxid, .. } = record {
                    base = Some(zxid);
                }
                record.encode(&mut buffer);
                if matches!(record, Record::Entry { .. }) {
                    entries += 1;
                    entry_bytes += bytes as u64;
                }
                records += 1;
            }
            // The watermark applies to the history after all records of its append, because a later
            // record may cut off entries below it.
            watermark = watermark.max(append.watermark);
        }
        if diverges && records == 0 && watermark.min(facts.last) <= facts.watermark {
            return Err(AppendError::misuse(format!("the append after {} continues another history", facts.last)));
        }
        if let (0, Some(record), false) = (records, first, diverges) {
            let segment_bytes = self.options.segment_bytes;
            let bytes = encoded_bytes(record);
            return Err(AppendError::misuse(format!(
                "a record of {bytes} bytes does not fit into segments of {segment_bytes} bytes"
            )));
        }
        facts.commit(watermark);
        let header = self.header(rotates, facts.watermark, &buffer);
        Ok(Some((Draft { header, facts, records, entries, entry_bytes, cuts, base }, buffer)))
    }

    /// Returns the records of `append` that are not durable yet, with their numbers.
    fn waiting<'a>(&self, append: &'a Append) -> impl Iterator<Item = (u64, &'a LogRecord)> + use<'a> {
        let first = (append.seq.0 + 1).saturating_sub(append.records.len() as u64);
        let durable = usize::try_from(self.next_seq.0.saturating_sub(first)).unwrap_or(usize::MAX);
        (first..).zip(&append.records).skip(durable)
    }

    /// Returns true if `append` continues a different history than the one with this chain hash.
    ///
    /// An append that a stall has split was checked when its first part was written.
    fn diverges(&self, append: &Append, chain: u128) -> bool {
        let is_whole = append.seq.0 + 1 >= self.next_seq.0 + append.records.len() as u64;
        !append.records.is_empty() && is_whole && append.expect.is_some_and(|expect| expect != chain)
    }

    /// Returns true if an append without records raises the log's watermark.
    fn is_watermark_news(&self, appends: &[Append]) -> bool {
        let silent = appends.iter().filter(|append| append.records.is_empty());
        silent.map(|append| append.watermark.min(self.facts.last)).any(|watermark| watermark > self.facts.watermark)
    }

    /// Returns the header of a batch that follows the durable ones.
    fn header(&self, is_first: bool, watermark: Zxid, batch: &[u8]) -> Header {
        let newest = self.ring.live.back().map_or(self.ring.before, |segment| segment.incarnation);
        Header {
            version: VERSION,
            is_first,
            is_end: false,
            payload_bytes: payload_bytes(batch),
            incarnation: newest + u64::from(is_first),
            append_seq: self.next_seq.0,
            watermark,
            last: self.facts.last,
            chain: self.facts.chain,
        }
    }

    /// Makes a batch durable with one write and one fdatasync, then adopts the draft's facts.
    ///
    /// If the batch begins a segment, another write and fdatasync end the segment before it.
    fn persist(&mut self, draft: Draft, mut buffer: Vec<u8>) -> Result<(), AppendError> {
        let Draft { header, facts, records, entries, entry_bytes, cuts, base } = draft;
        header.seal(facts.disk_incarnation, &mut buffer);
        let segments_max = self.options.segments as usize + usize::from(records > 0 && entries == 0);
        let (file, at) = match self.ring.live.back() {
            Some(newest) if !header.is_first => (newest.file.clone(), self.tail),
            _ => {
                let spare = self.ring.make_ready(
                    &*self.disk,
                    &self.options,
                    self.checkpoint,
                    self.hold,
                    segments_max,
                    &mut self.counters,
                )?;
                (spare.file.clone(), 0)
            }
        };
        file.write_at(at, &buffer).map_err(AppendError::of_write)?;
        self.counters.fdatasyncs += 1;
        file.sync().map_err(AppendError::Fatal)?;

        if header.is_first
            && let Some(spare) = self.ring.spare.take()
        {
            if let Some(before) = self.ring.live.back() {
                let next = Header { watermark: self.facts.watermark, ..header };
                self.end = End::of(before, self.tail, &self.options, next, self.appended())?;
            }
            self.ring.live.push_back(Segment {
                name: spare.name,
                file: spare.file,
                bytes: u64::from(self.options.segment_bytes),
                incarnation: header.incarnation,
                start_last: self.facts.last,
                start_cuts: self.facts.cuts,
            });
        }
        let written = buffer.len() as u64;
        self.tail = at + written;
        self.facts = facts;
        self.next_seq = AppendSeq(header.append_seq_after(records));
        cuts.iter().for_each(|cut| self.ring.cut(cut.to, |_| true));
        self.keep_cuts(cuts);
        // Entries above the new base are needed, even if the previous base held them.
        if let Some(zxid) = base {
            (self.checkpoint, self.hold) = (zxid, None);
        }
        self.counters.batches += 1;
        self.counters.entries += entries;
        self.counters.entry_bytes += entry_bytes;
        self.counters.fact_bytes += u64::from(header.payload_bytes) - entry_bytes;
        self.counters.padding_bytes += written - u64::from(header.payload_bytes);
        buffer.shrink_to(BUFFER_KEPT_BYTES);
        self.buffer = buffer;
        self.end_segment()
    }

    /// Ends the segment before the newest. Nothing is acknowledged from a new segment before the
    /// one before it records that a next one exists.
    pub(super) fn end_segment(&mut self) -> Result<(), AppendError> {
        if let Some(end) = &self.end {
            self.counters.padding_bytes += end.write(self.facts.disk_incarnation)?;
            self.counters.fdatasyncs += 1;
            self.end = None;
        }
        Ok(())
    }

    /// Returns the facts record for a segment's first batch.
    fn facts_record(&self) -> Record<'static> {
        let file_bytes = match self.options.strategy {
            Strategy::Recycle => u64::from(self.options.segment_bytes),
            Strategy::Append => 0,
        };
        let mut facts = self.facts.clone();
        if mutation::is_on(Mutation::FactsNotRestated) {
            facts.accepted = facts.current;
        }
        Record::Facts { facts: Box::new(facts), file_bytes }
    }

    /// Returns the chain hash after `to`, the entry at which a truncation ends.
    fn chain_of_cut(&self, to: Zxid) -> Result<u128, AppendError> {
        match self.chain_at(to) {
            Ok(chain) => Ok(chain),
            Err(ReadError::Gone) => {
                Err(AppendError::misuse(format!("cannot truncate to {to}, which is not in the log")))
            }
            Err(ReadError::Log(LogError::Io { error, .. })) => Err(AppendError::Fatal(error)),
            Err(ReadError::Log(error)) => Err(AppendError::Fatal(std::io::Error::other(error.to_string()))),
        }
    }
}

/// Returns the watermark that an append may commit while its last records, `rest`, are not durable.
///
/// An entry that a record in `rest` cuts off must not be committed. A snapshot in `rest` replaces
/// the whole history, so nothing before it is committed.
fn watermark_before<'a>(watermark: Zxid, rest: impl Iterator<Item = &'a LogRecord>) -> Zxid {
    if mutation::is_on(Mutation::WatermarkAtFirstRecord) {
        return watermark;
    }
    rest.fold(watermark, |watermark, record| match record {
        LogRecord::Truncate { to } => watermark.min(*to),
        LogRecord::SnapEnd { .. } => Zxid::ZERO,
        LogRecord::Entry { .. }
        | LogRecord::Promise(_)
        | LogRecord::Epoch(_)
        | LogRecord::Config { .. }
        | LogRecord::SnapBegin { .. }
        | LogRecord::Birth { .. }
        | LogRecord::Damaged => watermark,
    })
}
