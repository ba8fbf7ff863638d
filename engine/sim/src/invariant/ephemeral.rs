//! INV-EPHEMERAL: in every committed state the owner of each ephemeral is a live session.
//!
//! The entry that ends a session removes exactly the session's ephemerals. It neither removes nor
//! creates any other.
//!
//! An ephemeral that outlives its session is a lock without a holder that no session can take (F1,
//! F2, A20).

use super::{AppliedEntry, Ghost, Invariant, Seen};
use crate::replica::Replica;
use std::collections::{BTreeMap, BTreeSet};
use zoolet_machine::record::key::{self, Key};
use zoolet_machine::record::znode::{Kind, Znode};
use zoolet_machine::txn::{self, Txn};
use zoolet_model::SessionId;
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ephemeral {
    /// Live sessions and the ephemerals that they own.
    owned: BTreeMap<SessionId, BTreeSet<Key>>,
    /// The owner of each ephemeral.
    owners: BTreeMap<Key, SessionId>,
}

fn owner(record: &[u8]) -> Option<SessionId> {
    match Znode::decode(record).ok()?.kind {
        Kind::Ephemeral(owner) => Some(owner),
        Kind::Persistent | Kind::Container | Kind::Ttl { .. } => None,
    }
}

fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[1..]).replace('\0', "/").replacen("//", "/", 1)
}

impl Ephemeral {
    fn check_entry(&mut self, entry: &AppliedEntry) -> Result<(), String> {
        let zxid = entry.zxid;
        let mut gone: BTreeMap<SessionId, BTreeSet<Key>> = BTreeMap::new();
        let mut ended: Vec<SessionId> = Vec::new();
        // Sessions come first: the records of an entry are sorted by key, not by time.
        for (key, change) in entry.applied.changes.iter().filter(|(key, _)| key[0] == key::SESSION) {
            let session = session_of(key);
            match &change.after {
                Some(_) => drop(self.owned.entry(session).or_default()),
                None => ended.push(session),
            }
        }
        for (key, change) in entry.applied.changes.iter().filter(|(key, _)| key[0] == key::ZNODE) {
            let now = change.after.as_ref().and_then(|record| owner(record));
            let before = self.owners.get(&**key).copied();
            if now == before {
                continue;
            }
            if let Some(before) = before {
                self.owners.remove(&**key);
                self.owned.entry(before).or_default().remove(&**key);
                gone.entry(before).or_default().insert(key.clone());
            }
            if let Some(now) = now {
                if ended.contains(&now) || !self.owned.contains_key(&now) {
                    return Err(format!(
                        "{zxid:?} creates {} for session {:#x}, which does not live",
                        name(key),
                        now.0
                    ));
                }
                self.owners.insert(key.clone(), now);
                self.owned.entry(now).or_default().insert(key.clone());
            }
        }
        for session in &ended {
            let left = self.owned.remove(session).unwrap_or_default();
            if let Some(left) = left.first() {
                return Err(format!("{zxid:?} ends session {:#x}, and {} stays", session.0, name(left)));
            }
        }
        if let Ok((_, Txn::CloseSession { session })) = txn::decode(&entry.payload)
            && let Some((other, keys)) = gone.iter().find(|(owner, _)| **owner != session)
        {
            let lost = keys.first().map(|key| name(key)).unwrap_or_default();
            return Err(format!("{zxid:?} ends session {:#x} and removes {lost} of session {:#x}", session.0, other.0));
        }
        Ok(())
    }

    fn scan(model: &Replica) -> Result<(), String> {
        for (key, record) in model.records.iter().filter(|(key, _)| key[0] == key::ZNODE) {
            if let Some(owner) = owner(record).filter(|owner| !model.records.contains_key(&key::session(*owner))) {
                return Err(format!("{} belongs to session {:#x}, which does not live", name(key), owner.0));
            }
        }
        Ok(())
    }
}

fn session_of(key: &[u8]) -> SessionId {
    let id = key.get(1..9).and_then(|id| id.try_into().ok()).map_or(0, i64::from_be_bytes);
    SessionId(id)
}

impl Invariant for Ephemeral {
    fn name(&self) -> &'static str {
        "INV-EPHEMERAL"
    }

    fn after(&mut self, ghost: &Ghost, _server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        ghost.newly_applied.iter().try_for_each(|entry| self.check_entry(entry))
    }

    fn recount(&mut self, ghost: &Ghost) -> Result<(), String> {
        ghost.model.as_ref().map_or(Ok(()), Self::scan)
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, payload, zxid};
    use super::*;
    use zoolet_machine::record::acl::Identity;
    use zoolet_machine::seam::action::LogRecord;
    use zoolet_machine::txn::Op;
    use zoolet_model::{CreateKind, SessionSecret};

    fn create(path: &str, session: SessionId) -> Txn<'_> {
        let op =
            Op::Create { path, data: None, acl: &[], kind: CreateKind::Ephemeral, sequential: false, with_stat: false };
        Txn::Write { session, identity: Identity::default(), op }
    }

    /// Commits a session's creation, its ephemeral, and the entries in `then`.
    fn story(then: &[Txn<'_>]) -> Story {
        let mut story = Story::of(Ephemeral::default());
        story.reign(1, &[2]);
        let session = SessionId(zxid(1, 1).as_i64());
        let begin = Txn::CreateSession { timeout_ms: 4000, secret: SessionSecret([1; 16]), home: None };
        let txns = [begin, create("/lock", session)];
        for (counter, txn) in (1..).zip(txns.iter().chain(then)) {
            let record = LogRecord::Entry { zxid: zxid(1, counter), payload: payload(txn) };
            story.write(1, std::slice::from_ref(&record));
            story.say(1, 2, &commit(1, zxid(1, counter)));
        }
        story
    }

    #[test]
    fn an_ephemeral_lives_as_long_as_its_session() {
        let session = SessionId(zxid(1, 1).as_i64());
        let mut story = story(&[Txn::CloseSession { session }, create("/late", session)]);
        let model = story.checks.ghost.model.as_ref().unwrap();
        assert_eq!(model.totals.ephemerals, 0);
        story.is_fine();
    }

    #[test]
    fn an_ephemeral_that_outlives_its_session_is_reported() {
        let mut story = story(&[]);
        let session = SessionId(zxid(1, 1).as_i64());
        story.checks.ghost.model.as_mut().unwrap().records.remove(&key::session(session));
        story.is_wrong(&["/lock belongs to session 0x10000000001, which does not live"]);
    }

    #[test]
    fn session_end_that_leaves_an_ephemeral_is_reported() {
        let mut story = story(&[Txn::NoOp]);
        let session = SessionId(zxid(1, 1).as_i64());
        let mut judge = Ephemeral::default();
        judge.owned.insert(session, BTreeSet::from([key::znode("/lock").unwrap()]));
        judge.owners.insert(key::znode("/lock").unwrap(), session);
        // The end of the session, computed from a state without the lock.
        let model = story.checks.ghost.model.as_mut().unwrap();
        let mut other = crate::replica::Replica::new(false);
        other.records.insert(key::session(session), model.records[&key::session(session)].clone());
        let payload = payload(&Txn::CloseSession { session });
        let applied = other.apply(zxid(1, 4), &payload).unwrap();
        let entry = AppliedEntry { zxid: zxid(1, 4), payload, applied };
        let wrong = judge.check_entry(&entry).unwrap_err();
        assert!(wrong.contains("1.4 ends session 0x10000000001, and /lock stays"), "{wrong}");
    }
}
