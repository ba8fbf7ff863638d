//! A session's view follows the order of its requests.
//!
//! A read shows all earlier writes of its session and none of its later writes. This also holds for
//! a write on an earlier connection whose outcome never became known. A server without a leader
//! cannot learn such outcomes, so to readers it must show the answered writes alone.
//!
//! origin.rs checks that the writes take effect in order.

use super::facts::{Entry, Facts, Session};
use super::origin::{Origins, matches};
use super::request::{has_place, is_ordered, is_refused};
use super::violation::Violation;

/// The greatest zxid so far, with its operation.
type Greatest = Option<(i64, usize)>;

pub(super) fn check(facts: &Facts<'_>, origins: &Origins) -> Result<(), Violation> {
    for session in facts.sessions.values() {
        // For each earlier connection: its end, and up to it the greatest write, answered write and
        // read.
        let mut earlier: Vec<(u64, [Greatest; 3])> = Vec::new();
        for &index in &session.connections {
            let connection = facts.connection(index);
            // Connections that overlap, because the session moved, are not compared with each
            // other.
            let over = earlier.iter().filter(|(ended, ..)| *ended <= connection.begun.step);
            let [mut write, mut answered, mut read] = over
                .fold([None; 3], |[write, answered, read], (_, [w, a, r])| {
                    [write.max(*w), answered.max(*a), read.max(*r)]
                });
            for &operation in &connection.operations {
                let asked = facts.operation(operation);
                if let Some(entry) = origins.effect[operation] {
                    let zxid = facts.entries[entry].zxid;
                    if let Some((seen, by)) = read
                        && seen >= zxid
                    {
                        return Err(Violation::of("a session sees none of its later writes")
                            .and_operation(facts.history, by)
                            .and(format!("shows zxid {seen:#x}; and this, asked later, took effect at {zxid:#x}:"))
                            .and_operation(facts.history, operation));
                    }
                    if asked.answer.is_some() || !is_ambiguous(facts, session, operation, &facts.entries[entry]) {
                        write = write.max(Some((zxid, operation)));
                    }
                    if asked.answer.is_some() {
                        answered = answered.max(Some((zxid, operation)));
                    }
                } else if let Some(answer) = &asked.answer
                    && has_place(&asked.request)
                    && !is_ordered(asked)
                    && !is_refused(asked)
                {
                    let must_show = if connection.is_reader() { answered } else { write };
                    if let Some((wrote, by)) = must_show
                        && wrote > answer.zxid
                    {
                        return Err(Violation::of("a session sees its own earlier writes")
                            .and_operation(facts.history, by)
                            .and(format!("took effect at {wrote:#x}; and this, asked later, shows less:"))
                            .and_operation(facts.history, operation));
                    }
                    read = read.max(Some((answer.zxid, operation)));
                }
            }
            let ended = connection.ended.map_or(u64::MAX, |(at, _)| at.step);
            earlier.push((ended, [write, answered, read]));
        }
    }
    Ok(())
}

/// Returns whether a later unanswered request could also be the origin of this entry.
fn is_ambiguous(facts: &Facts<'_>, session: &Session, operation: usize, entry: &Entry<'_>) -> bool {
    let asked = facts.operation(operation);
    facts.operations_of(session).any(|other| {
        let later = facts.operation(other);
        later.invoked > asked.invoked && later.answer.is_none() && matches(facts, other, entry)
    })
}
