//! Usage and limits of quotas. Each step compares every usage with a recount of its subtree.

use super::*;

const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

fn op_create<'a>(path: &'a str, data: &'a [u8]) -> Op<'a> {
    let (kind, sequential, with_stat) = (CreateKind::Persistent, false, false);
    Op::Create { path, data: Some(data), acl: &[], kind, sequential, with_stat }
}

fn op_set<'a>(path: &'a str, data: &'a [u8]) -> Op<'a> {
    Op::SetData { path, data: Some(data), version: -1 }
}

fn op_delete(path: &str) -> Op<'_> {
    Op::Delete { path, version: -1 }
}

impl Whole {
    fn create_with(&mut self, path: &str, data: &[u8]) -> Result<OpOutcome, ErrorCode> {
        let result = self.write(op_create(path, data));
        self.check_usages();
        result
    }

    fn set(&mut self, path: &str, data: &[u8]) -> Result<OpOutcome, ErrorCode> {
        let result = self.write(op_set(path, data));
        self.check_usages();
        result
    }

    fn remove(&mut self, path: &str) -> Result<OpOutcome, ErrorCode> {
        let result = self.write(op_delete(path));
        self.check_usages();
        result
    }

    fn multi(&mut self, ops: &[Op<'_>]) -> Result<(), (usize, ErrorCode)> {
        let txn = Txn::Multi { session: SESSION, identity: Identity::default(), ops: ops.to_vec() };
        let outcome = self.apply(&txn);
        self.check_usages();
        match outcome {
            Outcome::Multi(Ok(_)) => Ok(()),
            Outcome::Multi(Err(failure)) => Err((failure.at, failure.code)),
            other => panic!("{other:?}"),
        }
    }

    /// Sets a quota as zkCli does.
    fn set_quota(&mut self, subtree: &str, limits: &str) {
        let mut place = String::from("/zookeeper/quota");
        for name in subtree.split('/').skip(1) {
            place = format!("{place}/{name}");
            let _ = self.create_with(&place, b"");
        }
        self.create_with(&format!("{place}/{LIMITS}"), limits.as_bytes()).unwrap();
        self.create_with(&format!("{place}/{STATS}"), b"count=0,bytes=0").unwrap();
    }

    fn znode(&self, path: &str) -> Option<Znode<'_>> {
        self.records.get(&key::znode(path)?).map(|record| Znode::decode(record).unwrap())
    }

    /// Returns znodes and bytes of a usage, and whether it is complete.
    fn usage(&self, subtree: &str) -> (i64, i64, bool) {
        match self.znode(&format!("/zookeeper/quota{subtree}/{STATS}")).map(|znode| znode.data) {
            Some(Data::Usage(usage)) => (usage.count, usage.bytes, usage.is_complete()),
            other => panic!("{other:?}"),
        }
    }

    fn paths(&self) -> impl Iterator<Item = (String, Znode<'_>)> {
        let znodes = self.records.iter().filter(|(key, _)| key[0] == key::ZNODE);
        znodes.map(|(key, record)| {
            let (parent, name) = std::str::from_utf8(&key[1..]).unwrap().split_once('\0').unwrap();
            (format!("{}/{name}", parent.trim_end_matches('/')), Znode::decode(record).unwrap())
        })
    }

    fn check_usages(&self) {
        let (mut quotas, mut counting, mut bytes) = (0, 0, 0);
        for (path, znode) in self.paths() {
            bytes += path.len() as u64 + u64::from(znode.data.length());
            let Data::Usage(usage) = znode.data else { continue };
            let subtree = path.strip_prefix("/zookeeper/quota").unwrap().strip_suffix("/zookeeper_stats").unwrap();
            quotas += 1;
            assert_eq!(self.records.contains_key(&key::counting(subtree)), !usage.is_complete(), "{path}");
            let is_counted =
                |path: &str| usage.is_complete() || path == subtree || *key::znode(path).unwrap() < *usage.next;
            let below = format!("{subtree}/");
            let counted = self.paths().filter(|(path, _)| path == subtree || path.starts_with(&below));
            let counted = counted.filter(|(path, _)| is_counted(path));
            let (count, bytes) =
                counted.fold((0, 0), |sum, (_, znode)| (sum.0 + 1, sum.1 + i64::from(znode.data.length())));
            assert_eq!((usage.count, usage.bytes), (count, bytes), "{path}");
            counting += u64::from(!usage.is_complete());
        }
        assert_eq!((self.totals.quotas, self.totals.counting, self.totals.data_bytes), (quotas, counting, bytes));
    }

    fn count(&mut self, subtree: &str) -> bool {
        let Outcome::Counted(is_complete) = self.apply(&Txn::CountUsage { path: subtree }) else { panic!("no count") };
        self.check_usages();
        is_complete
    }
}

