//! A server whose disk accepts no writes.
//!
//! It shows state as fresh as promised or none, votes for no server, and reports the problem.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told};
use zoolet_machine::Event;
use zoolet_model::{CreateKind, ErrorCode, Reply, Request};
use zoolet_sim::client::{create, get, set};

const TIMEOUT_MS: i32 = 20_000;
/// Longer than a server may lag (3 s).
const LONG_MS: u64 = 4000;

fn bytes(reply: Result<Reply, ErrorCode>) -> usize {
    let Ok(Reply::Data(data, _)) = reply else { panic!("{reply:?} is no data") };
    data.map_or(0, |data| data.len())
}

/// Returns an ensemble with `/a`, the picked server and two clients.
///
/// One client is connected to that server, the other to a different learner.
fn ensemble(pick: impl FnOnce(&Members) -> u8) -> (Members, u8, Client, Client) {
    let mut members = Members::born(3);
    let server = pick(&members);
    let elsewhere = members.learners().into_iter().find(|&learner| learner != server).unwrap();
    let (here, there) = (members.client(server, TIMEOUT_MS), members.client(elsewhere, TIMEOUT_MS));
    members.ask(&there, Request::Write(create("/a", 1, CreateKind::Persistent))).unwrap();
    members.ask(&there, Request::Write(set("/a", 1))).unwrap();
    (members, server, here, there)
}

/// Makes the disk read-only, and reports it as the log thread does.
///
/// The log thread reports it with the first append that fails.
fn become_read_only(members: &mut Members, server: u8) {
    members.hanging.insert(server);
    members.handle(server, Event::LogStalled { is_read_only: true });
}

#[test]
fn learner_on_a_read_only_disk_serves_until_the_next_write() {
    let (mut members, learner, here, there) = ensemble(|members| members.learners()[0]);
    become_read_only(&mut members, learner);
    for _ in 0..5 {
        members.advance(LONG_MS);
        assert_eq!(bytes(members.ask(&here, get("/a"))), 1, "nobody has written");
        members.ask(&there, Request::Ping).unwrap();
    }
    assert_eq!(members.ask(&here, Request::Write(set("/a", 3))), Err(ErrorCode::SystemError));
    members.ask(&there, Request::Write(set("/a", 2))).unwrap();
    members.advance(10);
    assert!(members.is_just_closed(&here), "what it shows would stay as it is");
}

/// The log thread reports nothing, because a hanging fdatasync returns no error. A session that
/// another server shows as `withdrawn` must not be kept alive here.
#[test]
fn learner_with_a_hanging_disk_drops_clients_once_3_s_stale() {
    let (mut members, learner, here, there) = ensemble(|members| members.learners()[0]);
    members.hanging.insert(learner);
    for _ in 0..5 {
        members.advance(LONG_MS);
        assert_eq!(bytes(members.ask(&here, get("/a"))), 1, "nobody has written");
        members.ask(&there, Request::Ping).unwrap();
    }
    members.ask(&there, Request::Write(set("/a", 2))).unwrap();
    members.advance(2500);
    assert_eq!(members.ask(&here, Request::Ping), Ok(Reply::Empty), "what it shows is 2.5 s old");
    members.advance(1000);
    assert!(members.is_just_closed(&here), "more than 3 s old");
}

/// The learner is slow, but never lags further than allowed.
#[test]
fn learner_with_a_slow_disk_keeps_its_clients() {
    let (mut members, learner, here, there) = ensemble(|members| members.learners()[0]);
    for bytes in 2..8 {
        members.hanging.insert(learner);
        members.ask(&there, Request::Write(set("/a", bytes))).unwrap();
        members.advance(2500);
        members.ask(&there, Request::Ping).unwrap();
        members.hanging.clear();
        members.advance(100);
        assert_eq!(members.ask(&here, Request::Ping), Ok(Reply::Empty));
    }
}

#[test]
fn learner_briefly_on_a_read_only_disk_keeps_its_clients() {
    let (mut members, learner, here, there) = ensemble(|members| members.learners()[0]);
    become_read_only(&mut members, learner);
    members.ask(&there, Request::Write(set("/a", 2))).unwrap();
    members.advance(2000);
    assert_eq!(bytes(members.ask(&here, get("/a"))), 1);
    members.hanging.clear();
    members.advance(10);
    members.handle(learner, Event::LogResumed);
    members.advance(2 * LONG_MS);
    assert_eq!(bytes(members.ask(&here, get("/a"))), 2, "it writes again, and nobody was sent away");
}

#[test]
fn leader_on_a_read_only_disk_steps_down_and_later_rejoins() {
    let (mut members, leader, here, there) = ensemble(Members::leader);
    members.hanging.insert(leader);
    members.send(&here, 1, Request::Write(set("/a", 3)));
    members.settle();
    become_read_only(&mut members, leader);
    assert_eq!(members.server(leader).refusing_writes(), Some("the disk is read-only"));
    members.advance(LONG_MS);
    let others: Vec<u8> = members.ids().filter(|&id| id != leader).collect();
    let next = members.leader_of(&others);
    assert_ne!(next, leader);
    let mut there = there;
    if members.told(&there).iter().any(|told| matches!(told, Told::Closed)) {
        members.come_back(&mut there, next, 0);
    }
    members.ask(&there, Request::Write(set("/a", 5))).unwrap();
    // The server cannot record an epoch, so it can follow no leader.
    members.advance(LONG_MS);
    assert!(!members.server(leader).is_serving());
    members.hanging.clear();
    members.handle(leader, Event::LogResumed);
    members.until_all_serve();
    let again = members.client(leader, TIMEOUT_MS);
    assert_eq!(bytes(members.ask(&again, get("/a"))), 5);
}

/// A checkpoint may be the first to find the disk read-only, while no append is in flight.
#[test]
fn idle_leader_on_a_read_only_disk_steps_down() {
    let (mut members, leader, _, _) = ensemble(Members::leader);
    members.advance(LONG_MS);
    become_read_only(&mut members, leader);
    members.advance(LONG_MS);
    let others: Vec<u8> = members.ids().filter(|&id| id != leader).collect();
    assert_ne!(members.leader_of(&others), leader);
}
