//! Opening what is stored: the log first, because it says which base is current.

use super::StartError;
use super::node::Failure;
use crate::config::ConfigError;
use bytes::Bytes;
use std::sync::Arc;
use zoolet_engine::action::BaseRead;
use zoolet_engine::event::BaseFailure;
use zoolet_engine::store::base::{Base, BaseError};
use zoolet_engine::store::disk::Disk;
use zoolet_engine::store::key::{self, Key, end_of_prefix};
use zoolet_engine::store::log::{Facts, Log, LogError, LogOptions, ReplayError};
use zoolet_engine::store::{FsDisk, Strategy};
use zoolet_engine::{BaseState, Limits};
use zoolet_model::Zxid;
use zoolet_zab::{AppendSeq, Recovered};

/// What a server starts from.
pub(super) struct Opened {
    pub(super) log: Log,
    pub(super) store: Base,
    pub(super) recovered: Recovered,
    /// `None` when nothing was ever written to the base.
    pub(super) base_state: Option<BaseState>,
}

/// Opens log and base, or makes them in a directory that has none; then `incarnation` names this disk.
pub(super) fn open(disk: FsDisk, limits: &Limits, incarnation: u128) -> Result<Opened, StartError> {
    let strategy = disk.strategy().unwrap_or(Strategy::Append);
    let options = LogOptions { segment_bytes: limits.log_segment_bytes, segments: limits.log_segments, strategy };
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let cache_bytes = limits.base_cache_bytes as usize;
    let (log, store, appended) = match Log::open(Arc::clone(&disk), options) {
        Ok((mut log, opened)) => {
            if let Some((file, offset)) = opened.torn_tail {
                tracing::info!(file, offset, "the last batch was never complete and is not there any more");
            }
            let store = Base::open(disk, opened.facts.base_id, cache_bytes).map_err(base_error)?;
            log.recycle(store.meta().zxid);
            (log, store, opened.appended)
        }
        Err(LogError::Empty) => create(disk, options, cache_bytes, incarnation)?,
        Err(error) => return Err(log_error(error)),
    };
    let base_state = read_state(&store)?;
    let facts = log.facts();
    let recovered = Recovered {
        accepted: facts.accepted,
        current: facts.current,
        history: facts.spans.clone(),
        committed: facts.watermark,
        appended,
    };
    Ok(Opened { log, store, recovered, base_state })
}

/// A base without records, then the log that names it: a crash in between leaves a directory without a log, where both are
/// made again.
fn create(
    disk: Arc<dyn Disk>,
    options: LogOptions,
    cache_bytes: usize,
    incarnation: u128,
) -> Result<(Log, Base, AppendSeq), StartError> {
    for id in Base::list(&*disk).map_err(base_error)? {
        Base::remove(&*disk, id).map_err(base_error)?;
    }
    let birth = Facts::birth(0, incarnation);
    let store = Base::create(Arc::clone(&disk), birth.base_id, cache_bytes).map_err(base_error)?;
    let log = Log::create(disk, options, birth).map_err(log_error)?;
    let appended = log.appended();
    Ok((log, store, appended))
}

/// Hands every entry that the base does not have to `visit`, committed or not, in order.
pub(super) fn replay(
    log: &Log,
    after: Zxid,
    visit: &mut dyn FnMut(Zxid, Bytes) -> Result<(), Failure>,
) -> Result<(), StartError> {
    log.replay(after, visit).map_err(|error| match error {
        ReplayError::Log(error) => log_error(error),
        ReplayError::Visit(failure) => StartError::Damaged(failure.to_string()),
    })
}

/// What the machine must know of the base before it asks; `None` when nothing was ever written there.
fn read_state(store: &Base) -> Result<Option<BaseState>, StartError> {
    let meta = store.meta();
    if meta.zxid == Zxid::ZERO {
        return Ok(None);
    }
    let sessions = read_sessions(store).map_err(|failure| {
        StartError::Damaged(match failure {
            BaseFailure::Damaged(what) => format!("the base is damaged: {what}"),
            BaseFailure::Io(what) => format!("the base cannot be read: {what}"),
        })
    })?;
    BaseState::read(&meta, sessions)
        .map(Some)
        .map_err(|_| StartError::Damaged("the base holds a session record of another format".to_owned()))
}

fn read_sessions(store: &Base) -> Result<Vec<(Key, Bytes)>, BaseFailure> {
    let reader = store.reader();
    let mut keys: Vec<Key> = Vec::new();
    let prefix = [key::SESSION];
    reader.keys(&prefix, end_of_prefix(&prefix).as_deref(), &mut |key| {
        keys.push(key.into());
        true
    })?;
    let records = keys.into_iter().map(|key| {
        let record = reader.record(&key)?;
        let record = record.ok_or_else(|| BaseFailure::Damaged("a listed session is not there".to_owned()))?;
        Ok((key, record))
    });
    records.collect()
}

fn base_error(error: BaseError) -> StartError {
    match error {
        BaseError::Damaged(_) => StartError::Damaged(error.to_string()),
        BaseError::NoSpace | BaseError::Io(_) => StartError::Disk(error.to_string()),
    }
}

fn log_error(error: LogError) -> StartError {
    match error {
        LogError::Damaged { .. } | LogError::Unsupported { .. } => StartError::Damaged(error.to_string()),
        LogError::Options(_) => StartError::Config(ConfigError::new(error.to_string())),
        LogError::Empty | LogError::Exists | LogError::Io { .. } => StartError::Disk(error.to_string()),
    }
}
