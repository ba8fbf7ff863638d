//! Committed entries stay.
//!
//! No server truncates a committed entry that it has, or replaces it with a snapshot of something
//! else. The servers without the entry never suffice to decide alone.
//!
//! Known failures of other systems: a truncation removed too much (A6). A snapshot had another
//! entry at a committed zxid (B17). A server with the committed entry was truncated by a leader
//! without it (A21).

use super::{Ghost, Invariant, Link, Seen};
use zoolet_machine::seam::action::LogRecord;
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CommittedImmutable;

impl Invariant for CommittedImmutable {
    fn name(&self) -> &'static str {
        "committed entries stay"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Record(_, LogRecord::Truncate { to }) => {
                let next = ghost.committed.after(*to).first();
                match next.filter(|next| ghost.has(server, **next)) {
                    Some(lost) => Err(format!(
                        "server {} truncates to {to:?} and loses {:?}, which is committed",
                        server.as_u8(),
                        lost.zxid
                    )),
                    None => Ok(()),
                }
            }
            Seen::Record(_, LogRecord::SnapEnd { zxid, chain, .. }) => {
                let link = Link { zxid: *zxid, chain: *chain };
                if !ghost.is_committed(link) {
                    return Err(format!(
                        "server {} takes a snapshot up to {zxid:?}, which is not what is committed there",
                        server.as_u8()
                    ));
                }
                let lost = ghost.committed.after(*zxid).first().filter(|next| ghost.has(server, **next));
                lost.map_or(Ok(()), |lost| {
                    Err(format!(
                        "server {} takes a snapshot up to {zxid:?} and loses {:?}, which is committed",
                        server.as_u8(),
                        lost.zxid
                    ))
                })
            }
            _ => Ok(()),
        }
    }

    fn recount(&mut self, ghost: &Ghost) -> Result<(), String> {
        let committed = ghost.committed.last();
        let config = ghost.config_at(committed.zxid);
        if committed.zxid == zoolet_zab::Zxid::ZERO || !config.is_born() {
            return Ok(());
        }
        let is_without = |server, disk| {
            let host = ghost.hosts.get(&server).filter(|host| host.disk == disk);
            host.is_some_and(|host| host.is_whole() && !ghost.is_in(&host.history, committed))
        };
        let (without, decide) = ghost.count(config, is_without);
        if !decide {
            return Ok(());
        }
        Err(format!(
            "{:?} is committed, and {:?}, who decide in configuration {:?}, do not have it",
            committed.zxid,
            without.iter().map(|server| server.as_u8()).collect::<Vec<_>>(),
            config.version
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, cut, entered, entry, promise, zxid};
    use super::*;

    #[test]
    fn truncating_an_uncommitted_entry_is_fine() {
        let mut story = Story::of(CommittedImmutable);
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        story.write(2, &[entry(1, 1), cut(1, 0)]);
        story.is_fine();
    }

    #[test]
    fn truncating_a_committed_entry_is_reported() {
        let mut story = Story::of(CommittedImmutable);
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1)]);
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.append(2, &[cut(1, 0)]);
        story.is_wrong(&["server 2 truncates to 1.0 and loses 1.1"]);
    }

    #[test]
    fn snapshot_that_differs_from_the_committed_history_is_reported() {
        let snapshot = |link: Link| LogRecord::SnapEnd { base: 1, zxid: link.zxid, chain: link.chain };
        let mut story = Story::of(CommittedImmutable);
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        let committed = story.checks.ghost.committed.last();
        story.write(3, &[snapshot(committed)]);
        story.is_fine();
        story.append(3, &[snapshot(Link { chain: 5, ..committed })]);
        story.is_wrong(&["server 3 takes a snapshot up to 1.0, which is not what is committed there"]);
    }

    #[test]
    fn quorum_without_a_committed_entry_is_reported() {
        let mut story = Story::of(CommittedImmutable);
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.write(2, &[promise(2), entered(2)]);
        story.is_wrong(&["1.1 is committed, and [2, 3]"]);
    }
}
