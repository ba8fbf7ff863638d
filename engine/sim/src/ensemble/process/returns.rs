//! Detects returning clients whose connection a leader closes before it has answered.

use super::Process;
use crate::ensemble::host::Context;
use std::collections::BTreeMap;
use zoolet_machine::seam::peer::PeerMessage;
use zoolet_machine::{Action, ConnId, Event};
use zoolet_model::SessionId;
use zoolet_zab::{Epoch, Role};

/// A client that showed a session and has no answer yet.
#[derive(Debug)]
struct Returning {
    session: SessionId,
    /// The client connected in this turn. The leader may refuse such a connection at once.
    is_new: bool,
}

/// All such clients of one process.
#[derive(Debug, Default)]
pub(super) struct Returns {
    coming: BTreeMap<ConnId, Returning>,
    sent_away: Vec<SessionId>,
    /// The epoch that the server led at the end of its last turn.
    led: Option<Epoch>,
}

impl Returns {
    /// Records an event that the core hears now.
    pub(super) fn note_heard(&mut self, event: &Event) {
        match event {
            Event::Connect { conn, request, .. } if request.session != SessionId(0) => {
                self.forget_session(request.session);
                self.coming.insert(*conn, Returning { session: request.session, is_new: true });
            }
            Event::PeerMessage { message: PeerMessage::Revalidate { session, .. }, .. } => {
                self.forget_session(*session)
            }
            Event::Disconnected { conn } => drop(self.coming.remove(conn)),
            // The server closes every connection whose answer waits for the log.
            Event::LogStalled { .. } => self.coming.clear(),
            _ => {}
        }
    }

    pub(super) fn note_done(&mut self, action: &Action) {
        match action {
            Action::Connected { conn, .. } => drop(self.coming.remove(conn)),
            Action::Close { conn } => {
                let returning = self.coming.remove(conn).filter(|returning| !returning.is_new);
                self.sent_away.extend(returning.map(|returning| returning.session));
            }
            _ => {}
        }
    }

    /// Ends the turn.
    ///
    /// Returns the sessions whose clients were sent away by a leader that still leads.
    fn end_turn(&mut self, leads: Option<Epoch>) -> Vec<SessionId> {
        let sent_away = std::mem::take(&mut self.sent_away);
        let led = std::mem::replace(&mut self.led, leads);
        if leads.is_none() || led != leads {
            // A server that leaves its role drops all requests that it took in that role.
            self.coming.clear();
            return Vec::new();
        }
        self.coming.values_mut().for_each(|returning| returning.is_new = false);
        sent_away
    }

    /// Forgets a session that came to another connection; the server closes one of the two.
    fn forget_session(&mut self, session: SessionId) {
        self.coming.retain(|_, returning| returning.session != session);
        self.sent_away.retain(|of| *of != session);
    }
}

impl Process {
    /// Reports sessions that were sent away.
    ///
    /// The state is noted before, so a committed end of a session is known by now.
    pub(super) fn note_returns(&mut self, cx: &mut Context<'_>) {
        let zab = self.server.zab();
        let leads = judged_epoch(zab.role(), zab.epoch(), self.server.is_serving(), zab.is_handing_over());
        for session in self.returns.end_turn(leads) {
            cx.around.witness.sent_away(cx.now_us, cx.id, session);
        }
    }
}

/// Returns the epoch of a leader that must not send returning clients away.
///
/// `None` for a leader that does not serve yet or hands over. It lets the client wait, and closes the
/// connection in time for the client to ask another server.
fn judged_epoch(role: Role, epoch: Epoch, is_serving: bool, is_handing_over: bool) -> Option<Epoch> {
    (role == Role::Leading && is_serving && !is_handing_over).then_some(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::ConnectRequest;

    const SESSION: SessionId = SessionId(1);

    /// Lets a client return to a leader, which closes its connection two turns later.
    fn sent_away_by_a_leader(is_handing_over: bool) -> Vec<SessionId> {
        let epoch = Epoch::new(7).expect("an epoch");
        let leads = |is_handing_over| judged_epoch(Role::Leading, epoch, true, is_handing_over);
        let (mut returns, conn) = (Returns::default(), ConnId(1));
        returns.end_turn(leads(is_handing_over));
        let request = ConnectRequest { session: SESSION, ..ConnectRequest::for_new_session(4000) };
        returns.note_heard(&Event::Connect { conn, peer: None, request });
        returns.end_turn(leads(is_handing_over));
        returns.note_done(&Action::Close { conn });
        returns.end_turn(leads(is_handing_over))
    }

    #[test]
    fn client_sent_away_by_a_leader_is_reported_unless_it_hands_over() {
        assert_eq!(sent_away_by_a_leader(false), [SESSION]);
        // Seed 873534024: the successor did not answer, and a client with a short timeout left after
        // three tenths of it.
        assert_eq!(sent_away_by_a_leader(true), []);
    }
}
