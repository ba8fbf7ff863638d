//! What is left of a damaged log, and a new one in its place.
//!
//! For a member of an ensemble only: what it lost its peers have. A log whose end is not known says too little: whoever voted by it could let go of
//! what is committed. So the new one is of a new disk, without a history, and its server counts nowhere until a leader has synced it. Only
//! the promise is kept, and what names ensemble and peers: no intact batch, of any life of any segment, knows a newer one afterwards.
//!
//! The new log's first segment is durable before a file of the old one is touched, and a directory with segments of two disks is damaged: so a
//! crash on the way only means that it is done again. The old files are renamed, not removed: they may be the last to hold something.

use super::{
    BLOCK_BYTES, Facts, Log, LogError, LogOptions, read::Reader, record::Record, recover::is_segment, ring::Ring,
    walk::first_facts,
};
use crate::store::disk::Disk;
use std::sync::Arc;
use zoolet_zab::{AppendSeq, Epoch};

/// Before the name of a file of a log that was replaced.
const LOST: &str = "lost-";

/// What a damaged log still says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Salvaged {
    /// Promise, ensemble and configurations; nothing else of it is known.
    pub facts: Facts,
    /// Which disk it was, if that is known.
    pub disk_incarnation: Option<u128>,
    /// The newest incarnation of a segment that was begun.
    newest: u64,
    /// The append numbers of the ensemble and of the configurations.
    ensemble_seq: u64,
    config_seq: u64,
}

impl Salvaged {
    fn promise(&mut self, epoch: Epoch) {
        self.facts.accepted = self.facts.accepted.max(epoch);
    }

    fn pass(&mut self, seq: u64, record: &Record<'_>) {
        let (mut ensemble, mut config) = (None, None);
        match record {
            Record::Facts { facts, .. } => {
                self.promise(facts.accepted);
                self.promise(facts.last.epoch());
                ensemble = Some(facts.ensemble_id).filter(|ensemble| *ensemble != 0);
                config = Some((facts.config_committed.clone(), facts.config_last_seen.clone()));
            }
            Record::Entry { zxid, .. } => self.promise(zxid.epoch()),
            Record::Promise(epoch) | Record::Epoch(epoch) => self.promise(*epoch),
            Record::SnapBegin { zxid, .. } | Record::SnapEnd { zxid, .. } => self.promise(zxid.epoch()),
            Record::Config { committed, last_seen } => config = Some((committed.clone(), last_seen.clone())),
            Record::Birth { ensemble: born } => ensemble = Some(*born),
            Record::Truncate { .. } | Record::Damaged => {}
        }
        if let Some(ensemble) = ensemble.filter(|_| seq >= self.ensemble_seq) {
            (self.ensemble_seq, self.facts.ensemble_id) = (seq, ensemble);
        }
        if let Some((committed, last_seen)) = config.filter(|_| seq >= self.config_seq) {
            self.config_seq = seq;
            (self.facts.config_committed, self.facts.config_last_seen) = (committed, last_seen);
        }
    }
}

