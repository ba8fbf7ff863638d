//! A model of a server's log: numbered records, durable up to a mark.

use std::collections::VecDeque;
use std::rc::Rc;
use zoolet_zab::{AppendSeq, Config, EnsembleId, Epoch, Incarnation, Recovered, Span, Spans, Zxid};

/// An entry of a history.
///
/// Entries that differ, or that follow different histories, have different chain hashes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) zxid: Zxid,
    /// Number of the proposal in the whole run; stands for the entry's bytes.
    pub(crate) payload: u64,
    /// Hash of this entry and all entries before it.
    pub(crate) chain: u128,
    /// The configuration, if this is a membership entry.
    pub(crate) config: Option<Rc<Config>>,
}

/// FNV-1a over 128 bits: tells histories apart, but does not resist forgery.
pub(crate) fn chain_after(chain: u128, zxid: Zxid, payload: u64) -> u128 {
    let mut hash = chain ^ 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in zxid.to_bits().to_le_bytes().into_iter().chain(payload.to_le_bytes()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    hash
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    Promise(Epoch),
    Epoch(Epoch),
    Birth(EnsembleId),
    Damaged,
    Configs { committed: Rc<Config>, pending: Option<Rc<Config>> },
    Truncate(Zxid),
    SnapEnd(Rc<Vec<Entry>>),
    Entry(Entry),
}

/// State that the records add up to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) accepted: Epoch,
    pub(crate) current: Epoch,
    pub(crate) ensemble: EnsembleId,
    /// `None` until the first Configs record; the configuration file counts until then.
    pub(crate) config: Option<Rc<Config>>,
    pub(crate) pending: Option<Rc<Config>>,
    /// The whole history; a real log keeps only the part above the floor.
    pub(crate) entries: Vec<Entry>,
    pub(crate) spans: Spans,
    /// Entries above this zxid can be read.
    pub(crate) floor: Zxid,
    pub(crate) watermark: Zxid,
}

impl State {
    fn empty() -> Self {
        Self {
            accepted: Epoch::ZERO,
            current: Epoch::ZERO,
            ensemble: EnsembleId::UNBORN,
            config: None,
            pending: None,
            entries: Vec::new(),
            spans: Spans::EMPTY,
            floor: Zxid::ZERO,
            watermark: Zxid::ZERO,
        }
    }

    pub(crate) fn last(&self) -> Zxid {
        self.entries.last().map_or(Zxid::ZERO, |entry| entry.zxid)
    }

    pub(crate) fn chain(&self) -> u128 {
        self.entries.last().map_or(0, |entry| entry.chain)
    }

    pub(crate) fn entry(&self, zxid: Zxid) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&zxid, |entry| entry.zxid).ok()?;
        self.entries.get(at)
    }

    pub(crate) fn up_to(&self, zxid: Zxid) -> &[Entry] {
        &self.entries[..self.entries.partition_point(|entry| entry.zxid <= zxid)]
    }

    /// Returns whether this exact entry, and so everything before it, is here.
    pub(crate) fn holds(&self, entry: &Entry) -> bool {
        self.entry(entry.zxid).is_some_and(|own| own.chain == entry.chain)
    }

    /// Applies one record by the rules of the engine's log.
    fn pass(&mut self, record: &Record, watermark: Zxid) {
        match record {
            Record::Promise(epoch) => {
                assert!(*epoch >= self.accepted, "a promise goes back");
                self.accepted = *epoch;
            }
            Record::Epoch(epoch) => {
                assert!(*epoch >= self.current, "the current epoch goes back");
                assert!(*epoch <= self.accepted, "the current epoch was never promised");
                self.current = *epoch;
            }
            Record::Birth(ensemble) => {
                let same = self.ensemble == EnsembleId::UNBORN || self.ensemble == *ensemble;
                assert!(same, "this disk belongs to another ensemble already");
                self.ensemble = *ensemble;
            }
            // Concerns the log as a whole: see `Log::persist`.
            Record::Damaged => {}
            Record::Configs { committed, pending } => {
                (self.config, self.pending) = (Some(committed.clone()), pending.clone());
            }
            Record::Truncate(to) => {
                assert!(*to >= self.watermark, "a truncation removes committed entries");
                assert!(*to <= self.last(), "a truncation adds entries");
                let stay = self.up_to(*to).len();
                self.entries.truncate(stay);
                assert_eq!(self.last(), *to, "a truncation ends at an entry of the history");
                self.spans.truncate(*to);
            }
            Record::SnapEnd(entries) => {
                let zxid = entries.last().expect("a snapshot holds something").zxid;
                assert!(zxid >= self.watermark, "a snapshot removes committed entries");
                self.entries = entries.to_vec();
                (self.floor, self.watermark) = (zxid, zxid);
                self.spans = Spans::EMPTY;
                self.spans.push_span(Span { epoch: zxid.epoch(), last: zxid.counter() });
            }
            Record::Entry(entry) => {
                let last = self.last();
                let follows = if entry.zxid.epoch() > last.epoch() {
                    entry.zxid.counter() == 0
                } else {
                    last != Zxid::ZERO && last.next() == Some(entry.zxid)
                };
                assert!(follows, "the history has a gap: {:?} after {last:?}", entry.zxid);
                assert_eq!(chain_after(self.chain(), entry.zxid, entry.payload), entry.chain, "the chain is broken");
                self.spans.push(entry.zxid);
                self.entries.push(entry.clone());
            }
        }
        self.watermark = self.watermark.max(watermark.min(self.last()));
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) disk: Incarnation,
    /// State that would survive a crash now.
    pub(crate) durable: State,
    /// State with every appended record.
    pub(crate) written: State,
    pub(crate) appended: AppendSeq,
    pub(crate) persisted: AppendSeq,
    /// Whether the log lost a durable entry or recorded damage since its last snapshot.
    pub(crate) damaged: bool,
    /// Records that are not durable yet, each with its batch's commit watermark.
    in_flight: VecDeque<(Record, Zxid)>,
}

