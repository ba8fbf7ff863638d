//! Rounds of fetches for entries with quotas, from a memory that knows nothing at first.

use super::*;
use crate::seam::action::Weighed;
use crate::seam::event::Fetched;
use crate::state::{Change, Memory};
use crate::tree::foreseen_quotas;

/// A memory above a base that has all records.
struct Cold {
    memory: Memory,
    base: BTreeMap<Key, Bytes>,
    room: Room,
    totals: Totals,
    digest: u128,
    zxid: u64,
    /// Fetches, each counted once per round.
    fetches: usize,
    /// Records of quotas that were looked up.
    quota_lookups: usize,
    /// Largest size of the znodes that were kept to be counted, in bytes.
    weights_bytes_max: usize,
}

impl View for Cold {
    fn record(&mut self, key: &[u8]) -> Found {
        self.quota_lookups += usize::from(key.starts_with(b"n/zookeeper/quota"));
        self.memory.record(key)
    }

    fn holds(&mut self, key: &[u8]) -> Option<bool> {
        self.memory.holds(key)
    }

    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>> {
        self.memory.keys_under(prefix)
    }

    fn weights(&mut self, from: &[u8], to: &[u8], room: Room) -> Result<Vec<(Key, u32)>, Stuck> {
        self.memory.weights(from, to, room)
    }

    fn has_weights(&self, from: &[u8]) -> bool {
        self.memory.has_weights(from)
    }

    fn lacks(&self, key: &[u8]) -> bool {
        self.memory.lacks(key)
    }

    fn counted_at_once(&self) -> Room {
        self.room
    }

    fn newer(&self, prefix: &[u8]) -> BTreeMap<Key, bool> {
        self.memory.newer(prefix)
    }
}

impl Cold {
    fn of(whole: &Whole) -> Self {
        Self {
            memory: Memory::new(64 << 20, 1),
            base: whole.records.clone(),
            room: whole.room,
            totals: whole.totals,
            digest: whole.digest,
            zxid: whole.zxid,
            fetches: 0,
            quota_lookups: 0,
            weights_bytes_max: 0,
        }
    }

    fn fetch(&mut self, missing: Vec<FetchWhat>) {
        let missing: BTreeSet<FetchWhat> = missing.into_iter().collect();
        assert!(!missing.is_empty(), "an entry that waits must say for what");
        self.fetches += missing.len();
        for what in missing {
            let generation = self.memory.generation();
            match what {
                FetchWhat::Record(key) => {
                    assert_eq!(self.memory.holds(&key), None, "{key:?} is known");
                    let record = self.base.get(&key).cloned();
                    self.memory.fetched(key, record);
                }
                FetchWhat::KeysUnder(prefix) => {
                    let keys = self.base.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
                    self.memory.fetched_keys(prefix, keys, generation);
                }
                FetchWhat::FirstKeys(from) => panic!("no entry looks at the index: {from:?}"),
                FetchWhat::Weights { from, to } => {
                    let mut weighed = Weighed::default();
                    for (key, record) in self.base.range(from.clone()..to.clone()) {
                        if !weighed.has_room() {
                            break;
                        }
                        weighed.push(key, Znode::decode(record).unwrap().data.length());
                    }
                    let Fetched::Weights(found, is_end) = weighed.finish() else { panic!("no weights") };
                    self.memory.fetched_weights((from, to), found, is_end, generation);
                }
            }
        }
        self.weights_bytes_max = self.weights_bytes_max.max(self.memory.weights_bytes());
    }

