//! Committed entries, applied in order from memory.

use super::Origin;
use crate::seam::action::Action;
use crate::server::Server;
use crate::server::fetches::Waiter;
use crate::sessions::Phase;
use crate::state::Stuck;
use crate::tree::{self, Applied, Fired, Outcome};
use crate::txn;
use zoolet_model::{Perms, WatchEvent, Zxid};

/// Maximum entries applied per call, so that a turn of the core stays short.
const APPLY_MAX: usize = 256;

impl Server {
    pub(in crate::server) fn has_committed_work(&self) -> bool {
        !self.failed
            && !self.history.waits()
            && self.history.next().is_some_and(|entry| entry.zxid <= self.zab.applicable())
    }

    /// Applies committed entries. Then syncs, orphans and waiting writes go on.
    pub(in crate::server) fn apply_committed(&mut self) {
        if self.apply_entries() {
            self.answer_syncs();
            self.end_known_orphans();
            self.maybe_resume();
            self.admit_waiting();
        }
    }

    /// Applies committed entries in order, from memory.
    ///
    /// An entry waits if it needs a record from the base. It also waits if its session has an
    /// earlier request without an outcome. Returns false if the next entry waits for an event that
    /// applies entries again, or the state is damaged: what follows applied entries is skipped then.
    pub(in crate::server) fn apply_entries(&mut self) -> bool {
        if self.history.waits() {
            return false;
        }
        for _ in 0..APPLY_MAX {
            let Some(entry) = self.history.next().filter(|entry| entry.zxid <= self.zab.applicable()) else {
                break;
            };
            if let Origin::Request { conn, .. } = entry.origin
                && !self.is_next_of(conn)
            {
                self.history.waits_for_requests_of = Some(conn);
                break;
            }
            let buffers = std::mem::take(&mut self.history.buffers);
            let Some(entry) = self.history.next() else { break };
            let asked_elsewhere = match entry.origin {
                Origin::Request { .. } | Origin::Connect { .. } | Origin::Upgrade { .. } => None,
                Origin::None | Origin::Forwarded => txn::writer(&entry.payload),
            };
            let since = self.state.memory_ref().stamp();
            let (totals, digest) = (*self.state.totals(), self.state.digest());
            match tree::apply(&mut self.state, totals, digest, entry.zxid, &entry.payload, buffers) {
                Ok(mut applied) => {
                    self.on_applied(&mut applied);
                    if let Some(session) = asked_elsewhere {
                        self.leave_to_its_owner(session);
                    }
                    // Last: what the entry ends or begins must be known to a server that serves.
                    self.serve_if_ready();
                }
                Err(Stuck::Missing(missing)) => {
                    self.history.waiting_for_base = true;
                    self.fetch_all(missing, Waiter::Apply, since);
                    return false;
                }
                Err(Stuck::Damaged(what)) => {
                    self.fail(what.into());
                    return false;
                }
            }
        }
        true
    }

    /// Installs an entry's changes, fires watches and answers its requester, all in one step.
    fn on_applied(&mut self, applied: &mut Applied) {
        let Some((zxid, origin)) = self.history.pass() else { return };
        self.let_go(Waiter::Apply);
        self.note_due(zxid, applied);
        self.state.install(zxid, applied);
        self.note_reapable();
        self.note_digest(zxid);
        self.note_own_lag();
        for fired in &applied.fired {
            self.fire(zxid, fired);
        }
        let outcome = std::mem::replace(&mut applied.outcome, Outcome::Nothing);
        if let Some(exceeded) = applied.exceeded.take() {
            self.note_exceeded(origin, exceeded);
        }
        self.history.buffers = applied.take_buffers();
        self.finish_entry(zxid, origin, outcome);
        self.maybe_checkpoint();
    }

    fn fire(&mut self, zxid: Zxid, fired: &Fired) {
        let Self { watches, connections, actions, .. } = self;
        watches.fire(fired.kind, &fired.path, &mut |conn| {
            // A watch is used up even when its owner may not see the event (surface 5.3).
            let is_delivered = connections.get(&conn).is_some_and(|connection| {
                connection.phase != Phase::Closed && connection.identity.may(Perms::READ, &fired.acl)
            });
            if is_delivered {
                let event = WatchEvent { kind: fired.kind, path: fired.path.clone(), zxid: zxid.as_i64() };
                #[cfg(feature = "mutations")]
                if zoolet_zab::mutation::is_on(zoolet_zab::Mutation::EventAtTail) {
                    return self.history.late_events.push(Action::Notify { conn, event });
                }
                actions.push_back(Action::Notify { conn, event });
            }
        });
    }
}
