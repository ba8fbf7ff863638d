//! Apply is total: whatever bytes an entry holds, it has one outcome, the same on a server that has everything in memory and on one
//! that has to ask its base for every record; and the state it leads to contains no contradiction. A panic here would kill every replica at
//! every restart.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_engine::{
    action::FetchWhat,
    store::{
        digest::record_hash,
        key::{self, Key},
    },
    tree::acl::Identity,
    tree::{
        self, Applied, Found, OpOutcome, Outcome, Stuck, View,
        record::{Kind, Session, Totals, Znode},
    },
    txn::{self, Header, Op, Txn},
};
use zoolet_model::{CreateKind, ErrorCode, SessionId, SessionSecret, Zxid, path::parent_and_name};
use zoolet_sim::entries::Entries;

/// Everything is there, but only what was fetched may be looked at.
#[derive(Clone)]
struct State {
    records: BTreeMap<Key, Bytes>,
    totals: Totals,
    digest: u128,
    /// `None`: nothing is ever missing.
    fetched: Option<(BTreeSet<Key>, BTreeSet<Key>)>,
}

impl State {
    fn new(forgetful: bool) -> Self {
        let (changes, totals, digest) = tree::birth();
        let records = changes.into_iter().filter_map(|(key, record)| Some((key, record?))).collect();
        Self { records, totals, digest, fetched: forgetful.then(Default::default) }
    }

    fn apply(&mut self, zxid: Zxid, payload: &Bytes) -> Result<Applied, &'static str> {
        let (totals, digest) = (self.totals, self.digest);
        for _ in 0..1000 {
            match tree::apply(self, totals, digest, zxid, payload) {
                Ok(applied) => {
                    self.install(&applied);
                    return Ok(applied);
                }
                Err(Stuck::Damaged(what)) => return Err(what),
                Err(Stuck::Missing(missing)) => {
                    let (keys, prefixes) = self.fetched.as_mut().expect("nothing is missing in a full memory");
                    assert!(!missing.is_empty(), "an entry that waits must say for what");
                    let mut news = false;
                    for what in missing {
                        news |= match what {
                            FetchWhat::Record(key) => keys.insert(key),
                            FetchWhat::KeysUnder(prefix) => prefixes.insert(prefix),
                        };
                    }
                    assert!(news, "an entry that waits for what it has waits for ever");
                }
            }
        }
        panic!("an entry that never stops asking");
    }

    fn install(&mut self, applied: &Applied) {
        for (key, change) in &applied.changes {
            let before = match &change.after {
                Some(after) => self.records.insert(key.clone(), after.clone()),
                None => self.records.remove(key),
            };
            assert_eq!(before.is_some(), change.existed, "{key:?}");
        }
        (self.totals, self.digest) = (applied.totals, applied.digest);
        if let Some((keys, prefixes)) = &mut self.fetched {
            keys.clear();
            prefixes.clear();
        }
    }

    /// Nothing in the state contradicts anything else.
    fn check(&self) {
        let digest = self.records.iter().fold(0u128, |sum, (key, value)| sum.wrapping_add(record_hash(key, value)));
        assert_eq!(digest, self.digest, "the digest is that of the records");
        let mut children: BTreeMap<String, i32> = BTreeMap::new();
        let mut counted =
            Totals { ensemble_ms: self.totals.ensemble_ms, semantics: self.totals.semantics, ..Totals::default() };
        let mut expected: BTreeSet<Key> = BTreeSet::new();
        let znodes: Vec<(String, Znode<'_>)> = self
            .records
            .iter()
            .filter(|(key, _)| key[0] == key::ZNODE)
            .map(|(key, record)| (path_of(key), Znode::decode(record).expect("a stored znode decodes")))
            .collect();
        for (path, znode) in &znodes {
            counted.znodes += 1;
            counted.data_bytes += path.len() as u64 + u64::from(znode.data.length());
            expected.insert(key::znode(path).unwrap());
            znode.acl_entries().expect("a stored ACL decodes");
            if let Some((parent, _)) = parent_and_name(path) {
                *children.entry(parent.to_owned()).or_default() += 1;
                assert!(self.records.contains_key(&key::znode(parent).unwrap()), "{path} has a parent");
            }
            if let Kind::Ephemeral(owner) = znode.kind {
                counted.ephemerals += 1;
                expected.insert(key::ephemeral(owner, path));
                assert!(self.records.contains_key(&key::session(owner)), "{path} has an owner");
            }
            if znode.is_reapable() {
                counted.reapable += 1;
                expected.insert(key::reapable(path));
            }
            if let tree::record::Data::Large { length, hash } = znode.data {
                let key = key::data(path).unwrap();
                assert_eq!(self.records[&key].len(), length as usize);
                assert_eq!(record_hash(&key, &self.records[&key]), hash);
                expected.insert(key);
            }
        }
        for (path, znode) in &znodes {
            assert_eq!(znode.num_children, children.get(path).copied().unwrap_or(0), "children of {path}");
        }
        for (key, record) in self.records.iter().filter(|(key, _)| key[0] == key::SESSION) {
            Session::decode(record).expect("a stored session decodes");
            expected.insert(key.clone());
        }
        assert_eq!(counted, self.totals);
        assert!(self.records.keys().eq(&expected), "no record but those that follow from the znodes and sessions");
    }
}

