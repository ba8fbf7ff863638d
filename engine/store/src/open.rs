//! Opens the store: the log first, because it names the current base.

use super::base::{Base, BaseError, Options};
use super::disk::Disk;
use super::log::{Facts, Log, LogError, LogOptions, ReadError, ReplayError};
use super::{MARKER, Marker, Reserve, Strategy};
use bytes::Bytes;
use std::fmt;
use std::io;
use std::sync::Arc;
use zoolet_machine::budget;
use zoolet_machine::limits::Limits;
use zoolet_machine::record::key::{self, Key, end_of_prefix};
use zoolet_machine::seam::action::BaseRead;
use zoolet_machine::seam::event::{BaseFailure, Event};
use zoolet_machine::server::BaseState;
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{AppendSeq, Config, EnsembleId, Incarnation, Recovered};

/// Everything a server starts from.
pub struct Store {
    /// The log; its tail is durable.
    pub log: Log,
    /// The base that the log names, or an empty stand-in for it.
    pub base: Base,
    /// Disk space that only deletions use.
    pub reserve: Reserve,
    /// Protocol state, as recorded in the log.
    pub recovered: Recovered,
    /// All facts found in the log: ensemble, disk, configurations and the snapshot being received.
    pub facts: Facts,
    /// The log can return every entry above this zxid.
    pub log_floor: Zxid,
    /// Log's chain hash after the last entry in the base.
    ///
    /// [`chain_after`](zoolet_machine::record::chain_after) extends it entry by entry. 0 if the
    /// store is damaged and the log no longer has the hash.
    pub chain_at_base: u128,
    /// State in the base; `None` if no checkpoint was ever written.
    pub state: Option<BaseState>,
    /// Whether the log and the base are complete.
    pub health: Health,
    /// File and byte offset of an incomplete batch left by a crash.
    pub torn_tail: Option<(String, u64)>,
}

/// How much of the acknowledged state is still on this disk.
///
/// A standalone server must be whole. A damaged member of an ensemble recovers from its peers and
/// counts in no quorum until then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// Everything.
    Whole,
    /// The log is intact, but the base is lost.
    ///
    /// Promise, epochs and history are known, and entries above [`Store::log_floor`] can be read.
    /// An empty base stands in until a snapshot arrives.
    BaseLost {
        /// Reason, for the operator.
        what: String,
    },
    /// The base is intact, but the log lost entries between the base and [`Store::log_floor`].
    ///
    /// Promise, epochs and history are known. Nothing after the base can be applied until a
    /// snapshot arrives.
    LogDamaged {
        /// Reason, for the operator.
        what: String,
    },
    /// The log is lost, so its last entry is unknown.
    ///
    /// Only the promise, the ensemble and the peers are known. The store has a new log with a new
    /// disk incarnation, and an empty base.
    LogLost {
        /// Reason, for the operator.
        what: String,
        /// Incarnation of the lost disk, if known.
        former: Option<u128>,
    },
    /// An earlier start or the leader found damage that no snapshot has repaired yet.
    ///
    /// Log and base are readable. The log records that it replaced a lost log, or that its history
    /// differs from the leader's history.
    Unrepaired,
}

impl Health {
    /// Returns whether this server may count in a quorum.
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
            Self::Unrepaired => f.write_str("the store was damaged and has not been repaired"),
        }
    }
}