impl Log {
    /// What every intact batch says, also those of a log that was replaced before. `known`: a disk whose batches count, beside those that a
    /// segment's first batch names.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn salvage(disk: &dyn Disk, known: Option<u128>) -> Result<Salvaged, LogError> {
        let names = disk.list().map_err(|error| LogError::io("", error))?;
        let names: Vec<_> =
            names.into_iter().filter(|name| is_segment(name.strip_prefix(LOST).unwrap_or(name))).collect();
        let mut salvaged = Salvaged { disk_incarnation: known, ..Salvaged::default() };
        let mut disks: Vec<u128> = known.into_iter().collect();
        for name in &names {
            let file = disk.open(name).map_err(|error| LogError::io(name, error))?;
            // What cannot be read at all says nothing; it must not hide what the others say.
            if let Ok(Some(first)) = first_facts(&mut Reader::new(name, &*file)?, name) {
                if first.incarnation > salvaged.newest {
                    (salvaged.newest, salvaged.disk_incarnation) =
                        (first.incarnation, Some(first.facts.disk_incarnation));
                }
                if !disks.contains(&first.facts.disk_incarnation) {
                    disks.push(first.facts.disk_incarnation);
                }
            }
        }
        for name in &names {
            let file = disk.open(name).map_err(|error| LogError::io(name, error))?;
            let mut reader = Reader::new(name, &*file)?;
            let blocks = reader.file_bytes() / u64::from(BLOCK_BYTES);
            for at in (0..=blocks).map(|block| block * u64::from(BLOCK_BYTES)) {
                for of_disk in &disks {
                    let Some((header, mut records)) = reader.batch(at, Some(*of_disk)).ok().flatten() else { continue };
                    let mut seq = header.append_seq;
                    salvaged.promise(header.last.epoch());
                    while !records.is_empty() {
                        let Ok(record) = Record::decode(&mut records) else { break };
                        salvaged.pass(seq, &record);
                        seq += u64::from(record.is_numbered());
                    }
                }
            }
        }
        Ok(salvaged)
    }

    /// A new log in the place of a damaged one, of a disk that is called `disk_incarnation` from now on.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn replace(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        salvaged: &Salvaged,
        disk_incarnation: u128,
        base_id: u64,
    ) -> Result<Self, LogError> {
        options.check()?;
        let names = disk.list().map_err(|error| LogError::io("", error))?;
        let old: Vec<String> = names.into_iter().filter(|name| is_segment(name)).collect();
        // Empty as it is, it must not pass for one that never held anything: at its next start neither.
        let facts = Facts { disk_incarnation, base_id, is_damaged: true, ..salvaged.facts.clone() };
        let ring = Ring { taken: old.clone(), before: salvaged.newest, ..Ring::default() };
        let mut log = Self::new(disk, options, facts, AppendSeq(1), ring, 0);
        log.append_birth().map_err(|error| error.of_recovery(""))?;
        for name in &old {
            let io = |error| LogError::io(name, error);
            log.disk.rename(name, &format!("{LOST}{name}")).map_err(io)?;
        }
        log.disk.sync_directory().map_err(|error| LogError::io("", error))?;
        log.ring.taken.clear();
        Ok(log)
    }

    /// Removes what [`Log::replace`] put aside: the server is whole again.
    pub fn remove_lost(disk: &dyn Disk) {
        for name in disk.list().unwrap_or_default() {
            if name.strip_prefix(LOST).is_some_and(is_segment) {
                // On a read-only disk it stays, and harms nobody.
                let _ = disk.remove(&name);
            }
        }
    }

    /// Whether everything after `after`, which the base ends with, can be read; else what is wrong, and from then on only what follows the
    /// damage is read ([`Log::floor`]).
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn find_damage(&mut self, after: zoolet_model::Zxid) -> Result<Option<LogError>, LogError> {
        use super::{ReplayError, walk::Walk};
        use std::convert::Infallible;
        let damage = match self.replay(after, &mut |_, _| Ok::<(), Infallible>(())) {
            Ok(()) => return Ok(None),
            Err(ReplayError::Log(damage @ LogError::Damaged { .. })) => damage,
            Err(ReplayError::Log(error)) => return Err(error),
            Err(ReplayError::Visit(never)) => match never {},
        };
        for start in 0..self.ring.live.len() {
            match Walk::all(self.ring.live.range(start..), self.tail, &mut |_| Ok::<(), Infallible>(())) {
                Ok(_) => {
                    self.readable = self.readable.max(self.ring.live[start].incarnation);
                    break;
                }
                Err(ReplayError::Log(LogError::Damaged { .. })) => {}
                Err(ReplayError::Log(error)) => return Err(error),
                Err(ReplayError::Visit(never)) => match never {},
            }
        }
        Ok(Some(damage))
    }
}