#[test]
fn usage_follows_every_write_and_its_stat_does_not() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"12345").unwrap();
    whole.create_with("/a/b", b"12").unwrap();
    whole.set_quota("/a", "count=-1,bytes=-1");
    let stat = whole.stat("/zookeeper/quota/a/zookeeper_stats").unwrap();
    assert_eq!(whole.usage("/a"), (2, 7, true));
    whole.create_with("/a/b/c", b"1").unwrap();
    whole.create_with("/ab", b"another name").unwrap();
    whole.set("/a", b"1").unwrap();
    assert_eq!(whole.usage("/a"), (3, 4, true));
    whole.remove("/a/b/c").unwrap();
    assert_eq!(whole.usage("/a"), (2, 3, true));
    whole.remove("/a/b").unwrap();
    whole.remove("/a").unwrap();
    assert_eq!(whole.usage("/a"), (0, 0, true), "the quota outlives its subtree");
    let later = whole.stat("/zookeeper/quota/a/zookeeper_stats").unwrap();
    assert_eq!(later, stat);
    whole.remove("/zookeeper/quota/a/zookeeper_stats").unwrap();
    assert_eq!(whole.totals.quotas, 0);
}

#[test]
fn nested_quotas_count_each_write_and_the_deepest_decides() {
    let mut whole = Whole::born();
    for path in ["/a", "/a/b", "/a/b/c"] {
        whole.create_with(path, b"").unwrap();
    }
    whole.set_quota("/a", "countHardLimit=0");
    whole.set_quota("/a/b/c", "countHardLimit=2");
    whole.create_with("/a/b/c/e", b"xy").unwrap();
    assert_eq!((whole.usage("/a"), whole.usage("/a/b/c")), ((4, 2, true), (2, 2, true)));
    assert_eq!(whole.create_with("/a/b/c/f", b""), Err(ErrorCode::QuotaExceeded));
    assert_eq!(whole.create_with("/a/b/f", b""), Err(ErrorCode::QuotaExceeded), "the limit of /a");
    whole.remove("/zookeeper/quota/a/b/c/zookeeper_limits").unwrap();
    assert_eq!(whole.create_with("/a/b/c/f", b""), Err(ErrorCode::QuotaExceeded), "now the limit of /a");
    // A quota at the path of the znode itself counts too, also before the znode exists.
    whole.set_quota("/z", "byteHardLimit=1");
    assert_eq!(whole.create_with("/z", b"12"), Err(ErrorCode::QuotaExceeded));
    whole.create_with("/z", b"1").unwrap();
}

#[test]
fn hard_limits_refuse_only_what_exceeds_them_and_before_the_version() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"123456").unwrap();
    whole.set_quota("/a", "count=1,bytes=1=;byteHardLimit=4;countHardLimit=2");
    assert_eq!(whole.set("/a", b"12345"), Err(ErrorCode::QuotaExceeded), "smaller, and still above the limit");
    whole.set("/a", b"123456").unwrap();
    let stale = Op::SetData { path: "/a", data: Some(b"12345"), version: 7 };
    assert_eq!(whole.write(stale), Err(ErrorCode::QuotaExceeded));
    whole.set("/a", b"1234").unwrap();
    whole.create_with("/a/b", b"").unwrap();
    assert_eq!(whole.create_with("/a/c", b""), Err(ErrorCode::QuotaExceeded));
    assert_eq!(whole.create_with("/a/b", b""), Err(ErrorCode::NodeExists), "checked first");
    whole.remove("/a/b").unwrap();
    whole.set("/zookeeper/quota/a/zookeeper_limits", b"count=1,bytes=oops").unwrap();
    whole.create_with("/a/c", &[0; 100]).unwrap();
    whole.create_with("/a/d", &[0; 100]).unwrap();
    whole.set("/zookeeper/quota/a/zookeeper_limits", b"countHardLimit=2").unwrap();
    assert_eq!(whole.create_with("/a/e", b""), Err(ErrorCode::QuotaExceeded));
    whole.remove("/zookeeper/quota/a/zookeeper_stats").unwrap();
    whole.create_with("/a/e", b"").unwrap();
}

#[test]
fn unenforced_and_soft_limits_are_only_reported() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"").unwrap();
    whole.set_quota("/a", "countHardLimit=1,bytes=0");
    let write = |op| Txn::Write { session: SESSION, identity: Identity::default(), op };
    let exceeded =
        |what, wanted, limit, is_refused| Some(Exceeded { subtree: "/a".into(), what, wanted, limit, is_refused });
    assert_eq!(whole.applied(&write(op_create("/a/b", b""))).exceeded, exceeded("znodes", 2, 1, true));
    assert_eq!(whole.applied(&write(op_set("/a", b"1"))).exceeded, exceeded("bytes", 1, 0, false));
    let payload = txn::encode(Header::default(), &write(op_create("/a/b", b"")), &mut BytesMut::new());
    let (totals, digest, zxid) = (whole.totals, whole.digest, Zxid::from_bits(whole.zxid + 1).unwrap());
    let applied = apply(&mut whole, totals, digest, zxid, &payload, Buffers::default()).unwrap();
    assert!(matches!(applied.outcome, Outcome::Write(Ok(_))));
    assert_eq!(applied.exceeded, exceeded("znodes", 2, 1, false));
}

