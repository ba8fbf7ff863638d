//! The contents of a log, as far as the invariants compare them.

use super::super::history::Link;
use std::sync::Arc;
use zoolet_store::log::Facts;
use zoolet_zab::{Config, Epoch};

/// The configurations that a log knows; `None` before the first one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Configs {
    /// The newest one that the log knows to be committed.
    pub committed: Option<Config>,
    /// The newest one seen, if it differs from `committed`.
    pub pending: Option<Config>,
}

impl Configs {
    pub(super) fn decode(committed: &[u8], last_seen: &[u8]) -> Self {
        let committed = Config::decode(committed);
        Self { pending: Config::decode(last_seen).filter(|last_seen| Some(last_seen) != committed.as_ref()), committed }
    }

    /// Returns both configurations; the founders' configuration stands in for a missing committed
    /// one.
    pub fn in_force<'a>(&'a self, founders: &'a Config) -> Vec<&'a Config> {
        let committed = self.committed.as_ref().unwrap_or(founders);
        std::iter::once(committed).chain(&self.pending).collect()
    }
}

/// The contents of a log up to one of its records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// The newest promised epoch (f.p).
    pub accepted: Epoch,
    /// The newest epoch whose initial history the log holds (f.a).
    pub current: Epoch,
    /// The last entry.
    pub last: Link,
    /// The configurations.
    pub configs: Arc<Configs>,
}

impl Held {
    pub(super) fn of(facts: &Facts) -> Self {
        let mut configs = Configs::decode(&facts.config_committed, &facts.config_last_seen);
        // The record of a change precedes its entry. After a crash between the two, only the record
        // remains, and the configuration never took effect.
        configs.committed = configs.committed.filter(|config| config.version <= facts.last);
        configs.pending = configs.pending.filter(|config| config.version <= facts.last);
        Self {
            accepted: facts.accepted,
            current: facts.current,
            last: Link { zxid: facts.last, chain: facts.chain },
            configs: Arc::new(configs),
        }
    }

    /// Compares everything that a restart must find again. The invariants about configurations
    /// compare those.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.accepted, self.current, self.last) == (other.accepted, other.current, other.last)
    }
}
