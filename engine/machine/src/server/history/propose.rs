//! Entries that this server proposes, forwards or recovers.

use super::Origin;
use crate::server::Server;
use crate::server::fetches::Waiter;
use crate::tree::{self, Need};
use crate::txn::{Forwarder, Txn, decode};
use bytes::Bytes;
use zoolet_model::Zxid;
use zoolet_zab as zab;

/// Capacity of the reused fetch list that is kept after a larger entry, in records.
const MISSING_KEPT: usize = 64;

impl Server {
    /// Proposes an entry, or forwards it to the leader.
    ///
    /// Returns false if no leader takes the entry, or the epoch has no zxids left.
    pub(in crate::server) fn propose(&mut self, txn: &Txn<'_>, origin: Origin) -> bool {
        let payload = self.encode(txn);
        self.propose_encoded(payload, txn, origin)
    }

    /// Encodes an entry. A learner names itself as the forwarder.
    pub(in crate::server) fn encode(&mut self, txn: &Txn<'_>) -> Bytes {
        let number = self.forwards.next_number();
        let forwarder = self.leader().map(|_| Forwarder { server: self.zab.id(), number });
        self.history.encode(self.now, txn, forwarder)
    }

    pub(in crate::server) fn propose_encoded(&mut self, payload: Bytes, txn: &Txn<'_>, origin: Origin) -> bool {
        let zxid = match self.zab.propose(self.now.mono_ms) {
            Ok(zxid) => zxid,
            Err(zab::Refused::NotLeading) => return self.forward(payload, origin),
            Err(full @ zab::Refused::EpochFull) => {
                self.fail(full.to_string());
                return false;
            }
            Err(
                zab::Refused::HandingOver
                | zab::Refused::ConfigPending
                | zab::Refused::ConfigInvalid
                | zab::Refused::NotCaughtUp(_)
                | zab::Refused::NoQuorum,
            ) => return false,
        };
        self.note_write();
        self.prefetch(txn);
        self.history.proposals.note(payload.len());
        self.history.bytes += payload.len();
        self.history.log.expect_entry(&payload);
        self.history.proposed.push_back((zxid, payload, origin));
        true
    }

    /// Fetches the records that an entry will need while the log syncs.
    pub(super) fn prefetch(&mut self, txn: &Txn<'_>) {
        if self.fetches_are_many() || self.history.is_replaced {
            // The entry fetches its records when its turn comes.
            return;
        }
        let mut missing = std::mem::take(&mut self.history.missing);
        let state = &mut self.state;
        tree::needs(txn, &mut |need| match need {
            Need::Znode(_) => missing.extend(need.missing_in(state)),
            // The ephemerals that the session will own are known only when the entry's turn comes.
            Need::Ephemerals(_) => {}
        });
        tree::foreseen_names(txn, state, &mut missing);
        if state.totals().quotas > 0 {
            tree::foreseen_quotas(txn, state, &mut missing);
        }
        for what in missing.drain(..) {
            if self.may_prefetch(&what) {
                self.fetch(what, Waiter::Nobody);
            }
        }
        missing.shrink_to(MISSING_KEPT);
        self.history.missing = missing;
    }

    /// Handles an entry recovered from the log at start.
    pub(in crate::server) fn on_recovered(&mut self, zxid: Zxid, payload: Bytes) {
        if zxid > self.state.applied() {
            self.history.push(zxid, payload.clone(), Origin::None);
            self.apply_committed();
            // Usually the entry is applied by now. If it waits behind another entry's fetches,
            // fetch its records along with those.
            if self.state.applied() < zxid
                && let Ok((header, txn)) = decode(&payload)
            {
                self.history.continue_time(header.ensemble_ms, self.now);
                self.prefetch(&txn);
            }
        }
    }
}
