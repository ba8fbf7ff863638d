//! Apply is total: whatever bytes an entry holds, it has one outcome, the same on a server that has everything in memory and on one
//! that has to ask its base for every record; and the state it leads to contains no contradiction. A panic here would kill every replica at
//! every restart.

use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_engine::{
    action::FetchWhat,
    store::{
        digest::record_hash,
        key::{self, Key},
    },
    tree::{
        self, Applied, Found, OpOutcome, Outcome, Stuck, View,
        acl::{self, Identity},
        record::{Kind, Session, Totals, Znode},
    },
    txn::{self, Header, Op, Txn},
};
use zoolet_model::{
    AclEntry, AuthId, CreateKind, ErrorCode, Perms, SessionId, SessionSecret, Zxid, path::parent_and_name,
};
use zoolet_sim::workload::Random;

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

const PATHS: [&str; 21] = [
    "/",
    "",
    "a",
    "foo/bar",
    "//",
    "//a",
    "/a/",
    "/a\0b",
    "/zookeeper",
    "/zookeeper/quota",
    "/zookeeper/config",
    "/a",
    "/a/b",
    "/a/b/c",
    "/c",
    "/c/x",
    "/e",
    "/e/x",
    "/a/n-0000000000",
    "/a/n-0000000001",
    "/\u{1f600}",
];

/// Entries as a server makes them, and as no server would.
struct Entries {
    random: Random,
    sessions: Vec<i64>,
    /// Payloads to mutate.
    seen: Vec<Bytes>,
}

impl Entries {
    fn next(&mut self) -> Bytes {
        let payload = match self.random.below(10) {
            0 => {
                let bytes = self.random.below(60);
                (0..bytes).map(|_| self.random.bits() as u8).collect::<Vec<u8>>().into()
            }
            1 | 2 if !self.seen.is_empty() => self.mutated(),
            _ => self.valid(),
        };
        if self.seen.len() < 200 {
            self.seen.push(payload.clone());
        } else {
            let at = self.random.below(200) as usize;
            self.seen[at] = payload.clone();
        }
        payload
    }

    fn mutated(&mut self) -> Bytes {
        let mut bytes = self.random.pick(&self.seen).to_vec();
        for _ in 0..=self.random.below(3) {
            if bytes.is_empty() {
                break;
            }
            let at = self.random.below(bytes.len() as u64) as usize;
            match self.random.below(5) {
                0 => bytes[at] ^= 1 << self.random.below(8),
                1 => bytes[at] = *self.random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.random.bits() as u8),
                _ => {
                    let other = self.random.pick(&self.seen).clone();
                    let from = self.random.below(other.len() as u64 + 1) as usize;
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
            }
        }
        bytes.into()
    }

    fn valid(&mut self) -> Bytes {
        let header = Header { wall_ms: self.random.bits() as i64, ensemble_ms: self.random.below(1 << 40) };
        let data: Vec<Option<Vec<u8>>> = (0..6)
            .map(|_| match self.random.below(5) {
                0 => None,
                1 => Some(vec![7; 1020 + self.random.below(10) as usize]),
                2 => Some(vec![8; 5000]),
                n => Some(vec![9; n as usize]),
            })
            .collect();
        let acls: Vec<Bytes> = (0..6).map(|_| self.acl()).collect();
        let session = SessionId(if self.sessions.is_empty() || self.random.one_in(20) {
            self.random.bits() as i64
        } else {
            *self.random.pick(&self.sessions)
        });
        let identity = self.identity();
        let count = self.random.below(6) as usize;
        let mut ops: Vec<Op<'_>> =
            (0..count.max(1)).map(|at| op(&mut self.random, data[at].as_deref(), &acls[at])).collect();
        let path = *self.random.pick(&PATHS);
        let txn = match self.random.below(30) {
            0 => Txn::NoOp,
            1..=3 => Txn::CreateSession { timeout_ms: self.random.bits() as u32, secret: SessionSecret([3; 16]) },
            4 => Txn::RenewSession { session, timeout_ms: self.random.bits() as u32 },
            5 => Txn::CloseSession { session },
            6..=8 => Txn::Reap { path },
            9..=14 => {
                ops.truncate(count);
                Txn::Multi { session, identity, ops }
            }
            _ => Txn::Write { session, identity, op: ops.remove(0) },
        };
        txn::encode(header, &txn, &mut BytesMut::new())
    }

    fn acl(&mut self) -> Bytes {
        let world = |perms| AclEntry { perms, scheme: "world".into(), id: "anyone".into() };
        acl::encode(&match self.random.below(12) {
            0 => vec![world(Perms::READ)],
            1 => vec![
                AclEntry { perms: Perms(self.random.bits() as i32), scheme: "ip".into(), id: "::/0".into() },
                world(Perms::ALL),
            ],
            2 => vec![AclEntry { perms: Perms::ALL, scheme: "digest".into(), id: "u:h".into() }],
            _ => vec![world(Perms::ALL)],
        })
    }

    fn identity(&mut self) -> Identity {
        let ids =
            if self.random.one_in(3) { vec![AuthId { scheme: "digest".into(), id: "u:h".into() }] } else { vec![] };
        Identity { is_super: self.random.one_in(4), ip: Some([127, 0, 0, 1].into()), ids }
    }
}

fn op<'a>(random: &mut Random, data: Option<&'a [u8]>, acl: &'a [u8]) -> Op<'a> {
    let path = *random.pick(&PATHS);
    let version = *random.pick(&[-1, -1, -1, 0, 1, i32::MAX, i32::MIN]);
    match random.below(20) {
        0..=9 => {
            let kind = match random.below(6) {
                0 | 1 => CreateKind::Ephemeral,
                2 => CreateKind::Container,
                3 => CreateKind::Ttl { ttl_ms: random.bits() >> random.below(64) },
                _ => CreateKind::Persistent,
            };
            let (sequential, with_stat) = (random.one_in(4), random.one_in(2));
            Op::Create { path, data, acl, kind, sequential, with_stat }
        }
        10..=13 => Op::Delete { path, version },
        14..=16 => Op::SetData { path, data, version },
        17 => Op::SetAcl { path, acl, version },
        18 => Op::Check { path, version },
        _ => Op::Refused(*random.pick(&ErrorCode::ALL)),
    }
}

#[test]
fn apply_is_total_and_does_not_depend_on_what_is_in_memory() {
    let mut reached: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..40 {
        let mut entries = Entries { random: Random::new(seed), sessions: Vec::new(), seen: Vec::new() };
        let (mut full, mut forgetful) = (State::new(false), State::new(true));
        for counter in 1..1500 {
            let zxid = Zxid::from_bits(counter).unwrap();
            let payload = entries.next();
            let expected = full.apply(zxid, &payload);
            let applied = forgetful.apply(zxid, &payload);
            assert_eq!(applied, expected, "seed {seed}, entry {counter}: {:?}", txn::decode(&payload));
            let applied = expected.unwrap_or_else(|what| panic!("seed {seed}, entry {counter}: {what}"));
            *reached.entry(name(&applied.outcome)).or_default() += 1;
            for key in applied.changes.keys().filter(|key| key[0] == key::SESSION) {
                let id = i64::from_be_bytes(key[1..].try_into().unwrap());
                entries.sessions.retain(|&known| known != id);
                if full.records.contains_key(key) {
                    entries.sessions.push(id);
                }
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
        Outcome::SessionRenewed(Ok(_)) => "session renewed",
        Outcome::SessionRenewed(Err(_)) => "no session to renew",
        Outcome::SessionClosed(_) => "session closed",
        Outcome::Reaped(_) => "reaped",
    }
}
