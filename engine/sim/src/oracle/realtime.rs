//! Linearizability of writes and synced reads, in one pass over the known order of entries.
//!
//! The check is that this order agrees with true time. Every state that a client has seen is
//! committed. So after a client has seen a zxid:
//!
//! - a write requested later has a greater zxid,
//! - a session that begins later, and not local, has a greater id,
//! - a sync requested later shows at least that zxid, and so do later reads on its connection
//!   (order.rs).
//!
//! replay.rs checks that each answer fits its place in the order.

use super::facts::Facts;
use super::history::Received;
use super::origin::Origins;
use super::request::has_place;
use super::violation::{Violation, clock};
use zoolet_model::Request;

/// A message that shows a zxid to a client.
struct Shown {
    step: u64,
    zxid: i64,
    what: What,
}

enum What {
    Answer(usize),
    Event(usize),
    Session(usize),
}

pub(super) fn check(facts: &Facts<'_>, origins: &Origins) -> Result<(), Violation> {
    let shown = all_shown(facts);
    let mut shown_before = shown.iter().peekable();
    let mut most: Option<&Shown> = None;
    let mut before = |step: u64| {
        while let Some(next) = shown_before.next_if(|next| next.step < step) {
            if most.is_none_or(|most| most.zxid < next.zxid) {
                most = Some(next);
            }
        }
        most
    };
    // Merges connections and operations into one sequence, by their begin.
    let mut connections = facts.history.connections.iter().enumerate().peekable();
    for (at, operation) in facts.history.operations.iter().enumerate() {
        while let Some((index, connection)) = connections.next_if(|(_, one)| one.begun.step < operation.invoked.step) {
            judge_session(facts, index, before(connection.begun.step))?;
        }
        let Some(most) = before(operation.invoked.step) else { continue };
        if let Some(entry) = origins.effect[at].map(|entry| &facts.entries[entry])
            && entry.zxid <= most.zxid
        {
            let broken = Violation::of("a write takes effect after all that was seen before it was asked for")
                .and_operation(facts.history, at)
                .and(format!("its zxid is {:#x}; but before it was asked for, {:#x} was seen:", entry.zxid, most.zxid));
            return Err(tell(facts, broken, most));
        }
        if let (Request::Sync { .. }, Some(answer)) = (&operation.request, &operation.answer)
            && answer.result.is_ok()
            && answer.zxid < most.zxid
        {
            let broken = Violation::of("a sync shows all that was seen before it was asked for")
                .and_operation(facts.history, at)
                .and(format!("before it was asked for, {:#x} was seen:", most.zxid));
            return Err(tell(facts, broken, most));
        }
    }
    for (index, connection) in connections {
        judge_session(facts, index, before(connection.begun.step))?;
    }
    Ok(())
}

fn judge_session(facts: &Facts<'_>, index: usize, most: Option<&Shown>) -> Result<(), Violation> {
    let connection = facts.connection(index);
    let Some(most) = most.filter(|_| connection.wants_new_session()) else { return Ok(()) };
    match connection.session() {
        // The beginning of a local session has no place in the order.
        Some(session) if session.0 <= most.zxid && !session.began_local() => {
            let broken = Violation::of("a session begins after all that was seen before it was asked for")
                .and_connection(connection)
                .and(format!("before it was asked for, {:#x} was seen:", most.zxid));
            Err(tell(facts, broken, most))
        }
        Some(_) | None => Ok(()),
    }
}

fn all_shown(facts: &Facts<'_>) -> Vec<Shown> {
    let mut shown = Vec::new();
    for (index, connection) in facts.history.connections.iter().enumerate() {
        if let (Some((at, _)), Some(session)) = (&connection.reply, connection.session())
            && connection.wants_new_session()
        {
            shown.push(Shown { step: at.step, zxid: session.0, what: What::Session(index) });
        }
        for received in &connection.received {
            match received {
                Received::Answer(operation) => {
                    let asked = facts.operation(*operation);
                    if let Some(answer) = asked.answer.as_ref().filter(|_| has_place(&asked.request)) {
                        let what = What::Answer(*operation);
                        shown.push(Shown { step: answer.at.step, zxid: answer.zxid, what });
                    }
                }
                Received::Event(at, event) => {
                    shown.push(Shown { step: at.step, zxid: event.zxid, what: What::Event(index) });
                }
                Received::Stray(..) => {}
            }
        }
    }
    shown.sort_unstable_by_key(|one| one.step);
    shown
}

fn tell(facts: &Facts<'_>, broken: Violation, shown: &Shown) -> Violation {
    match shown.what {
        What::Answer(operation) => broken.and_operation(facts.history, operation),
        What::Session(index) => broken.and_connection(facts.connection(index)),
        What::Event(index) => {
            let connection = facts.connection(index);
            let event = connection.received.iter().find_map(|received| match received {
                Received::Event(at, event) if at.step == shown.step => Some((at, event)),
                Received::Event(..) | Received::Answer(_) | Received::Stray(..) => None,
            });
            let broken = broken.and_connection(connection);
            match event {
                Some((at, event)) => broken.and(format!("at {} it was sent {event:?}", clock(*at))),
                None => broken,
            }
        }
    }
}
