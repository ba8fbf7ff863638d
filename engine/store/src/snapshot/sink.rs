//! Receives a peer's snapshot as a new base, current once the log names it.
//!
//! Four steps, each durable before the next:
//! 1. `SnapBegin` in the log
//! 2. the new base, complete and verified ([`SnapshotSink`])
//! 3. `SnapEnd` in the log, which makes the new base current
//! 4. [`crate::base::Base::retire`] for the old base
//!
//! A restart before SnapEnd finds the old base and history; a later restart finds the new ones.
//! Each start removes files that belong to neither.

use crate::{
    base::{Base, BaseSink},
    disk::Disk,
    image::ImageError,
    open::{OpenError, base_options, read_state},
};
use std::sync::Arc;
use zoolet_machine::limits::Limits;
use zoolet_machine::server::BaseState;

/// Takes the bytes of a [`super::SnapshotSource`] in order.
///
/// Dropped before it is finished, it removes its files.
#[derive(Debug)]
pub struct SnapshotSink(BaseSink);

/// A snapshot that is complete, verified and durable.
#[derive(Debug)]
pub struct Received {
    /// The base, under the id passed to [`SnapshotSink::begin`]; not current before SnapEnd.
    pub base: Base,
    /// The log's chain hash after the snapshot's last entry, for SnapEnd.
    pub chain: u128,
    /// State in the snapshot; `None` for the empty history.
    pub state: Option<BaseState>,
}

impl SnapshotSink {
    /// Begins a base with this id, which must not be the current base.
    ///
    /// Removes files that an earlier attempt left under this id.
    ///
    /// # Errors
    /// The disk's error.
    pub fn begin(disk: Arc<dyn Disk>, base: u64, limits: &Limits) -> Result<Self, ImageError> {
        if Base::list(&*disk)?.contains(&base) {
            Base::remove(&*disk, base)?;
        }
        Ok(Self(Base::receive(disk, base, base_options(limits))?))
    }

    /// Returns the offset of the next chunk.
    pub fn received(&self) -> u64 {
        self.0.received()
    }

    /// Returns the length of the whole snapshot in bytes.
    ///
    /// `None` until its first block has arrived.
    pub fn bytes(&self) -> Option<u64> {
        self.0.bytes()
    }

    /// Takes the next bytes, any number of them, from [`SnapshotSink::received`] on.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] if the bytes are not a snapshot, [`ImageError::NoRoom`] if the base
    /// will not fit, else the disk's error. The sink is unusable after an error.
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), ImageError> {
        self.0.write(chunk)
    }

    /// Verifies the whole snapshot and makes it durable.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] if bytes are missing or wrong, else the disk's error.
    pub fn finish(self) -> Result<Received, ImageError> {
        let (base, chain) = self.0.finish()?;
        let state = read_state(&base).map_err(|error| match error {
            OpenError::Base(error) => error.into(),
            OpenError::Marker(error) => error.into(),
            OpenError::Unreadable(what) => ImageError::Io(what),
            error @ (OpenError::Log(_) | OpenError::Damaged(_) | OpenError::Directory(_)) => {
                ImageError::Damaged(error.to_string())
            }
        })?;
        Ok(Received { base, chain, state })
    }
}
