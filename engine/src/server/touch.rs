//! Signs of life: who gave one, who must give one, and what the loss of a leader means to clients.

use super::Server;
use zoolet_model::{ServerId, SessionId};
use zoolet_zab as zab;

/// Sessions heard of since the leader was told.
#[derive(Debug, Default)]
pub(super) struct Touches {}

impl Server {
    /// The protocol's role changed. Called before anything else is done in the new one.
    pub(super) fn on_role(&mut self, _role: zab::Role) {}

    /// The first entry of the epoch that this server leads or follows in is applied: clients are served from now on.
    pub(super) fn on_serving(&mut self) {
        self.sessions.touch_all(self.now.mono_ms);
    }

    /// A link to a peer came up; another process than before has none of its former connections.
    pub(super) fn on_peer_process(&mut self, _peer: ServerId, _process: u64) {}

    /// A link to a peer is gone.
    pub(super) fn on_peer_lost(&mut self, _peer: ServerId) {}

    /// Leader: sessions that a learner heard of.
    pub(super) fn on_touch(&mut self, _peer: ServerId, _sessions: &[SessionId]) {}

    /// When [`Server::on_sessions_due`] wants to be called. Silence is judged only while serving; a deadline that nothing comes of would wake
    /// for ever.
    pub(super) fn sessions_deadline(&self) -> Option<u64> {
        if self.is_serving() { self.sessions.next_deadline() } else { None }
    }

    /// Time has passed, and everything readable was handled.
    pub(super) fn on_sessions_due(&mut self) {
        self.expire_sessions();
    }
}