impl Log {
    pub(crate) fn empty(disk: Incarnation) -> Self {
        Self {
            disk,
            durable: State::empty(),
            written: State::empty(),
            appended: AppendSeq(0),
            persisted: AppendSeq(0),
            damaged: false,
            in_flight: VecDeque::new(),
        }
    }

    pub(crate) fn append(&mut self, record: Record, watermark: Zxid) -> AppendSeq {
        self.written.pass(&record, watermark);
        self.in_flight.push_back((record, watermark));
        self.appended = self.appended.next();
        self.appended
    }

    /// Returns the records that are not durable yet, oldest first.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &Record> {
        self.in_flight.iter().map(|(record, _)| record)
    }

    pub(crate) fn persist(&mut self, to: AppendSeq) {
        while self.persisted < to {
            let (record, watermark) = self.in_flight.pop_front().expect("nothing is durable before it is appended");
            self.durable.pass(&record, watermark);
            // A snapshot replaces all that may be wrong.
            self.damaged = (self.damaged && !matches!(record, Record::SnapEnd(_))) || record == Record::Damaged;
            self.persisted = self.persisted.next();
        }
    }

    /// Ends the process; `keep` of the records in flight survive with the durable ones.
    pub(crate) fn crash(&mut self, keep: usize) {
        let kept = self.persisted.0 + keep.min(self.in_flight.len()) as u64;
        self.persist(AppendSeq(kept));
        self.in_flight.clear();
        self.written = self.durable.clone();
        self.appended = self.persisted;
    }

    /// Removes entries up to `to` from the log; a snapshot holds them.
    pub(crate) fn raise_floor(&mut self, to: Zxid) {
        self.written.floor = self.written.floor.max(to);
        self.durable.floor = self.durable.floor.max(to);
    }

    /// Loses the last `entries` durable entries above the floor, as damage found at a read.
    pub(crate) fn rot(&mut self, entries: usize) {
        let stay = self.durable.entries.len().saturating_sub(entries).max(self.durable.up_to(self.durable.floor).len());
        self.durable.entries.truncate(stay);
        let last = self.durable.last();
        if last == Zxid::ZERO {
            self.durable.spans = Spans::EMPTY;
        } else {
            self.durable.spans.truncate(last);
        }
        self.durable.watermark = self.durable.watermark.min(last);
        self.written = self.durable.clone();
        self.damaged = true;
    }

    /// Returns the state that a server recovers from this log.
    pub(crate) fn recovered(&self, file: &Config) -> Recovered {
        let state = &self.durable;
        Recovered {
            disk: self.disk,
            ensemble: state.ensemble,
            accepted: state.accepted,
            current: state.current,
            config: state.config.as_ref().map_or_else(|| file.clone(), |config| Config::clone(config)),
            pending: state.pending.as_ref().map(|config| Config::clone(config)),
            history: state.spans.clone(),
            committed: state.watermark,
            appended: self.appended,
            floor: state.floor,
            is_whole: !self.damaged,
        }
    }
}
