//! Opening what is stored: the log first, because it says which base is current.

use super::base::{Base, BaseError, Options};
use super::disk::Disk;
use super::key::{self, Key, end_of_prefix};
use super::log::{Facts, Log, LogError, LogOptions, ReadError, ReplayError};
use super::{MARKER, Marker, Reserve, Strategy};
use crate::action::BaseRead;
use crate::budget;
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
    /// Whether all of this can be believed.
    pub health: Health,
    /// File and byte offset of a batch that a crash had left incomplete.
    pub torn_tail: Option<(String, u64)>,
}

/// What is left of what this server had acknowledged. One that is alone must be whole; a member of an ensemble gets from its peers what it lost,
/// and counts nowhere until it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// All of it.
    Whole,
    /// The log: promise, epochs and history are what they were, and entries above [`Store::log_floor`] can be read. The base is an empty one that
    /// stands in until a snapshot comes.
    BaseLost {
        /// For an operator.
        what: String,
    },
    /// The base, as it was, and the log but for some entries between that and [`Store::log_floor`]: promise, epochs and history are known, and what comes
    /// after the base cannot be applied until a snapshot comes.
    LogDamaged {
        /// For an operator.
        what: String,
    },
    /// The promise, and what names ensemble and peers: the log's end is not known. The log is a new one, of a new disk, and the base empty.
    LogLost {
        /// For an operator.
        what: String,
        /// The disk that this was.
        former: Option<u128>,
    },
    /// Base and log, as they were; the log says that it took the place of a lost one, or that its history is not what its leader's was, and no snapshot has
    /// come since.
    Unrepaired,
}

impl Health {
    /// Whether this server may count.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Whole => true,
            Self::BaseLost { .. } | Self::LogDamaged { .. } | Self::LogLost { .. } | Self::Unrepaired => false,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::BaseLost { what } => write!(f, "the base is lost: {what}"),
            Self::LogDamaged { what } => f.write_str(what),
            Self::LogLost { what, .. } => write!(f, "the log is lost: {what}"),
            Self::Unrepaired => f.write_str("it was damaged, and has not been repaired since"),
        }
    }
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
    /// A part of the base cannot be read: a lost sector, or a device that answers nothing.
    Unreadable(String),
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
            Self::Unreadable(what) => write!(f, "what is stored cannot be read: {what}"),
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
            BaseFailure::Io(what) => Self::Unreadable(what),
        }
    }
}

impl Store {
    /// Opens log and base, or makes them on a disk that never had any; then `incarnation` names it. For a server that is alone: nobody could
    /// give back what is lost, so it refuses.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed but the log's torn tail, leftovers of snapshots, and a marker that said less than is true.
    pub fn open(
        disk: Arc<dyn Disk>,
        strategy: Strategy,
        limits: &Limits,
        incarnation: u128,
    ) -> Result<Self, OpenError> {
        Self::open_as(disk, strategy, limits, incarnation, false)
    }

    /// The same for a member of an ensemble: what is damaged it says in [`Store::health`] instead of refusing. `incarnation` must be a new number
    /// each time: a log that is lost is replaced by one of a new disk.
    ///
    /// # Errors
    /// [`OpenError`], but not for damage.
    pub fn open_member(
        disk: Arc<dyn Disk>,
        strategy: Strategy,
        limits: &Limits,
        incarnation: u128,
    ) -> Result<Self, OpenError> {
        Self::open_as(disk, strategy, limits, incarnation, true)
    }

