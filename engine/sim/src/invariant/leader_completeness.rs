//! Leader completeness: an epoch's initial history contains all committed entries of older epochs.
//!
//! This includes entries that an older epoch commits later.
//!
//! A leader elected without such an entry truncates it on the other servers (A11, A14, A19, A21,
//! D10).

use super::{Ghost, Invariant, Seen};
use zoolet_machine::seam::action::LogRecord;
use zoolet_zab::{ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LeaderCompleteness {
    judged: Zxid,
}

impl Invariant for LeaderCompleteness {
    fn name(&self) -> &'static str {
        "leader completeness"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Record(_, LogRecord::Entry { zxid, .. }) = seen else { return Ok(()) };
        let committed = ghost.committed.last();
        if zxid.counter() != 0 || ghost.primaries.contains_key(&zxid.epoch()) || committed.zxid >= *zxid {
            return Ok(());
        }
        if ghost.has(server, committed) {
            return Ok(());
        }
        Err(format!(
            "server {} begins {:?} with a history that ends at {:?} and does not contain {:?}, which is committed",
            server.as_u8(),
            zxid.epoch(),
            ghost.host(server).tail.last.zxid,
            committed.zxid
        ))
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        let committed = ghost.committed.last();
        if committed.zxid == self.judged {
            return Ok(());
        }
        self.judged = committed.zxid;
        let Some(next) = committed.zxid.epoch().next() else { return Ok(()) };
        for (epoch, primary) in ghost.primaries.range(next..) {
            // For a leader that is gone, the books keep only the initial history of its epoch.
            let host = ghost.host(primary.server);
            let is_there = host.process == primary.process && host.is_running;
            if primary.initial.zxid < committed.zxid || (is_there && !ghost.has(primary.server, committed)) {
                return Err(format!(
                    "server {} commits {:?}, and {epoch:?} had begun without it at server {}",
                    server.as_u8(),
                    committed.zxid,
                    primary.server.as_u8()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, entered, entry, promise, zxid};
    use super::*;

    #[test]
    fn leader_with_all_committed_entries_and_uncommitted_ones_is_fine() {
        let mut story = Story::of(LeaderCompleteness::default());
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        story.write(1, &[entry(1, 1)]);
        story.reign(2, &[3]);
        story.is_fine();
    }

    #[test]
    fn leader_elected_without_a_committed_entry_is_reported() {
        let mut story = Story::of(LeaderCompleteness::default());
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1)]);
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.append(3, &[promise(2), entered(2), entry(2, 0)]);
        story.is_wrong(&["server 3 begins Epoch(2)", "ends at 1.0", "does not contain 1.1"]);
    }

    #[test]
    fn old_leaders_commit_missing_from_the_newer_epoch_is_reported() {
        let mut story = Story::of(LeaderCompleteness::default());
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1)]);
        story.append(3, &[promise(2), entered(2), entry(2, 0)]);
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.is_wrong(&["server 1 commits 1.1, and Epoch(2) had begun without it at server 3"]);
    }
}
