//! Times to live while no server leads.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members};
use zoolet_model::{CreateKind, ErrorCode, Request};
use zoolet_sim::client::create;

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
    members.advance(TTL_MS - 2 * HEARTBEAT_MS);
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
