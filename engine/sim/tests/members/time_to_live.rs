//! Times to live while no server leads, and the pace of their reaper.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_boxes::{Boxes, Told as BoxTold, small_limits};
use crate::member_support::{Client, Members, Told};
use zoolet_machine::seam::event::Shortage;
use zoolet_machine::{Event, Limits, Settings};
use zoolet_model::{CreateKind, ErrorCode, Request};
use zoolet_sim::client::{create, set};

const TTL_MS: u64 = 20_000;
/// An idle leader's heartbeats are this far apart, so a follower may have heard it this long ago.
const HEARTBEAT_MS: u64 = 350;
const OUTAGE_MS: u64 = 90_000;

fn is_there(members: &mut Members, server: u8) -> bool {
    let client = members.client(server, 40_000);
    let there = members.ask(&client, Request::Exists { path: "/t".into(), watch: false });
    members.leave(&client);
    assert!(matches!(there, Ok(_) | Err(ErrorCode::NoNode)), "{there:?}");
    there.is_ok()
}

/// Creates `/t` and returns the leader with the others.
fn with_ttl_znode() -> (Members, u8, Vec<u8>) {
    let mut members = Members::born(3);
    let (leader, others) = (members.leader(), members.learners());
    let client: Client = members.client(leader, 40_000);
    members.ask(&client, Request::Write(create("/t".to_owned(), 1, CreateKind::Ttl { ttl_ms: TTL_MS }))).unwrap();
    (members, leader, others)
}

/// Checks that `/t` lives for its whole time from now on.
fn lives_for_its_time(members: &mut Members, servers: &[u8]) {
    let next = members.leader_of(servers);
    lives_for_its_time_at(members, next, TTL_MS);
}

fn lives_for_its_time_at(members: &mut Members, next: u8, left_ms: u64) {
    members.advance(left_ms - 2 * HEARTBEAT_MS);
    assert!(is_there(members, next), "only the time with a leader counts");
    members.advance(4 * HEARTBEAT_MS);
    assert!(!is_there(members, next), "time goes on");
}

#[test]
fn outage_of_the_ensemble_does_not_count() {
    let (mut members, leader, others) = with_ttl_znode();
    // Links stand and carry nothing, as behind a switch that lost its power.
    let all = members.ids().collect::<Vec<_>>();
    let pairs = [(all[0], all[1]), (all[1], all[2]), (all[0], all[2])];
    pairs.iter().for_each(|&(a, b)| members.cut(a, b));
    members.advance(OUTAGE_MS);
    members.release(others[0], others[1]);
    members.release(others[1], others[0]);
    members.paused.insert(leader);
    while !others.iter().any(|&server| members.server(server).leads()) {
        members.advance(10);
    }
    members.until_all_serve();
    lives_for_its_time(&mut members, &others);
}

/// A leader goes on for a while after it has heard a quorum for the last time.
#[test]
fn time_of_a_leader_without_a_quorum_does_not_count() {
    let (mut members, leader, others) = with_ttl_znode();
    let client = members.client(leader, 40_000);
    let away = others[1];
    members.stop(away);
    members.cut(leader, others[0]);
    // With the longest history it will lead again.
    members.send(&client, 1, Request::Write(create("/w".to_owned(), 1, CreateKind::Persistent)));
    members.advance(OUTAGE_MS);
    assert!(!members.server(leader).leads());
    members.release_all();
    members.until_all_serve();
    assert_eq!(members.leader_of(&[leader, others[0]]), leader, "the other one would not show its clock");
    lives_for_its_time(&mut members, &[leader]);
}

/// In the simulator's runs, few outages are long enough to tell beside a time to live.
#[cfg(feature = "mutations")]
#[test]
#[should_panic(expected = "only the time with a leader counts")]
fn outage_counts_mutation_deletes_a_ttl_znode_early() {
    zoolet_zab::mutation::set(Some(zoolet_zab::Mutation::OutageCounts));
    outage_of_the_ensemble_does_not_count();
}

#[test]
fn restart_of_every_server_does_not_count_while_none_leads() {
    let (mut members, _, _) = with_ttl_znode();
    let all = members.ids().collect::<Vec<_>>();
    all.iter().for_each(|&server| members.stop(server));
    members.start(all[0]);
    members.advance(OUTAGE_MS);
    members.start(all[1]);
    members.until_all_serve();
    lives_for_its_time(&mut members, &all[..2]);
}

