//! Salvages a damaged log and puts a new one in its place.
//!
//! Only a member of an ensemble does this, because its peers have the lost entries. A log with an
//! unknown end is incomplete: a vote based on it could drop committed entries. So the new log
//! belongs to a new disk and has no history. Its server counts nowhere until a leader has
//! synchronized it. Only the promise, the ensemble and the peers are kept. The promise is the
//! newest in any intact batch of any segment, including earlier uses of its file.
//!
//! The new log's first segment is durable before any old file is touched, and a directory with
//! segments of two disks counts as damaged. So after a crash in between, the replacement is
//! repeated. The old files are renamed, not removed, because they may be the last copy of some
//! data.

use super::{
    BLOCK_BYTES, Facts, Log, LogError, LogOptions, read::Reader, record::Record, recover::is_segment, ring::Ring,
    walk::first_facts,
};
use crate::disk::Disk;
use std::sync::Arc;
use zoolet_model::Zxid;
use zoolet_zab::{AppendSeq, Config, Epoch};

/// Prefix of the files of a replaced log.
const LOST: &str = "lost-";

/// The information that could be read from a damaged log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Salvaged {
    /// Promise, ensemble and configurations. The other facts are unknown.
    pub facts: Facts,
    /// Incarnation of the disk; `None` if unknown.
    pub disk_incarnation: Option<u128>,
    /// Highest incarnation of any segment.
    newest: u64,
    /// Append number of the ensemble.
    ensemble_seq: u64,
    /// Version of the committed configuration, and the append number of both configurations.
    ///
    /// The number alone does not order them, because a replacement log numbers from 1 again.
    config_at: (Zxid, u64),
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
        if let Some((committed, last_seen)) = config {
            let at = (Config::decode(&committed).map_or(Zxid::ZERO, |config| config.version), seq);
            if at >= self.config_at {
                self.config_at = at;
                (self.facts.config_committed, self.facts.config_last_seen) = (committed, last_seen);
            }
        }
    }
}

impl Log {
    /// Collects the facts from every intact batch, including batches of logs replaced earlier.
    ///
    /// Batches of the disk `known` count, and of every disk that a segment's first batch names.
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
            // An unreadable file contributes nothing, and must not hide the others.
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

    /// Creates a new log in place of a damaged one. Its disk is called `disk_incarnation` from now
    /// on, and `mark` makes that durable outside the log.
    ///
    /// `mark` runs once the new log is durable, and before any old file is touched. So the promise
    /// that was salvaged is durable before the directory has the new disk's name.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Options`] for invalid options, or the error of `mark`.
    pub fn replace<E: From<LogError>>(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        salvaged: &Salvaged,
        disk_incarnation: u128,
        base_id: u64,
        mark: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        options.check()?;
        let names = disk.list().map_err(|error| LogError::io("", error))?;
        let old: Vec<String> = names.into_iter().filter(|name| is_segment(name)).collect();
        // The new log is empty, but must not pass for one that never held entries, not even at its
        // next start.
        let facts = Facts { disk_incarnation, base_id, is_damaged: true, ..salvaged.facts.clone() };
        let ring = Ring { taken: old.clone(), before: salvaged.newest, ..Ring::default() };
        let mut log = Self::new(disk, options, facts, AppendSeq(1), ring, 0);
        log.append_birth().map_err(|error| error.of_recovery(""))?;
        mark()?;
        for name in &old {
            let io = |error| LogError::io(name, error);
            log.disk.rename(name, &format!("{LOST}{name}")).map_err(io)?;
        }
        log.disk.sync_directory().map_err(|error| LogError::io("", error))?;
        log.ring.taken.clear();
        Ok(log)
    }

    /// Removes the files that [`Log::replace`] renamed, once the server is whole again.
    pub fn remove_lost(disk: &dyn Disk) {
        for name in disk.list().unwrap_or_default() {
            if name.strip_prefix(LOST).is_some_and(is_segment) {
                // On a read-only disk the file stays, which does no harm.
                let _ = disk.remove(&name);
            }
        }
    }

    /// Checks that everything after `after`, the base's last entry, can be read.
    ///
    /// Returns the damage if not. From then on only the part after the damage is read
    /// ([`Log::floor`]).
    ///
    /// # Errors
    /// [`LogError::Io`], or [`LogError::Unsupported`] if a newer release wrote the log.
    pub fn find_damage(&mut self, after: Zxid) -> Result<Option<LogError>, LogError> {
        use super::walk::Walk;
        use std::convert::Infallible;
        let damage = match self.replay(after, &mut |_, _| Ok::<(), Infallible>(())).map_err(LogError::from) {
            Ok(()) => return Ok(None),
            Err(damage @ LogError::Damaged { .. }) => damage,
            Err(error) => return Err(error),
        };
        for start in 0..self.ring.live.len() {
            let walked = Walk::all(self.ring.live.range(start..), self.tail, &mut |_| Ok::<(), Infallible>(()));
            match walked.map_err(LogError::from) {
                Ok(_) => {
                    self.readable = self.readable.max(self.ring.live[start].incarnation);
                    break;
                }
                Err(LogError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(damage))
    }
}
