//! Apply is total: any entry leads to one outcome and a consistent state.
//!
//! The outcome is the same on a server with everything in memory and on one that fetches every
//! record from its base. A panic in apply would kill every replica at every restart.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use bytes::BytesMut;
use std::collections::BTreeMap;
use zoolet_machine::record::acl::Identity;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::record::key;
use zoolet_machine::record::znode::Znode;
use zoolet_machine::tree::{OpOutcome, Outcome};
use zoolet_machine::txn::{self, Header, Op, Txn};
use zoolet_model::{CreateKind, ErrorCode, SessionId, SessionSecret, Zxid};
use zoolet_sim::{entries::Entries, replica::Replica};

#[test]
fn apply_gives_one_outcome_whether_records_are_in_memory_or_fetched() {
    let mut reached: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..40 {
        let mut entries = Entries::new(seed);
        let (mut full, mut forgetful) = (Replica::new(false), Replica::new(true));
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
    assert!(reached.len() == 15 && reached.values().all(|&times| times > 100), "too little was tried: {reached:?}");
}

/// Names an outcome. The test must reach each of these names often.
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
        Outcome::SessionUpgraded(..) => "session upgraded",
        Outcome::SessionClosed(_) => "session closed",
        Outcome::SessionRenewed(_, Some(_)) => "session renewed",
        Outcome::SessionRenewed(_, None) => "no session renewed",
        Outcome::Reaped(_) => "reaped",
        Outcome::Counted(_) => "counted",
    }
}

/// No test can create two billion children, so this one sets the count.
#[test]
fn sequence_numbers_stop_at_i32_max() {
    let mut state = Replica::new(false);
    let root = key::znode("/").unwrap();
    let grown = Znode { creates: i32::MAX - 1, ..Znode::decode(&state.records[&root]).unwrap() }.encode();
    state.digest =
        state.digest.wrapping_sub(record_hash(&root, &state.records[&root])).wrapping_add(record_hash(&root, &grown));
    state.records.insert(root.clone(), grown);
    let mut counter = 0;
    let mut run = |state: &mut Replica, txn: Txn<'_>| {
        counter += 1;
        let payload = txn::encode(Header::default(), &txn, &mut BytesMut::new());
        state.apply(Zxid::from_bits(counter).unwrap(), &payload).unwrap().outcome
    };
    run(&mut state, Txn::CreateSession { timeout_ms: 1, secret: SessionSecret([0; 16]), home: None });
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
    let root_stat = |state: &Replica| Znode::decode(&state.records[&root]).unwrap().stat();
    let path = |outcome: Outcome| match outcome {
        Outcome::Write(Ok(OpOutcome::Created { path, .. })) => path.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(path(run(&mut state, create())), "/n-2147483646");
    let before = root_stat(&state);
    assert_eq!(before.pzxid, 2);
    assert_eq!(path(run(&mut state, create())), "/n-2147483647");
    // The next create gets the same name, because the parent has stopped counting.
    assert_eq!(run(&mut state, create()), Outcome::Write(Err(ErrorCode::NodeExists)));
    assert_eq!((root_stat(&state).pzxid, root_stat(&state).num_children), (2, 3));
    state.check();
}
