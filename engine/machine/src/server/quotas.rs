//! Quotas of a server: the count of large subtrees, and the writes that passed a limit.

use super::Server;
use super::admission::{Admission, Need};
use super::fetches::Waiter;
use super::history::Origin;
use crate::record::key::{self, Key};
use crate::seam::action::FetchWhat;
use crate::seam::log_rate_limit::LogRateLimit;
use crate::tree::Exceeded;
use crate::txn::Txn;
use std::collections::{BTreeMap, VecDeque};
use zoolet_model::Text;

/// Pause of the leader between two steps of a count, in milliseconds.
///
/// A million znodes take at least 1,000 steps. The pause leaves most of the log and the core to clients.
const PAUSE_MS: u64 = 10;
/// Delay before the leader tries again if it cannot propose a step, in milliseconds.
const RETRY_MS: u64 = 100;
/// Namespaces (first names of paths) that have a count of refusals of their own. The others share
/// one.
const NAMESPACES_MAX: usize = 64;
/// Bytes of a namespace's name that are kept. Names that differ only later share one count.
const NAME_BYTES_MAX: usize = 128;

/// Writes refused since the start because of a hard limit.
///
/// The key is the first name of the quota's path, cut to 128 bytes. The empty key stands for
/// further namespaces.
pub type QuotaRefusals = BTreeMap<Text, u64>;

/// Work and counts of this server for quotas.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// Subtrees still to count, as keys, as far as the last fetch found them. The count of the first
    /// one is in progress.
    to_count: VecDeque<Key>,
    /// The key from which the next look finds subtrees to count. `None`: it starts over.
    from: Option<Key>,
    /// When the next step may be proposed.
    next_at_ms: u64,
    /// A proposed step is not applied yet.
    is_under_way: bool,
    refusals: QuotaRefusals,
    log_limit: LogRateLimit,
}

impl Server {
    /// Returns the writes refused for clients of this server because of a hard limit.
    pub fn quota_refusals(&self) -> &QuotaRefusals {
        &self.quotas.refusals
    }

    /// Returns when the leader proposes the next step of a count.
    pub(super) fn counting_deadline(&self) -> Option<u64> {
        self.may_count().then_some(self.quotas.next_at_ms)
    }

    fn may_count(&self) -> bool {
        let may_propose = self.is_serving() && self.leads() && self.upkeep.log_stalled.is_none();
        self.state.totals().counting > 0 && !self.quotas.is_under_way && may_propose
    }

    pub(super) fn count_usages_if_due(&mut self) {
        if self.quotas.next_at_ms <= self.now.mono_ms {
            self.count_usages();
        }
    }

    /// Proposes the next step of a count. Applying it decides how far the count gets.
    pub(super) fn count_usages(&mut self) {
        if !self.may_count() {
            return;
        }
        self.quotas.next_at_ms = self.now.mono_ms + RETRY_MS;
        while self.quotas.to_count.is_empty() {
            let from = self.quotas.from.clone().unwrap_or_else(|| [key::COUNTING].into());
            let Some(first) = self.state.memory().first_keys(&from) else {
                return self.fetch(FetchWhat::FirstKeys(from), Waiter::Counting);
            };
            // Until the next checkpoint the base also has the keys of finished counts. A look that
            // finds only those goes on behind them.
            self.quotas.to_count = first.keys.into();
            self.quotas.from = first.next;
            if self.quotas.from.is_none() {
                break;
            }
        }
        let Some(key) = self.quotas.to_count.front().cloned() else { return };
        let Ok(path) = std::str::from_utf8(&key[1..]) else { return };
        if self.admission(Need::Write) == Admission::Go {
            self.quotas.is_under_way = self.propose(&Txn::CountUsage { path }, Origin::None);
        }
    }

    /// Continues after a step was applied.
    pub(super) fn on_counted(&mut self, is_complete: bool) {
        if is_complete {
            self.quotas.to_count.pop_front();
        }
        self.quotas.is_under_way = false;
        self.quotas.next_at_ms = self.now.mono_ms + PAUSE_MS;
    }

    /// Forgets the steps of an earlier role; a new leader looks up what is left to count.
    pub(super) fn forget_counting(&mut self) {
        self.quotas.to_count.clear();
        self.quotas.from = None;
        self.quotas.is_under_way = false;
    }

    /// Notes that a client's write passed a limit. Only the client's server counts and logs it.
    pub(super) fn note_exceeded(&mut self, origin: Origin, exceeded: Exceeded) {
        let Origin::Request { .. } = origin else { return };
        let Exceeded { subtree, what, wanted, limit, is_refused } = exceeded;
        if is_refused {
            let name = namespace_of(&subtree);
            let refusals = &mut self.quotas.refusals;
            let has_room = refusals.len() < NAMESPACES_MAX || refusals.contains_key(name);
            *refusals.entry(if has_room { name.into() } else { Text::EMPTY }).or_default() += 1;
        }
        if let Some(left_out) = self.quotas.log_limit.admit((&*subtree, what, is_refused), self.now.mono_ms) {
            let path = &*subtree;
            if is_refused {
                tracing::warn!(path, what, wanted, limit, left_out, "refused a write beyond the hard limit of a quota");
            } else {
                tracing::warn!(
                    path,
                    what,
                    wanted,
                    limit,
                    left_out,
                    "a write went beyond a quota and succeeded: the limit is soft, or enforce_quotas is off"
                );
            }
        }
    }
}

/// Returns the first name of a path, as far as it is kept.
fn namespace_of(path: &str) -> &str {
    let name = path.split('/').nth(1).unwrap_or_default();
    let end = (0..=name.len().min(NAME_BYTES_MAX)).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_of_namespaces_are_cut_between_characters() {
        assert_eq!((namespace_of("/app/x"), namespace_of("/app"), namespace_of("/")), ("app", "app", ""));
        let (short, long) = ("x".repeat(127), format!("/{}\u{e9}y/z", "x".repeat(127)));
        assert_eq!(namespace_of(&long), short);
    }
}