/// A new leader whose base is slow to read lets no client in.
#[test]
fn time_before_a_new_leader_serves_does_not_count() {
    let (mut members, leader, others) = with_ttl_znode();
    let writer = members.client(leader, 40_000);
    members.mute.extend(&others);
    members.ask(&writer, Request::Write(create("/w".to_owned(), 1, CreateKind::Persistent))).unwrap();
    members.stop(leader);
    members.advance(OUTAGE_MS);
    assert!(others.iter().any(|&server| members.server(server).leads()));
    assert!(others.iter().all(|&server| !members.server(server).is_serving()));
    members.mute.clear();
    members.until_all_serve();
    lives_for_its_time(&mut members, &others);
}

/// A leader whose disk accepts nothing hands over, but a server alone keeps leading.
fn alone_with_ttl_znode() -> Members {
    let mut members = Members::born(1);
    let client = members.client(1, 40_000);
    members.ask(&client, Request::Write(create("/t".to_owned(), 1, CreateKind::Ttl { ttl_ms: TTL_MS }))).unwrap();
    members
}

/// Lets an outage pass, and then a moment in which a client could renew the znode.
fn outlives(members: &mut Members, begin: Event, end: Event) {
    members.handle(1, begin);
    members.advance(OUTAGE_MS);
    assert_eq!(members.server(1).counts().ttl, 1, "no client can renew it");
    members.handle(1, end);
    members.advance(1000);
    assert_eq!(members.server(1).counts().ttl, 1, "only the time in which clients can renew it counts");
    lives_for_its_time_at(members, 1, TTL_MS - 1000);
}

#[test]
fn outage_of_the_disk_does_not_count() {
    let mut members = alone_with_ttl_znode();
    outlives(&mut members, Event::LogStalled { is_read_only: false }, Event::LogResumed);
}

#[test]
fn time_of_a_full_disk_does_not_count() {
    let mut members = alone_with_ttl_znode();
    members.failing.insert(1);
    outlives(&mut members, Event::Space { shortage: Some(Shortage::Disk) }, Event::Space { shortage: None });
}

/// A disk that hangs reports nothing. Lets it hang while a renewal waits for it.
fn renewal_outlives_a_hanging_disk(members: &mut Members, leader: u8, hanging: u8) {
    let client = members.client(leader, 200_000);
    members.hanging.insert(hanging);
    members.send(&client, 1, Request::Write(set("/t", 2)));
    members.advance(OUTAGE_MS);
    assert!(members.told(&client).is_empty(), "the renewal waits");
    members.hanging.clear();
    members.advance(1000);
    let told = members.told(&client);
    assert!(matches!(told[..], [Told::Reply(1, _, Ok(_))]), "{told:?}");
    assert_eq!(members.server(leader).counts().ttl, 1, "a renewal that is answered counts");
    // The first second without progress counts too.
    lives_for_its_time_at(members, leader, TTL_MS - 2000);
}

#[test]
fn time_goes_on_while_each_commit_takes_half_a_second() {
    let mut members = alone_with_ttl_znode();
    let client = members.client(1, 200_000);
    members.ask(&client, Request::Write(create("/w".to_owned(), 1, CreateKind::Persistent))).unwrap();
    members.hanging.insert(1);
    for round in 0..2 * TTL_MS / 1000 + 4 {
        members.send(&client, i32::try_from(round).unwrap(), Request::Write(set("/w", 2)));
        members.advance(500);
        members.persist_once(1);
    }
    assert_eq!(members.server(1).counts().ttl, 0);
}

#[test]
fn renewal_that_waits_for_a_hanging_disk_counts() {
    renewal_outlives_a_hanging_disk(&mut alone_with_ttl_znode(), 1, 1);
}

/// The write carries the time at which it came. Time goes on from there after the pause, and for at
/// most a second while the write waits for the disk.
#[test]
fn pause_while_a_write_waits_does_not_turn_time_back() {
    const IDLE_MS: u64 = TTL_MS / 2;
    let mut members = alone_with_ttl_znode();
    let client = members.client(1, 200_000);
    members.advance(IDLE_MS);
    members.hanging.insert(1);
    members.send(&client, 1, Request::Write(create("/w".to_owned(), 1, CreateKind::Persistent)));
    members.jump(OUTAGE_MS);
    members.judge();
    members.hanging.clear();
    members.settle();
    let told = members.told(&client);
    assert!(matches!(told[..], [Told::Reply(1, _, Ok(_))]), "{told:?}");
    lives_for_its_time_at(&mut members, 1, TTL_MS - IDLE_MS - 1000);
}

