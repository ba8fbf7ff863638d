//! INV-EPOCH-AFTER-HISTORY: in a log, the record of an entered epoch follows that epoch's whole
//! initial history.
//!
//! In the reverse order, a crash in between leaves a server that claims the newest epoch with a
//! short history. It wins elections and truncates committed entries on the other servers (A11, A29;
//! D4).

use super::{Ghost, Invariant, Link, Seen};
use std::collections::BTreeMap;
use zoolet_machine::seam::action::LogRecord;
use zoolet_zab::{Epoch, ServerId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EpochAfterHistory {
    /// Epochs entered before their first broadcast: by which server, and with which history.
    entered: BTreeMap<Epoch, (ServerId, Link)>,
}

impl Invariant for EpochAfterHistory {
    fn name(&self) -> &'static str {
        "INV-EPOCH-AFTER-HISTORY"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let last = ghost.host(server).tail.last;
        match seen {
            Seen::Record(_, LogRecord::Epoch(epoch)) => {
                let Some(primary) = ghost.primaries.get(epoch) else {
                    self.entered.insert(*epoch, (server, last));
                    return Ok(());
                };
                if ghost.has(server, primary.initial) {
                    return Ok(());
                }
                Err(format!(
                    "server {} enters {epoch:?} with a history that ends at {:?}, and not with the initial history of that epoch, which ends at {:?}",
                    server.as_u8(),
                    last.zxid,
                    primary.initial.zxid
                ))
            }
            Seen::Record(_, LogRecord::Entry { zxid, .. }) if zxid.counter() == 0 => {
                let Some(primary) = ghost.primaries.get(&zxid.epoch()) else { return Ok(()) };
                match self.entered.remove(&zxid.epoch()) {
                    Some((entered, with)) if entered == primary.server && with != primary.initial => Err(format!(
                        "server {} entered {:?} with a history up to {:?} and begins to broadcast after {:?}",
                        entered.as_u8(),
                        zxid.epoch(),
                        with.zxid,
                        primary.initial.zxid
                    )),
                    Some((entered, _)) if entered != primary.server => Err(format!(
                        "server {} entered {:?} before server {}, who leads in it",
                        entered.as_u8(),
                        zxid.epoch(),
                        primary.server.as_u8()
                    )),
                    Some(_) | None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, entered, entry, promise};
    use super::*;

    #[test]
    fn epoch_entered_after_its_initial_history_is_fine() {
        let mut story = Story::of(EpochAfterHistory::default());
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1)]);
        story.reign(2, &[2]);
        story.write(3, &[promise(2), entry(1, 1), entered(2), entry(2, 0)]);
        story.is_fine();
    }

    #[test]
    fn an_epoch_entered_before_its_initial_history_is_reported() {
        let mut story = Story::of(EpochAfterHistory::default());
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1)]);
        story.reign(2, &[2]);
        story.append(3, &[promise(2), entered(2), entry(1, 1)]);
        story.is_wrong(&["server 3 enters Epoch(2) with a history that ends at 1.0", "ends at 1.1"]);
    }

    #[test]
    fn leader_entering_its_epoch_before_its_whole_history_is_reported() {
        let mut story = Story::of(EpochAfterHistory::default());
        story.reign(1, &[2]);
        story.append(1, &[promise(2), entered(2), entry(1, 1), entry(2, 0)]);
        story.is_wrong(&["server 1 entered Epoch(2)", "up to 1.0", "after 1.1"]);
    }
}
