//! Opening what is stored: the log first, because it says which base is current.

use super::base::{Base, BaseError, Options};
use super::disk::Disk;
use super::key::{self, Key, end_of_prefix};
use super::log::{Facts, Log, LogError, LogOptions, ReadError, ReplayError};
use super::{MARKER, Marker, Reserve, Strategy};
use crate::action::BaseRead;
use crate::event::{BaseFailure, Event};
use crate::limits::Limits;
use crate::server::BaseState;
use bytes::Bytes;
use std::fmt;
use std::io;
use std::sync::Arc;
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{AppendSeq, Config, EnsembleId, Incarnation, Recovered};

/// What a server starts from.
pub struct Store {
    /// The log, its tail durable.
    pub log: Log,
    /// The base that the log names.
    pub base: Base,
    /// Disk space that only deletions use.
    pub reserve: Reserve,
    /// What the log says of the protocol.
    pub recovered: Recovered,
    /// Everything that the log says, as it was found: ensemble, disk, configurations, the snapshot that was coming in.
    pub facts: Facts,
    /// Entries above it can be read from the log.
    pub log_floor: Zxid,
    /// The chain hash after the last entry in the base; with each entry after it comes the next ([`super::log::chain_after`]).
    pub chain_at_base: u128,
    /// What the base holds; `None` when nothing was ever written to it.
    pub state: Option<BaseState>,
    /// File and byte offset of a batch that a crash had left incomplete.
    pub torn_tail: Option<(String, u64)>,
}