/// Why a store cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The log cannot be opened.
    Log(LogError),
    /// The base cannot be opened.
    Base(BaseError),
    /// Log and base open, but their contents are wrong or do not fit together.
    Damaged(String),
    /// A part of the base cannot be read: lost sector, or unresponsive device.
    Unreadable(String),
    /// The marker file cannot be read or written.
    Marker(io::Error),
    /// The marker and the log do not describe a complete directory of this release.
    Directory(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Base(error) => error.fmt(f),
            Self::Damaged(what) => write!(f, "the store is damaged: {what}"),
            Self::Unreadable(what) => write!(f, "the store cannot be read: {what}"),
            Self::Marker(error) => write!(f, "cannot read or write the file {MARKER}: {error}"),
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
    /// Opens the store of a standalone server, or creates it on an empty disk.
    ///
    /// A new log gets `incarnation` as the disk's number. Damage is an error, because no peer could
    /// restore the lost state.
    ///
    /// # Errors
    /// [`OpenError`]. A failed call may have cut the log's torn tail, removed leftovers of
    /// snapshots, or completed a marker that recorded less than the log proves.
    pub fn open(
        disk: Arc<dyn Disk>,
        strategy: Strategy,
        limits: &Limits,
        incarnation: u128,
    ) -> Result<Self, OpenError> {
        Self::open_as(disk, strategy, limits, incarnation, false)
    }

    /// Opens the store of an ensemble member; reports damage in [`Store::health`].
    ///
    /// `incarnation` must be a new number for each call: a lost log is replaced by the log of a new
    /// disk.
    ///
    /// # Errors
    /// [`OpenError`], but not for damage to the log or the base.
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
            // Record the birth before anything is acknowledged: from now on, a missing log counts
            // as lost.
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
            // No checkpoint can free segments before a snapshot arrives. Keep committed entries
            // until an append needs their segments.
            log.hold(Some(log.floor()));
            log.recycle(log.facts().watermark);
            log.chain_at(base_zxid).unwrap_or(0)
        };
        let (facts, log_floor) = (log.facts().clone(), log.floor());
        let mut recovered = recovered(&facts, appended);
        // The last watermark in the log may be older than the checkpoint in the base.
        recovered.committed = recovered.committed.max(base_zxid);
        (recovered.floor, recovered.is_whole) = (log_floor, health.is_whole());
        let reserve = Reserve::open(Arc::clone(disk), limits);
        Ok(Self { log, base, reserve, recovered, facts, log_floor, chain_at_base, state, health, torn_tail })
    }

    /// Passes every entry above the base to `visit`, committed or not, in order.
    ///
    /// Passes nothing if the store is not whole.
    ///
    /// # Errors
    /// [`ReplayError`] from the log or from `visit`.
    pub fn replay<E>(&self, mut visit: impl FnMut(Event) -> Result<(), E>) -> Result<(), ReplayError<E>> {
        if !self.health.is_whole() {
            return Ok(());
        }
        self.log.replay(self.base.meta().zxid, &mut |zxid, payload| visit(Event::Recovered { zxid, payload }))
    }
}

/// Derives the protocol's starting state from the facts.
///
/// The configuration may be newer than the history: a snapshot brings the newest membership, and a
/// replacement log keeps the lost log's membership. A disk that was once a member stays a member:
/// it never returns to the configuration file.
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

/// Returns whether a crash separated a birth's configuration from its log entry.
///
/// Such a birth never happened. Only a birth's configuration has the zxid of an epoch's first
/// entry. A server that learns of a completed birth has not yet entered its epoch, so `current` is
/// lower there.
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

/// Parameters of one opening.
struct Opening {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    base_options: Options,
    incarnation: u128,
    is_member: bool,
}

/// The opened log and base.
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
        if let Err(refusal) = check_disk(marker, opened.facts.disk_incarnation) {
            if !(self.is_member && is_replacement(&opened.facts)) {
                return Err(refusal);
            }
            // A crash in `Log::replace` left the new log, and the marker of the lost one.
            Marker::record_birth(&*self.disk, opened.facts.disk_incarnation).map_err(OpenError::Marker)?;
        }
        let (base, state, health) = self.open_or_stand_in(opened.facts.base_id)?;
        let base_zxid = base.meta().zxid;
        if self.is_member && base_zxid > opened.facts.last {
            // An entry is durable in the log before it is committed, so this log has lost its end.
            let what = format!("the base ends at {base_zxid}, and the log ends at {}", opened.facts.last);
            drop((log, base));
            return self.replace(marker, &what);
        }
        Ok(Parts { log, base, state, appended: opened.appended, torn_tail: opened.torn_tail, health })
    }

    /// Opens the base that the log names, or an empty stand-in.
    ///
    /// A member gets the stand-in if the base is lost. The log still names the lost base, and its
    /// files stay until a later start finds a complete snapshot that the log names instead. A wrong
    /// verdict therefore costs a snapshot transfer, but no data.
    ///
    /// A failed read is retried once, because the bus may not have responded. After a second
    /// failure the base counts as lost, provided that the device still accepts and syncs the empty
    /// base. Otherwise the server does not start, and nothing has changed when the device responds
    /// again.
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

    /// Removes the empty stand-ins of earlier starts that found the same base lost.
    ///
    /// Without this, a disk too full for a snapshot would gain one more base at each start.
    fn remove_stand_ins(&self, lost: u64) -> Result<(), OpenError> {
        for id in Base::list(&*self.disk)?.into_iter().filter(|&id| id != lost) {
            if is_leftover(&self.disk, id, self.base_options)? {
                Base::remove(&*self.disk, id)?;
            }
        }
        Ok(())
    }

    /// Creates an empty base under an unused id.
    fn new_base(&self) -> Result<Base, OpenError> {
        let id = Base::list(&*self.disk)?.last().map_or(0, |id| id + 1);
        Ok(Base::create(Arc::clone(&self.disk), id, self.base_options)?)
    }

    /// Replaces a lost log with a new log and an empty base.
    ///
    /// The old base stays until a base with records replaces it: it may be the last copy of its
    /// contents.
    fn replace(&self, marker: Marker, what: &str) -> Result<Parts, OpenError> {
        let known = if let Marker::Born { disk_incarnation } = marker { Some(disk_incarnation) } else { None };
        let salvaged = Log::salvage(&*self.disk, known)?;
        let former = salvaged.disk_incarnation;
        // If the caller passes the lost disk's own number, the new disk must still differ from it.
        let incarnation = if former == Some(self.incarnation) { !self.incarnation } else { self.incarnation };
        let base = self.new_base()?;
        let mark = || Marker::record_birth(&*self.disk, incarnation).map_err(OpenError::Marker);
        let log = Log::replace(Arc::clone(&self.disk), self.options, &salvaged, incarnation, base.id(), mark)?;
        let appended = log.appended();
        let health = Health::LogLost { what: what.to_owned(), former };
        Ok(Parts { log, base, state: None, appended, torn_tail: None, health })
    }
}

