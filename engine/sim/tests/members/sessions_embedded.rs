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
fn when_a_learners_process_is_another_one_its_former_sessions_end_at_once() {
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
fn when_the_leaders_process_is_another_one_its_former_sessions_end_at_once_too() {
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
fn a_leader_that_has_not_applied_them_yet_when_it_hears_of_the_other_process_ends_them_all_the_same() {
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
fn a_leader_that_serves_and_has_not_applied_their_beginning_ends_them_too() {
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
fn a_leader_that_was_handing_over_when_it_heard_of_the_other_process_ends_them_when_it_goes_on() {
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
fn a_server_alone_ends_them_when_it_starts_again() {
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
fn a_process_that_only_lost_its_links_keeps_its_sessions_connected_or_not() {
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
