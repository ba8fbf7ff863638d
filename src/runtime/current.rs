//! The base that the log names, and what the machine calls its states.

use super::lock;
use std::sync::Mutex;
use zoolet_engine::action::Generation;
use zoolet_engine::store::base::{Base, BaseReader};

/// The current base. A snapshot that came in takes its place.
pub(super) struct CurrentBase(Mutex<Current>);

struct Current {
    base: Base,
    /// What the machine calls a generation is this much more than what the base does: a base that came in begins anew.
    before: u64,
}

impl CurrentBase {
    pub(super) fn new(base: Base) -> Self {
        Self(Mutex::new(Current { base, before: 0 }))
    }

    pub(super) fn base(&self) -> Base {
        lock(&self.0).base.clone()
    }

    /// Its state now, under the number that the machine knows it by.
    pub(super) fn reader(&self) -> (Generation, BaseReader) {
        lock(&self.0).reader()
    }

    /// Another base is current: the old one's files go when nobody reads them any more.
    pub(super) fn replace(&self, base: Base) -> (Generation, BaseReader) {
        let mut current = lock(&self.0);
        let old = std::mem::replace(&mut current.base, base);
        current.before += old.generation().0 + 1;
        let served = current.reader();
        drop(current);
        old.retire();
        served
    }
}

impl Current {
    fn reader(&self) -> (Generation, BaseReader) {
        let reader = self.base.reader();
        (Generation(reader.generation().0 + self.before), reader)
    }
}