/// Why a store cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The log cannot.
    Log(LogError),
    /// The base cannot.
    Base(BaseError),
    /// The base opens, and what it holds cannot be right.
    Damaged(String),
    /// The marker could not be read or written.
    Marker(io::Error),
    /// The directory is not one that this release made and left whole.
    Directory(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Base(error) => error.fmt(f),
            Self::Damaged(what) => write!(f, "what is stored is damaged: {what}"),
            Self::Marker(error) => write!(f, "the file {MARKER}: {error}"),
            Self::Directory(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<BaseError> for OpenError {
    fn from(error: BaseError) -> Self {
        Self::Base(error)
    }
}

impl From<BaseFailure> for OpenError {
    fn from(failure: BaseFailure) -> Self {
        match failure {
            BaseFailure::Damaged(what) => Self::Base(BaseError::Damaged(what)),
            BaseFailure::Io(what) => Self::Damaged(what),
        }
    }
}

impl Store {
    /// Opens log and base, or makes them on a disk that never had any; then `incarnation` names it.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed but the log's torn tail and a marker that said less than is true.
    pub fn open(
        disk: Arc<dyn Disk>,
        strategy: Strategy,
        limits: &Limits,
        incarnation: u128,
    ) -> Result<Self, OpenError> {
        let options = LogOptions { segment_bytes: limits.log_segment_bytes, segments: limits.log_segments, strategy };
        let base_options = base_options(limits);
        let reserve_disk = Arc::clone(&disk);
        Marker::claim(&*disk).map_err(OpenError::Marker)?;
        let marker = Marker::read(&*disk).map_err(OpenError::Marker)?;
        if let Some(refusal) = marker.refusal() {
            return Err(OpenError::Directory(refusal.to_owned()));
        }
        let (log, base, appended, torn_tail) = match Log::open(Arc::clone(&disk), options) {
            Ok((mut log, opened)) => {
                check_disk(marker, opened.facts.disk_incarnation)?;
                let disk = Arc::clone(&disk);
                let base = Base::open(Arc::clone(&disk), opened.facts.base_id, base_options)?;
                remove_others(&*disk, &base);
                log.recycle(base.meta().zxid);
                (log, base, opened.appended, opened.torn_tail)
            }
            Err(LogError::Empty) if matches!(marker, Marker::Born { .. }) => {
                return Err(OpenError::Directory(LOG_GONE.to_owned()));
            }
            Err(LogError::Empty) => {
                let (log, base, appended) = create(Arc::clone(&disk), options, base_options, incarnation)?;
                (log, base, appended, None)
            }
            Err(error) => return Err(error.into()),
        };
        let facts = log.facts();
        if marker == Marker::Unborn {
            // Before anything is acknowledged: from here on a log that is not there was lost.
            Marker::record_birth(&*disk, facts.disk_incarnation).map_err(OpenError::Marker)?;
        }
        let mut recovered = recovered(facts, appended);
        // A checkpoint that no later batch followed is not in any watermark.
        recovered.committed = recovered.committed.max(base.meta().zxid);
        recovered.floor = log.floor();
        let state = read_state(&base)?;
        let reserve = Reserve::open(reserve_disk, limits);
        let (facts, log_floor) = (facts.clone(), log.floor());
        let chain_at_base = chain_at(&log, base.meta().zxid)?;
        Ok(Self { log, base, reserve, recovered, facts, log_floor, chain_at_base, state, torn_tail })
    }

    /// Hands every entry that the base does not have to `visit`, committed or not, in order.
    ///
    /// # Errors
    /// [`ReplayError`] of the log or of `visit`.
    pub fn replay<E>(&self, mut visit: impl FnMut(Event) -> Result<(), E>) -> Result<(), ReplayError<E>> {
        self.log.replay(self.base.meta().zxid, &mut |zxid, payload| visit(Event::Recovered { zxid, payload }))
    }
}

/// What the facts say of the protocol. A birth whose entry is not in the history never was: a crash came between the two.
fn recovered(facts: &Facts, appended: AppendSeq) -> Recovered {
    let alone = Config::standalone(ServerId::STANDALONE);
    let born = Config::decode(&facts.config_committed).filter(|config| config.version <= facts.last);
    let pending = Config::decode(&facts.config_last_seen).filter(|pending| {
        born.as_ref().is_some_and(|born| born.version < pending.version) && pending.version <= facts.last
    });
    let is_born = born.is_some();
    let unborn = Recovered::empty(Incarnation(facts.disk_incarnation), alone);
    Recovered {
        ensemble: if is_born { EnsembleId(facts.ensemble_id) } else { EnsembleId::UNBORN },
        accepted: facts.accepted,
        current: facts.current,
        config: born.unwrap_or(unborn.config),
        pending,
        history: facts.spans.clone(),
        committed: facts.watermark,
        appended,
        disk: unborn.disk,
        floor: unborn.floor,
        is_whole: unborn.is_whole,
    }
}

pub(super) fn base_options(limits: &Limits) -> Options {
    Options {
        cache_bytes: limits.base_cache_bytes as usize,
        merge_step_bytes: u64::from(limits.memtable_bytes) / 32,
        ..Options::default()
    }
}

/// A crash left them: a snapshot that never was complete, or the base that one replaced.
fn remove_others(disk: &dyn Disk, current: &Base) {
    for id in Base::list(disk).unwrap_or_default() {
        if id != current.id() {
            // On a read-only disk it stays, and harms nobody.
            let _ = Base::remove(disk, id);
        }
    }
}

/// What to do, for an operator.
const LOG_GONE: &str = "the log is gone: ZOOLET says that there was one, and no segment (seg-NN.log) that can be read is left; bring its files back, or, if \
     what was stored here may be lost, empty the directory and start again";

fn check_disk(marker: Marker, disk_incarnation: u128) -> Result<(), OpenError> {
    if let Marker::Born { disk_incarnation: born } = marker
        && born != disk_incarnation
    {
        let what =
            format!("the log is of another directory: it says {disk_incarnation:032x}, and {MARKER} says {born:032x}");
        return Err(OpenError::Directory(what));
    }
    Ok(())
}

/// A base without records, then the log that names it: a crash in between leaves a disk without a log, where both are made again. A base
/// that has records was once named by a log, and is never taken for such a leftover.
fn create(
    disk: Arc<dyn Disk>,
    options: LogOptions,
    base_options: Options,
    incarnation: u128,
) -> Result<(Log, Base, AppendSeq), OpenError> {
    for id in Base::list(&*disk)? {
        let is_leftover = match Base::open(Arc::clone(&disk), id, base_options) {
            Ok(base) => base.meta().zxid == Zxid::ZERO,
            Err(_) => Base::is_unfinished(&disk, id)?,
        };
        if !is_leftover {
            return Err(OpenError::Damaged(format!("there is no log, and base {id} is not empty")));
        }
        Base::remove(&*disk, id)?;
    }
    let birth = Facts::birth(0, incarnation);
    let base = Base::create(Arc::clone(&disk), birth.base_id, base_options)?;
    let log = Log::create(disk, options, birth)?;
    let appended = log.appended();
    Ok((log, base, appended))
}

fn chain_at(log: &Log, base: Zxid) -> Result<u128, OpenError> {
    log.chain_at(base).map_err(|error| match error {
        ReadError::Log(error) => OpenError::Log(error),
        ReadError::Gone => {
            OpenError::Damaged(format!("the base ends at {base}, and the log does not go on from there"))
        }
    })
}

pub(super) fn read_state(base: &Base) -> Result<Option<BaseState>, OpenError> {
    let meta = base.meta();
    if meta.zxid == Zxid::ZERO {
        return Ok(None);
    }
    BaseState::read(&meta, read_sessions(base)?)
        .map(Some)
        .map_err(|_| OpenError::Damaged("it holds a session record of another format".to_owned()))
}

fn read_sessions(base: &Base) -> Result<Vec<(Key, Bytes)>, OpenError> {
    let reader = base.reader();
    let mut keys: Vec<Key> = Vec::new();
    let prefix = [key::SESSION];
    reader.keys(&prefix, end_of_prefix(&prefix).as_deref(), &mut |key| {
        keys.push(key.into());
        true
    })?;
    let record = |key: Key| match reader.record(&key)? {
        Some(record) => Ok((key, record)),
        None => Err(OpenError::Damaged("a listed session is not there".to_owned())),
    };
    keys.into_iter().map(record).collect()
}
