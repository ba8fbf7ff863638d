//! Ephemerals: in every committed state each has an owner that lives, an owner's end takes exactly what it owned, and nothing is done for a
//! session that is not there.
//!
//! The states are those of the engine's own apply, not of a reference: what clients never happened to read is looked at too.

use super::facts::{Entry, Facts};
use super::violation::{Violation, clock};
use crate::replica::{Replica, path_of};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_engine::store::key;
use zoolet_engine::tree::Outcome;
use zoolet_engine::tree::record::{Kind, Znode};
use zoolet_engine::txn::Txn;
use zoolet_model::SessionId;

/// Who owns what, and who lives, as the records say.
#[derive(Default)]
struct Owners {
    of_path: BTreeMap<String, SessionId>,
    live: BTreeSet<SessionId>,
}

pub(super) fn check(facts: &Facts<'_>) -> Result<(), Violation> {
    let mut replica = Replica::new(false);
    let mut owners = Owners::default();
    for (entry, committed) in facts.entries.iter().zip(&facts.history.committed) {
        let applied = replica
            .apply(committed.zxid, &committed.payload)
            .map_err(|what| told("an entry can be applied", entry).and(what))?;
        owners.judge(entry, &applied)?;
    }
    Ok(())
}

fn told(rule: &'static str, entry: &Entry<'_>) -> Violation {
    Violation::of(rule).and(format!("zxid {:#x}, applied first at {}: {:?}", entry.zxid, clock(entry.at), entry.txn))
}

impl Owners {
    fn judge(&mut self, entry: &Entry<'_>, applied: &zoolet_engine::tree::Applied) -> Result<(), Violation> {
        if let Some(Txn::Write { session, .. } | Txn::Multi { session, .. }) = &entry.txn
            && !self.live.contains(session)
            && !applied.changes.is_empty()
        {
            return Err(told("nothing is done for a session that is not there", entry));
        }
        let ends = match applied.outcome {
            Outcome::SessionClosed(session) => Some(session),
            Outcome::Nothing
            | Outcome::Write(_)
            | Outcome::Multi(_)
            | Outcome::SessionCreated(_)
            | Outcome::Reaped(_) => None,
        };
        let mut born: Vec<(String, SessionId)> = Vec::new();
        for (key, change) in applied.changes.iter() {
            match key[0] {
                key::SESSION => {
                    let Some(session) = session_of(key) else { continue };
                    if change.after.is_some() {
                        self.live.insert(session)
                    } else {
                        self.live.remove(&session)
                    };
                }
                key::ZNODE => {
                    let path = path_of(key);
                    let owner = match change.after.as_ref().map(|record| Znode::decode(record)) {
                        Some(Ok(Znode { kind: Kind::Ephemeral(owner), .. })) => Some(owner),
                        Some(Ok(_)) | None => None,
                        Some(Err(_)) => return Err(told("a stored znode can be read", entry).and(path)),
                    };
                    let before = self.of_path.get(&path).copied();
                    if change.after.is_none() && ends.is_some() && before != ends {
                        return Err(told("a session's end takes only what it owned", entry).and(path));
                    }
                    // A multi may put another znode into the place of one that it deletes.
                    let is_multi = matches!(entry.txn, Some(Txn::Multi { .. }));
                    if change.existed && change.after.is_some() && before != owner && !is_multi {
                        return Err(told("an ephemeral keeps its owner", entry).and(path));
                    }
                    match owner {
                        Some(owner) => born.push((path, owner)),
                        None => drop(self.of_path.remove(&path)),
                    }
                }
                _ => {}
            }
        }
        for (path, owner) in born {
            if !self.live.contains(&owner) {
                return Err(told("every ephemeral has an owner that lives", entry)
                    .and(format!("{path} belongs to session {:#x}", owner.0)));
            }
            self.of_path.insert(path, owner);
        }
        if let Some(ended) = ends
            && let Some((path, _)) = self.of_path.iter().find(|(_, owner)| **owner == ended)
        {
            return Err(told("every ephemeral has an owner that lives", entry)
                .and(format!("{path} is left of session {:#x}", ended.0)));
        }
        Ok(())
    }
}

/// The session of a record's key.
fn session_of(key: &[u8]) -> Option<SessionId> {
    let bytes = key.get(1..9)?.try_into().ok()?;
    let session = SessionId(i64::from_be_bytes(bytes));
    (*key::session(session) == *key).then_some(session)
}
