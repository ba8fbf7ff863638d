//! Writes of a learner's clients: to the leader, and back as entries.

use super::Server;
use super::history::Origin;
use crate::event::ConnId;
use crate::peer::LinkId;
use bytes::Bytes;
use zoolet_model::{ErrorCode, ServerId};

/// What was forwarded and has not come back.
#[derive(Debug, Default)]
pub(super) struct Forwards {}

impl Server {
    /// Learner: sends an entry to the leader, its times left 0. False when there is no leader.
    pub(super) fn forward(&mut self, _payload: Bytes, _origin: Origin) -> bool {
        false
    }

    /// Learner: the entry that was forwarded under this number is being appended here; who waits for it?
    #[allow(dead_code, reason = "sessions across servers are on their way")]
    pub(super) fn claim_forwarded(&mut self, _seq: u64) -> Origin {
        Origin::None
    }

    /// Learner: it will not come.
    pub(super) fn on_refused(&mut self, _seq: u64, _code: ErrorCode) {}

    /// Leader: a learner's client wants this entry. Propose it as [`Origin::Forwarded`], or answer Refused.
    pub(super) fn on_forward(&mut self, _peer: ServerId, _link: LinkId, _seq: u64, _conn: ConnId, _payload: Bytes) {}
}