    fn open_as(
        disk: Arc<dyn Disk>,
        strategy: Strategy,
        limits: &Limits,
        incarnation: u128,
        is_member: bool,
    ) -> Result<Self, OpenError> {
        let options = LogOptions { segment_bytes: limits.log_segment_bytes, segments: limits.log_segments, strategy };
        let opening = Opening { disk, options, base_options: base_options(limits), incarnation, is_member };
        let disk = &opening.disk;
        Marker::claim(&**disk).map_err(OpenError::Marker)?;
        let marker = Marker::read(&**disk).map_err(OpenError::Marker)?;
        if let Some(refusal) = marker.refusal() {
            return Err(OpenError::Directory(refusal.to_owned()));
        }
        let Parts { mut log, base, state, appended, torn_tail, mut health } = opening.open(marker)?;
        if marker == Marker::Unborn {
            // Before anything is acknowledged: from here on a log that is not there was lost.
            Marker::record_birth(&**disk, log.facts().disk_incarnation).map_err(OpenError::Marker)?;
        }
        let base_zxid = base.meta().zxid;
        if log.facts().is_damaged && health == Health::Whole {
            if !is_member {
                return Err(OpenError::Damaged(UNREPAIRED.to_owned()));
            }
            health = Health::Unrepaired;
        }
        if is_member
            && health == Health::Whole
            && let Some(damage) = log.find_damage(base_zxid)?
        {
            health = Health::LogDamaged { what: damage.to_string() };
        }
        let chain_at_base = if health.is_whole() {
            if base_zxid > Zxid::ZERO {
                base.remove_others();
                Log::remove_lost(&**disk);
            }
            log.recycle(base_zxid);
            chain_at(&log, base_zxid)?
        } else {
            // No checkpoint will make room before a snapshot has come: what is committed yields when it must.
            log.hold(Some(log.floor()));
            log.recycle(log.facts().watermark);
            log.chain_at(base_zxid).unwrap_or(0)
        };
        let (facts, log_floor) = (log.facts().clone(), log.floor());
        let mut recovered = recovered(&facts, appended);
        // A checkpoint that no later batch followed is not in any watermark.
        recovered.committed = recovered.committed.max(base_zxid);
        (recovered.floor, recovered.is_whole) = (log_floor, health.is_whole());
        let reserve = Reserve::open(Arc::clone(disk), limits);
        Ok(Self { log, base, reserve, recovered, facts, log_floor, chain_at_base, state, health, torn_tail })
    }

    /// Hands every entry that the base does not have to `visit`, committed or not, in order; none where the store is not whole.
    ///
    /// # Errors
    /// [`ReplayError`] of the log or of `visit`.
    pub fn replay<E>(&self, mut visit: impl FnMut(Event) -> Result<(), E>) -> Result<(), ReplayError<E>> {
        if !self.health.is_whole() {
            return Ok(());
        }
        self.log.replay(self.base.meta().zxid, &mut |zxid, payload| visit(Event::Recovered { zxid, payload }))
    }
}

