//! A session's view is in the order in which it asked: a read shows its own earlier writes and none of its later ones, also when a write
//! was asked for on an earlier connection and its outcome never became known.
//!
//! That its writes take effect in order is checked where they are found (origin.rs).

use super::facts::{Entry, Facts, Session, has_place, is_ordered, is_refused};
use super::origin::{Origins, matches};
use super::violation::Violation;

/// The greatest zxid so far, and whose it is.
type Greatest = Option<(i64, usize)>;

pub(super) fn check(facts: &Facts<'_>, origins: &Origins) -> Result<(), Violation> {
    for session in facts.sessions.values() {
        // For each connection that went before, when it was over, and the greatest write and read on it and on those before it.
        let mut earlier: Vec<(u64, Greatest, Greatest)> = Vec::new();
        for &index in &session.connections {
            let connection = facts.connection(index);
            // Two connections at once, because the session moved: nothing is said about one against the other.
            let over = earlier.iter().filter(|(ended, ..)| *ended <= connection.begun.step);
            let (mut write, mut read) =
                over.fold((None, None), |(write, read), (_, w, r)| (write.max(*w), read.max(*r)));
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
                } else if let Some(answer) = &asked.answer
                    && has_place(&asked.request)
                    && !is_ordered(asked)
                    && !is_refused(asked)
                {
                    if let Some((wrote, by)) = write
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
            earlier.push((ended, write, read));
        }
    }
    Ok(())
}

/// Whether the entry found for it may as well come from something that was asked later.
fn is_ambiguous(facts: &Facts<'_>, session: &Session, operation: usize, entry: &Entry<'_>) -> bool {
    let asked = facts.operation(operation);
    facts.operations_of(session).any(|other| {
        let later = facts.operation(other);
        later.invoked > asked.invoked && later.answer.is_none() && matches(facts, other, entry)
    })
}
