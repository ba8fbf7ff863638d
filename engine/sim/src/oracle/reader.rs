//! Readers: clients of a server that has no leader, or whose disk accepts nothing.
//!
//! No write of a reader succeeds, and no other client is told that it may only read. replay.rs
//! checks that a reader's answers show the committed state that they name.

use super::facts::Facts;
use super::violation::Violation;
use zoolet_model::ErrorCode;

pub(super) fn check(facts: &Facts<'_>) -> Result<(), Violation> {
    for (at, operation) in facts.history.operations.iter().enumerate() {
        let Some(answer) = &operation.answer else { continue };
        let is_refused = answer.result == Err(ErrorCode::NotReadOnly);
        let is_reader = facts.history.connection_of(operation).is_reader();
        if is_reader && facts.is_ordered(at) && !is_refused {
            return Err(Violation::of("no write of a reader succeeds").and_operation(facts.history, at));
        }
        if is_refused && !is_reader {
            return Err(Violation::of("only a reader is told that it may not write").and_operation(facts.history, at));
        }
    }
    Ok(())
}