fn path_of(key: &[u8]) -> String {
    let text = std::str::from_utf8(&key[1..]).expect("a path is text");
    let (parent, name) = text.split_once('\0').expect("a separator");
    if parent.is_empty() && name.is_empty() { "/".into() } else { format!("{}/{name}", parent.trim_end_matches('/')) }
}

impl View for State {
    fn record(&mut self, key: &[u8]) -> Found {
        if self.fetched.as_ref().is_some_and(|(keys, _)| !keys.contains(key)) {
            return Found::Unknown;
        }
        self.records.get(key).map_or(Found::Absent, |record| Found::Record(record.clone()))
    }

    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>> {
        if self.fetched.as_ref().is_some_and(|(_, prefixes)| !prefixes.contains(prefix)) {
            return None;
        }
        Some(self.records.keys().filter(|key| key.starts_with(prefix)).cloned().collect())
    }

    fn newer(&self, prefix: &[u8]) -> BTreeMap<Key, bool> {
        self.records.keys().filter_map(|key| Some((key.strip_prefix(prefix)?.into(), true))).collect()
    }
}

#[test]
fn apply_is_total_and_does_not_depend_on_what_is_in_memory() {
    let mut reached: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..40 {
        let mut entries = Entries::new(seed);
        let (mut full, mut forgetful) = (State::new(false), State::new(true));
        for counter in 1..1500 {
            let zxid = Zxid::from_bits(counter).unwrap();
            let payload = entries.payload();
            let expected = full.apply(zxid, &payload);
            let applied = forgetful.apply(zxid, &payload);
            assert_eq!(applied, expected, "seed {seed}, entry {counter}: {:?}", txn::decode(&payload));
            let applied = expected.unwrap_or_else(|what| panic!("seed {seed}, entry {counter}: {what}"));
            *reached.entry(name(&applied.outcome)).or_default() += 1;
            for key in applied.changes.keys().filter(|key| key[0] == key::SESSION) {
                let id = i64::from_be_bytes(key[1..].try_into().unwrap());
                entries.session(id, full.records.contains_key(key));
            }
            if counter % 50 == 0 {
                full.check();
            }
        }
        full.check();
        assert!(full.records == forgetful.records && full.totals == forgetful.totals);
    }
    assert!(reached.len() == 14 && reached.values().all(|&times| times > 100), "too little was tried: {reached:?}");
}

/// What was reached, as far as this test should get everywhere.
fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Nothing => "nothing",
        Outcome::Write(Ok(done)) => match done {
            OpOutcome::Created { .. } => "created",
            OpOutcome::Deleted => "deleted",
            OpOutcome::DataSet(_) => "data set",
            OpOutcome::AclSet(_) => "acl set",
            OpOutcome::Checked => "checked",
        },
        Outcome::Write(Err(_)) => "write failed",
        Outcome::Multi(Ok(_)) => "multi",
        Outcome::Multi(Err(_)) => "multi failed",
        Outcome::SessionCreated(_) => "session created",
        Outcome::SessionRenewed { renewed: Ok(_), .. } => "session renewed",
        Outcome::SessionRenewed { renewed: Err(_), .. } => "no session to renew",
        Outcome::SessionClosed(_) => "session closed",
        Outcome::Reaped(_) => "reaped",
    }
}

/// Nobody creates two billion children in a test, so the count is put there.
#[test]
fn sequence_numbers_stick_at_the_largest() {
    let mut state = State::new(false);
    let root = key::znode("/").unwrap();
    let grown = Znode { creates: i32::MAX - 1, ..Znode::decode(&state.records[&root]).unwrap() }.encode();
    state.digest =
        state.digest.wrapping_sub(record_hash(&root, &state.records[&root])).wrapping_add(record_hash(&root, &grown));
    state.records.insert(root.clone(), grown);
    let mut counter = 0;
    let mut run = |state: &mut State, txn: Txn<'_>| {
        counter += 1;
        let payload = txn::encode(Header::default(), &txn, &mut BytesMut::new());
        state.apply(Zxid::from_bits(counter).unwrap(), &payload).unwrap().outcome
    };
    run(&mut state, Txn::CreateSession { timeout_ms: 1, secret: SessionSecret([0; 16]) });
    let create = || Txn::Write {
        session: SessionId(1),
        identity: Identity::default(),
        op: Op::Create {
            path: "/n-",
            data: None,
            acl: &[],
            kind: CreateKind::Persistent,
            sequential: true,
            with_stat: false,
        },
    };
    let root_stat = |state: &State| Znode::decode(&state.records[&root]).unwrap().stat();
    let path = |outcome: Outcome| match outcome {
        Outcome::Write(Ok(OpOutcome::Created { path, .. })) => path.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(path(run(&mut state, create())), "/n-2147483646");
    let before = root_stat(&state);
    assert_eq!(before.pzxid, 2);
    assert_eq!(path(run(&mut state, create())), "/n-2147483647");
    // The next one gets the same name, and the parent has stopped counting.
    assert_eq!(run(&mut state, create()), Outcome::Write(Err(ErrorCode::NodeExists)));
    assert_eq!((root_stat(&state).pzxid, root_stat(&state).num_children), (2, 3));
    state.check();
}
