//! INV-RETURNING: a leader does not send away a returning client without cause.
//!
//! The client's session is alive and has no other connection. The client would return at once, and
//! the next write of its former connection would close the new connection too. Each attempt costs a
//! quorum round trip, and a session that is never accepted expires.

use super::{Ghost, Invariant, Seen};
use zoolet_machine::record::key;
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug)]
pub(super) struct Returning;

impl Invariant for Returning {
    fn name(&self) -> &'static str {
        "INV-RETURNING"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::SentAway(session) = seen else { return Ok(()) };
        let lives =
            ghost.model.as_ref().is_some_and(|model| model.records.contains_key(&key::session_bytes(*session)[..]));
        if !lives {
            return Ok(());
        }
        Err(format!(
            "server {} leads, and sends a client away that comes back with session {:#x}",
            server.as_u8(),
            session.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, payload, zxid};
    use super::*;
    use zoolet_machine::seam::action::LogRecord;
    use zoolet_machine::txn::Txn;
    use zoolet_model::{SessionId, SessionSecret};

    /// Commits the creation of a session, and its end if `ends`.
    fn story(ends: bool) -> (Story, SessionId) {
        let mut story = Story::of(Returning);
        story.reign(1, &[2]);
        let session = SessionId(zxid(1, 1).as_i64());
        let begin = Txn::CreateSession { timeout_ms: 4000, secret: SessionSecret([1; 16]), home: None };
        let end = ends.then_some(Txn::CloseSession { session });
        for (counter, txn) in (1..).zip([begin].into_iter().chain(end)) {
            story.write(1, &[LogRecord::Entry { zxid: zxid(1, counter), payload: payload(&txn) }]);
            story.say(1, 2, &commit(1, zxid(1, counter)));
        }
        (story, session)
    }

    #[test]
    fn refusing_a_returning_client_with_a_live_session_is_reported() {
        let (mut story, session) = story(false);
        story.see(1, Seen::SentAway(session));
        story.is_wrong(&["server 1 leads, and sends a client away that comes back with session 0x10000000001"]);
    }

    #[test]
    fn refusing_a_returning_client_with_an_ended_session_is_fine() {
        let (mut story, session) = story(true);
        story.see(1, Seen::SentAway(session));
        story.is_fine();
    }
}