/// ZooKeeper checks the usage before the multi, so it lets all of these operations pass.
#[test]
fn each_operation_of_a_multi_sees_the_usage_after_those_before_it() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"").unwrap();
    whole.set_quota("/a", "countHardLimit=3");
    let three = [op_create("/a/1", b""), op_create("/a/2", b""), op_create("/a/3", b"")];
    assert_eq!(whole.multi(&three), Err((2, ErrorCode::QuotaExceeded)));
    assert_eq!(whole.usage("/a"), (1, 0, true));
    let swap = [op_create("/a/1", b""), op_create("/a/2", b""), op_delete("/a/1"), op_create("/a/3", b"")];
    whole.multi(&swap).unwrap();
    assert_eq!(whole.usage("/a"), (3, 0, true));
}

#[test]
fn multi_that_creates_a_quota_and_its_znodes_counts_each_once() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"1").unwrap();
    whole.create_with("/a/old", b"12").unwrap();
    whole.create_with("/zookeeper/quota/a", b"").unwrap();
    let stats = format!("/zookeeper/quota/a/{STATS}");
    let ops = [op_create("/a/new", b"123"), op_delete("/a/old"), op_create(&stats, b""), op_create("/a/then", b"")];
    whole.multi(&ops).unwrap();
    assert_eq!(whole.usage("/a"), (3, 4, true));
    whole.remove("/a/then").unwrap();
    let again = [op_create("/a/x", b"1"), op_delete(&stats), op_create(&stats, b""), op_delete("/a/x")];
    whole.multi(&again).unwrap();
    assert_eq!(whole.usage("/a"), (2, 4, true));
}

/// Otherwise, each of many nested quotas in one multi would count the same subtree at once.
#[test]
fn multi_counts_for_all_of_its_quotas_as_much_as_for_one() {
    let mut whole = Whole::born();
    for path in ["/a", "/a/b", "/a/b/1", "/a/b/2", "/zookeeper/quota/a", "/zookeeper/quota/a/b"] {
        whole.create_with(path, b"").unwrap();
    }
    let (outer, inner) = (format!("/zookeeper/quota/a/{STATS}"), format!("/zookeeper/quota/a/b/{STATS}"));
    whole.multi(&[op_create(&inner, b""), op_create(&outer, b"")]).unwrap();
    assert_eq!((whole.usage("/a/b"), whole.usage("/a")), ((3, 0, true), (2, 0, false)), "3 znodes, beside the roots");
    assert!(!whole.count("/a") || whole.usage("/a").2);
}

#[test]
fn fifth_quota_of_a_multi_begins_uncounted_and_quotas_of_leaves_are_counted_at_once() {
    let mut whole = Whole::born();
    whole.room = Room { znodes: 8, key_bytes: 1000 };
    let names = ["a", "b", "c", "d", "e", "leaf", "leaf2"];
    for name in names {
        whole.create_with(&format!("/{name}"), b"1").unwrap();
        whole.create_with(&format!("/zookeeper/quota/{name}"), b"").unwrap();
        if name.len() == 1 {
            whole.create_with(&format!("/{name}/x"), b"12").unwrap();
        }
    }
    let stats = names.map(|name| format!("/zookeeper/quota/{name}/{STATS}"));
    whole.multi(&stats.each_ref().map(|path| op_create(path, b""))).unwrap();
    let usages = names.map(|name| whole.usage(&format!("/{name}")));
    let (whole_of, uncounted, leaf) = ((2, 3, true), (1, 1, false), (1, 1, true));
    assert_eq!(usages, [whole_of, whole_of, whole_of, whole_of, uncounted, leaf, leaf]);
    assert!(whole.count("/e"));
    assert_eq!(whole.usage("/e"), whole_of);
}

#[test]
fn long_names_end_a_step_of_a_count_early() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"").unwrap();
    for number in 0..7 {
        whole.create_with(&format!("/a/{number}{}", "long".repeat(100)), b"1").unwrap();
    }
    whole.room = Room { znodes: 100, key_bytes: 1000 };
    whole.set_quota("/a", "");
    // Each key has about 400 bytes, so the third one passes the bound.
    assert_eq!(whole.usage("/a"), (4, 3, false));
    assert!(!whole.count("/a"));
    assert_eq!(whole.usage("/a"), (7, 6, false));
    assert!(whole.count("/a"));
}

