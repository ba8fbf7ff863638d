//! A peer's snapshot, taken in: the base that this server serves once the log says so.
//!
//! In this order, each durable before the next: `SnapBegin` in the log; the new base, whole and verified ([`SnapshotSink`]); `SnapEnd` in the log,
//! which makes it the current one; then [`super::base::Base::retire`] for the old one. Until SnapEnd the old base and the old history stand, and a
//! server that starts again finds them; from then on the new ones. What belongs to neither is removed at the next start.

use super::{
    base::{Base, BaseSink},
    disk::Disk,
    image::ImageError,
    open::{OpenError, base_options, read_state},
};
use crate::{limits::Limits, server::BaseState};
use std::sync::Arc;

/// Takes the bytes of a [`super::image::SnapshotSource`] in order. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct SnapshotSink(BaseSink);

/// A snapshot that is whole, verified and durable.
#[derive(Debug)]
pub struct Received {
    /// Of the id that it was begun with; not current before the log's SnapEnd.
    pub base: Base,
    /// The log's chain hash after the last entry in it, for SnapEnd.
    pub chain: u128,
    /// What it holds; `None` when it is that of the empty history.
    pub state: Option<BaseState>,
}

impl SnapshotSink {
    /// Begins a base of this id, which must not be the current one: what an earlier attempt left of it is removed.
    ///
    /// # Errors
    /// What the disk says.
    pub fn begin(disk: Arc<dyn Disk>, base: u64, limits: &Limits) -> Result<Self, ImageError> {
        if Base::list(&*disk)?.contains(&base) {
            Base::remove(&*disk, base)?;
        }
        Ok(Self(Base::receive(disk, base, base_options(limits))?))
    }

    /// Where the next chunk begins.
    pub fn received(&self) -> u64 {
        self.0.received()
    }

    /// Bytes of the whole snapshot, once its first block is here.
    pub fn bytes(&self) -> Option<u64> {
        self.0.bytes()
    }

    /// Takes the bytes from [`SnapshotSink::received`] on, any number of them.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] when they are no snapshot's, else what the disk says. After an error it is of no use.
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), ImageError> {
        self.0.write(chunk)
    }

    /// Verifies the whole and makes it durable.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] when something is missing or wrong, else what the disk says.
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
