//! Ephemerals: owners are alive, and the end of a session deletes exactly its ephemerals.
//!
//! In every committed state each ephemeral's owner is alive. Nothing is done on behalf of a session
//! that does not exist. The states come from the engine's own apply, not from a reference, so they
//! include states that no client read.

use super::facts::{Entry, Facts};
use super::violation::{Violation, clock};
use crate::replica::{Replica, path_of};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_machine::record::key;
use zoolet_machine::record::znode::{Kind, Znode};
use zoolet_machine::tree::Outcome;
use zoolet_machine::txn::Txn;
use zoolet_model::SessionId;

/// The owner of each ephemeral and the live sessions, according to the records.
#[derive(Default)]
struct Owners {
    of_path: BTreeMap<String, SessionId>,
    live: BTreeSet<SessionId>,
}

pub(super) fn check(facts: &Facts<'_>) -> Result<(), Violation> {
    check_on(facts, Replica::new(false), Owners::default())
}

fn check_on(facts: &Facts<'_>, mut replica: Replica, mut owners: Owners) -> Result<(), Violation> {
    for (entry, committed) in facts.entries.iter().zip(&facts.history.committed) {
        let applied = replica
            .apply(committed.zxid, &committed.payload)
            .map_err(|what| described("an entry can be applied", entry).and(what))?;
        owners.judge(entry, &applied)?;
    }
    Ok(())
}

fn described(rule: &'static str, entry: &Entry<'_>) -> Violation {
    Violation::of(rule).and(format!("zxid {:#x}, applied first at {}: {:?}", entry.zxid, clock(entry.at), entry.txn))
}

impl Owners {
    fn judge(&mut self, entry: &Entry<'_>, applied: &zoolet_machine::tree::Applied) -> Result<(), Violation> {
        if let Some(Txn::Write { session, .. } | Txn::Multi { session, .. }) = &entry.txn
            && !session.is_named_local()
            && !self.live.contains(session)
            && !applied.changes.is_empty()
        {
            return Err(described("nothing is done for a session that is not there", entry));
        }
        let ends = match applied.outcome {
            Outcome::SessionClosed(session) => Some(session),
            Outcome::Nothing
            | Outcome::Write(_)
            | Outcome::Multi(_)
            | Outcome::SessionCreated(_)
            | Outcome::SessionUpgraded(..)
            | Outcome::SessionRenewed(..)
            | Outcome::Reaped(_)
            | Outcome::Counted(_) => None,
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
                        Some(Err(_)) => return Err(described("a stored znode can be read", entry).and(path)),
                    };
                    let before = self.of_path.get(&path).copied();
                    if change.after.is_none() && ends.is_some() && before != ends {
                        return Err(described("a session's end takes only what it owned", entry).and(path));
                    }
                    // A multi may delete a znode and create another one at the same path.
                    let is_multi = matches!(entry.txn, Some(Txn::Multi { .. }));
                    if change.existed && change.after.is_some() && before != owner && !is_multi {
                        return Err(described("an ephemeral keeps its owner", entry).and(path));
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
                return Err(described("every ephemeral has an owner that lives", entry)
                    .and(format!("{path} belongs to session {:#x}", owner.0)));
            }
            self.of_path.insert(path, owner);
        }
        if let Some(ended) = ends
            && let Some((path, _)) = self.of_path.iter().find(|(_, owner)| **owner == ended)
        {
            return Err(described("every ephemeral has an owner that lives", entry)
                .and(format!("{path} is left of session {:#x}", ended.0)));
        }
        Ok(())
    }
}

