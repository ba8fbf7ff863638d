//! Membership of the ensemble: operator commands, roles for display, and state comparison.

use super::Server;
use crate::seam::action::LogRecord;
use crate::seam::event::Now;
use crate::seam::peer::PeerMessage;
use crate::status::{self, LearnerStatus};
use bytes::Bytes;
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{Kind, MEMBERS_MAX, Member, Refused};

/// Interval between digest comparisons, in entries. Digests are compared where the counter is a
/// multiple of it, including an epoch's first entry.
const DIGEST_EVERY: u64 = 1024;
/// Maximum digests remembered for this server, and for each learner that is ahead.
const DIGESTS_MAX: usize = 64;
/// Time that heartbeats stay frequent after the last write, in milliseconds.
const BUSY_MS: u64 = 1000;

/// Operator commands.
impl Server {
    /// Command: hands leadership to another voter before this server stops.
    ///
    /// The leader accepts no proposals until [`Server::leads`] returns false or one second has
    /// passed. The caller keeps driving the machine meanwhile, and then ends the process.
    pub fn hand_over(&mut self, now: Now) {
        self.on_time(now);
        if !self.failed {
            self.zab.hand_over(now.mono_ms);
            self.follow_zab();
        }
    }

    /// Command: changes the members, if this server leads. Returns the zxid of the change.
    ///
    /// A present member keeps its recorded disk. A new member must already be linked as a learner;
    /// its current disk is recorded. The change is committed once [`Server::applied`] reaches the
    /// returned zxid.
    ///
    /// # Errors
    /// [`Refused`] if the change is not possible; nothing has happened then.
    pub fn reconfigure(&mut self, now: Now, members: &[(ServerId, Kind)]) -> Result<Zxid, Refused> {
        self.on_time(now);
        if members.len() > MEMBERS_MAX {
            return Err(Refused::ConfigInvalid);
        }
        let member = |&(id, kind): &(ServerId, Kind)| {
            let disk = self.zab.config().member(id).map(|member| member.disk).or_else(|| self.zab.disk_of(id));
            disk.map(|disk| Member { id, kind, disk }).ok_or(Refused::NotCaughtUp(id))
        };
        let members = members.iter().map(member).collect::<Result<Vec<_>, _>>()?;
        let zxid = self.zab.reconfigure(self.now.mono_ms, &members)?;
        self.follow_zab();
        Ok(zxid)
    }
}

impl Server {
    /// Returns the protocol's current configurations as a log record.
    pub(super) fn configs(&self) -> LogRecord {
        let committed = Bytes::copy_from_slice(&self.zab.config().encode());
        let last_seen = self.zab.pending_config().map(|config| Bytes::copy_from_slice(&config.encode()));
        LogRecord::Config { last_seen: last_seen.unwrap_or_else(|| committed.clone()), committed }
    }

    /// Returns this server's role for an operator. Empty while it serves no clients.
    pub(super) fn role_name(&self) -> &'static str {
        if !self.is_serving() {
            return "";
        }
        status::role_name(self.zab.role(), self.zab.config().members().len() == 1)
    }

    /// Returns the status of each learner, if this server leads.
    pub(super) fn learner_statuses(&self) -> Vec<LearnerStatus> {
        let learner = |(id, acked, is_synced): (ServerId, Zxid, bool)| {
            let votes = self.zab.disk_of(id).is_some_and(|disk| self.zab.config().counts(id, disk));
            let behind = self.zab.history().distance(acked, self.zab.last());
            let behind_ms = self.healths.behind_ms(self.now.mono_ms, id, acked);
            LearnerStatus { id, votes, is_synced, behind, behind_ms }
        };
        self.zab.learners().map(learner).collect()
    }

    /// Returns linked voters that do not count, because their disk is not the recorded one.
    pub(super) fn uncounted(&self) -> Vec<ServerId> {
        let config = self.zab.config();
        let is_other = |id: ServerId| self.zab.disk_of(id).is_some_and(|disk| !config.counts(id, disk));
        config.voters().map(|voter| voter.id).filter(|&id| id != self.zab.id() && is_other(id)).collect()
    }

    /// Returns the number of known commits not yet applied.
    ///
    /// The number is a lower bound if the history has forgotten an epoch in between.
    pub(super) fn behind(&self) -> u64 {
        let (applied, committed) = (self.state.applied(), self.zab.committed());
        if committed > applied { self.zab.history().distance(applied, committed).max(1) } else { 0 }
    }

    /// Makes heartbeats frequent at once, because an entry was proposed.
    ///
    /// A fast write may be durable and applied before the next idle heartbeat. If the leader then
    /// froze, its learners would suspect it only after the idle interval's longer silence.
    pub(super) fn note_write(&mut self) {
        self.peers.wrote_ms = Some(self.now.mono_ms);
        self.zab.set_busy(self.now.mono_ms, true);
    }

    /// Adapts the heartbeat rate to the load.
    pub(super) fn note_busy(&mut self) {
        let now_ms = self.now.mono_ms;
        if self.history.len() > 0 {
            self.peers.wrote_ms = Some(now_ms);
        }
        let writes = self.peers.wrote_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < BUSY_MS);
        self.zab.set_busy(now_ms, writes || self.has_short_sessions());
    }
}

/// Servers that have applied the same entries must have the same state.
impl Server {
    /// At certain entries, records the state digest and sends it to the leader.
    pub(super) fn note_digest(&mut self, zxid: Zxid) {
        if !zxid.counter().is_multiple_of(DIGEST_EVERY) || self.peers.len() == 0 {
            return;
        }
        let digest = self.state.digest();
        if self.peers.digests.len() == DIGESTS_MAX {
            self.peers.digests.pop_front();
        }
        self.peers.digests.push_back((zxid, digest));
        if let Some(leader) = self.leader() {
            self.send_to(leader, PeerMessage::Digest { zxid, digest });
        }
        let said = std::mem::take(&mut self.peers.digests_said);
        for (peer, said) in said {
            said.into_iter().for_each(|(zxid, digest)| self.on_digest(peer, zxid, digest));
        }
    }

    /// Compares a learner's digest now, or once this server reaches that entry.
    pub(super) fn on_digest(&mut self, peer: ServerId, zxid: Zxid, digest: u128) {
        if zxid > self.state.applied() {
            let said = self.peers.digests_said.entry(peer).or_default();
            if said.len() < DIGESTS_MAX {
                said.push_back((zxid, digest));
            }
            return;
        }
        let Some(&(_, own)) = self.peers.digests.iter().find(|(at, _)| *at == zxid) else { return };
        if own == digest {
            // The digest covers the whole state, so an earlier difference is repaired.
            if self.peers.differs.get(&peer).is_some_and(|differed| *differed < zxid) {
                self.peers.differs.remove(&peer);
            }
        } else {
            // Only raise an alarm: this server cannot know which of the two states is wrong.
            if let Some(left_out) = self.peers.log_limit.admit(("differs", peer), self.now.mono_ms) {
                tracing::error!(peer = peer.as_u8(), zxid = %zxid, left_out, "this server's state differs from its peer's");
            }
            self.peers.differs.entry(peer).or_insert(zxid);
        }
    }
}
