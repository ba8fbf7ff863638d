//! Apply rules that are easiest to test on a bare state. The simulator compares everything else
//! with the reference.

use super::*;
use crate::record::acl::Identity;
use crate::record::digest::record_hash;
use crate::record::key::{self, Key};
use crate::record::znode::{Data, Totals, Znode};
use crate::seam::action::{FetchWhat, Pending};
use crate::state::{Found, Stuck, View};
use crate::txn::{self, Header, Op, Txn};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_model::{CreateKind, ErrorCode, EventKind, Read, SessionId, SessionSecret, Text, Zxid};

mod cold;
mod quotas;

/// A whole state in memory; some records can be hidden.
struct Whole {
    records: BTreeMap<Key, Bytes>,
    hidden: BTreeSet<Key>,
    totals: Totals,
    digest: u128,
    zxid: u64,
    /// Ensemble time of the next entry.
    ensemble_ms: u64,
    /// Room of one entry for counting.
    room: Room,
}

impl View for Whole {
    fn record(&mut self, key: &[u8]) -> Found {
        match self.records.get(key) {
            _ if self.hidden.contains(key) => Found::Unknown,
            Some(record) => Found::Record(record.clone()),
            None => Found::Absent,
        }
    }

    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>> {
        Some(self.records.keys().filter(|key| key.starts_with(prefix)).cloned().collect())
    }

    fn weights(&mut self, from: &[u8], to: &[u8], mut room: Room) -> Result<Vec<(Key, u32)>, Stuck> {
        let found = self.records.iter().filter(|(key, _)| (from..to).contains(&&***key));
        let length = |record: &Bytes| Znode::decode(record).unwrap().data.length();
        Ok(found.map(|(key, record)| (key.clone(), length(record))).take_while(|(key, _)| room.admit(key)).collect())
    }

    fn counted_at_once(&self) -> Room {
        self.room
    }

    fn newer(&self, _: &[u8]) -> BTreeMap<Key, bool> {
        BTreeMap::new()
    }
}

const SESSION: SessionId = SessionId(1);
/// Room for three znodes.
const ROOM: Room = Room { znodes: 3, key_bytes: 1000 };

impl Whole {
    fn born() -> Self {
        let (changes, totals, digest) = birth();
        let records = changes.into_iter().filter_map(|(key, record)| Some((key, record?))).collect();
        let mut whole = Self { records, hidden: BTreeSet::new(), totals, digest, zxid: 0, ensemble_ms: 5, room: ROOM };
        let secret = SessionSecret([0; 16]);
        assert!(matches!(
            whole.apply(&Txn::CreateSession { timeout_ms: 1, secret, home: None }),
            Outcome::SessionCreated(_)
        ));
        whole
    }

    fn attempt(&mut self, txn: &Txn<'_>) -> Result<Applied, Stuck> {
        let header = Header { wall_ms: 5, ensemble_ms: self.ensemble_ms, enforces_quotas: true, forwarder: None };
        let payload = txn::encode(header, txn, &mut BytesMut::new());
        let (totals, digest, zxid) = (self.totals, self.digest, Zxid::from_bits(self.zxid + 1).unwrap());
        apply(self, totals, digest, zxid, &payload, Buffers::default())
    }

    fn applied(&mut self, txn: &Txn<'_>) -> Applied {
        let applied = self.attempt(txn).unwrap();
        self.zxid += 1;
        for (key, change) in applied.changes.iter() {
            assert_eq!(change.existed, self.records.contains_key(key), "what was there is known");
            match &change.after {
                Some(record) => self.records.insert(key.clone(), record.clone()),
                None => self.records.remove(key),
            };
        }
        (self.totals, self.digest) = (applied.totals, applied.digest);
        let sum = self.records.iter().fold(0u128, |sum, (key, record)| sum.wrapping_add(record_hash(key, record)));
        assert_eq!(self.digest, sum, "the digest is that of the records");
        applied
    }

    fn apply(&mut self, txn: &Txn<'_>) -> Outcome {
        self.applied(txn).outcome
    }

