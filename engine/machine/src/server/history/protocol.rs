//! The protocol's actions: appends, truncations and roles.

use super::Origin;
use crate::seam::action::{Action, LogRecord};
use crate::seam::peer::PeerEntry;
use crate::server::Server;
use crate::server::due::DueReaper;
use crate::txn::{Txn, decode};
use bytes::Bytes;
use zoolet_model::Zxid;
use zoolet_zab::{self as zab, AppendSeq};

impl Server {
    /// Carries out the protocol's actions. Appends are collected for [`Server::next_append`].
    pub(in crate::server) fn follow_zab(&mut self) {
        while let Some(action) = self.zab.poll_action(self.now.mono_ms) {
            match action {
                zab::Action::Promise { seq, epoch } => self.history.log.fact(seq, LogRecord::Promise(epoch)),
                zab::Action::Epoch { seq, epoch } => self.history.log.fact(seq, LogRecord::Epoch(epoch)),
                zab::Action::Birth { seq, ensemble } => {
                    self.history.log.fact(seq, LogRecord::Birth { ensemble: ensemble.0 })
                }
                zab::Action::Damaged { seq } => self.history.log.fact(seq, LogRecord::Damaged),
                zab::Action::Configs { seq } => {
                    let configs = self.configs();
                    self.history.log.fact(seq, configs);
                }
                zab::Action::Truncate { seq, to } => {
                    let cut = self.history.truncate(to);
                    self.take_back(cut);
                    self.history.log.fact(seq, LogRecord::Truncate { to });
                }
                zab::Action::SnapEnd { seq, zxid } => self.replace_state(seq, zxid),
                zab::Action::Append { seq, from, to } => self.append(seq, from, to),
                // Committed entries are found through the protocol's watermark when entries are
                // applied.
                zab::Action::Commit { .. } => {}
                zab::Action::Become(role) => self.become_role(role),
                zab::Action::Confirmed { round, up_to } => self.on_confirmed(round, up_to),
                zab::Action::Send { peer, link, message } => self.say(peer, link, message),
                zab::Action::Close { peer, link, fault } => self.close_link(peer, link, fault),
            }
        }
        self.pump_streams();
        self.note_own_lag();
    }

    /// Returns everything collected for the log, as one append.
    pub(in crate::server) fn next_append(&mut self) -> Option<Action> {
        if self.failed {
            return None;
        }
        self.history.log.hand_over(self.zab.committed()).map(Action::Append)
    }

    /// Appends entries proposed here, received from the leader, or made by the protocol itself.
    fn append(&mut self, seq: AppendSeq, from: Zxid, to: Zxid) {
        let mut next = Some(from);
        self.history.log.begin(seq);
        while let Some(zxid) = next.filter(|zxid| *zxid <= to) {
            next = zxid.next();
            let (payload, origin, is_counted) = match (self.history.proposed.front(), self.history.incoming.front()) {
                (Some((proposed, ..)), _) if *proposed == zxid => {
                    let Some((_, payload, origin)) = self.history.proposed.pop_front() else { return };
                    self.history.bytes -= payload.len();
                    (payload, origin, true)
                }
                (_, Some(incoming)) if incoming.zxid == zxid => {
                    let Some(PeerEntry { payload, .. }) = self.history.incoming.pop_front() else { return };
                    let origin = self.claim(&payload);
                    // Entries that this release cannot decode are accepted too: apply is total.
                    if let Ok((header, txn)) = decode(&payload) {
                        self.history.follow_time(header.ensemble_ms, self.now);
                        self.prefetch(&txn);
                    }
                    (payload, origin, false)
                }
                _ => match self.entry_of_the_protocol(zxid) {
                    Some(payload) => (payload, Origin::None, false),
                    None => return self.fail(format!("cannot append entry {zxid:?}: its payload is missing")),
                },
            };
            self.history.log.entry(self.history.chain(), zxid, payload.clone(), is_counted);
            self.history.push(zxid, payload, origin);
        }
    }

    /// Closes the connections that wait for these entries: a snapshot replaces them, and does not
    /// tell their outcome.
    pub(in crate::server) fn lose(&mut self, cut: &[Origin]) {
        for origin in cut {
            match *origin {
                Origin::Request { conn, .. } => self.close(conn),
                Origin::Connect { conn, .. } => {
                    self.joining.lose(&mut self.sessions, conn);
                    self.close(conn);
                }
                // The upgrade is settled when this server serves again.
                Origin::None | Origin::Upgrade { .. } | Origin::Forwarded => {}
            }
        }
    }

    /// Returns an epoch's first entry, or one that changes the membership. `None` for any other.
    fn entry_of_the_protocol(&mut self, zxid: Zxid) -> Option<Bytes> {
        let config = [self.zab.pending_config(), Some(self.zab.config())];
        let config = config.into_iter().flatten().find(|config| config.version == zxid).map(zab::Config::encode);
        match config {
            Some(config) => Some(self.history.encode(self.now, &Txn::Membership(&config), None)),
            None if zxid.counter() == 0 => Some(self.history.encode(self.now, &Txn::NoOp, None)),
            None => None,
        }
    }

    pub(in crate::server) fn on_persisted(&mut self, seq: AppendSeq, log_bytes_used: u64, checkpoint: Zxid) {
        self.history.log.persisted(seq, log_bytes_used, checkpoint);
        self.zab.handle_persisted(self.now.mono_ms, seq);
        self.follow_zab();
        self.maybe_install(seq);
        self.maybe_checkpoint();
        self.apply_committed();
    }

    fn become_role(&mut self, role: zab::Role) {
        if self.peers.led_since_ms.is_some() {
            // The acknowledgement that commits an entry may also end the hand-over. The outcome of that
            // entry is known, so its client gets the answer. This server can propose nothing any more, so
            // it does no other work of a leader.
            self.apply_entries();
        }
        self.history.serving = false;
        self.due = DueReaper::default();
        self.history.serves_from = self.zab.committed();
        if role != zab::Role::Looking {
            self.history.resume_time(self.now);
        }
        match role {
            zab::Role::Looking => {
                // A follower takes a silent leader for lost only after a while.
                let heard_ms = self.leaderless.current_ms().unwrap_or(self.now.mono_ms);
                self.history.stop_time(heard_ms, self.now);
                // A leader that hands over sends its last message in the turn in which it stops
                // leading.
                self.pump_streams();
                self.clear_streams();
            }
            zab::Role::Leading => {
                // All of its history is committed now, and is applied before anything it proposes.
                let ensemble_ms = self.state.totals().ensemble_ms;
                self.history.continue_time(ensemble_ms, self.now);
            }
            zab::Role::Following(_) | zab::Role::Observing(_) => {}
        }
        let led = self.peers.led_since_ms.is_some();
        self.peers.led_since_ms = (role == zab::Role::Leading).then_some(self.now.mono_ms);
        self.on_role(role, led);
        self.forget_counting();
        self.upkeep.forget_reaping();
        self.serve_if_ready();
    }

    /// Starts serving clients once everything committed at this server's admission is applied.
    ///
    /// This includes the first entry of the leader's epoch. Before that, entries read back from the
    /// log, or missed while the server was away, would show clients an outdated state.
    pub(in crate::server) fn serve_if_ready(&mut self) {
        let is_ready = !self.history.serving
            && self.zab.role() != zab::Role::Looking
            && !self.history.is_replaced
            && self.state.applied() >= self.history.serves_from;
        if is_ready {
            self.history.serving = true;
            // If the log sufficed to catch up, a rejected snapshot no longer matters.
            self.peers.not_taken = None;
            self.on_serving();
        }
    }
}
