//! Reads one state of the base while the next one is being written.

use super::run::unseal;
use super::version::Version;
use bytes::Bytes;
use std::{fmt, sync::Arc};
use zoolet_machine::record::key::end_of_prefix;
use zoolet_machine::record::znode::Znode;
use zoolet_machine::seam::action::{BaseRead, CheckpointMeta, FetchWhat, FirstKeys, Generation, Weighed};
use zoolet_machine::seam::event::{BaseFailure, Fetched};

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

    /// Reads what a fetch of the machine asks for.
    ///
    /// # Errors
    /// [`BaseFailure`] if the base is damaged or cannot be read.
    pub fn fetch(&self, what: &FetchWhat) -> Result<Fetched, BaseFailure> {
        match what {
            FetchWhat::Record(key) => self.record(key).map(Fetched::Record),
            FetchWhat::KeysUnder(prefix) => {
                let mut keys = Vec::new();
                self.keys(prefix, end_of_prefix(prefix).as_deref(), &mut |key| {
                    keys.push(key.into());
                    true
                })?;
                Ok(Fetched::Keys(keys))
            }
            FetchWhat::FirstKeys(from) => {
                let (mut first, tag) = (FirstKeys::default(), from.get(..1).unwrap_or_default());
                self.keys(from, end_of_prefix(tag).as_deref(), &mut |key| first.push(key))?;
                Ok(first.finish())
            }
            FetchWhat::Weights { from, to } => self.weights(from, to),
        }
    }

    fn weights(&self, from: &[u8], to: &[u8]) -> Result<Fetched, BaseFailure> {
        let (mut weighed, mut damage) = (Weighed::default(), None);
        self.scan(from, Some(to), &mut |key, stored| {
            if !weighed.has_room() {
                return false;
            }
            match weigh(key, stored) {
                Ok(length) => weighed.push(key, length),
                Err(failure) => damage = Some(failure),
            }
            damage.is_none()
        })?;
        damage.map_or_else(|| Ok(weighed.finish()), Err)
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

/// Returns the length of a stored znode's data.
fn weigh(key: &[u8], stored: &[u8]) -> Result<u32, BaseFailure> {
    let znode = Znode::decode(unseal(key, stored)?);
    let damaged = |_| BaseFailure::Damaged(format!("the record of znode {} does not decode", key.escape_ascii()));
    znode.map(|znode| znode.data.length()).map_err(damaged)
}

impl BaseRead for BaseReader {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Ok(self.version.record(key)?)
    }

    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        self.scan(from, to, &mut |key, _| visit(key))
    }
}
