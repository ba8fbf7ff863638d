//! The order of answers on one connection.
//!
//! Answers come in the order of the requests. Their zxids never go back, not even below a zxid that
//! the client saw on another connection. They name committed entries.

use super::facts::Facts;
use super::history::{Connection, Moment, Received};
use super::request::has_place;
use super::violation::{Violation, clock};
use zoolet_model::Request;

pub(super) fn check(facts: &Facts<'_>) -> Result<(), Violation> {
    facts.history.connections.iter().try_for_each(|connection| of_connection(facts, connection))
}

fn of_connection(facts: &Facts<'_>, connection: &Connection) -> Result<(), Violation> {
    let broken = |rule| Violation::of(rule).and_connection(connection);
    if !connection.received.is_empty() && connection.session().is_none() {
        return Err(broken("nobody is answered before he has a session").and(format!("{:?}", connection.received[0])));
    }
    let mut expected = connection.operations.iter().copied();
    let mut seen = connection.request.last_zxid_seen;
    let mut seen_in = None;
    for received in &connection.received {
        match received {
            Received::Stray(at, xid, zxid) => {
                return Err(broken("an answer belongs to a request").and(format!(
                    "at {} an answer came with xid {xid} and zxid {zxid:#x}, and nothing was asked with that",
                    clock(*at)
                )));
            }
            Received::Event(at, event) => {
                if event.zxid != -1 {
                    is_committed(facts, connection, *at, event.zxid, || format!("{event:?}"))?;
                }
            }
            Received::Answer(operation) => {
                let next = expected.next();
                if next != Some(*operation) {
                    let broken = broken("answers come in the order of the requests").and("this was answered:");
                    let broken = broken.and_operation(facts.history, *operation);
                    return Err(match next {
                        Some(next) => broken.and("before this:").and_operation(facts.history, next),
                        None => broken,
                    });
                }
                let asked = facts.operation(*operation);
                let Some(answer) = &asked.answer else { continue };
                if !has_place(&asked.request) {
                    let expected = if asked.request == Request::Unknown { -1 } else { 0 };
                    if answer.zxid != expected {
                        return Err(broken("what reads no state names none").and_operation(facts.history, *operation));
                    }
                    continue;
                }
                if answer.zxid < seen {
                    let broken =
                        broken("the zxids that a client sees never go back").and_operation(facts.history, *operation);
                    return Err(match seen_in {
                        Some(before) => broken.and("after this:").and_operation(facts.history, before),
                        None => broken.and(format!("it had seen {seen:#x} before it connected, and said so")),
                    });
                }
                (seen, seen_in) = (answer.zxid, Some(*operation));
                is_committed(facts, connection, answer.at, answer.zxid, || format!("{:?}", asked.request))?;
            }
        }
    }
    let waits = connection.operations.iter().find(|&&at| facts.operation(at).answer.is_none());
    if let Some(&waits) = waits.filter(|_| facts.history.is_quiet && connection.ended.is_none()) {
        return Err(broken("every request is answered while its connection lasts").and_operation(facts.history, waits));
    }
    Ok(())
}

fn is_committed(
    facts: &Facts<'_>,
    connection: &Connection,
    at: Moment,
    zxid: i64,
    what: impl Fn() -> String,
) -> Result<(), Violation> {
    // Before its first entry, a server shows the initial state of every server.
    if zxid == 0 || facts.entry_at(zxid).is_some_and(|entry| facts.entries[entry].at.us <= at.us) {
        return Ok(());
    }
    Err(Violation::of("clients see committed states only").and_connection(connection).and(format!(
        "at {} zxid {zxid:#x} was shown, which no server had applied by then: {}",
        clock(at),
        what()
    )))
}
