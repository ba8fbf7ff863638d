//! One change of membership at a time.
//!
//! No change is proposed while another one is not committed. An epoch that inherits a change
//! completes it before its leader serves.

use super::{Fact, Invariant};
use crate::net::World;
use crate::net::log::Record;
use zoolet_zab::Role;

pub(super) struct OneChange;

impl Invariant for OneChange {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        match fact {
            Fact::Appended { by, record: Record::Entry(entry), is_own: true } if entry.config.is_some() => {
                let server = world.server(*by);
                let older = server.log.written.entries.iter().rev().skip(1).find(|entry| entry.config.is_some());
                if let Some(older) = older {
                    let is_committed = world.last_committed() >= older.zxid;
                    assert!(is_committed, "server {by} proposes a change before {:?} is committed", older.zxid);
                }
            }
            Fact::Became { by, role: Role::Leading } => {
                let server = world.server(*by);
                let epoch = server.zab().epoch();
                if let Some(pending) = server.zab().pending_config() {
                    let is_own = pending.version.epoch() == epoch;
                    assert!(is_own, "server {by} leads in {epoch:?}, and a change of an older epoch is not completed");
                }
            }
            Fact::Turn { by } => {
                // A server's view of the membership must match its history.
                let server = world.server(*by);
                let (zab, state) = (server.zab(), &server.log.written);
                let mut changes = state.entries.iter().rev().filter_map(|entry| entry.config.as_ref());
                let newest = changes.next();
                if let Some(pending) = zab.pending_config() {
                    let is_newest = newest.is_some_and(|newest| **newest == *pending);
                    assert!(is_newest, "server {by} has {pending:?} proposed, and its history {newest:?}");
                } else if let Some(newest) = newest {
                    let committed = zab.config();
                    let is_it = committed.version >= newest.version;
                    assert!(is_it, "server {by} is at {committed:?}, and its history at {newest:?}");
                }
            }
            _ => {}
        }
    }
}
