//! Configurations are part of the history.
//!
//! - At most one configuration is proposed and undecided.
//! - Every log records a change before it holds the entry that makes the change.
//! - No change in a log lies between its committed and its proposed configuration, or above both.
//! - A configuration that a server considers committed is committed.
//! - A leader serves only after its predecessors' changes are decided.
//!
//! Two changes at once, or one that only its leader counts, let disjoint quorums decide (E1, E2,
//! E3, E7, E9; D9).

use super::{Ghost, Invariant, Membership, Seen};
use std::collections::BTreeSet;
use zoolet_machine::seam::action::LogRecord;
use zoolet_zab::{Epoch, Role, ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Configuration {
    served: BTreeSet<(Epoch, ServerId)>,
}

impl Configuration {
    /// Returns changes in the history of `server` up to `to`, newest first.
    fn changes(ghost: &Ghost, server: ServerId, to: Zxid) -> impl Iterator<Item = &Membership> {
        let changes = ghost.memberships.range(..=to).rev().flat_map(|(_, changes)| changes);
        changes.filter(move |change| ghost.has(server, change.link))
    }

    fn entry(ghost: &Ghost, server: ServerId, zxid: Zxid) -> Result<(), String> {
        let host = ghost.host(server);
        let Some(change) = Self::changes(ghost, server, zxid).next().filter(|change| change.link.zxid == zxid) else {
            return Ok(());
        };
        let configs = &host.tail.configs;
        let known = configs.pending.iter().chain(&configs.committed).find(|config| config.version >= zxid);
        match known {
            Some(config) if config.version == zxid && *config != change.config => Err(format!(
                "server {} holds {zxid:?} for another configuration than its leader: {config:?} instead of {:?}",
                server.as_u8(),
                change.config
            )),
            Some(_) => Ok(()),
            None => Err(format!(
                "server {} appends {zxid:?}, which changes the configuration, and its log has not said so before",
                server.as_u8()
            )),
        }
    }

    /// Checks that the log holds no change beyond its committed and its proposed configuration.
    ///
    /// Such a change would be decided without its voters.
    fn adjacent(ghost: &Ghost, server: ServerId, committed: Zxid, pending: Option<Zxid>) -> Result<(), String> {
        let to = pending.unwrap_or(ghost.host(server).tail.last.zxid);
        let lost = Self::changes(ghost, server, to).find(|change| Some(change.link.zxid) != pending);
        match lost.map(|change| change.link.zxid).filter(|zxid| *zxid > committed) {
            None => Ok(()),
            Some(lost) => Err(format!(
                "server {} takes configuration {committed:?} for committed and {pending:?} for proposed, and holds {lost:?}",
                server.as_u8()
            )),
        }
    }

    fn fact(ghost: &Ghost, server: ServerId) -> Result<(), String> {
        let host = ghost.host(server);
        let Some(committed) = &host.tail.configs.committed else { return Ok(()) };
        if let Some(pending) = host.tail.configs.pending.as_ref().filter(|pending| pending.version <= committed.version)
        {
            return Err(format!(
                "server {} takes configuration {:?} for proposed and {:?} for committed",
                server.as_u8(),
                pending.version,
                committed.version
            ));
        }
        Self::adjacent(ghost, server, committed.version, host.tail.configs.pending.as_ref().map(|it| it.version))?;
        let changes = ghost.memberships.get(&committed.version).into_iter().flatten();
        let mut changes = changes.filter(|change| change.config == *committed).peekable();
        // The ensemble's first configuration counts before its entry exists, because all founders
        // were asked.
        let is_birth = ghost.config_at(committed.version).version == ghost.founders.version;
        if is_birth || changes.any(|change| ghost.is_chosen(server, change.link).is_ok()) {
            return Ok(());
        }
        Err(format!(
            "server {} takes configuration {:?} for committed, and it is not",
            server.as_u8(),
            committed.version
        ))
    }
}

impl Invariant for Configuration {
    fn name(&self) -> &'static str {
        "configurations"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Record(_, LogRecord::Entry { zxid, .. }) => Self::entry(ghost, server, *zxid),
            Seen::Record(_, LogRecord::Config { .. }) => Self::fact(ghost, server),
            Seen::State(state) if state.role == Role::Leading && self.served.insert((state.epoch, server)) => {
                let Some(primary) = ghost.primaries.get(&state.epoch) else { return Ok(()) };
                let undecided = Self::changes(ghost, server, primary.initial.zxid)
                    .find(|change| !ghost.is_committed(change.link) || change.link.zxid > ghost.committed.last().zxid);
                undecided.map_or(Ok(()), |change| {
                    Err(format!(
                        "server {} serves as leader of {:?} while configuration {:?} is not decided",
                        server.as_u8(),
                        state.epoch,
                        change.link.zxid
                    ))
                })
            }
            _ => Ok(()),
        }
    }

    fn recount(&mut self, ghost: &Ghost) -> Result<(), String> {
        let committed = ghost.memberships.values().flatten().filter(|change| ghost.is_committed(change.link));
        let mut ensemble = None;
        for change in committed.filter(|change| change.link.zxid <= ghost.committed.last().zxid) {
            if change.config.version != change.link.zxid {
                return Err(format!("configuration {:?} is proposed by {:?}", change.config.version, change.link.zxid));
            }
            if ensemble.is_some_and(|ensemble| ensemble != change.config.ensemble) {
                return Err(format!("configuration {:?} is another ensemble's", change.config.version));
            }
            ensemble = Some(change.config.ensemble);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, config, configs, entered, entry, promise, zxid};
    use super::*;

    fn born() -> zoolet_zab::Config {
        config(Zxid::ZERO, &[1, 2, 3])
    }

    #[test]
    fn change_proposed_after_the_previous_one_is_committed_is_fine() {
        let mut story = Story::of(Configuration::default());
        story.reign(1, &[2, 3]);
        let (one, two) = (config(zxid(1, 1), &[1, 2]), config(zxid(1, 2), &[1, 2, 3]));
        for server in 1..=2 {
            story.write(server, &[configs(&born(), &one), entry(1, 1)]);
        }
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.append(1, &[configs(&one, &one), configs(&one, &two), entry(1, 2)]);
        story.is_fine();
    }

    #[test]
    fn second_configuration_change_before_the_first_commits_is_reported() {
        let mut story = Story::of(Configuration::default());
        story.reign(1, &[2, 3]);
        let (one, two) = (config(zxid(1, 1), &[1, 2]), config(zxid(1, 2), &[1, 3]));
        story.append(1, &[configs(&born(), &one), entry(1, 1), configs(&born(), &two), entry(1, 2)]);
        story.is_wrong(&["server 1 takes configuration 0.0 for committed and Some(1.2) for proposed, and holds 1.1"]);
    }

    #[test]
    fn configuration_change_skipped_by_a_log_is_reported() {
        let mut story = Story::of(Configuration::default());
        story.reign(1, &[2, 3]);
        let (one, two) = (config(zxid(1, 1), &[1, 2]), config(zxid(1, 2), &[1, 2, 3]));
        for server in 1..=2 {
            story.write(server, &[configs(&born(), &one), entry(1, 1)]);
        }
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.append(2, &[configs(&born(), &two)]);
        story.is_wrong(&["server 2 takes configuration 0.0 for committed and Some(1.2) for proposed, and holds 1.1"]);
    }

    #[test]
    fn membership_entry_logged_without_its_configuration_is_reported() {
        let mut story = Story::of(Configuration::default());
        story.reign(1, &[2, 3]);
        let one = config(zxid(1, 1), &[1, 2]);
        story.append(1, &[configs(&born(), &one), entry(1, 1)]);
        story.append(2, &[entry(1, 1)]);
        story.is_wrong(&["server 2 appends 1.1, which changes the configuration"]);
    }

    #[test]
    fn configuration_taken_as_committed_too_early_is_reported() {
        let mut story = Story::of(Configuration::default());
        story.reign(1, &[2, 3]);
        let (one, two) = (config(zxid(1, 1), &[1, 2]), config(zxid(1, 2), &[1, 3]));
        for server in 1..=2 {
            story.write(server, &[configs(&born(), &one), entry(1, 1)]);
        }
        story.say(1, 2, &commit(1, zxid(1, 1)));
        story.append(1, &[configs(&one, &two), entry(1, 2), configs(&two, &two)]);
        story.is_wrong(&["server 1 takes configuration 1.2 for committed, and it is not"]);
    }

    #[test]
    fn leader_serving_before_an_inherited_change_commits_is_reported() {
        let mut story = Story::of(Configuration::default());
        story.reign(1, &[2, 3]);
        let one = config(zxid(1, 1), &[1, 2]);
        story.write(2, &[configs(&born(), &one), entry(1, 1)]);
        story.append(1, &[configs(&born(), &one), entry(1, 1)]);
        story.write(1, &[promise(2), entered(2), entry(2, 0)]);
        story.state(1, Role::Leading, 2, zxid(1, 0), zxid(1, 0));
        story.is_wrong(&["server 1 serves as leader of Epoch(2) while configuration 1.1 is not decided"]);
    }
}
