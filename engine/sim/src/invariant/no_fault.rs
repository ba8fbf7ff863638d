//! INV-NO-FAULT: no server drops a link because of a peer's mistake.
//!
//! No simulated server lies. So if a message contradicts the protocol, or histories differ where
//! they should be equal, one of the two servers is wrong. This holds even if dropping the link
//! repairs it. Otherwise the next attempt or a snapshot would hide a wrong decision about the
//! entries that a learner needs (B1, B5).

use super::{Ghost, Invariant, Seen};
use zoolet_zab::ServerId;

/// Reasons that also occur between correct servers.
const RIGHT: [&str; 2] =
    ["it has fallen behind the log and must request a snapshot", "its snapshot could not be received"];

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NoFault;

impl Invariant for NoFault {
    fn name(&self) -> &'static str {
        "INV-NO-FAULT"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Refused { peer, reason } = seen else { return Ok(()) };
        let is_whole = |server| ghost.hosts.get(&server).is_none_or(super::Host::is_whole);
        // A damaged disk may differ from the other servers in any way.
        if RIGHT.contains(reason) || !is_whole(server) || !is_whole(*peer) {
            return Ok(());
        }
        Err(format!("server {} drops its link to server {}: {reason}", server.as_u8(), peer.as_u8()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, id};
    use super::*;

    #[test]
    fn refusing_a_learner_for_an_allowed_reason_is_fine() {
        let mut story = Story::of(NoFault);
        story.see(1, Seen::Refused { peer: id(2), reason: RIGHT[0] });
        story.is_fine();
    }

    #[test]
    fn refusing_a_peer_for_an_invalid_message_is_reported() {
        let mut story = Story::of(NoFault);
        story.see(1, Seen::Refused { peer: id(2), reason: "LeaderInfo twice" });
        story.is_wrong(&["server 1 drops its link to server 2: LeaderInfo twice"]);
    }
}
