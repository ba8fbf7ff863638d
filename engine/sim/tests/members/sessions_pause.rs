//! Servers that were paused for longer than `staleness_max_ms`.
//!
//! Requests that arrive after the pause are answered from no older state than the leader confirms.
//! Everything in flight before the pause continues.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told};
use bytes::Bytes;
use zoolet_machine::{Event, Server};
use zoolet_model::{CreateKind, ErrorCode, Reply, Request};
use zoolet_sim::client::{create, delete, get, set};

const TIMEOUT_MS: i32 = 9000;
/// A pause longer than a server may lag and shorter than a link's silence.
///
/// The bounds are 3 s and 5 s.
const PAUSE_MS: u64 = 4000;

fn write(path: &'static str, bytes: usize) -> Request {
    Request::Write(set(path, bytes))
}

fn born(path: &'static str) -> Request {
    Request::Write(create(path, 0, CreateKind::Persistent))
}

/// Returns each answer's xid with its error or the bytes shown.
fn answers(told: &[Told]) -> Vec<(i32, Result<usize, ErrorCode>)> {
    let answer = |told: &Told| match told {
        Told::Reply(xid, _, Ok(Reply::Data(data, _))) => Some((*xid, Ok(data.as_ref().map_or(0, Bytes::len)))),
        Told::Reply(xid, _, result) => Some((*xid, result.as_ref().map(|_| 0).map_err(|&code| code))),
        Told::Connected(_) | Told::Notified(_) | Told::Closed => None,
    };
    told.iter().filter_map(answer).collect()
}

/// Returns an ensemble with `/a`, a learner and two of its clients.
///
/// One client lives in the learner's process, the other connects over TCP.
fn with_two_clients_of_a_learner() -> (Members, u8, Client, Client) {
    let mut members = Members::born(3);
    let learner = members.learners()[0];
    let (daemon, other) = (members.client_in_process(learner, TIMEOUT_MS), members.client(learner, TIMEOUT_MS));
    members.ask(&daemon, born("/a")).unwrap();
    (members, learner, daemon, other)
}

/// Pauses a server while the others continue.
///
/// Afterwards the server first handles the messages that its peers sent meanwhile.
fn pause(members: &mut Members, server: u8, ms: u64) {
    members.paused.insert(server);
    members.advance(ms);
    members.paused.clear();
    for peer in members.ids() {
        if peer != server {
            members.deliver(peer, server);
        }
    }
}

/// Regression: a deadlock. The learner forwarded the second write before the read had its outcome.
/// The write's entry returned after the pause and waited for the read. The read waited for the end
/// of the pause, and the pause for the entry to be applied.
#[test]
fn learner_paused_over_a_pipelined_set_get_set_keeps_applying() {
    let (mut members, learner, daemon, other) = with_two_clients_of_a_learner();
    members.send(&daemon, 1, write("/a", 11));
    members.send(&daemon, 2, get("/a"));
    members.send(&daemon, 3, write("/a", 33));
    pause(&mut members, learner, PAUSE_MS);
    members.advance(100);
    assert_eq!(answers(&members.told(&daemon)), [(1, Ok(0)), (2, Ok(11)), (3, Ok(0))]);
    assert!(members.told(&other).is_empty(), "nobody was sent away");
    for client in [daemon, other] {
        members.send(&client, 4, get("/a"));
        members.advance(10);
        assert_eq!(answers(&members.told(&client)), [(4, Ok(33))]);
    }
}

/// The same with a refusal, which is answered in its turn.
#[test]
fn learner_paused_over_a_refused_write_and_a_delete_keeps_applying() {
    let (mut members, learner, daemon, other) = with_two_clients_of_a_learner();
    let leader = members.leader();
    members.handle(leader, Event::LogStalled { is_read_only: false });
    members.send(&daemon, 1, born("/b"));
    members.deliver(learner, leader);
    members.handle(leader, Event::LogResumed);
    members.send(&daemon, 2, Request::Write(delete("/a")));
    pause(&mut members, learner, PAUSE_MS);
    members.advance(100);
    assert_eq!(answers(&members.told(&daemon)), [(1, Err(ErrorCode::SystemError)), (2, Ok(0))]);
    for client in [daemon, other] {
        members.send(&client, 3, get("/a"));
        members.advance(10);
        assert_eq!(answers(&members.told(&client)), [(3, Err(ErrorCode::NoNode))]);
    }
}

/// The learner first reads its clients' sockets. Clients sent requests during the pause, and other
/// servers' clients wrote.
#[test]
fn requests_to_a_learner_after_a_pause_wait_for_its_leader() {
    let (mut members, learner, daemon, other) = with_two_clients_of_a_learner();
    let writer = members.client(members.leader(), TIMEOUT_MS);
    members.paused.insert(learner);
    members.advance(PAUSE_MS - 1000);
    members.ask(&writer, write("/a", 22)).unwrap();
    members.advance(1000);
    members.paused.clear();
    let leader = members.leader();
    for client in [daemon, other] {
        members.send(&client, 1, get("/a"));
        assert!(members.told(&client).is_empty(), "its leader was not asked yet");
    }
    members.deliver(leader, learner);
    members.advance(100);
    for client in [daemon, other] {
        assert_eq!(answers(&members.told(&client)), [(1, Ok(22))]);
    }
}