    /// Applies and installs an entry; returns its outcome and the rounds of fetches for it.
    fn apply(&mut self, txn: &Txn<'_>) -> (Outcome, usize) {
        let header = Header { wall_ms: 5, ensemble_ms: 5, enforces_quotas: true, forwarder: None };
        let payload = txn::encode(header, txn, &mut BytesMut::new());
        self.zxid += 1;
        let (totals, digest, zxid) = (self.totals, self.digest, Zxid::from_bits(self.zxid).unwrap());
        for rounds in 0..10_000 {
            match apply(self, totals, digest, zxid, &payload, Buffers::default()) {
                Ok(mut applied) => {
                    (self.totals, self.digest) = (applied.totals, applied.digest);
                    let changes: Vec<(Key, Change)> = applied.changes.drain().collect();
                    self.memory.install(changes);
                    self.memory.trim_weights(applied.counts);
                    return (applied.outcome, rounds);
                }
                Err(Stuck::Missing(missing)) => self.fetch(missing),
                Err(Stuck::Damaged(what)) => panic!("{what}"),
            }
        }
        panic!("an entry that never stops asking");
    }

    /// Fetches what an entry is known to need, in rounds. Returns their number.
    fn foresee(&mut self, txn: &Txn<'_>) -> usize {
        for rounds in 0..10_000 {
            let mut missing = Vec::new();
            needs(txn, &mut |need| missing.extend(need.missing_in(self)));
            foreseen_quotas(txn, self, &mut missing);
            if missing.is_empty() {
                return rounds;
            }
            self.fetch(missing);
        }
        panic!("always another record is foreseen");
    }
}

