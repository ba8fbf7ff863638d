//! Primary integrity: a primary accepts writes only after a quorum holds the epoch's first entry.
//!
//! By then everything that older epochs committed is committed and delivered at the primary too. A
//! leader that accepts writes earlier gives answers that the next leader does not know (A4, A18,
//! B13).

use super::{Ghost, Invariant, Seen};
use zoolet_machine::seam::action::LogRecord;
use zoolet_zab::{ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct PrimaryIntegrity;

impl Invariant for PrimaryIntegrity {
    fn name(&self) -> &'static str {
        "primary integrity"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Record(_, LogRecord::Entry { zxid, .. }) = seen else { return Ok(()) };
        let epoch = zxid.epoch();
        let Some(primary) = ghost.primaries.get(&epoch) else { return Ok(()) };
        let is_primary = (primary.server, primary.process) == (server, ghost.host(server).process);
        if zxid.counter() != 1 || !is_primary {
            return Ok(());
        }
        let first = Zxid::first_of(epoch);
        let is_held = primary.broadcast.at(first).is_some_and(|first| ghost.is_chosen(server, first).is_ok());
        if is_held {
            return Ok(());
        }
        Err(format!("server {} broadcasts {zxid:?}, and {first:?} is not held by a quorum", server.as_u8()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, entered, entry, promise};
    use super::*;

    #[test]
    fn primary_that_waits_for_a_quorum_of_its_first_entry_is_fine() {
        let mut story = Story::of(PrimaryIntegrity);
        story.reign(1, &[2]);
        story.append(1, &[entry(1, 1)]);
        story.is_fine();
    }

    #[test]
    fn primary_that_broadcasts_before_a_quorum_holds_epoch_start_is_reported() {
        let mut story = Story::of(PrimaryIntegrity);
        story.write(1, &[promise(1), entered(1), entry(1, 0)]);
        story.append(2, &[promise(1), entered(1), entry(1, 0)]);
        story.append(1, &[entry(1, 1)]);
        story.is_wrong(&["server 1 broadcasts 1.1, and 1.0 is not held by a quorum"]);
    }
}
