//! Promises about time.
//!
//! The states shown to clients are not older than promised. In a healthy ensemble no client waits
//! forever.

use super::Promises;
use super::facts::Facts;
use super::history::Span;
use super::request::{has_place, is_ordered};
use super::violation::{Violation, clock};

pub(super) fn check(facts: &Facts<'_>, promises: &Promises) -> Result<(), Violation> {
    if let Some(staleness_us) = promises.staleness_us {
        fresh(facts, staleness_us)?;
    }
    answered(facts, promises)
}

/// Maximum time that a server needs to catch up once nothing delays it any more.
const CATCHES_UP_US: u64 = 5_000_000;

/// Checks that answers are not outdated.
///
/// A state is outdated once some server has applied the next entry. An answer was computed after
/// its request was sent, however long the links delayed it.
fn fresh(facts: &Facts<'_>, staleness_us: u64) -> Result<(), Violation> {
    for (at, operation) in facts.history.operations.iter().enumerate() {
        let Some(answer) = &operation.answer else { continue };
        // A reader asks for a state that may be old.
        let is_reader = facts.history.connection_of(operation).is_reader();
        if is_reader || is_ordered(operation) || !has_place(&operation.request) {
            continue;
        }
        let held_up = facts.history.held_up.get(&facts.history.connection_of(operation).server);
        let overlaps = |span: &Span| span.from_us <= answer.at.us && operation.invoked.us < span.to_us + CATCHES_UP_US;
        if held_up.is_some_and(|spans| spans.iter().any(overlaps)) {
            continue;
        }
        let next = facts.entries.partition_point(|entry| entry.zxid <= answer.zxid);
        if let Some(next) = facts.entries.get(next)
            && next.at.us.saturating_add(staleness_us) < operation.invoked.us
        {
            return Err(Violation::of("what a client is shown is not older than promised")
                .and_operation(facts.history, at)
                .and(format!("its state was outdated by {:#x}, applied first at {}", next.zxid, clock(next.at))));
        }
    }
    Ok(())
}

fn answered(facts: &Facts<'_>, promises: &Promises) -> Result<(), Violation> {
    let waited_too_long = |from_us: u64, to_us: u64| {
        let late = |span: &&Span| span.from_us.max(from_us).saturating_add(promises.answer_us) < span.to_us.min(to_us);
        facts.history.healthy.iter().find(late).copied()
    };
    let rule = "in an ensemble that is well everybody is answered, or sees his connection end";
    let story = |broken: Violation, span: Span| {
        broken.and(format!("it was well from {} us to {} us", span.from_us, span.to_us))
    };
    for connection in &facts.history.connections {
        let over_us = connection.ended.map_or(facts.history.ended, |(at, _)| at).us;
        let told_us = connection.reply.as_ref().map_or(over_us, |(at, _)| at.us);
        if let Some(span) = waited_too_long(connection.begun.us, told_us) {
            return Err(story(Violation::of(rule).and_connection(connection), span));
        }
        for &at in &connection.operations {
            let asked = facts.operation(at);
            let until_us = asked.answer.as_ref().map_or(over_us, |answer| answer.at.us);
            if let Some(span) = waited_too_long(asked.invoked.us, until_us) {
                return Err(story(Violation::of(rule).and_operation(facts.history, at), span));
            }
        }
    }
    Ok(())
}
