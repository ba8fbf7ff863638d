//! Session ids and ends.
//!
//! An id names one session forever, and one connection announces it to its owner. Clients are told
//! "expired" only about a session whose end is committed. Nothing acts for a session after its end.

use super::facts::Facts;
use super::history::Received;
use super::request::has_place;
use super::violation::{Violation, clock};
use std::collections::BTreeMap;
use zoolet_model::{SessionId, SessionSecret};

pub(super) fn check(facts: &Facts<'_>) -> Result<(), Violation> {
    let mut begun: BTreeMap<SessionId, usize> = BTreeMap::new();
    for (index, connection) in facts.history.connections.iter().enumerate() {
        let broken = |rule| Violation::of(rule).and_connection(connection);
        let Some((at, reply)) = &connection.reply else { continue };
        if connection.wants_new_session() {
            if reply.session.0 == 0 {
                return Err(broken("a client that asks for a new session is not told that it expired"));
            }
            if let Some(&other) = begun.get(&reply.session) {
                return Err(broken("a session's id is never used again").and_connection(facts.connection(other)));
            }
            begun.insert(reply.session, index);
            let created = facts.sessions.get(&reply.session).and_then(|session| session.created);
            if reply.session.began_local() {
                if created.is_some_and(|created| facts.entries[created].at.us < connection.begun.us) {
                    return Err(broken("a local session is new when it begins"));
                }
                continue;
            }
            let Some(entry) = created.map(|created| &facts.entries[created]).filter(|entry| entry.at.us <= at.us)
            else {
                return Err(broken("a session begins with a committed entry"));
            };
            if let Some((timeout_ms, secret)) = entry.begins()
                && (secret != reply.secret || i64::from(timeout_ms) != i64::from(reply.timeout_ms))
            {
                return Err(broken("a client is told the secret and the timeout that its session's entry has")
                    .and(format!("the entry says {timeout_ms} ms, or has another secret")));
            }
            continue;
        }
        let asked = connection.request.session;
        let closed = facts.sessions.get(&asked).and_then(|session| session.closed).map(|closed| &facts.entries[closed]);
        if reply.session.0 == 0 {
            let proof = connection.request.password.as_deref();
            let is_owner = secret_of(facts, asked).is_some_and(|secret| Some(&secret.0[..]) == proof);
            if is_owner
                && is_global_by(facts, asked, connection.begun.us)
                && closed.is_none_or(|closed| closed.at.us > at.us)
            {
                return Err(broken("expired is said only of a session whose end is committed").and(match closed {
                    Some(closed) => format!("its end {:#x} was applied first at {}", closed.zxid, clock(closed.at)),
                    None => "it never ended".to_owned(),
                }));
            }
            continue;
        }
        if reply.session != asked {
            return Err(broken("a client gets the session that it asked for"));
        }
        match secret_of(facts, asked) {
            Some(secret) if Some(&secret.0[..]) == connection.request.password.as_deref() && secret == reply.secret => {
            }
            Some(_) | None => return Err(broken("only who knows its secret continues a session")),
        }
        if let Some(closed) = closed
            && connection.request.last_zxid_seen >= closed.zxid
        {
            return Err(broken("nobody continues a session whose end he has seen").and(format!(
                "it ended at {:#x}, applied first at {}",
                closed.zxid,
                clock(closed.at)
            )));
        }
    }
    silent_after_their_end(facts)
}

/// Returns the session's secret, from its entry or, for a local session, from its first answer.
fn secret_of(facts: &Facts<'_>, session: SessionId) -> Option<SessionSecret> {
    let known = facts.sessions.get(&session)?;
    if let Some(created) = known.created {
        return facts.entries[created].begins().map(|(_, secret)| secret);
    }
    let mut begun = known.connections.iter().map(|&at| facts.connection(at)).filter(|one| one.wants_new_session());
    begun.find_map(|one| one.reply.as_ref()).map(|(_, reply)| reply.secret)
}

/// Returns whether every server had to know the session at this time.
///
/// A local session is unknown at other servers, and ends without an entry.
fn is_global_by(facts: &Facts<'_>, session: SessionId, by_us: u64) -> bool {
    let created = facts.sessions.get(&session).and_then(|known| known.created);
    created.is_some_and(|created| !session.began_local() || facts.entries[created].at.us <= by_us)
}

fn silent_after_their_end(facts: &Facts<'_>) -> Result<(), Violation> {
    for session in facts.sessions.values() {
        let Some(closed) = session.closed.map(|closed| &facts.entries[closed]) else { continue };
        for &index in &session.connections {
            let connection = facts.connection(index);
            for received in &connection.received {
                let broken = || {
                    Violation::of("a session hears nothing that lies behind its end")
                        .and_connection(connection)
                        .and(format!("it ended at {:#x}, applied first at {}", closed.zxid, clock(closed.at)))
                };
                match received {
                    Received::Answer(operation) => {
                        let asked = facts.operation(*operation);
                        let zxid =
                            asked.answer.as_ref().filter(|_| has_place(&asked.request)).map(|answer| answer.zxid);
                        // The session's own close request may come after an end that the ensemble
                        // had already decided.
                        let is_farewell = asked.request == zoolet_model::Request::CloseSession;
                        let told_so = asked
                            .answer
                            .as_ref()
                            .is_some_and(|answer| answer.result == Err(zoolet_model::ErrorCode::SessionExpired));
                        if zxid.is_some_and(|zxid| zxid >= closed.zxid) && !is_farewell && !told_so {
                            return Err(broken().and_operation(facts.history, *operation));
                        }
                    }
                    Received::Event(at, event) if event.zxid > closed.zxid => {
                        return Err(broken().and(format!("at {} came {event:?}", clock(*at))));
                    }
                    Received::Event(..) | Received::Stray(..) => {}
                }
            }
        }
    }
    Ok(())
}