    fn write(&mut self, op: Op<'_>) -> Result<OpOutcome, ErrorCode> {
        match self.apply(&Txn::Write { session: SESSION, identity: Identity::default(), op }) {
            Outcome::Write(result) => result,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, path: &str, kind: CreateKind) -> Result<OpOutcome, ErrorCode> {
        self.write(create(path, kind, false))
    }

    fn set_creates(&mut self, path: &str, creates: i32) {
        let key = key::znode(path).unwrap();
        let record = self.records[&key].clone();
        let changed = Znode { creates, ..Znode::decode(&record).unwrap() }.encode();
        self.digest = self.digest.wrapping_sub(record_hash(&key, &record)).wrapping_add(record_hash(&key, &changed));
        self.records.insert(key, changed);
    }

    fn stat(&mut self, path: &str) -> Option<zoolet_model::Stat> {
        self.records.get(&key::znode(path)?).map(|record| Znode::decode(record).unwrap().stat())
    }
}

fn create(path: &str, kind: CreateKind, sequential: bool) -> Op<'_> {
    Op::Create { path, data: None, acl: &[], kind, sequential, with_stat: false }
}

fn created(outcome: Result<OpOutcome, ErrorCode>) -> String {
    match outcome {
        Ok(OpOutcome::Created { path, .. }) => path.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sequence_number_stays_at_its_maximum_instead_of_wrapping() {
    let mut whole = Whole::born();
    whole.create("/q", CreateKind::Persistent).unwrap();
    whole.set_creates("/q", i32::MAX - 1);
    let next = |whole: &mut Whole| whole.write(create("/q/n", CreateKind::Persistent, true));
    assert_eq!(created(next(&mut whole)), "/q/n2147483646");
    assert_eq!(created(next(&mut whole)), "/q/n2147483647");
    let pzxid = whole.stat("/q").unwrap().pzxid;
    assert_eq!(next(&mut whole), Err(ErrorCode::NodeExists));
    whole.create("/q/other", CreateKind::Persistent).unwrap();
    assert_eq!(whole.stat("/q").unwrap().pzxid, pzxid, "pzxid sticks with the count");
}

#[test]
fn failed_multi_changes_nothing_and_fires_no_watch() {
    let mut whole = Whole::born();
    let (totals, digest) = (whole.totals, whole.digest);
    let ops = vec![
        create("/a", CreateKind::Persistent, false),
        create("/a/b", CreateKind::Ephemeral, false),
        Op::Delete { path: "/missing", version: -1 },
        create("/c", CreateKind::Persistent, false),
    ];
    let applied = whole.applied(&Txn::Multi { session: SESSION, identity: Identity::default(), ops });
    assert_eq!(applied.outcome, Outcome::Multi(Err(MultiFailure { ops: 4, at: 2, code: ErrorCode::NoNode })));
    assert!(applied.changes.is_empty() && applied.fired.is_empty());
    assert_eq!((whole.totals.znodes, whole.digest), (totals.znodes, digest));
}

#[test]
fn closing_a_session_deletes_all_its_ephemerals_in_one_entry() {
    let mut whole = Whole::born();
    let before = whole.digest;
    whole.create("/p", CreateKind::Persistent).unwrap();
    let with_parent = whole.digest;
    let children_of_root = whole.stat("/").unwrap().num_children;
    for name in ["/p/b", "/p/a", "/top", "/first"] {
        whole.create(name, CreateKind::Ephemeral).unwrap();
    }
    assert_eq!(whole.totals.ephemerals, 4);
    let applied = whole.applied(&Txn::CloseSession { session: SESSION });
    let fired: Vec<_> = applied.fired.iter().map(|fired| (fired.kind, fired.path.as_str())).collect();
    let (deleted, children) = (EventKind::NodeDeleted, EventKind::NodeChildrenChanged);
    let expected = [("/first", "/"), ("/p/a", "/p"), ("/p/b", "/p"), ("/top", "/")];
    assert_eq!(fired, expected.map(|(path, parent)| [(deleted, path), (children, parent)]).concat());
    assert_eq!((whole.totals.ephemerals, whole.stat("/p").unwrap().num_children), (0, 0));
    assert_eq!(whole.stat("/").unwrap().num_children, children_of_root, "its children stand on both sides of /p's");
    assert_ne!(whole.digest, before);
    assert_ne!(whole.digest, with_parent, "the parent has seen two children come and go");
    assert_eq!(whole.create("/p/late", CreateKind::Ephemeral), Err(ErrorCode::SessionExpired));
}

#[test]
fn data_above_1_kib_lives_in_a_record_of_its_own() {
    let mut whole = Whole::born();
    let (small, large) = (vec![1u8; 1024], vec![2u8; 1025]);
    whole.create("/d", CreateKind::Persistent).unwrap();
    let key = key::data("/d").unwrap();
    for (data, own_record) in [(&large, true), (&small, false), (&large, true), (&large, true)] {
        whole.write(Op::SetData { path: "/d", data: Some(data), version: -1 }).unwrap();
        assert_eq!(whole.records.get(&key).map(|record| &record[..]), own_record.then_some(&data[..]));
        assert_eq!(whole.stat("/d").unwrap().data_length, data.len() as i32);
    }
    whole.write(Op::Delete { path: "/d", version: -1 }).unwrap();
    assert!(!whole.records.contains_key(&key));
}

#[test]
fn only_an_emptied_container_is_reaped() {
    let mut whole = Whole::born();
    whole.create("/c", CreateKind::Container).unwrap();
    assert_eq!(whole.apply(&Txn::Reap { path: "/c" }), Outcome::Reaped(false), "never used");
    whole.create("/c/x", CreateKind::Persistent).unwrap();
    assert_eq!((whole.apply(&Txn::Reap { path: "/c" }), whole.totals.reapable), (Outcome::Reaped(false), 0));
    whole.write(Op::Delete { path: "/c/x", version: -1 }).unwrap();
    assert_eq!(whole.totals.reapable, 1);
    whole.create("/c/y", CreateKind::Persistent).unwrap();
    assert_eq!(whole.totals.reapable, 0);
    whole.write(Op::Delete { path: "/c/y", version: -1 }).unwrap();
    assert_eq!(whole.apply(&Txn::Reap { path: "/c" }), Outcome::Reaped(true));
    assert_eq!((whole.stat("/c"), whole.totals.reapable), (None, 0));
    assert!(!whole.records.contains_key(&key::reapable("/c")));
}

#[test]
fn ttl_znode_is_reaped_after_its_time_without_children_or_new_data() {
    let mut whole = Whole::born();
    let reap = |whole: &mut Whole, at_ms: u64| {
        whole.ensemble_ms = at_ms;
        whole.apply(&Txn::Reap { path: "/t" }) == Outcome::Reaped(true)
    };
    let due = |whole: &Whole| {
        let keys: Vec<&Key> = whole.records.keys().filter(|key| key[0] == key::DUE).collect();
        assert_eq!(keys.len() as u64, whole.totals.ttl);
        keys.first().and_then(|key| key::due_parts(key)).map(|(due_ms, _)| due_ms)
    };
    whole.create("/t", CreateKind::Ttl { ttl_ms: 100 }).unwrap();
    assert_eq!((due(&whole), reap(&mut whole, 104)), (Some(105), false));
    whole.write(Op::SetData { path: "/t", data: Some(b"x"), version: -1 }).unwrap();
    assert_eq!((due(&whole), reap(&mut whole, 203)), (Some(204), false), "new data saves it");
    whole.write(Op::SetAcl { path: "/t", acl: &[], version: -1 }).unwrap();
    whole.create("/t/x", CreateKind::Persistent).unwrap();
    assert_eq!((due(&whole), reap(&mut whole, 1000)), (None, false), "a child saves it");
    whole.create("/t/y", CreateKind::Ephemeral).unwrap();
    whole.write(Op::Delete { path: "/t/x", version: -1 }).unwrap();
    assert_eq!(due(&whole), None);
    whole.ensemble_ms = 2000;
    whole.apply(&Txn::CloseSession { session: SESSION });
    assert_eq!((due(&whole), reap(&mut whole, 2099), reap(&mut whole, 2100)), (Some(2100), false, true));
    assert_eq!((due(&whole), whole.stat("/t")), (None, None));
}

#[test]
fn multi_that_fails_leaves_the_due_times_of_ttl_znodes() {
    let mut whole = Whole::born();
    whole.create("/t", CreateKind::Ttl { ttl_ms: 100 }).unwrap();
    let before = whole.records.clone();
    let set = |path| Op::SetData { path, data: None, version: -1 };
    let multi = |ops| Txn::Multi { session: SESSION, identity: Identity::default(), ops };
    whole.ensemble_ms = 50;
    let ops = vec![set("/t"), create("/t/x", CreateKind::Ttl { ttl_ms: 1 }, false), set("/none")];
    assert!(matches!(whole.apply(&multi(ops)), Outcome::Multi(Err(_))));
    assert_eq!((&whole.records, whole.totals.ttl), (&before, 1));
    let delete = |path| Op::Delete { path, version: -1 };
    let ops = vec![create("/t/x", CreateKind::Ttl { ttl_ms: 1 }, false), delete("/t/x"), delete("/t")];
    assert!(matches!(whole.apply(&multi(ops)), Outcome::Multi(Ok(_))));
    assert_eq!(whole.totals.ttl, 0);
}

#[test]
fn entry_missing_a_record_changes_nothing_and_names_the_record() {
    let mut whole = Whole::born();
    whole.create("/a", CreateKind::Persistent).unwrap();
    let hidden = key::znode("/a/b").unwrap();
    whole.hidden.insert(hidden.clone());
    let txn = Txn::Write {
        session: SESSION,
        identity: Identity::default(),
        op: create("/a/b", CreateKind::Persistent, false),
    };
    let before = (whole.records.clone(), whole.totals, whole.digest);
    let Err(Stuck::Missing(missing)) = whole.attempt(&txn) else { panic!("it has all it needs") };
    assert!(missing.iter().all(|what| *what == FetchWhat::Record(hidden.clone())), "{missing:?}");
    assert_eq!(before, (whole.records.clone(), whole.totals, whole.digest));
    whole.hidden.clear();
    assert!(matches!(whole.apply(&txn), Outcome::Write(Ok(_))));
}

#[test]
fn multi_of_sequential_creates_requests_all_missing_names_at_once() {
    let mut whole = Whole::born();
    whole.create("/a", CreateKind::Persistent).unwrap();
    whole.create("/a/one", CreateKind::Persistent).unwrap();
    let numbered = |number: usize| key::znode(&format!("/a/n{number:010}")).unwrap();
    whole.hidden = (0..200).map(numbered).collect();
    // Other children created under the parent advance the sequence too.
    let mut ops = vec![create("/a/n", CreateKind::Ephemeral, true), create("/a/two", CreateKind::Persistent, false)];
    ops.extend((0..50).map(|_| create("/a/n", CreateKind::Persistent, true)));
    let txn = Txn::Multi { session: SESSION, identity: Identity::default(), ops };
    let Err(Stuck::Missing(missing)) = whole.attempt(&txn) else { panic!("it has all it needs") };
    let asked: BTreeSet<Key> = missing
        .into_iter()
        .map(|what| match what {
            FetchWhat::Record(key) => key,
            other => panic!("{other:?}"),
        })
        .collect();
    let wanted: BTreeSet<Key> = [1].into_iter().chain(3..53).map(numbered).collect();
    assert_eq!(asked, wanted);
    whole.hidden.retain(|key| !asked.contains(key));
    assert!(matches!(whole.apply(&txn), Outcome::Multi(Ok(outcomes)) if outcomes.len() == 52));
}

#[test]
fn ensemble_time_never_goes_back() {
    let mut whole = Whole::born();
    whole.totals.ensemble_ms = 1000;
    whole.apply(&Txn::NoOp);
    assert_eq!(whole.totals.ensemble_ms, 1000);
}

#[test]
fn null_data_and_empty_data_are_distinct() {
    let mut whole = Whole::born();
    whole.create("/n", CreateKind::Persistent).unwrap();
    let data = |whole: &Whole| Znode::decode(&whole.records[&key::znode("/n").unwrap()]).map(|z| z.data == Data::Null);
    assert_eq!(data(&whole), Ok(true));
    whole.write(Op::SetData { path: "/n", data: Some(b""), version: -1 }).unwrap();
    assert_eq!(data(&whole), Ok(false));
}

/// Surface 2.3. Java's `trim` removes control characters too, and leaves the spaces of other
/// scripts.
#[test]
fn blank_prefix_selects_every_ephemeral_as_java_trims_it() {
    let mut whole = Whole::born();
    let mut filter = |prefix: Option<&str>| {
        let prefix = prefix.map(Text::from);
        let asked = Read::GetEphemerals { prefix: prefix.as_ref() };
        match read(&mut whole, &Identity::default(), SESSION, asked, 0) {
            Ok(Ok(Determined::Pending(Pending::Paths { listing }))) => listing.filter.to_string(),
            other => panic!("{other:?}"),
        }
    };
    for all in [None, Some(""), Some(" "), Some("/"), Some(" /"), Some("/\t"), Some("\u{1}/\u{1f}"), Some("\0\n")] {
        assert_eq!(filter(all), "", "{all:?}");
    }
    for some in ["/a", " /a", "//", "\u{a0}", "\u{85}", "\u{3000}"] {
        assert_eq!(filter(Some(some)), some);
    }
}