/// Returns the session of a record's key; `None` for other keys.
fn session_of(key: &[u8]) -> Option<SessionId> {
    let bytes = key.get(1..9)?.try_into().ok()?;
    let session = SessionId(i64::from_be_bytes(bytes));
    (*key::session(session) == *key).then_some(session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{History, Recorder};
    use bytes::BytesMut;
    use zoolet_machine::record::acl::Identity;
    use zoolet_machine::txn::{self, Header, Op};
    use zoolet_model::{CreateKind, SessionSecret, Zxid};

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    /// A history in which sessions A and B begin, followed by `then`.
    fn history(then: &[Txn<'_>]) -> History {
        let mut recorder = Recorder::new();
        let begins = Txn::CreateSession { timeout_ms: 1000, secret: SessionSecret([0; 16]), home: None };
        for (at, txn) in [&begins, &begins].into_iter().chain(then).enumerate() {
            let payload = txn::encode(Header::default(), txn, &mut BytesMut::new());
            recorder.committed(at as u64, Zxid::from_bits(at as u64 + 1).unwrap(), &payload);
        }
        recorder.finish(100, true)
    }

    fn write<'a>(session: SessionId, op: Op<'a>) -> Txn<'a> {
        Txn::Write { session, identity: Identity::default(), op }
    }

    fn ephemeral<'a>(path: &'a str) -> Op<'a> {
        Op::Create { path, data: None, acl: &[], kind: CreateKind::Ephemeral, sequential: false, with_stat: false }
    }

    fn verdict(then: &[Txn<'_>], replica: Replica, owners: Owners) -> Option<&'static str> {
        let history = history(then);
        check_on(&Facts::of(&history).unwrap(), replica, owners).err().map(|violation| violation.rule)
    }

    fn owned(path: &str, by: SessionId) -> Owners {
        Owners { of_path: BTreeMap::from([(path.to_owned(), by)]), live: BTreeSet::new() }
    }

    #[test]
    fn engine_states_keep_the_ephemeral_rules() {
        let path = "/e";
        let then = [
            write(A, ephemeral(path)),
            write(B, ephemeral("/f")),
            write(A, Op::SetData { path, data: None, version: -1 }),
            Txn::CloseSession { session: A },
            write(A, ephemeral("/late")),
            Txn::Multi {
                session: B,
                identity: Identity::default(),
                ops: vec![Op::Delete { path: "/f", version: -1 }, ephemeral("/f")],
            },
            Txn::CloseSession { session: B },
        ];
        assert_eq!(verdict(&then, Replica::new(false), Owners::default()), None);
    }

    #[test]
    fn each_broken_ephemeral_rule_is_found() {
        let mut replica = Replica::new(false);
        let good = |then: &[Txn<'_>], owners| verdict(then, Replica::new(false), owners);
        // A state with one session more than its entries created.
        let stranger = SessionId(77);
        let begins = txn::encode(
            Header::default(),
            &Txn::CreateSession { timeout_ms: 1, secret: SessionSecret([0; 16]), home: None },
            &mut BytesMut::new(),
        );
        replica.apply(Zxid::from_bits(77).unwrap(), &begins).unwrap();
        assert_eq!(
            verdict(&[write(stranger, ephemeral("/e"))], replica.clone(), Owners::default()),
            Some("nothing is done for a session that is not there")
        );
        // An ephemeral that outlives its owner and is missing from the owner's list.
        let left = write(A, ephemeral("/e"));
        let ends = Txn::CloseSession { session: A };
        assert_eq!(
            good(&[left.clone(), ends.clone()], owned("/left", A)),
            Some("every ephemeral has an owner that lives")
        );
        // A session whose end deletes another session's ephemeral, and an ephemeral that changes
        // its owner.
        let mut owners = owned("/e", B);
        owners.live.insert(A);
        let facts_of = history(&[left.clone(), ends]);
        let facts = Facts::of(&facts_of).unwrap();
        let mut replica = Replica::new(false);
        let mut applied = Vec::new();
        for entry in &facts.history.committed {
            applied.push(replica.apply(entry.zxid, &entry.payload).unwrap());
        }
        assert_eq!(
            owners.judge(&facts.entries[3], &applied[3]).unwrap_err().rule,
            "a session's end takes only what it owned"
        );
        let set = history(&[left, write(A, Op::SetData { path: "/e", data: None, version: -1 })]);
        let facts = Facts::of(&set).unwrap();
        let mut replica = Replica::new(false);
        let last =
            facts.history.committed.iter().map(|entry| replica.apply(entry.zxid, &entry.payload).unwrap()).last();
        let mut owners = owned("/e", B);
        owners.live.insert(A);
        assert_eq!(owners.judge(&facts.entries[3], &last.unwrap()).unwrap_err().rule, "an ephemeral keeps its owner");
        // An ephemeral created for a session that is not alive according to the records.
        let mut owners = Owners::default();
        owners.live.insert(A);
        let mut born = applied[2].clone();
        born.outcome = Outcome::Nothing;
        let nobody = Entry { txn: Some(Txn::NoOp), ..entry_of(&facts, 2) };
        owners.live.remove(&A);
        assert_eq!(owners.judge(&nobody, &born).unwrap_err().rule, "every ephemeral has an owner that lives");
        // A state whose records cannot be read.
        let mut damaged = Replica::new(false);
        for record in damaged.records.values_mut() {
            *record = bytes::Bytes::from_static(b"?");
        }
        assert_eq!(verdict(&[write(A, ephemeral("/e"))], damaged, Owners::default()), Some("an entry can be applied"));
    }

    fn entry_of(facts: &Facts<'_>, at: usize) -> Entry<'static> {
        let Entry { zxid, at, wall_ms, ensemble_ms, .. } = facts.entries[at];
        Entry { zxid, at, wall_ms, ensemble_ms, enforces_quotas: false, txn: None }
    }
}
