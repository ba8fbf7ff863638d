//! Sessions of a daemon that runs a server in its process.
//!
//! They end with the process instead of by timeout.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told};
use zoolet_model::{CreateKind, ErrorCode, Reply, Request, Text};
use zoolet_sim::client::create;

const TIMEOUT_MS: i32 = 30_000;

fn lock() -> Request {
    Request::Write(create("/lock", 1, CreateKind::Ephemeral))
}

fn look() -> Request {
    Request::Exists { path: Text::from("/lock"), watch: false }
}

/// Returns a lock's holder in `home`'s process, and a waiting client.
fn holds_at(members: &mut Members, home: u8, watch_at: u8) -> (Client, Client) {
    let holder = members.client_in_process(home, TIMEOUT_MS);
    members.ask(&holder, lock()).unwrap();
    let waiter = members.client(watch_at, TIMEOUT_MS);
    assert!(members.ask(&waiter, look()).is_ok());
    (holder, waiter)
}

#[test]
fn restart_of_a_learner_ends_its_in_process_sessions_at_once() {
    let mut members = Members::born(3);
    let (leader, home) = (members.leader(), members.learners()[0]);
    let (_, waiter) = holds_at(&mut members, home, leader);
    let outside = members.client(home, TIMEOUT_MS);
    members.stop(home);
    members.advance(100);
    assert!(members.ask(&waiter, look()).is_ok(), "it may come back");
    members.start(home);
    members.until_all_serve();
    members.settle();
    assert_eq!(members.ask(&waiter, look()), Err(ErrorCode::NoNode));
    let mut back = outside;
    members.come_back(&mut back, home, 0);
    members.advance(100);
    assert!(matches!(members.told(&back)[..], [Told::Connected(reply)] if reply.session == back.session));
}

#[test]
fn restart_of_the_leader_ends_its_in_process_sessions_at_once() {
    let mut members = Members::born(3);
    let (home, other) = (members.leader(), members.learners()[0]);
    let (_, waiter) = holds_at(&mut members, home, other);
    members.stop(home);
    members.until_all_serve();
    assert!(members.ask(&waiter, look()).is_ok(), "it may come back");
    members.start(home);
    members.until_all_serve();
    members.settle();
    assert_eq!(members.ask(&waiter, look()), Err(ErrorCode::NoNode));
}

/// Regression: seed 53 under faults. All servers lost power. The learner learned of the commit,
/// applied it, and listed its sessions before the leader had applied as much.
#[test]
fn leader_not_yet_serving_ends_sessions_of_a_restarted_server() {
    let mut members = Members::born(3);
    let home = 1;
    let other = members.client(2, TIMEOUT_MS);
    members.ask(&other, Request::Write(create("/before", 1, CreateKind::Persistent))).unwrap();
    holds_at(&mut members, home, 2);
    let sessions = members.server(home).sessions();
    members.ids().for_each(|server| members.stop(server));
    members.mute.extend([2, 3]);
    members.ids().for_each(|server| members.start(server));
    members.until_serves(home);
    members.advance(100);
    let leader = members.ids().find(|&server| members.server(server).leads()).unwrap();
    assert!(leader != home && !members.server(leader).is_serving());
    members.mute.clear();
    members.until_all_serve();
    members.settle();
    assert_eq!(members.server(leader).sessions(), sessions - 1);
    let after = members.client(leader, TIMEOUT_MS);
    assert_eq!(members.ask(&after, look()), Err(ErrorCode::NoNode));
}

/// Regression: seed 9101887. The leader's disk was slow. It had not applied the session's beginning
/// when the server's new process listed its sessions.
#[test]
fn slow_leader_ends_a_restarted_servers_unapplied_sessions() {
    let mut members = Members::born(3);
    let (leader, home) = (members.leader(), members.learners()[0]);
    members.hanging.insert(leader);
    let held = members.client_in_process(home, TIMEOUT_MS);
    assert!(members.server(leader).applied().as_i64() < held.session.0);
    members.stop(home);
    members.start(home);
    members.until_serves(home);
    // A session of the new process, which the leader does not know either.
    let new = members.client_in_process(home, TIMEOUT_MS);
    assert!(members.server(leader).leads() && members.server(leader).applied().as_i64() < held.session.0);
    members.hanging.clear();
    members.settle();
    assert_eq!(members.server(leader).sessions(), 1, "the former one is over");
    assert_eq!(members.ask(&new, Request::Ping), Ok(Reply::Empty));
}

/// Regression: a new process lists its sessions once. The list arrived while the leader could
/// propose nothing.
#[test]
fn leader_resuming_after_a_hand_over_ends_a_restarted_servers_sessions() {
    let mut members = Members::born(3);
    let (leader, home, target) = (members.leader(), members.learners()[0], members.learners()[1]);
    let (_, waiter) = holds_at(&mut members, home, leader);
    members.stop(home);
    members.hold(target, leader);
    members.send(&waiter, 7, Request::Write(create("/late", 1, CreateKind::Persistent)));
    members.command(leader, |server, now| server.hand_over(now));
    members.start(home);
    members.advance(200);
    assert!(members.server(leader).zab().is_handing_over() && members.server(home).is_serving());
    members.advance(2000);
    members.release(target, leader);
    members.advance(1000);
    assert!(members.server(leader).leads(), "it was given up");
    members.told(&waiter);
    assert_eq!(members.ask(&waiter, look()), Err(ErrorCode::NoNode));
}

#[test]
fn restarted_single_server_ends_its_in_process_sessions() {
    let mut members = Members::born(1);
    holds_at(&mut members, 1, 1);
    let outside = members.client(1, TIMEOUT_MS);
    members.stop(1);
    members.start(1);
    members.until_all_serve();
    members.settle();
    assert_eq!(members.server(1).sessions(), 2);
    let mut back = outside;
    members.come_back(&mut back, 1, 0);
    members.settle();
    assert!(matches!(members.told(&back)[..], [Told::Connected(reply)] if reply.session == back.session));
    assert_eq!(members.ask(&back, look()), Err(ErrorCode::NoNode));
}

#[test]
fn in_process_sessions_survive_when_their_server_only_loses_links() {
    let mut members = Members::born(3);
    let (leader, home) = (members.leader(), members.learners()[0]);
    let (holder, waiter) = holds_at(&mut members, home, leader);
    members.unlink(home, leader);
    // The server closes this connection, because it waits for an answer. The owner's process lives
    // on.
    members.send(&holder, 5, Request::Sync { path: Some(Text::from("/")) });
    members.leave(&holder);
    members.advance(50);
    members.link(home, leader);
    members.until_all_serve();
    members.advance(500);
    assert!(members.ask(&waiter, look()).is_ok());
    let mut back = holder;
    members.come_back(&mut back, home, 0);
    members.advance(100);
    assert!(matches!(members.told(&back)[..], [Told::Connected(reply)] if reply.session == back.session));
    members.stop(leader);
    members.until_all_serve();
    members.advance(500);
    assert_eq!(members.ask(&back, Request::Ping), Ok(Reply::Empty));
    assert!(members.ask(&back, look()).is_ok());
}