fn write(op: Op<'_>) -> Txn<'_> {
    Txn::Write { session: SESSION, identity: Identity::default(), op }
}

fn with_quotas(subtrees: &[&str], paths: &[&str]) -> Whole {
    let mut whole = Whole::born();
    for path in paths {
        whole.create(path, CreateKind::Persistent).unwrap();
    }
    for subtree in subtrees {
        set_quota(&mut whole, subtree);
    }
    whole
}

fn set_quota(whole: &mut Whole, subtree: &str) {
    let place = format!("/zookeeper/quota{subtree}");
    for (end, _) in place.match_indices('/').skip(3).chain([(place.len(), "")]) {
        let _ = whole.create(&place[..end], CreateKind::Persistent);
    }
    for name in ["zookeeper_limits", "zookeeper_stats"] {
        whole.create(&format!("{place}/{name}"), CreateKind::Persistent).unwrap();
    }
}

/// Returns rounds and fetches of the end of a session with ephemerals below each of `parents`.
fn end_of_session(mut whole: Whole, parents: &[&str], ephemerals: usize) -> (usize, usize) {
    let sessions = whole.stat("/").unwrap().num_children;
    for parent in parents {
        for number in 0..ephemerals {
            whole.create(&format!("{parent}/e{number}"), CreateKind::Ephemeral).unwrap();
        }
    }
    let close = Txn::CloseSession { session: SESSION };
    let (mut cold, expected) = (Cold::of(&whole), whole.apply(&close));
    let (outcome, rounds) = cold.apply(&close);
    assert_eq!((outcome, cold.totals, cold.digest), (expected, whole.totals, whole.digest));
    assert_eq!(whole.stat("/").unwrap().num_children, sessions);
    (rounds, cold.fetches)
}

/// A record for each of them in a round of its own would keep all other entries waiting.
#[test]
fn end_of_a_session_takes_few_rounds_whatever_its_number_of_ephemerals() {
    let paths = ["/x", "/app", "/app/members", "/app/members/x"];
    for (parents, quotas, rounds_max) in [
        (&[""][..], &["/x"][..], 4),
        (&["/app/members"], &["/app", "/app/members/x"], 7),
        (&["", "/app", "/app/members", "/x"], &["/x", "/app", "/app/members/x"], 8),
    ] {
        let few = end_of_session(with_quotas(quotas, &paths), parents, 3);
        let many = end_of_session(with_quotas(quotas, &paths), parents, 1000);
        assert_eq!(few.0, many.0, "rounds with {quotas:?}");
        assert!(many.0 <= rounds_max, "{} rounds with {quotas:?}", many.0);
        let records = 1000 * parents.len();
        assert!(many.1 <= records + 20, "{} fetches for {records} ephemerals", many.1);
    }
}

#[test]
fn end_of_a_session_beside_many_quotas_takes_few_rounds() {
    let names: Vec<String> = (0..400).map(|number| format!("/q{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let few = end_of_session(with_quotas(&names, &[]), &[""], 3);
    assert!(few.0 <= 4 && few.1 <= 20, "{few:?}: each ephemeral is looked up");
    let many = end_of_session(with_quotas(&names, &[]), &[""], 500);
    assert!(many.0 <= 4 && many.1 <= 520, "{many:?}: the quotas are listed once");
}

#[test]
fn new_names_beside_few_quotas_cost_one_list_of_these() {
    let whole = with_quotas(&["/x"], &[]);
    let mut cold = Cold::of(&whole);
    for (number, fetched) in [(0, true), (1, false), (2, false)] {
        let path = format!("/fresh{number}");
        let before = cold.fetches;
        cold.foresee(&write(create(&path, CreateKind::Persistent, false)));
        let own = key::with_znode(&format!("/zookeeper/quota{path}"), |key| cold.memory.holds(key)).unwrap();
        assert_eq!(own, None, "no absence is cached");
        assert_eq!(cold.fetches - before > 1, fetched, "only the znode itself is fetched later");
        if number == 0 {
            // The session's record is always in the memory of a server.
            cold.fetch(vec![FetchWhat::Record(key::session(SESSION))]);
        }
        assert_eq!(cold.apply(&write(create(&path, CreateKind::Persistent, false))).1, 0);
    }
    // Reaping looks at the same quotas.
    let mut cold = Cold::of(&whole);
    cold.foresee(&Txn::Reap { path: "/fresh" });
    assert_eq!(cold.apply(&Txn::Reap { path: "/fresh" }), (Outcome::Reaped(false), 0));
}

/// Each new name once took a fetch of its own, and a place in the cache for its missing quota.
#[test]
fn multi_of_many_new_names_costs_one_list_of_the_quotas() {
    let whole = with_quotas(&["/x"], &[]);
    let fetches = |names: usize| {
        let mut cold = Cold::of(&whole);
        cold.fetch(vec![FetchWhat::Record(key::session(SESSION))]);
        let paths: Vec<String> = (0..names).map(|number| format!("/fresh{number}")).collect();
        let ops = paths.iter().map(|path| create(path, CreateKind::Persistent, false)).collect();
        let multi = Txn::Multi { session: SESSION, identity: Identity::default(), ops };
        cold.foresee(&multi);
        for path in &paths {
            let of_quota = key::with_znode(&format!("/zookeeper/quota{path}"), |key| cold.memory.holds(key));
            assert_eq!(of_quota, Some(None), "no absence is cached");
        }
        let foreseen = cold.fetches;
        assert_eq!(cold.apply(&multi).1, 0);
        foreseen
    };
    let one = fetches(1);
    assert_eq!(fetches(100), one + 99, "only the znodes themselves");
}

/// Below a quota without deeper ones, no lookup depends on the new name.
#[test]
fn nothing_is_foreseen_that_no_lookup_asks_for() {
    let whole = with_quotas(&["/a"], &["/a", "/a/b"]);
    let mut cold = Cold::of(&whole);
    let op = create("/a/b/c", CreateKind::Persistent, false);
    let txn = write(op);
    cold.foresee(&txn);
    for path in ["/zookeeper/quota/a/b", "/zookeeper/quota/a/b/c"] {
        assert_eq!(key::with_znode(path, |key| cold.memory.holds(key)), Some(None), "{path}");
    }
    cold.fetch(vec![FetchWhat::Record(key::session(SESSION))]);
    assert_eq!(cold.apply(&txn).1, 0);
}

#[test]
fn write_looks_up_three_records_for_each_level_of_quotas() {
    for (quotas, levels) in [(&["/a"][..], 1), (&["/a", "/a/b"], 2)] {
        let whole = with_quotas(quotas, &["/a", "/a/b"]);
        let mut cold = Cold::of(&whole);
        for op in [
            create("/a/b/c", CreateKind::Persistent, false),
            Op::SetData { path: "/a/b/c", data: Some(b"1"), version: -1 },
            Op::Delete { path: "/a/b/c", version: -1 },
        ] {
            let txn = write(op);
            cold.foresee(&txn);
            if cold.memory.holds(&key::session(SESSION)).is_none() {
                cold.fetch(vec![FetchWhat::Record(key::session(SESSION))]);
            }
            cold.quota_lookups = 0;
            assert_eq!(cold.apply(&txn).1, 0);
            assert_eq!(cold.quota_lookups, 3 * levels, "{txn:?}");
        }
    }
}

/// Each quota once took a portion of its subtree, and a round for it.
#[test]
fn multi_of_many_nested_quotas_takes_few_rounds_and_little_memory() {
    let mut whole = Whole::born();
    whole.room = Room { znodes: 40, key_bytes: 100_000 };
    let chain: Vec<String> = (1..=30).map(|depth| "/a".repeat(depth)).collect();
    for path in &chain {
        whole.create(path, CreateKind::Persistent).unwrap();
        whole.create(&format!("/zookeeper/quota{path}"), CreateKind::Persistent).unwrap();
    }
    for leaf in 0..200 {
        whole.create(&format!("{}/leaf{leaf}", chain[29]), CreateKind::Persistent).unwrap();
    }
    let stats: Vec<String> = chain.iter().map(|path| format!("/zookeeper/quota{path}/zookeeper_stats")).collect();
    let ops = stats.iter().map(|path| create(path, CreateKind::Persistent, false)).collect();
    let multi = Txn::Multi { session: SESSION, identity: Identity::default(), ops };
    let (mut cold, expected) = (Cold::of(&whole), whole.apply(&multi));
    let (outcome, rounds) = cold.apply(&multi);
    assert!(outcome == expected);
    assert_eq!((cold.totals, cold.digest), (whole.totals, whole.digest));
    assert_eq!(cold.totals.counting, 30);
    assert!(rounds <= 5, "{rounds} rounds");
    assert!(cold.weights_bytes_max <= 256 << 10, "{} bytes", cold.weights_bytes_max);
    assert_eq!(cold.memory.weights_bytes(), 0, "released with the entry");
}

#[test]
fn steps_of_a_count_find_everything_that_was_foreseen() {
    let mut whole = with_quotas(&[], &["/a"]);
    for number in 0..50 {
        whole.create(&format!("/a/{number}"), CreateKind::Persistent).unwrap();
        whole.create(&format!("/a/{number}/x"), CreateKind::Persistent).unwrap();
    }
    whole.room = Room { znodes: 7, key_bytes: 10_000 };
    set_quota(&mut whole, "/a");
    let (mut cold, step) = (Cold::of(&whole), Txn::CountUsage { path: "/a" });
    let mut rounds = 0;
    loop {
        cold.foresee(&step);
        let (outcome, late) = cold.apply(&step);
        rounds += late;
        assert_eq!(whole.apply(&step), outcome);
        assert_eq!(cold.digest, whole.digest);
        if outcome == Outcome::Counted(true) {
            break;
        }
    }
    assert!(rounds <= 1, "{rounds}: only from the children to their descendants");
}

/// Entries of clients come between two steps of a count. They must not cost the next one its read.
#[test]
fn foreseen_znodes_stay_while_other_entries_are_installed() {
    let mut whole = with_quotas(&["/other"], &["/a", "/other"]);
    for number in 0..20 {
        whole.create(&format!("/a/{number:02}"), CreateKind::Persistent).unwrap();
    }
    set_quota(&mut whole, "/a");
    let (mut cold, step) = (Cold::of(&whole), Txn::CountUsage { path: "/a" });
    cold.foresee(&step);
    for op in [create("/a/021", CreateKind::Persistent, false), Op::Delete { path: "/a/05", version: -1 }] {
        let txn = write(op);
        assert_eq!((cold.apply(&txn).0, cold.digest), (whole.apply(&txn), whole.digest));
    }
    let (outcome, rounds) = cold.apply(&step);
    assert_eq!((outcome, rounds), (whole.apply(&step), 0));
    assert_eq!(cold.digest, whole.digest);
}
