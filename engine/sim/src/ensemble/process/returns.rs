//! Returning clients whose connection a leader closes before it has answered.

use super::Process;
use crate::ensemble::host::Context;
use std::collections::BTreeMap;
use zoolet_engine::peer::PeerMessage;
use zoolet_engine::{Action, ConnId, Event};
use zoolet_model::SessionId;
use zoolet_zab::{Epoch, Role};

/// A client that showed a session and has no answer yet.
#[derive(Debug)]
struct Returning {
    session: SessionId,
    /// It came in this turn: then it may be sent away at the door.
    is_new: bool,
}

/// All such clients of one process.
#[derive(Debug, Default)]
pub(super) struct Returns {
    coming: BTreeMap<ConnId, Returning>,
    sent_away: Vec<SessionId>,
    /// The epoch in which the server led after its last turn.
    led: Option<Epoch>,
}

impl Returns {
    /// The core hears it now.
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
            // All whose answer waits for the log are sent away.
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

    /// Ends the turn. Returns the sessions of clients that were sent away by a leader that leads on.
    fn end_turn(&mut self, leads: Option<Epoch>) -> Vec<SessionId> {
        let sent_away = std::mem::take(&mut self.sent_away);
        let led = std::mem::replace(&mut self.led, leads);
        if leads.is_none() || led != leads {
            // The end of a role drops all that was asked in it.
            self.coming.clear();
            return Vec::new();
        }
        self.coming.values_mut().for_each(|returning| returning.is_new = false);
        sent_away
    }

    /// It goes to another connection, or went there before: one of the two is sent away.
    fn forget_session(&mut self, session: SessionId) {
        self.coming.retain(|_, returning| returning.session != session);
        self.sent_away.retain(|of| *of != session);
    }
}

impl Process {
    /// After the state is noted: by then the end of a session is known to be committed.
    pub(super) fn note_returns(&mut self, cx: &mut Context<'_>) {
        let zab = self.server.zab();
        let leads = (zab.role() == Role::Leading).then(|| zab.epoch());
        for session in self.returns.end_turn(leads) {
            cx.around.witness.sent_away(cx.now_us, cx.id, session);
        }
    }
}