/// Heartbeats wait for no disk, so the leader goes on leading.
#[test]
fn renewal_that_waits_for_a_followers_hanging_disk_counts() {
    let (mut members, leader, others) = with_ttl_znode();
    members.stop(others[1]);
    renewal_outlives_a_hanging_disk(&mut members, leader, others[0]);
}

/// In few runs of the simulator a disk hangs for about a time to live.
#[cfg(feature = "mutations")]
#[test]
#[should_panic(expected = "a renewal that is answered counts")]
fn stall_counts_mutation_deletes_a_renewed_ttl_znode() {
    zoolet_zab::mutation::set(Some(zoolet_zab::Mutation::StallCounts));
    renewal_that_waits_for_a_hanging_disk_counts();
}

/// A hanging checkpoint makes writes wait, renewals among them. A deletion would have room.
#[test]
fn time_in_which_writes_wait_for_a_checkpoint_does_not_count() {
    let mut boxes = Boxes::born(1, small_limits());
    let conn = boxes.connect(1);
    let ttl = CreateKind::Ttl { ttl_ms: TTL_MS };
    boxes.ask(1, conn, Request::Write(create("/t".to_owned(), 1, ttl))).unwrap();
    boxes.checkpoints_hang.insert(1);
    for number in 0.. {
        boxes.send(1, conn, Request::Write(create(format!("/n{number}"), 1000, CreateKind::Persistent)));
        boxes.settle();
        if boxes.told(1, conn).is_empty() {
            break;
        }
    }
    let renewal = boxes.connect(1);
    boxes.send(1, renewal, Request::Write(set("/t", 2)));
    boxes.advance(OUTAGE_MS);
    assert!(boxes.told(1, renewal).is_empty(), "the renewal waits");
    assert_eq!(boxes.server(1).counts().ttl, 1, "no client can renew it");
    boxes.checkpoints_hang.clear();
    boxes.end_checkpoint(1);
    boxes.settle();
    let told = boxes.told(1, renewal);
    assert!(matches!(told[..], [BoxTold::Reply(Ok(_))]), "{told:?}");
}

/// A server alone with this many znodes that are due at about the same time.
fn with_many(limits: Limits, count: usize) -> (Members, Client) {
    let mut members = Members::born_with(1, Settings::default(), limits);
    let client = members.client(1, 40_000);
    for number in 0..count {
        let kind = CreateKind::Ttl { ttl_ms: TTL_MS };
        members.ask(&client, Request::Write(create(format!("/t{number}"), 1, kind))).unwrap();
    }
    let lasts = TTL_MS - 100;
    members.advance(lasts);
    members.ask(&client, Request::Ping).unwrap();
    (members, client)
}

/// Lets 100 ms pass. Then all appends of that time become durable together.
fn slow_commit(members: &mut Members) {
    members.hanging.insert(1);
    members.advance(100);
    members.persist_once(1);
}

/// One batch at a time would take more than 9 s.
#[test]
fn reaper_catches_up_with_a_backlog_over_a_slow_disk() {
    const MANY: u64 = 6000;
    let (mut members, client) = with_many(Limits::default(), MANY as usize);
    assert_eq!(members.server(1).counts().ttl, MANY);
    let mut left = Vec::new();
    while members.server(1).counts().ttl > 0 {
        slow_commit(&mut members);
        left.push(members.server(1).counts().ttl);
        members.send(&client, -2, Request::Ping);
        assert!(left.len() < 60, "6 s: {left:?}");
    }
}

/// Clients keep the queue of writes full.
#[test]
fn reaper_goes_on_at_a_saturated_server() {
    let limits = Limits { outstanding_bytes_max: 64 << 10, ..Limits::default() };
    let (mut members, client) = with_many(limits, 500);
    members.ask(&client, Request::Write(create("/w".to_owned(), 1, CreateKind::Persistent))).unwrap();
    members.hanging.insert(1);
    for number in 0..2000 {
        members.send(&client, number, Request::Write(set("/w", 4000)));
    }
    let mut answered = 0;
    for second in 1..=4 {
        (0..10).for_each(|_| slow_commit(&mut members));
        let answers = members.told(&client).len();
        assert!(answers > 0, "writes go on");
        answered += answers;
        let left = members.server(1).counts().ttl;
        assert!(left <= 500 - 64 * (second - 1), "{left} after {second} s");
    }
    assert!(answered < 2000, "writes wait all the time");
}
