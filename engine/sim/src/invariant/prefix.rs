//! INV-PREFIX (agreement): of any two committed histories, one is a prefix of the other.
//!
//! This catches every silent divergence. Examples are phantom entries kept through a
//! synchronization (A5) and entries lost between a snapshot and the stream (A8). Entries may also
//! reappear after a truncation (A25, A28).

use super::{Ghost, Invariant, Link, Seen};
use zoolet_zab::{Message, ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Prefix;

impl Prefix {
    fn judge(ghost: &Ghost, server: ServerId, to: Zxid, how: &str) -> Result<(), String> {
        let committed = ghost.committed.last();
        let host = ghost.host(server);
        let wrong = |what: String| Err(format!("server {} {how} {to:?} for committed, and {what}", server.as_u8()));
        if to <= ghost.committed.floor().zxid.max(host.tail_floor().zxid) {
            return Ok(());
        }
        if to > committed.zxid {
            return wrong(match host.tail_at(committed.zxid) {
                Some(_) if ghost.has(server, committed) => format!("its history ends at {:?}", host.tail.last.zxid),
                Some(_) | None => format!("has another history up to {:?}, which is committed", committed.zxid),
            });
        }
        match (ghost.committed.at(to), host.tail_at(to)) {
            (Some(committed), Some(has)) if committed == has => Ok(()),
            (None, _) => wrong("that is no entry of what is committed".into()),
            (Some(_), None) => wrong("does not have it".into()),
            (Some(_), Some(_)) => wrong("it or what comes before is another entry".into()),
        }
    }
}

impl Invariant for Prefix {
    fn name(&self) -> &'static str {
        "INV-PREFIX"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::State(state) => Self::judge(ghost, server, state.committed, "takes"),
            Seen::Started { facts, .. } => Self::judge(ghost, server, facts.watermark, "finds"),
            Seen::Sent { message: Message::Commit { to, .. }, .. }
            | Seen::Sent { message: Message::Synced { up_to: to, .. }, .. } => {
                Self::judge(ghost, server, *to, "declares")
            }
            Seen::Sent { message: Message::Proposal { committed, .. }, .. } => {
                Self::judge(ghost, server, *committed, "declares")
            }
            _ => Ok(()),
        }
    }

    /// Compares every pair of servers, entry by entry.
    fn recount(&mut self, ghost: &Ghost) -> Result<(), String> {
        let committed: Vec<(ServerId, Vec<Link>)> = ghost
            .hosts
            .iter()
            .map(|(&server, host)| (server, host.tail_links(host.tail_floor().zxid, host.state.committed)))
            .collect();
        for (at, (one, links)) in committed.iter().enumerate() {
            for (other, others) in &committed[at + 1..] {
                let from = links.first().map(|link| link.zxid).max(others.first().map(|link| link.zxid));
                let Some(from) = from else { continue };
                let part = |links: &[Link]| links[links.partition_point(|link| link.zxid < from)..].to_vec();
                let differs = part(links).into_iter().zip(part(others)).find(|(one, other)| one != other);
                if let Some((first, second)) = differs {
                    return Err(format!(
                        "server {} has {:?} where server {} has {:?} or another history before it, and both take it for committed",
                        one.as_u8(),
                        first.zxid,
                        other.as_u8(),
                        second.zxid
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, cut, entered, entry, promise, zxid};
    use super::*;
    use zoolet_zab::Role;

    fn follows(leader: u8) -> Role {
        Role::Following(ServerId::new(leader).unwrap())
    }

    #[test]
    fn servers_at_different_points_of_one_history_are_fine() {
        let mut story = Story::of(Prefix);
        story.reign(1, &[2, 3]);
        for server in 1..=2 {
            story.write(server, &[entry(1, 1)]);
        }
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 1));
        story.state(2, follows(1), 1, zxid(1, 0), zxid(1, 0));
        story.state(3, follows(1), 1, zxid(1, 0), zxid(1, 0));
        story.is_fine();
    }

    #[test]
    fn two_servers_with_different_committed_entries_are_reported() {
        let mut story = Story::of(Prefix);
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 1));
        // Server 2 goes on without that entry.
        story.write(2, &[promise(2), entered(2), entry(2, 0)]);
        story.state(2, Role::Leading, 2, zxid(2, 0), zxid(2, 0));
        story.is_wrong(&["server 2 takes 2.0 for committed", "another history up to 1.1"]);
    }

    #[test]
    fn phantom_entry_below_the_committed_end_is_reported() {
        let mut story = Story::of(Prefix);
        story.reign(1, &[2, 3]);
        story.write(3, &[promise(2), entered(2), entry(2, 0)]);
        story.write(1, &[entry(1, 1), promise(3), entered(3), entry(3, 0)]);
        story.write(3, &[promise(3), entered(3), entry(3, 0)]);
        story.say(1, 2, &commit(3, zxid(3, 0)));
        story.state(3, follows(1), 3, zxid(3, 0), zxid(3, 0));
        story.is_wrong(&["server 3 takes 3.0 for committed", "another entry"]);
    }

    #[test]
    fn commit_beyond_the_end_of_the_leaders_history_is_reported() {
        let mut story = Story::of(Prefix);
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 3)));
        story.is_wrong(&["server 1 declares 1.3 for committed", "its history ends at 1.0"]);
    }

    #[test]
    fn committed_entry_truncated_and_replaced_is_reported() {
        let mut story = Story::of(Prefix);
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 1));
        story.state(2, follows(1), 1, zxid(1, 0), zxid(1, 0));
        story.write(1, &[cut(1, 0)]);
        story.write(2, &[promise(2), entered(2), entry(2, 0)]);
        story.write(1, &[promise(2), entered(2), entry(2, 0)]);
        story.state(1, follows(2), 2, zxid(2, 0), zxid(2, 0));
        story.is_wrong(&["server 1 takes 2.0 for committed"]);
    }
}
