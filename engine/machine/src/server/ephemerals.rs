//! The bound on ephemerals per session. All of them are deleted in one entry, and nothing else is
//! applied meanwhile.

use super::Server;
use crate::record::key;
use crate::seam::action::FetchWhat;
use crate::seam::ids::ConnId;
use crate::state::{Stuck, View};
use zoolet_model::{Create, CreateKind, CreateMode, Request, WriteOp};

/// Whether a session may own more ephemerals.
pub(super) enum Room {
    /// The new ephemerals fit.
    Enough,
    /// They may not fit if every create in flight succeeds.
    Perhaps,
    /// They do not fit.
    None,
}

/// Returns the number of ephemerals that a request asks to create.
pub(super) fn births(request: &Request) -> u32 {
    let is_birth = |write: &&WriteOp| {
        let ephemeral = |mode: &CreateMode| matches!(mode, CreateMode::Valid { kind: CreateKind::Ephemeral, .. });
        matches!(write, WriteOp::Create(Create { mode, .. }) if ephemeral(mode))
    };
    request.ops().iter().filter(is_birth).count() as u32
}

impl Server {
    /// Returns the number of ephemerals that the session of `conn` owns, or an estimate.
    ///
    /// A session of an earlier process is not counted before it creates an ephemeral. It may own
    /// more than the estimate if `ephemerals_per_session_max` has been lowered since.
    pub(super) fn ephemerals_at_most(&self, conn: ConnId) -> u32 {
        let Some(connection) = self.connections.get(&conn) else { return 0 };
        let of_all = u32::try_from(self.state.totals().ephemerals).unwrap_or(u32::MAX);
        let of_any = self.limits.ephemerals_per_session_max.min(of_all);
        self.state.ephemerals(connection.session).unwrap_or(of_any)
    }

    /// Checks whether the session of `conn` may request `births` more ephemerals.
    ///
    /// # Errors
    /// [`Stuck`] if the session is older than this server's start and its ephemerals are not in
    /// memory.
    pub(super) fn room_for_ephemerals(&mut self, conn: ConnId, births: u32) -> Result<Room, Stuck> {
        let Some(connection) = self.connections.get(&conn) else { return Ok(Room::None) };
        let (session, asked) = (connection.session, connection.births.saturating_add(births));
        let owned = match self.state.ephemerals(session) {
            Some(owned) => owned,
            None => {
                let prefix = key::ephemerals_prefix(session);
                let Some(keys) = self.state.keys_under(&prefix) else {
                    return Err(Stuck::Missing(vec![FetchWhat::KeysUnder(prefix)]));
                };
                self.state.memory().forget_keys(&prefix);
                self.state.learn_ephemerals(session, keys.len() as u32);
                keys.len() as u32
            }
        };
        let max = self.limits.ephemerals_per_session_max;
        Ok(if owned.saturating_add(asked) <= max {
            Room::Enough
        } else if asked == births {
            Room::None
        } else {
            Room::Perhaps
        })
    }
}