/// What the facts say of the protocol. The configuration may be newer than the history: it came with an older snapshot, or this log took the place of one
/// that was lost. A disk that was a member once stays one: it never goes back to a configuration file.
fn recovered(facts: &Facts, appended: AppendSeq) -> Recovered {
    let alone = Config::standalone(ServerId::STANDALONE);
    let born = Config::decode(&facts.config_committed).filter(|config| !is_torn_birth(facts, config));
    let pending = Config::decode(&facts.config_last_seen).filter(|pending| {
        born.as_ref().is_some_and(|born| born.version < pending.version) && pending.version <= facts.last
    });
    let unborn = Recovered::empty(Incarnation(facts.disk_incarnation), alone);
    Recovered {
        ensemble: born.as_ref().map_or(EnsembleId::UNBORN, |config| config.ensemble),
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

/// A birth whose entry is not in the history never was: a crash came between the two. No other configuration has the number of an epoch's first entry, and
/// who learns of a birth that was has not entered its epoch yet.
fn is_torn_birth(facts: &Facts, config: &Config) -> bool {
    let is_birth = config.version.counter() == 0;
    is_birth && config.version > facts.last && config.version.epoch() <= facts.current
}

pub(super) fn base_options(limits: &Limits) -> Options {
    Options {
        cache_bytes: limits.base_cache_bytes as usize,
        merge_step_bytes: u64::from(limits.memtable_bytes) / 32,
        table_bytes_max: budget::run_table_bytes_max(limits),
        ..Options::default()
    }
}

/// How a store is to be opened.
struct Opening {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    base_options: Options,
    incarnation: u128,
    is_member: bool,
}

/// What was opened.
struct Parts {
    log: Log,
    base: Base,
    state: Option<BaseState>,
    appended: AppendSeq,
    torn_tail: Option<(String, u64)>,
    health: Health,
}

impl Opening {
    fn open(&self, marker: Marker) -> Result<Parts, OpenError> {
        let (log, opened) = match Log::open(Arc::clone(&self.disk), self.options) {
            Ok(opened) => opened,
            Err(LogError::Empty) if matches!(marker, Marker::Born { .. }) => {
                return if self.is_member { self.replace(marker, LOG_GONE) } else { Err(gone()) };
            }
            Err(LogError::Empty) => {
                let (log, base, appended) =
                    create(Arc::clone(&self.disk), self.options, self.base_options, self.incarnation)?;
                return Ok(Parts { log, base, state: None, appended, torn_tail: None, health: Health::Whole });
            }
            Err(damage @ LogError::Damaged { .. }) if self.is_member => {
                return self.replace(marker, &damage.to_string());
            }
            Err(error) => return Err(error.into()),
        };
        check_disk(marker, opened.facts.disk_incarnation)?;
        let (base, state, health) = self.open_or_stand_in(opened.facts.base_id)?;
        let base_zxid = base.meta().zxid;
        if self.is_member && base_zxid > opened.facts.last {
            // It was durable in the log before it was committed.
            let what = format!("the base ends at {base_zxid}, and the log ends at {}", opened.facts.last);
            drop((log, base));
            return self.replace(marker, &what);
        }
        Ok(Parts { log, base, state, appended: opened.appended, torn_tail: opened.torn_tail, health })
    }

    /// The base that the log names. Where a member finds it lost, an empty one stands in: the log goes on naming the lost one, and no file of that is removed
    /// before a later start finds a snapshot in its place, complete and named. So who gives up too early has a snapshot to wait for, and loses nothing.
    ///
    /// What cannot be read once may be a bus that did not answer. What cannot be read twice is lost if the device works else: it has to take the empty base,
    /// and sync it. Where it does not, the server does not start, and is as it was when the device answers again.
    fn open_or_stand_in(&self, id: u64) -> Result<(Base, Option<BaseState>, Health), OpenError> {
        let opened = match self.open_base(id) {
            Err(OpenError::Unreadable(_)) => self.open_base(id),
            opened => opened,
        };
        match opened {
            Ok((base, state)) => Ok((base, state, Health::Whole)),
            Err(loss @ (OpenError::Base(BaseError::Damaged(_)) | OpenError::Damaged(_) | OpenError::Unreadable(_)))
                if self.is_member =>
            {
                self.remove_stand_ins(id)?;
                Ok((self.new_base()?, None, Health::BaseLost { what: loss.to_string() }))
            }
            Err(error) => Err(error),
        }
    }

    fn open_base(&self, id: u64) -> Result<(Base, Option<BaseState>), OpenError> {
        let base = Base::open(Arc::clone(&self.disk), id, self.base_options).map_err(|error| match error {
            BaseError::Io(what) => OpenError::Unreadable(what),
            error => error.into(),
        })?;
        let state = read_state(&base)?;
        Ok((base, state))
    }

    /// Of former starts that found the base lost as well. A disk that is too full for a snapshot would have one more after each.
    fn remove_stand_ins(&self, lost: u64) -> Result<(), OpenError> {
        for id in Base::list(&*self.disk)?.into_iter().filter(|&id| id != lost) {
            if is_leftover(&self.disk, id, self.base_options)? {
                Base::remove(&*self.disk, id)?;
            }
        }
        Ok(())
    }

    /// An empty one, of an id that no other has.
    fn new_base(&self) -> Result<Base, OpenError> {
        let id = Base::list(&*self.disk)?.last().map_or(0, |id| id + 1);
        Ok(Base::create(Arc::clone(&self.disk), id, self.base_options)?)
    }

    /// A new log and an empty base. The old base stays as it is until there is another with something in it: it may be the last of its kind.
    fn replace(&self, marker: Marker, what: &str) -> Result<Parts, OpenError> {
        let known = if let Marker::Born { disk_incarnation } = marker { Some(disk_incarnation) } else { None };
        let salvaged = Log::salvage(&*self.disk, known)?;
        let former = salvaged.disk_incarnation;
        // Whoever draws the number of the disk that is lost must not be taken for it.
        let incarnation = if former == Some(self.incarnation) { !self.incarnation } else { self.incarnation };
        let base = self.new_base()?;
        // Before the log: with the old log there is damage, whatever the marker says.
        Marker::record_birth(&*self.disk, incarnation).map_err(OpenError::Marker)?;
        let log = Log::replace(Arc::clone(&self.disk), self.options, &salvaged, incarnation, base.id())?;
        let appended = log.appended();
        let health = Health::LogLost { what: what.to_owned(), former };
        Ok(Parts { log, base, state: None, appended, torn_tail: None, health })
    }
}

fn gone() -> OpenError {
    OpenError::Directory(LOG_GONE.to_owned())
}

/// What to do, for an operator.
const LOG_GONE: &str = "the log is gone: ZOOLET says that there was one, and no segment (seg-NN.log) that can be read is left; bring its files back, or, if \
     what was stored here may be lost, empty the directory and start again";

/// The same.
const UNREPAIRED: &str = "the log says that what was stored here is not all of it, and only a snapshot of the other servers of its ensemble can mend that";

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
        if !is_leftover(&disk, id, base_options)? {
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

/// Whether a base has no records.
fn is_leftover(disk: &Arc<dyn Disk>, id: u64, options: Options) -> Result<bool, OpenError> {
    match Base::open(Arc::clone(disk), id, options) {
        Ok(base) => Ok(base.meta().zxid == Zxid::ZERO),
        Err(_) => Ok(Base::is_unfinished(disk, id)?),
    }
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
