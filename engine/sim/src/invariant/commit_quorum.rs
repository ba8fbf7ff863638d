//! INV-COMMIT-QUORUM: a quorum of every configuration that counts holds each committed entry.
//!
//! The quorum's voters durably hold the entry and everything before it, on the disks that the
//! configuration names. They have also durably entered the epoch of the server that declares the
//! commit.
//!
//! The last condition is why only a new epoch's first entry commits the entries of older epochs.
//! Without it, copies from an older epoch could lose an election against a shorter but newer
//! history.
//!
//! The check counts what the disks hold. Known failures of other systems: an unsorted array led to
//! a commit without a quorum (C15). Stale acknowledgements were counted twice after a truncation
//! (C16, B14, B15). A wiped disk or an observer counted as a voter (E8, D8). A pending
//! configuration was forgotten (E1).

use super::{Ghost, Invariant, Link, Seen};
use zoolet_zab::{Config, ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CommitQuorum {
    judged: Zxid,
}

impl CommitQuorum {
    fn judge(ghost: &Ghost, from: Zxid, committed: Link, who: ServerId) -> Result<(), String> {
        let mut config = ghost.config_at(from);
        let changes = ghost.memberships.range(from..=committed.zxid).flat_map(|(_, changes)| changes);
        for change in changes.filter(|change| change.link.zxid > from && ghost.is_committed(change.link)) {
            // Birth: the first entry names the founders' disks, and the founders commit it under
            // the configuration in that entry.
            if config.is_born() {
                Self::count(ghost, config, change.link, who)?;
            }
            Self::count(ghost, &change.config, change.link, who)?;
            // Once a change is committed, only the new configuration counts.
            config = &change.config;
        }
        Self::count(ghost, config, committed, who)
    }

    fn count(ghost: &Ghost, config: &Config, link: Link, who: ServerId) -> Result<(), String> {
        let epoch = ghost.host(who).tail.current;
        let (holders, decide) =
            ghost.count(config, |server, disk| ghost.holds(server, disk, link) && ghost.entered(server, disk) >= epoch);
        if decide {
            return Ok(());
        }
        Err(format!(
            "server {} declares {:?} committed in {epoch:?}, and of the voters of configuration {:?} only {:?} durably hold it and all before it",
            who.as_u8(),
            link.zxid,
            config.version,
            holders.iter().map(|server| server.as_u8()).collect::<Vec<_>>()
        ))
    }
}

impl Invariant for CommitQuorum {
    fn name(&self) -> &'static str {
        "INV-COMMIT-QUORUM"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        let (from, committed) = (self.judged, ghost.committed.last());
        if committed.zxid == from {
            return Ok(());
        }
        self.judged = committed.zxid;
        Self::judge(ghost, from, committed, server)
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, config, configs, cut, entered, entry, promise, zxid};
    use super::*;
    use zoolet_store::log::Facts;

    #[test]
    fn two_of_three_durable_copies_commit() {
        let mut story = Story::of(CommitQuorum::default());
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        story.is_fine();
    }

    #[test]
    fn a_copy_that_is_not_durable_does_not_count() {
        let mut story = Story::of(CommitQuorum::default());
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        story.write(1, &[entry(1, 1)]);
        story.append(2, &[entry(1, 1)]);
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.is_wrong(&["server 1 declares 1.1 committed", "only [1] durably hold it"]);
    }

    #[test]
    fn voter_counts_only_after_it_durably_enters_the_leaders_epoch() {
        let mut story = Story::of(CommitQuorum::default());
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1)]);
        story.write(1, &[promise(2), entered(2), entry(2, 0)]);
        story.say(1, 2, &commit(2, zxid(1, 1)));
        story.is_wrong(&["server 1 declares 1.1 committed in Epoch(2)", "only [1] durably hold it"]);
    }

    #[test]
    fn the_leaders_own_copy_is_not_needed() {
        let mut story = Story::of(CommitQuorum::default());
        story.reign(1, &[2, 3]);
        story.append(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1)]);
        story.write(3, &[entry(1, 1)]);
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.is_fine();
    }

    #[test]
    fn a_copy_that_was_truncated_does_not_count() {
        let mut story = Story::of(CommitQuorum::default());
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1), cut(1, 0)]);
        story.say(1, 3, &commit(1, zxid(1, 1)));
        story.is_wrong(&["only [1] durably hold it"]);
    }

    #[test]
    fn disk_not_named_by_the_configuration_does_not_count() {
        let mut story = Story::of(CommitQuorum::default());
        story.start(2, &Facts::birth(77, 22));
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        story.is_wrong(&["server 1 declares 1.0 committed", "only [1] durably hold it"]);
    }

    #[test]
    fn replaced_disk_that_held_the_entry_still_counts() {
        let mut story = Story::of(CommitQuorum::default());
        story.reign(1, &[2]);
        story.start(2, &Facts::birth(77, 22));
        story.say(1, 2, &commit(1, zxid(1, 0)));
        story.is_fine();
    }

    #[test]
    fn pending_configuration_requires_quorums_of_both_configurations() {
        let (old, new) = (config(Zxid::ZERO, &[1, 2, 3]), config(zxid(1, 1), &[1, 4, 5]));
        for (holders, is_fine) in [(&[1, 2][..], false), (&[1, 4], false), (&[1, 2, 4], true)] {
            let mut story = Story::of(CommitQuorum::default());
            for server in 4..=5 {
                story.start(server, &Facts::birth(77, server.into()));
            }
            story.reign(1, &[2, 3, 4, 5]);
            story.say(1, 2, &commit(1, zxid(1, 0)));
            for &server in holders {
                story.write(server, &[configs(&old, &new), entry(1, 1)]);
            }
            story.say(1, 2, &commit(1, zxid(1, 1)));
            if is_fine { story.is_fine() } else { story.is_wrong(&["declares 1.1 committed"]) }
        }
    }

    #[test]
    fn entry_after_a_jointly_held_change_needs_only_the_new_quorum() {
        let (old, new) = (config(Zxid::ZERO, &[1, 2]), config(zxid(1, 1), &[1, 2, 3]));
        let mut story = Story::of(CommitQuorum::default());
        story.reign(1, &[2, 3]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        story.write(1, &[configs(&old, &new), entry(1, 1)]);
        story.append(1, &[entry(1, 2)]);
        story.write(2, &[configs(&old, &new), entry(1, 1), entry(1, 2)]);
        story.write(3, &[configs(&old, &new), entry(1, 1), entry(1, 2)]);
        story.say(1, 2, &commit(1, zxid(1, 2)));
        story.is_fine();
    }
}
