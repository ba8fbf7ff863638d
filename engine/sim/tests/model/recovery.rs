//! The state follows from the entries alone.
//!
//! The size of memory, the latency of the disk and the time of checkpoints change nothing. No bytes
//! in the log keep a server from starting.

use zoolet_machine::txn::{self, Txn};
use zoolet_machine::{ConnId, Limits};
use zoolet_model::{ConnectRequest, Zxid};
use zoolet_sim::{
    entries::Entries,
    machine::SPARE_CACHE_BYTES,
    one_server::{Conditions, Entry, Sent, World},
    workload::{Random, Workload},
};

/// Draws conditions, from little memory and a slow disk to plenty.
fn conditions(random: &mut Random) -> Conditions {
    let limits = Limits {
        memtable_bytes: *random.pick(&[512, 4 << 10, 64 << 10, 8 << 20]),
        record_cache_bytes: *random.pick(&[0, 1 << 10, 4 << 20]),
        spare_cache_bytes: *random.pick(&[0, SPARE_CACHE_BYTES]),
        ..Limits::default()
    };
    Conditions {
        limits,
        persist_ms_max: *random.pick(&[0, 5]),
        fetch_ms_max: *random.pick(&[0, 1, 9]),
        checkpoint_ms_max: *random.pick(&[0, 5, 100]),
        checkpoint_fails_one_in: *random.pick(&[0, 3]),
        ..Conditions::default()
    }
}

/// Returns a server that has applied these entries.
fn recovered(conditions: Conditions, seed: u64, entries: &[Entry]) -> World {
    let mut world = World::recovering(conditions, seed, entries);
    world.run_until_quiet();
    world
}

/// Asserts equal digests at each zxid that both servers recorded.
fn same_digests(seed: u64, one: &World, other: &World) {
    for (zxid, digest) in one.digests() {
        if let Some(same) = other.digests().get(zxid) {
            assert_eq!(digest, same, "seed {seed}: after {zxid}");
        }
    }
}

/// Returns a server with a history under load.
fn history(seed: u64) -> World {
    let mut workload = Workload::new(seed);
    let mut world = World::new(Conditions::default(), seed);
    world.start();
    world.run_until_quiet();
    let mut conns = Vec::new();
    for n in 1..=4 {
        let request = ConnectRequest::for_new_session(4000);
        world.connect(ConnId(n), Some([127, 0, 0, 1].into()), request);
        conns.push(ConnId(n));
    }
    for xid in 0..2000 {
        let conn = *workload.random().pick(&conns);
        let request = workload.request(0);
        world.request(conn, xid, request);
        if workload.random().one_in(10) {
            let pause_ms = workload.random().below(40);
            world.run_for(pause_ms);
        }
    }
    world.run_until_quiet();
    assert!(
        conns.iter().any(|&conn| world.take(conn).iter().any(|sent| matches!(sent, Sent::Reply { result: Ok(_), .. })))
    );
    world
}

#[test]
fn equal_entries_give_equal_state_with_any_memory_and_disk() {
    for seed in 0..12 {
        let world = history(seed);
        let entries: Vec<Entry> = world.entries().to_vec();
        assert_eq!(entries.last().map(|entry| entry.zxid), Some(world.server().applied()));
        let mut random = Random::new(seed);
        for _ in 0..4 {
            let mut other = recovered(conditions(&mut random), random.bits(), &entries);
            assert_eq!(other.server().applied(), world.server().applied());
            same_digests(seed, &world, &other);
            other.start();
            other.run_until_quiet();
            assert!(other.server().is_serving());
        }
    }
}

#[test]
fn arbitrary_log_entries_stop_no_server_and_give_equal_states() {
    for seed in 0..60 {
        let mut made = Entries::new(seed);
        let entries: Vec<Entry> = (0..400)
            .map(|counter| {
                let zxid = Zxid::from_bits((1 << Zxid::COUNTER_BITS) + counter).unwrap();
                let payload = made.payload();
                // Not every entry begins a session, but each of them could.
                made.session(zxid.as_i64(), true);
                Entry { zxid, payload }
            })
            .collect();
        let mut random = Random::new(seed);
        let mut one = recovered(Conditions::default(), 1, &entries);
        let mut other = recovered(conditions(&mut random), 2, &entries);
        assert_eq!(one.server().applied(), other.server().applied());
        same_digests(seed, &one, &other);
        for world in [&mut one, &mut other] {
            world.start();
            world.run_until_quiet();
            assert!(world.server().is_serving());
        }
    }
}

#[test]
fn crashes_during_recovery_do_not_change_the_final_state() {
    for seed in 0..12 {
        let world = history(seed);
        let entries: Vec<Entry> = world.entries().to_vec();
        let mut random = Random::new(seed);
        let mut other = World::recovering(conditions(&mut random), seed, &entries);
        other.start();
        for _ in 0..6 {
            let pause_ms = random.below(30);
            other.run_for(pause_ms);
            other.crash(random.one_in(2));
        }
        other.run_until_quiet();
        assert!(other.server().is_serving());
        same_digests(seed, &world, &other);
        // A start adds the no-op of an epoch, which changes no record. Entries of the reaper do
        // change records.
        if !other.entries().iter().any(|entry| matches!(txn::decode(&entry.payload), Ok((_, Txn::Reap { .. })))) {
            assert_eq!(world.server().digest(), other.server().digest(), "seed {seed}");
        }
    }
}

/// Applying the log may take longer than a session's timeout. No client could reach the server
/// meanwhile, so no silence counts. The deadlines that pass must not keep the machine busy.
#[test]
fn recovery_longer_than_every_session_timeout_expires_no_session() {
    let world = history(3);
    let entries: Vec<Entry> = world.entries().to_vec();
    let slow = Conditions {
        limits: Limits { memtable_bytes: 512, record_cache_bytes: 0, ..Limits::default() },
        fetch_ms_max: 40,
        checkpoint_ms_max: 5,
        ..Conditions::default()
    };
    let mut other = World::recovering(slow, 5, &entries);
    let began_ms = other.now().mono_ms;
    other.start();
    while !other.server().is_serving() {
        other.run_for(1);
    }
    assert!(other.now().mono_ms - began_ms > 5000, "not slow enough to show anything");
    assert_eq!(other.status().sessions, 4);
    other.run_for(3900);
    assert_eq!((other.status().sessions, other.status().sessions_expired), (4, 0));
    other.run_for(300);
    other.run_until_quiet();
    assert_eq!((other.status().sessions, other.status().sessions_expired), (0, 4));
}
