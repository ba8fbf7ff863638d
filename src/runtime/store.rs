//! Opens the stored data, and passes the log's entries to the machine.

use super::threads::Failure;
use super::{StartError, data};
use crate::config::{Config, ConfigError};
use bytes::Bytes;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tracing::warn;
use zoolet_model::Zxid;
use zoolet_store::base::BaseError;
use zoolet_store::disk::Disk;
use zoolet_store::log::{Log, LogError, ReplayError};
use zoolet_store::{FileSystem, OpenError, Store, Strategy};

/// Opens log and base, or creates them in a directory without data.
///
/// A new directory gets `incarnation` as the name of this disk. A standalone server refuses damaged
/// data. A member warns of damage, and gets a snapshot from its peers.
pub(super) fn open(
    config: &Config,
    directory: &Path,
    file_system: Option<FileSystem>,
    disk: &Arc<dyn Disk>,
    incarnation: u128,
) -> Result<Store, StartError> {
    if let Some(line) = file_system.and_then(FileSystem::warning) {
        warn!("data = {}: {line}", directory.display());
    }
    let strategy = strategy(config, file_system);
    let open = if config.is_member() { Store::open_member } else { Store::open };
    let store = open(Arc::clone(disk), strategy, &config.limits, incarnation).map_err(|error| {
        match start_error(config, directory, error) {
            StartError::Disk(line) if data::is_read_only(&**disk) => StartError::ReadOnly(line),
            error => error,
        }
    })?;
    if !store.health.is_whole() {
        warn!(health = %store.health, "the stored data is incomplete: this server waits for a snapshot from its peers");
    }
    if let Some((file, offset)) = &store.torn_tail {
        tracing::info!(file, offset, "dropped the incomplete last batch of the log");
    }
    Ok(store)
}

/// Opens log and base of a disk that takes no writes.
///
/// # Errors
/// They are damaged, or cannot be read as they are. A member fails too: it would request a snapshot
/// from its peers, which this disk cannot store.
#[cfg(feature = "port")]
pub(super) fn open_read_only(
    config: &Config,
    directory: &Path,
    file_system: Option<FileSystem>,
    disk: &Arc<dyn Disk>,
) -> Result<Store, StartError> {
    // A disk without a log gets none, so its number is not needed.
    let opened = Store::open(Arc::clone(disk), strategy(config, file_system), &config.limits, 0);
    opened.map_err(|error| start_error(config, directory, error))
}

fn strategy(config: &Config, file_system: Option<FileSystem>) -> Strategy {
    let of_file_system = file_system.map_or(Strategy::Append, FileSystem::strategy);
    config.log_strategy.unwrap_or(of_file_system)
}

/// Passes every entry that the base lacks to `visit`, committed or not, in order.
pub(super) fn replay(
    config: &Config,
    directory: &Path,
    log: &Log,
    after: Zxid,
    visit: &mut dyn FnMut(Zxid, Bytes) -> Result<(), Failure>,
) -> Result<(), StartError> {
    log.replay(after, visit).map_err(|error| match error {
        ReplayError::Log(error) => start_error(config, directory, error.into()),
        ReplayError::Visit(failure) => StartError::Failed(failure),
    })
}

/// Advice for a standalone server. A member refuses nothing, and asks its peers.
const DAMAGE_REMEDY: &str = "no other server has this data: restore a copy of the directory that was made while the server was stopped, or empty it and begin anew with --create";

fn start_error(config: &Config, directory: &Path, error: OpenError) -> StartError {
    let line = match &error {
        OpenError::Damaged(_) | OpenError::Base(BaseError::Damaged(_)) | OpenError::Log(LogError::Damaged { .. })
            if !config.is_member() =>
        {
            format!("data = {}: {error}; {DAMAGE_REMEDY}", directory.display())
        }
        OpenError::Log(LogError::Io { error, .. }) | OpenError::Marker(error) if is_explained(error) => {
            data::explained(directory, error)
        }
        error => format!("data = {}: {error}", directory.display()),
    };
    match &error {
        OpenError::Log(LogError::Options(_)) => StartError::Config(ConfigError::new(error.to_string())),
        OpenError::Damaged(_)
        | OpenError::Directory(_)
        | OpenError::Base(BaseError::Damaged(_))
        | OpenError::Log(LogError::Damaged { .. } | LogError::Unsupported { .. }) => StartError::Damaged(line),
        OpenError::Marker(_)
        | OpenError::Unreadable(_)
        | OpenError::Base(BaseError::NoSpace | BaseError::TooLarge(_) | BaseError::Io(_))
        | OpenError::Log(LogError::Empty | LogError::Exists | LogError::Io { .. }) => StartError::Disk(line),
    }
}

/// Returns whether the advice matters more than the file's name.
fn is_explained(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem
    )
}