/// Regression: the leader was heard again before any deadline was due, and the held-back request
/// was forgotten.
#[test]
fn request_held_during_leader_silence_is_answered_when_it_ends() {
    let (mut members, learner, daemon, other) = with_two_clients_of_a_learner();
    let leader = members.leader();
    let writer = members.client(leader, TIMEOUT_MS);
    members.advance(1000);
    members.cut(leader, learner);
    members.ask(&writer, born("/b")).unwrap();
    members.advance(2000);
    // Events come, and no deadline is noticed.
    for _ in 0..6 {
        members.jump(190);
        members.ids().for_each(|server| drop(members.status(server)));
    }
    members.send(&other, 1, get("/a"));
    assert!(members.told(&other).is_empty(), "its leader was not heard for too long");
    members.release(leader, learner);
    members.command(leader, Server::ping_on_time);
    members.deliver(leader, learner);
    members.release_all();
    members.advance(100);
    assert_eq!(answers(&members.told(&other)), [(1, Ok(0))]);
    assert!(members.told(&daemon).is_empty());
}

/// Without a leader, clients are served for two seconds. The server's own clock says that they are
/// over.
#[test]
fn leaderless_server_closes_its_connections_after_a_pause() {
    let (mut members, learner, daemon, other) = with_two_clients_of_a_learner();
    let leader = members.leader();
    let third = members.ids().find(|&id| id != leader && id != learner).unwrap();
    members.cut(learner, third);
    members.stop(leader);
    members.advance(100);
    assert!(!members.server(learner).is_serving());
    for client in [daemon, other] {
        assert_eq!(answers(&members.told(&client)), []);
        members.send(&client, 1, get("/a"));
        assert_eq!(answers(&members.told(&client)), [(1, Ok(0))], "for a while");
    }
    pause(&mut members, learner, PAUSE_MS);
    for client in [daemon, other] {
        members.send(&client, 2, get("/a"));
        assert!(members.is_just_closed(&client));
    }
}

/// The others have elected a new leader. The deposed one hears its clients before its peers.
#[test]
fn deposed_leader_after_a_pause_answers_no_read() {
    let mut members = Members::born(3);
    let (deposed, servers) = (members.leader(), members.learners());
    let (daemon, other) = (members.client_in_process(deposed, 60_000), members.client(deposed, 60_000));
    members.ask(&daemon, born("/a")).unwrap();
    members.advance(1000);
    members.paused.insert(deposed);
    members.advance(PAUSE_MS);
    let next = members.leader_of(&servers);
    let writer = members.client(next, TIMEOUT_MS);
    members.ask(&writer, write("/a", 22)).unwrap();
    members.paused.clear();
    for client in [daemon, other] {
        members.send(&client, 1, get("/a"));
    }
    assert!(members.server(deposed).leads(), "it does not know yet");
    members.advance(100);
    for client in [daemon, other] {
        assert!(members.is_just_closed(&client));
    }
}

/// All servers paused together, as when the machine that runs them is suspended.
#[test]
fn leader_after_a_pause_answers_once_a_quorum_confirms_it() {
    let mut members = Members::born(3);
    let leader = members.leader();
    let (daemon, other) = (members.client_in_process(leader, 60_000), members.client(leader, 60_000));
    members.ask(&daemon, born("/a")).unwrap();
    members.send(&daemon, 1, write("/a", 11));
    members.send(&daemon, 2, get("/a"));
    members.send(&daemon, 3, write("/a", 33));
    members.jump(PAUSE_MS);
    members.send(&daemon, 4, get("/a"));
    members.send(&other, 1, get("/a"));
    assert!(members.told(&daemon).is_empty() && members.told(&other).is_empty(), "nobody was asked yet");
    for learner in members.learners() {
        members.deliver(leader, learner);
        members.deliver(learner, leader);
    }
    members.advance(100);
    assert_eq!(answers(&members.told(&daemon)), [(1, Ok(0)), (2, Ok(11)), (3, Ok(0)), (4, Ok(33))]);
    assert_eq!(answers(&members.told(&other)), [(1, Ok(0))], "neither set was committed when it asked");
}

/// No other server has to confirm it.
#[test]
fn leader_as_the_only_voter_answers_at_once_after_a_pause() {
    for observers in [0, 1] {
        let mut members = Members::born_of_one_voter(observers);
        let client = members.client(members.leader(), 60_000);
        members.ask(&client, born("/a")).unwrap();
        members.jump(PAUSE_MS);
        members.send(&client, 1, get("/a"));
        assert_eq!(answers(&members.told(&client)), [(1, Ok(0))], "{observers} observers");
    }
}
