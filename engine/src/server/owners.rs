//! Which server, and which of its connections, a session is on: the leader knows, and asks nobody.

use super::Server;
use crate::event::ConnId;
use zoolet_model::{ServerId, SessionId, SessionSecret, Zxid};

/// Sessions' connections on other servers.
#[derive(Debug, Default)]
pub(super) struct Owners {}

impl Server {
    /// Leader: a learner asks whether a session lives that came to it.
    pub(super) fn on_revalidate(
        &mut self,
        _peer: ServerId,
        _conn: ConnId,
        _session: SessionId,
        _secret: SessionSecret,
        _timeout_ms: u32,
    ) {
    }

    /// Learner: the answer.
    pub(super) fn on_revalidated(&mut self, _conn: ConnId, _session: SessionId, _up_to: Option<Zxid>) {}

    /// Learner: a session of ours has come to another server.
    pub(super) fn on_moved(&mut self, _session: SessionId, _conn: ConnId) {}
}
