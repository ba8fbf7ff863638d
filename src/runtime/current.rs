//! The base that the log names, and the machine's numbers for its generations.

use super::lock;
use std::sync::Mutex;
use zoolet_machine::seam::action::Generation;
use zoolet_store::base::{Base, BaseReader};

/// The current base. A received snapshot takes its place.
pub(super) struct CurrentBase(Mutex<Current>);

struct Current {
    base: Base,
    /// Difference between the machine's number of a generation and the base's number.
    ///
    /// A received base counts its generations anew.
    before: u64,
}

impl CurrentBase {
    pub(super) fn new(base: Base) -> Self {
        Self(Mutex::new(Current { base, before: 0 }))
    }

    pub(super) fn base(&self) -> Base {
        lock(&self.0).base.clone()
    }

    /// Returns a reader of the current state, with the machine's number for it.
    pub(super) fn reader(&self) -> (Generation, BaseReader) {
        lock(&self.0).reader()
    }

    /// Makes another base current. The old base's files go when they have no more readers.
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
