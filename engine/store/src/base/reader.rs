//! Reads one state of the base while the next one is being written.

use super::version::Version;
use bytes::Bytes;
use std::{fmt, sync::Arc};
use zoolet_machine::seam::action::{BaseRead, CheckpointMeta, Generation};
use zoolet_machine::seam::event::BaseFailure;

/// Reads one generation of the base on any thread, and holds it until dropped. Clones share the
/// hold.
///
/// A held generation costs space: files that merges replace are removed only after the last reader
/// is dropped.
#[derive(Clone)]
pub struct BaseReader {
    pub(super) generation: Generation,
    pub(super) version: Arc<Version>,
}

impl fmt::Debug for BaseReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BaseReader").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl BaseReader {
    /// Returns the generation that it reads.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the meta of that state.
    pub fn meta(&self) -> CheckpointMeta {
        self.version.meta.clone()
    }

    /// Calls `visit` with each key and stored value in `from..to`, in key order, until it returns
    /// false.
    pub(crate) fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), BaseFailure> {
        Ok(self.version.scan(from, to, visit)?)
    }
}

impl BaseRead for BaseReader {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Ok(self.version.record(key)?)
    }

    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        self.scan(from, to, &mut |key, _| visit(key))
    }
}
