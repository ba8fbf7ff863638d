//! Durable contents survive a crash.
//!
//! A process that starts finds everything that a sync made durable. Beyond that it finds only a
//! prefix of the records in flight.
//!
//! In violations, facts are not restated when a segment is reused. A power loss undoes a truncation
//! (A28). Or a tail reappears in the middle of a log (B4).

use super::{Found, Ghost, Invariant, Seen};
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Survives;

impl Invariant for Survives {
    fn name(&self) -> &'static str {
        "durable facts survive"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Started { .. } = seen else { return Ok(()) };
        match &ghost.host(server).found {
            Found::New | Found::Everything | Found::Damaged => Ok(()),
            Found::Lost(both) => {
                let (was, is) = &**both;
                let other = if was.last.zxid == is.last.zxid && was.last != is.last { ", another one" } else { "" };
                Err(format!(
                    "server {} comes back with promise {:?}, epoch {:?} and a history up to {:?}{other}; durable were promise {:?}, epoch {:?} and a history up to {:?}",
                    server.as_u8(),
                    is.accepted,
                    is.current,
                    is.last.zxid,
                    was.accepted,
                    was.current,
                    was.last.zxid
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, cut, entry, promise, zxid};
    use super::*;
    use zoolet_zab::Epoch;

    #[test]
    fn prefix_of_the_records_in_flight_may_survive_a_crash() {
        let mut story = Story::of(Survives);
        story.reign(1, &[2]);
        story.append(2, &[entry(1, 1), entry(1, 2)]);
        // A crash after the first of the two entries.
        let mut facts = story.facts(2);
        let ghost = &story.checks.ghost;
        let link = ghost.host(super::super::story::id(2)).tail_at(zxid(1, 1)).unwrap();
        (facts.last, facts.chain) = (link.zxid, link.chain);
        story.start(2, &facts);
        story.is_fine();
        assert_eq!(story.checks.ghost.host(super::super::story::id(2)).history.last(), link);
    }

    #[test]
    fn durable_promise_lost_in_a_crash_is_reported() {
        let mut story = Story::of(Survives);
        story.write(2, &[promise(3)]);
        let mut facts = story.facts(2);
        facts.accepted = Epoch::ZERO;
        story.start(2, &facts);
        story.is_wrong(&["server 2 comes back with promise Epoch(0)", "durable were promise Epoch(3)"]);
    }

    #[test]
    fn durable_truncation_undone_by_a_crash_is_reported() {
        let mut story = Story::of(Survives);
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1)]);
        let facts = story.facts(2);
        story.write(2, &[cut(1, 0)]);
        story.start(2, &facts);
        story.is_wrong(&["server 2 comes back", "history up to 1.1; durable", "history up to 1.0"]);
    }

    #[test]
    fn damaged_disk_may_hold_less_than_was_durable() {
        let mut story = Story::of(Survives);
        story.reign(1, &[2]);
        let mut facts = story.facts(2);
        story.write(2, &[entry(1, 1)]);
        facts.accepted = story.facts(2).accepted;
        story.see(2, Seen::Started { process: 9, facts: &facts, is_damaged: true });
        story.is_fine();
    }
}
