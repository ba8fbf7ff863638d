//! Who belongs to the ensemble, how the protocol is told of it, and how this server is told apart.

use super::Server;
use crate::action::LogRecord;
use crate::event::Now;
use crate::peer::PeerMessage;
use crate::status::{self, LearnerStatus};
use bytes::Bytes;
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{Kind, MEMBERS_MAX, Member, Refused};

/// State is compared at each entry whose counter is a multiple of this, the first of an epoch among them.
const DIGEST_EVERY: u64 = 1024;
/// Digests that are remembered; of each learner as many that are ahead.
const DIGESTS_MAX: usize = 64;
/// Heartbeats stay frequent for so long after the last write, milliseconds.
const BUSY_MS: u64 = 1000;

/// Commands of an operator.
impl Server {
    /// Command: this server is about to stop. If it leads, another voter shall lead first: until [`Server::leads`] says no, or a second has
    /// passed, it takes no proposals. Whoever drives the machine goes on with it meanwhile, and then ends the process.
    pub fn hand_over(&mut self, now: Now) {
        self.on_time(now);
        if !self.failed {
            self.zab.hand_over(now.mono_ms);
            self.follow_zab();
        }
    }

    /// Command: these are the members from now on, if this server leads. Who was a member keeps the disk that counts; who comes new is here
    /// already, as a learner, with the disk that it has. Committed when [`Server::applied`] reaches the zxid that comes back.
    ///
    /// # Errors
    /// [`Refused`], and nothing has happened.
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
    /// The configurations as the protocol knows them now.
    pub(super) fn configs(&self) -> LogRecord {
        let committed = Bytes::copy_from_slice(&self.zab.config().encode());
        let last_seen = self.zab.pending_config().map(|config| Bytes::copy_from_slice(&config.encode()));
        LogRecord::Config { last_seen: last_seen.unwrap_or_else(|| committed.clone()), committed }
    }

    /// What this server is, for an operator; empty while it serves nobody.
    pub(super) fn role_name(&self) -> &'static str {
        if !self.is_serving() {
            return "";
        }
        status::role_name(self.zab.role(), self.zab.config().members().len() == 1)
    }

    /// Who follows or observes this server, if it leads.
    pub(super) fn learner_statuses(&self) -> Vec<LearnerStatus> {
        let learner = |(id, acked, is_synced): (ServerId, Zxid, bool)| {
            let votes = self.zab.disk_of(id).is_some_and(|disk| self.zab.config().counts(id, disk));
            let behind = self.zab.history().distance(acked, self.zab.last());
            let behind_ms = self.healths.behind_ms(self.now.mono_ms, id, acked);
            LearnerStatus { id, votes, is_synced, behind, behind_ms }
        };
        self.zab.learners().map(learner).collect()
    }

    /// Voters that are heard, and whose disks are not those that count.
    pub(super) fn uncounted(&self) -> Vec<ServerId> {
        let config = self.zab.config();
        let is_other = |id: ServerId| self.zab.disk_of(id).is_some_and(|disk| !config.counts(id, disk));
        config.voters().map(|voter| voter.id).filter(|&id| id != self.zab.id() && is_other(id)).collect()
    }

    /// Entries that are committed and not applied, as far as this server knows; those of one epoch alone can be counted.
    pub(super) fn behind(&self) -> u64 {
        let (applied, committed) = (self.state.applied(), self.zab.committed());
        let before = if applied.epoch() == committed.epoch() { applied.counter() } else { 0 };
        if committed > applied { committed.counter().saturating_sub(before).max(1) } else { 0 }
    }

    /// An entry is proposed: heartbeats are frequent from now on, and not only from the next one that is due. What is written may be durable and applied
    /// by then, and the silence of a leader that stands still would be long enough to be told.
    pub(super) fn note_write(&mut self) {
        self.peers.wrote_ms = Some(self.now.mono_ms);
        self.zab.set_busy(self.now.mono_ms, true);
    }

    /// Heartbeats follow the load.
    pub(super) fn note_busy(&mut self) {
        let now_ms = self.now.mono_ms;
        if self.history.len() > 0 {
            self.peers.wrote_ms = Some(now_ms);
        }
        let writes = self.peers.wrote_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < BUSY_MS);
        self.zab.set_busy(now_ms, writes || self.has_short_sessions());
    }
}

/// Two servers that have applied the same entries have the same state.
impl Server {
    /// After `zxid` was applied: at some entries a learner tells its leader its digest.
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

    /// A learner's digest: compared now, or when this server has come to that entry.
    pub(super) fn on_digest(&mut self, peer: ServerId, zxid: Zxid, digest: u128) {
        if zxid > self.state.applied() {
            let said = self.peers.digests_said.entry(peer).or_default();
            if said.len() < DIGESTS_MAX {
                said.push_back((zxid, digest));
            }
            return;
        }
        let own = self.peers.digests.iter().find(|(at, _)| *at == zxid);
        if own.is_some_and(|(_, own)| *own != digest) {
            // An alarm, and no more: which of the two is wrong is not known here.
            if let Some(left_out) = self.peers.notices.admit(("differs", peer), self.now.mono_ms) {
                tracing::error!(peer = peer.as_u8(), zxid = %zxid, left_out, "this server's state and its peer's differ");
            }
            self.peers.differs.get_or_insert((peer, zxid));
        }
    }
}