#[test]
fn ended_sessions_and_reaped_containers_leave_the_usage() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"").unwrap();
    whole.create("/a/c", CreateKind::Container).unwrap();
    whole.create_with("/a/c/x", b"").unwrap();
    whole.set_quota("/a", "");
    whole.set_quota("/a/e1", "");
    for path in ["/a/e1", "/a/e2", "/a/c/e", "/e"] {
        whole.create(path, CreateKind::Ephemeral).unwrap();
    }
    assert_eq!((whole.usage("/a").0, whole.usage("/a/e1").0), (6, 1));
    whole.remove("/a/c/x").unwrap();
    whole.apply(&Txn::CloseSession { session: SESSION });
    whole.check_usages();
    assert_eq!((whole.usage("/a").0, whole.usage("/a/e1").0), (2, 0));
    assert_eq!(whole.apply(&Txn::Reap { path: "/a/c" }), Outcome::Reaped(true));
    whole.check_usages();
    assert_eq!(whole.usage("/a").0, 1);
}

/// `Whole` counts three znodes at once.
#[test]
fn large_subtree_is_counted_in_steps_among_writes() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"1").unwrap();
    for name in ["b", "c", "d", "e", "f"] {
        whole.create_with(&format!("/a/{name}"), b"12").unwrap();
        whole.create_with(&format!("/a/{name}/x"), b"123").unwrap();
    }
    whole.create_with("/a.b", b"beside it").unwrap();
    whole.set_quota("/a", "countHardLimit=0,byteHardLimit=0");
    assert_eq!(whole.usage("/a"), (4, 7, false));
    // Before, at and behind the position, and limits do not count yet.
    whole.create_with("/a/a", b"1234").unwrap();
    whole.create_with("/a/dd", b"1234").unwrap();
    whole.set("/a/f", b"").unwrap();
    whole.set("/a/b", b"").unwrap();
    whole.remove("/a/e/x").unwrap();
    let mut steps = 0;
    while !whole.count("/a") {
        steps += 1;
        let path = format!("/a/c/{steps}");
        whole.multi(&[op_create(&path, b"1"), op_set("/a", b"123"), op_set("/a/f/x", path.as_bytes())]).unwrap();
    }
    assert!(steps >= 2, "{steps}");
    assert_eq!(whole.usage("/a").0, 1 + 5 + 4 + 2 + steps);
    assert_eq!(whole.create_with("/a/z", b""), Err(ErrorCode::QuotaExceeded));
    assert!(whole.count("/a") && whole.count("/nowhere"), "nothing is left to count");
}

#[test]
fn quota_deleted_while_it_is_counted_leaves_nothing() {
    let mut whole = Whole::born();
    for path in ["/a", "/a/1", "/a/2", "/a/3", "/a/4"] {
        whole.create_with(path, b"").unwrap();
    }
    whole.set_quota("/a", "");
    assert_eq!(whole.totals.counting, 1);
    whole.remove("/zookeeper/quota/a/zookeeper_stats").unwrap();
    assert_eq!((whole.totals.quotas, whole.totals.counting), (0, 0));
    assert!(whole.count("/a"));
}

#[test]
fn clients_cannot_falsify_a_usage_and_odd_quota_znodes_are_harmless() {
    let mut whole = Whole::born();
    whole.create_with("/a", b"").unwrap();
    whole.set_quota("/a", "");
    whole.set("/zookeeper/quota/a/zookeeper_stats", b"no usage at all").unwrap();
    assert_eq!(whole.usage("/a"), (1, 0, true));
    assert_eq!(whole.stat("/zookeeper/quota/a/zookeeper_stats").unwrap().version, 1);
    // A usage that is itself the parent of others, changed and used in one multi.
    let below = "/zookeeper/quota/a/zookeeper_stats/zookeeper_stats";
    whole.multi(&[op_create("/a/b", b""), op_create(below, b""), op_create("/a/c", b"")]).unwrap();
    assert_eq!((whole.usage("/a").0, whole.usage("/a/zookeeper_stats").0), (3, 0));
    whole.create_with("/a/zookeeper_stats", b"").unwrap();
    assert_eq!((whole.usage("/a").0, whole.usage("/a/zookeeper_stats").0), (4, 1));
    // These stop Apache ZooKeeper.
    whole.create_with("/zookeeper/quota/zookeeper_limits", b"").unwrap();
    whole.remove("/zookeeper/quota/zookeeper_limits").unwrap();
    whole.create_with("/zookeeper/x", b"").unwrap();
    whole.create_with("/zookeeper/x/zookeeper_limits", b"x").unwrap();
    whole.remove("/zookeeper/x/zookeeper_limits").unwrap();
    whole.set_quota("/zookeeper", "countHardLimit=0");
}
