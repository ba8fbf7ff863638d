//! Integrity: a log's entries equal the broadcasts of their epoch's primary.
//!
//! Each entry is equal bit for bit, and so is its whole past.
//!
//! Invented entries, damaged entries, and entries appended after another history than the primary's
//! all have another hash. Known failures of other systems: synchronization skipped entries (A5,
//! A15, A22, A23).

use super::{Ghost, Invariant, Seen};
use zoolet_machine::seam::action::LogRecord;
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Integrity;

impl Invariant for Integrity {
    fn name(&self) -> &'static str {
        "integrity"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Record(_, LogRecord::Entry { zxid, .. }) = seen else { return Ok(()) };
        let has = ghost.host(server).tail.last;
        match ghost.broadcast(*zxid) {
            Some(broadcast) if broadcast == has => Ok(()),
            Some(_) => Err(format!(
                "server {} appends {zxid:?}, and it or what comes before is not what the primary of {:?} broadcast",
                server.as_u8(),
                zxid.epoch()
            )),
            // The broadcast is too old to be remembered. The next entries appended after it are
            // compared again.
            None if *zxid <= ghost.committed.floor().zxid => Ok(()),
            None => Err(format!("server {} appends {zxid:?}, which nobody broadcast", server.as_u8())),
        }
    }

    fn recount(&mut self, ghost: &Ghost) -> Result<(), String> {
        for (server, host) in &ghost.hosts {
            for link in host.history.links() {
                if ghost.broadcast(link.zxid).is_some_and(|broadcast| broadcast != *link) {
                    return Err(format!("server {} holds {:?}, which nobody broadcast", server.as_u8(), link.zxid));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, cut, entered, entry, payload, promise, zxid};
    use super::*;
    use zoolet_machine::txn::Txn;
    use zoolet_model::SessionId;

    #[test]
    fn appending_a_broadcast_entry_again_after_a_restart_is_fine() {
        let mut story = Story::of(Integrity);
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.append(2, &[entry(1, 1)]);
        story.restart(2);
        story.append(2, &[entry(1, 1)]);
        story.is_fine();
    }

    #[test]
    fn epoch_lost_whole_in_a_crash_may_begin_with_different_bytes() {
        let mut story = Story::of(Integrity);
        let payload = payload(&Txn::CloseSession { session: SessionId(7) });
        story.append(1, &[promise(1), entered(1), LogRecord::Entry { zxid: zxid(1, 0), payload }]);
        story.restart(1);
        story.append(1, &[promise(1), entered(1), entry(1, 0)]);
        story.is_fine();
    }

    #[test]
    fn copied_disk_may_truncate_entries_its_source_already_truncated() {
        let mut story = Story::of(Integrity);
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1), entry(1, 2)]);
        story.write(2, &[entry(1, 1)]);
        let copied = story.facts(1);
        story.write(1, &[cut(1, 1)]);
        story.reign(2, &[2]);
        story.see(3, Seen::Stopped);
        story.start(3, &copied);
        story.write(3, &[cut(1, 1), promise(2), entered(2), entry(2, 0)]);
        story.is_fine();
    }

    #[test]
    fn entry_that_no_primary_broadcast_is_reported() {
        let mut story = Story::of(Integrity);
        story.reign(1, &[2]);
        story.append(2, &[entry(1, 1)]);
        story.is_wrong(&["server 2 appends 1.1, which nobody broadcast"]);
    }

    #[test]
    fn entry_with_different_bytes_than_the_broadcast_is_reported() {
        let mut story = Story::of(Integrity);
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        let payload = payload(&Txn::CloseSession { session: SessionId(7) });
        story.append(2, &[LogRecord::Entry { zxid: zxid(1, 1), payload }]);
        story.is_wrong(&["server 2 appends 1.1", "not what the primary of Epoch(1) broadcast"]);
    }

    #[test]
    fn skipped_entry_is_reported_when_the_next_one_is_appended() {
        let mut story = Story::of(Integrity);
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1), entry(1, 2)]);
        story.append(2, &[entry(1, 2)]);
        story.is_wrong(&["server 2 appends 1.2"]);
    }
}