fn gone() -> OpenError {
    OpenError::Directory(LOG_GONE.to_owned())
}

/// Advice for the operator when the log is missing.
const LOG_GONE: &str = "the log is gone: ZOOLET records a log, and no readable segment (seg-NN.log) is left; put its files back, or, if the data may be lost, empty the directory and start with --create";

/// Refusal for a standalone server whose log needs a snapshot.
const UNREPAIRED: &str =
    "the log records a loss of data, which only a snapshot from the other servers of its ensemble can repair";

/// Returns whether [`Log::replace`] made this log, and no entry has reached it since.
fn is_replacement(facts: &Facts) -> bool {
    facts.is_damaged && facts.last == Zxid::ZERO
}

fn check_disk(marker: Marker, disk_incarnation: u128) -> Result<(), OpenError> {
    if let Marker::Born { disk_incarnation: born } = marker
        && born != disk_incarnation
    {
        let what = format!(
            "the log belongs to another directory: its id is {disk_incarnation:032x}, and {MARKER} names {born:032x}"
        );
        return Err(OpenError::Directory(what));
    }
    Ok(())
}

/// Creates a base without records, then the log that names it.
///
/// A crash in between leaves no log, so the next start creates both again. A base with records was
/// once named by a log and never counts as a leftover.
fn create(
    disk: Arc<dyn Disk>,
    options: LogOptions,
    base_options: Options,
    incarnation: u128,
) -> Result<(Log, Base, AppendSeq), OpenError> {
    for id in Base::list(&*disk)? {
        if !is_leftover(&disk, id, base_options)? {
            return Err(OpenError::Damaged(format!("the log is missing, and base {id} is not empty")));
        }
        Base::remove(&*disk, id)?;
    }
    let birth = Facts::birth(0, incarnation);
    let base = Base::create(Arc::clone(&disk), birth.base_id, base_options)?;
    let log = Log::create(disk, options, birth)?;
    let appended = log.appended();
    Ok((log, base, appended))
}

/// Returns whether a base has no records or was never completed.
fn is_leftover(disk: &Arc<dyn Disk>, id: u64, options: Options) -> Result<bool, OpenError> {
    match Base::open(Arc::clone(disk), id, options) {
        Ok(base) => Ok(base.meta().zxid == Zxid::ZERO),
        Err(_) => Ok(Base::is_unfinished(disk, id)?),
    }
}

fn chain_at(log: &Log, base: Zxid) -> Result<u128, OpenError> {
    log.chain_at(base).map_err(|error| match error {
        ReadError::Log(error) => OpenError::Log(error),
        ReadError::Gone => OpenError::Damaged(format!("the base ends at {base}, but the log does not continue there")),
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
        None => Err(OpenError::Damaged("a listed session is missing".to_owned())),
    };
    keys.into_iter().map(record).collect()
}
