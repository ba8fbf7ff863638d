//! Clients of the surviving servers when the leader is lost: each request is answered once, in order.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told, born, write};
use bytes::Bytes;
use zoolet_machine::PeerMessage;
use zoolet_machine::seam::event::Shortage;
use zoolet_machine::txn::{self, Txn};
use zoolet_machine::{ConnId, Event, Limits, Settings};
use zoolet_model::{ConnectRequest, CreateKind, ErrorCode, Reply, Request, ServerId, SessionId, Text};
use zoolet_sim::client::{create, delete, get};
use zoolet_zab::Message;

const TIMEOUT_MS: i32 = 30_000;

fn sync() -> Request {
    Request::Sync { path: Some(Text::from("/")) }
}

/// Returns each answer's xid with its error or the version shown; -1 if a success shows none.
fn answers(told: &[Told]) -> Vec<(i32, Result<i32, ErrorCode>)> {
    told.iter()
        .map(|told| match told {
            Told::Reply(xid, _, Ok(Reply::Data(_, stat) | Reply::Stat(stat))) => (*xid, Ok(stat.version)),
            Told::Reply(xid, _, Ok(_)) => (*xid, Ok(-1)),
            Told::Reply(xid, _, Err(code)) => (*xid, Err(*code)),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn version_of(members: &mut Members, client: &Client, path: &str) -> i32 {
    match members.ask(client, get(path)) {
        Ok(Reply::Data(_, stat)) => stat.version,
        other => panic!("{other:?}"),
    }
}

fn forwards(members: &Members, from: u8) -> usize {
    let is_forward = |said: &&(u8, u8, PeerMessage)| said.0 == from && matches!(said.2, PeerMessage::Forward { .. });
    members.said.iter().filter(is_forward).count()
}

/// Returns the number of the last entry that a leader received from this server.
fn last_number(members: &Members, from: u8) -> u64 {
    let forward = members.said.iter().rev().find_map(|said| match &said.2 {
        PeerMessage::Forward { payload, .. } if said.0 == from => txn::forwarder(payload),
        _ => None,
    });
    let forwarder = forward.unwrap();
    assert_eq!(Some(forwarder.server), ServerId::new(from));
    forwarder.number
}

/// Returns an ensemble with a client at each learner, and the znode `/a`.
fn with_clients() -> (Members, u8, [Client; 2]) {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let clients = [0, 1].map(|at| members.client(servers[at], TIMEOUT_MS));
    members.ask(&clients[0], born("/a")).unwrap();
    (members, leader, clients)
}

/// Kills the leader. The others elect none until their link is released.
fn lose(members: &mut Members, leader: u8) {
    let others: Vec<_> = members.ids().filter(|&server| server != leader).collect();
    members.cut(others[0], others[1]);
    members.stop(leader);
}

/// Kills the leader, and lets the others serve under a next one.
fn lose_and_elect(members: &mut Members, leader: u8) {
    members.stop(leader);
    members.release_all();
    members.until_all_serve();
    members.settle();
}

/// Restarts the leader, which goes on with the second server. The first one is cut off from both.
fn restart_apart(members: &mut Members, leader: u8, [apart, other]: [u8; 2]) {
    members.unlink(apart, leader);
    members.unlink(apart, other);
    members.stop(leader);
    members.hanging.clear();
    members.release_all();
    members.cut(apart, leader);
    members.start(leader);
    members.unlink(apart, leader);
    members.release_all();
}

/// One of the clients is at the server that leads next.
#[test]
fn write_that_its_leader_never_received_is_done_once_by_the_next_one() {
    let (mut members, leader, clients) = with_clients();
    for client in &clients {
        members.hold(client.server, leader);
        members.send(client, 1, write("/a"));
        members.send(client, 2, get("/a"));
    }
    members.settle();
    lose(&mut members, leader);
    members.advance(500);
    clients.iter().for_each(|client| assert!(members.told(client).is_empty(), "it waits"));
    members.release_all();
    members.until_all_serve();
    members.settle();
    let mut versions = Vec::new();
    for client in &clients {
        let told = answers(&members.told(client));
        let [(1, Ok(written)), (2, Ok(read))] = told[..] else { panic!("{told:?}") };
        assert!(read >= written, "a session reads its own write");
        versions.push(written);
    }
    versions.sort_unstable();
    assert_eq!(versions, [1, 2]);
    let again: u64 = clients.iter().map(|client| members.server(client.server).writes_asked_again()).sum();
    assert_eq!((version_of(&mut members, &clients[0], "/a"), again), (2, 2));
}

#[test]
fn write_in_the_next_leaders_history_is_answered_and_not_done_again() {
    let (mut members, leader, clients) = with_clients();
    // Both learners have the entries, but the leader does not hear their acks.
    for client in &clients {
        members.send(client, 1, write("/a"));
        members.deliver(client.server, leader);
    }
    members.hanging.insert(leader);
    clients.iter().for_each(|client| members.hold(client.server, leader));
    members.settle();
    lose_and_elect(&mut members, leader);
    let mut told: Vec<_> = clients.iter().flat_map(|client| answers(&members.told(client))).collect();
    told.sort_unstable_by_key(|(_, version)| version.unwrap());
    assert_eq!(told, [(1, Ok(1)), (1, Ok(2))]);
    let again: u64 = clients.iter().map(|client| members.server(client.server).writes_asked_again()).sum();
    assert_eq!((version_of(&mut members, &clients[1], "/a"), again), (2, 0));
}

/// Only the server of the client, which is cut off meanwhile, has the entry on its disk.
#[test]
fn write_that_the_next_leader_cuts_off_is_done_once() {
    let (mut members, leader, [client, other]) = with_clients();
    members.hanging.insert(leader);
    members.hold(leader, other.server);
    members.send(&client, 1, write("/a"));
    members.settle();
    restart_apart(&mut members, leader, [client.server, other.server]);
    for server in [leader, other.server] {
        members.until_serves(server);
    }
    assert!(members.told(&client).is_empty());
    let writer = members.client(leader, TIMEOUT_MS);
    members.ask(&writer, write("/a")).unwrap();
    members.link(client.server, leader);
    members.link(client.server, other.server);
    members.until_all_serve();
    members.settle();
    assert_eq!(answers(&members.told(&client)), [(1, Ok(2))]);
    assert_eq!(members.server(client.server).writes_asked_again(), 1);
    assert_eq!(version_of(&mut members, &other, "/a"), 2);
}

/// The leader has some of the writes, and has sent some of these.
#[test]
fn pipelined_writes_stay_in_order_over_a_lost_leader() {
    for (received, returned) in [(0, 0), (4, 0), (4, 2), (8, 5)] {
        let (mut members, leader, [client, _]) = with_clients();
        members.hanging.extend(members.ids());
        let mut xid = 0;
        let mut send = |members: &mut Members, count: i32| {
            for _ in 0..count {
                members.send(&client, xid + 1, write("/a"));
                members.send(&client, xid + 2, get("/a"));
                xid += 2;
            }
        };
        send(&mut members, returned);
        members.settle();
        members.hold(leader, client.server);
        members.hold(leader, members.learners()[1]);
        send(&mut members, received - returned);
        members.settle();
        members.hold(client.server, leader);
        send(&mut members, 10 - received);
        members.settle();
        members.stop(leader);
        members.hanging.clear();
        members.release_all();
        members.until_all_serve();
        members.settle();
        let expected: Vec<_> = (1..=20).map(|xid| (xid, Ok((xid + 1) / 2))).collect();
        assert_eq!(answers(&members.told(&client)), expected, "{received} received, {returned} returned");
        assert_eq!(members.server(client.server).writes_asked_again(), 10 - returned as u64);
    }
}

/// An entry waits for the requests before it. A ping among them must not wait for the entry's
/// leader. The writes are in the history of the next leader, which one of the clients is at.
#[test]
fn ping_between_pipelined_writes_does_not_hold_up_the_next_leader() {
    let (mut members, leader, clients) = with_clients();
    for client in &clients {
        for (xid, request) in [(1, write("/a")), (-2, Request::Ping), (2, write("/a"))] {
            members.send(client, xid, request);
        }
        members.deliver(client.server, leader);
    }
    members.hanging.insert(leader);
    clients.iter().for_each(|client| members.hold(client.server, leader));
    members.settle();
    members.stop(leader);
    members.release_all();
    members.advance(100);
    members.ids().filter(|&server| server != leader).for_each(|server| assert!(members.server(server).is_serving()));
    for client in &clients {
        let told = answers(&members.told(client));
        assert!(matches!(told[..], [(1, Ok(_)), (-2, Ok(-1)), (2, Ok(_))]), "{told:?}");
    }
}

/// The entry with which a server serves again begins a session, or reveals a lost refusal.
#[test]
fn last_entry_before_a_server_serves_again_is_finished_first() {
    let (mut members, leader, [client, _]) = with_clients();
    members.hanging.extend([leader, client.server, members.learners()[1]]);
    let (conn, request) = (members.conn(), ConnectRequest::for_new_session(TIMEOUT_MS));
    members.handle(client.server, Event::Connect { conn, peer: None, request });
    members.settle();
    members.unlink(client.server, leader);
    members.hanging.clear();
    members.settle();
    members.link(client.server, leader);
    members.until_all_serve();
    members.advance(1000);
    let told = members.take(client.server, conn);
    assert!(matches!(told[..], [Told::Connected(_)]), "{told:?}");
    assert_eq!(members.server(leader).sessions(), 3, "its server names it among the sessions of its process");
}

#[test]
fn write_whose_refusal_is_lost_with_the_link_is_not_done_behind_a_later_one() {
    let (mut members, leader, [client, other]) = with_clients();
    refuse_writes(&mut members, leader);
    members.hold(leader, client.server);
    members.send(&client, 1, born("/b"));
    members.send(&client, 2, Request::Write(delete("/a")));
    members.settle();
    members.unlink(client.server, leader);
    members.handle(leader, Event::Space { shortage: None });
    members.release_all();
    members.link(client.server, leader);
    members.until_all_serve();
    members.settle();
    assert_eq!(members.leader(), leader, "there was no election");
    assert!(matches!(members.told(&client)[..], [Told::Closed]));
    assert_eq!(members.ask(&other, get("/a")), Err(ErrorCode::NoNode), "the later one was done");
    assert_eq!(members.ask(&other, get("/b")), Err(ErrorCode::NoNode));
}

/// The learner loses only its link. Its leader goes on in the same epoch.
#[test]
fn write_in_flight_over_a_lost_link_is_done_once() {
    for is_received in [false, true] {
        let (mut members, leader, [client, _]) = with_clients();
        let (from, to) = if is_received { (leader, client.server) } else { (client.server, leader) };
        members.hold(from, to);
        members.send(&client, 1, write("/a"));
        members.settle();
        members.unlink(client.server, leader);
        members.release_all();
        members.link(client.server, leader);
        members.until_all_serve();
        members.settle();
        assert_eq!(members.leader(), leader, "there was no election");
        assert_eq!(answers(&members.told(&client)), [(1, Ok(1))], "received: {is_received}");
        assert_eq!(members.server(client.server).writes_asked_again(), u64::from(!is_received));
    }
}

#[test]
fn syncs_and_handshakes_are_asked_of_the_next_leader() {
    let (mut members, leader, [client, other]) = with_clients();
    let mut returning = members.client(other.server, TIMEOUT_MS);
    members.hold(client.server, leader);
    members.send(&client, 1, sync());
    members.send(&client, 2, get("/a"));
    let joining = members.connect(client.server, ConnectRequest::for_new_session(TIMEOUT_MS));
    members.leave(&returning);
    members.come_back(&mut returning, client.server, 0);
    members.settle();
    lose(&mut members, leader);
    let newcomer = members.connect(client.server, ConnectRequest::for_new_session(TIMEOUT_MS));
    for conn in [joining, newcomer] {
        members.send(&Client { conn, ..client }, 1, get("/a"));
    }
    members.settle();
    assert!(members.told(&client).is_empty());
    members.release_all();
    members.until_all_serve();
    members.settle();
    assert_eq!(answers(&members.told(&client)), [(1, Ok(-1)), (2, Ok(0))]);
    let begun = [joining, newcomer].map(|conn| match members.take(client.server, conn)[..] {
        [Told::Connected(reply), Told::Reply(1, _, Ok(_))] => reply.session,
        ref other => panic!("{other:?}"),
    });
    assert_ne!(begun[0], begun[1]);
    assert!(matches!(members.told(&returning)[..], [Told::Connected(reply)] if reply.session == returning.session));
    assert_eq!(members.server(client.server).sessions(), 5);
}

/// The session's beginning is in the history of the next leader.
#[test]
fn session_that_began_over_a_lost_leader_begins_once() {
    let (mut members, leader, [client, other]) = with_clients();
    let joining = members.connect(client.server, ConnectRequest::for_new_session(TIMEOUT_MS));
    members.deliver(client.server, leader);
    members.hanging.insert(leader);
    [client.server, other.server].iter().for_each(|&from| members.hold(from, leader));
    members.settle();
    lose_and_elect(&mut members, leader);
    assert!(matches!(members.take(client.server, joining)[..], [Told::Connected(_)]));
    assert_eq!(members.server(client.server).sessions(), 3);
}

/// Regression: a leader that had not applied the beginning of a session refused the session's entries,
/// as those of an expired one. Either learner is the one that leads next.
#[test]
fn leader_that_has_not_applied_a_session_yet_lets_its_writes_wait() {
    let mut slow_led = Vec::new();
    for first in [0, 1] {
        let (mut members, leader, clients) = with_clients();
        let (client, slow) = (&clients[first], clients[1 - first].server);
        members.mute.insert(slow);
        // The base must tell whether a znode exists, so the slow server applies nothing more.
        members.ask(client, born("/fetched")).unwrap();
        let young = members.client(client.server, TIMEOUT_MS);
        members.cut(client.server, leader);
        members.send(&young, 1, write("/a"));
        members.stop(leader);
        members.release_all();
        members.advance(1000);
        members.mute.clear();
        members.until_all_serve();
        members.settle();
        assert!(matches!(answers(&members.told(&young))[..], [(1, Ok(_))]), "server {slow} was slow");
        slow_led.push(members.leader() == slow);
    }
    assert!(slow_led.contains(&true), "the slow server never led");
}

/// A connection to `here` whose client asks for a session.
struct Asking {
    leader: u8,
    here: u8,
    there: u8,
    conn: ConnId,
}

/// Returns an ensemble with a session at each learner, and room for `sessions_max`. A client at one
/// learner asks for another session, and the leader does not hear of it.
fn with_a_client_asking(first: usize, sessions_max: u32) -> (Members, Asking) {
    let limits = Limits { sessions_max, ..Limits::default() };
    let mut members = Members::born_with(3, Settings::default(), limits);
    let (leader, servers) = (members.leader(), members.learners());
    let [here, there] = [servers[first], servers[1 - first]];
    members.client(here, TIMEOUT_MS);
    members.client(there, TIMEOUT_MS);
    members.hold(here, leader);
    let conn = members.connect(here, ConnectRequest::for_new_session(TIMEOUT_MS));
    (members, Asking { leader, here, there, conn })
}

/// Either learner is the one that leads next.
#[test]
fn sessions_max_holds_for_sessions_that_a_lost_leader_did_not_begin() {
    let mut leaders = Vec::new();
    for first in [0, 1] {
        let (mut members, Asking { leader, here, there, conn }) = with_a_client_asking(first, 3);
        members.settle();
        members.client(there, TIMEOUT_MS);
        lose_and_elect(&mut members, leader);
        assert_eq!(members.server(here).sessions(), 3, "server {here} had the waiting client");
        assert!(matches!(members.take(here, conn)[..], [Told::Closed]));
        leaders.push(members.leader() == here);
    }
    assert!(leaders.contains(&true) && leaders.contains(&false), "its server led in one round");
}

/// Regression: the client that had left counted, and the other one was refused.
#[test]
fn client_that_left_while_its_session_was_asked_of_a_lost_leader_takes_no_place() {
    let mut leaders = Vec::new();
    for first in [0, 1] {
        let (mut members, Asking { leader, here, there, conn }) = with_a_client_asking(first, 4);
        let leaves = members.connect(here, ConnectRequest::for_new_session(TIMEOUT_MS));
        members.handle(here, Event::Disconnected { conn: leaves });
        members.client(there, TIMEOUT_MS);
        lose_and_elect(&mut members, leader);
        assert!(matches!(members.take(here, conn)[..], [Told::Connected(_)]));
        leaders.push(members.leader() == here);
    }
    assert!(leaders.contains(&true), "its server never led");
}

#[test]
fn session_that_its_owner_closes_over_a_lost_leader_ends_at_once() {
    let (mut members, leader, [client, other]) = with_clients();
    members.ask(&client, Request::Write(create("/e", 1, CreateKind::Ephemeral))).unwrap();
    members.hold(client.server, leader);
    members.send(&client, 1, Request::CloseSession);
    members.settle();
    lose_and_elect(&mut members, leader);
    let told = members.told(&client);
    assert!(matches!(told[..], [Told::Reply(1, _, Ok(Reply::Empty)), Told::Closed]), "{told:?}");
    assert_eq!(members.ask(&other, get("/e")), Err(ErrorCode::NoNode));
}

/// A client that has left hears no answer. Its write must not take effect behind its later work.
#[test]
fn write_of_a_client_that_has_left_is_not_done_by_the_next_leader() {
    let (mut members, leader, [client, other]) = with_clients();
    members.hold(client.server, leader);
    members.send(&client, 1, write("/a"));
    members.settle();
    members.leave(&client);
    lose_and_elect(&mut members, leader);
    assert_eq!(version_of(&mut members, &other, "/a"), 0);
    assert_eq!(members.server(client.server).under_way(), usize::from(other.server == client.server));
}

fn refuse_writes(members: &mut Members, leader: u8) {
    members.handle(leader, Event::Space { shortage: Some(Shortage::Disk) });
}

/// The leader refuses a write and takes the one behind it, which only deletes. It is lost with the
/// refusal, and the next leader has the later one in its history.
fn lose_a_refusal() -> Vec<Told> {
    let (mut members, leader, [client, other]) = with_clients();
    refuse_writes(&mut members, leader);
    members.hold(leader, client.server);
    members.send(&client, 1, born("/b"));
    members.send(&client, 2, Request::Write(delete("/a")));
    members.settle();
    lose_and_elect(&mut members, leader);
    assert_eq!(members.ask(&other, get("/a")), Err(ErrorCode::NoNode), "the later one was done");
    members.told(&client)
}

#[test]
fn write_behind_a_lost_refusal_is_not_answered_before_it() {
    let told = lose_a_refusal();
    assert!(matches!(told[..], [Told::Closed]), "{told:?}");
}

#[cfg(feature = "mutations")]
#[test]
#[should_panic(expected = "Reply(2")]
fn lost_refusal_ignored_mutation_answers_the_later_write_first() {
    zoolet_zab::mutation::set(Some(zoolet_zab::Mutation::LostRefusalIgnored));
    write_behind_a_lost_refusal_is_not_answered_before_it();
}

/// The refusal arrives although its leader leads no longer.
#[test]
fn refusal_of_a_leader_that_is_lost_meanwhile_is_answered() {
    let (mut members, leader, [client, other]) = with_clients();
    refuse_writes(&mut members, leader);
    members.hold(leader, client.server);
    members.send(&client, 1, born("/b"));
    members.settle();
    members.unlink(client.server, other.server);
    members.unlink(leader, other.server);
    members.command(leader, |server, now| server.hand_over(now));
    members.release_all();
    for (a, b) in [(client.server, other.server), (leader, other.server)] {
        members.link(a, b);
    }
    members.until_all_serve();
    members.settle();
    assert_eq!(answers(&members.told(&client)), [(1, Err(ErrorCode::SystemError))]);
}

#[test]
fn only_the_leader_that_got_an_entry_can_refuse_it() {
    let (mut members, leader, [client, other]) = with_clients();
    members.ask(&client, write("/a")).unwrap();
    let number = last_number(&members, client.server) + 1;
    members.hold(client.server, leader);
    members.send(&client, 1, write("/a"));
    for from in [other.server, leader] {
        members.inject(from, client.server, PeerMessage::Refused { number, code: ErrorCode::SystemError });
        members.settle();
        let expected = if from == leader { vec![(1, Err(ErrorCode::SystemError))] } else { vec![] };
        assert_eq!(answers(&members.told(&client)), expected);
    }
}

/// A client may send a password of kilobytes, and a frame is kept as long as any part of it.
#[test]
fn client_that_waits_for_a_leader_keeps_no_part_of_its_first_frame() {
    let (mut members, leader, [mut client, other]) = with_clients();
    lose(&mut members, leader);
    let mut waiting = Vec::new();
    for (session, password) in [
        (client.session, client.secret.to_vec()),
        (client.session, vec![7; 16]),
        (client.session, vec![7; 3000]),
        (SessionId::NONE, vec![7; 3000]),
    ] {
        let frame = Bytes::from(password);
        let password = Some(frame.slice(..));
        let request = ConnectRequest { session, password, ..ConnectRequest::for_new_session(TIMEOUT_MS) };
        waiting.push(members.connect(other.server, request));
        assert!(frame.is_unique(), "{} bytes are kept", frame.len());
    }
    members.release_all();
    members.until_all_serve();
    members.settle();
    let told: Vec<_> = waiting.iter().map(|&conn| members.take(other.server, conn)).collect();
    let sessions = told.iter().map(|told| match told[0] {
        Told::Connected(reply) => reply.session,
        ref other => panic!("{other:?}"),
    });
    let sessions: Vec<_> = sessions.collect();
    assert_eq!(sessions[..3], [client.session, SessionId::NONE, SessionId::NONE]);
    assert!(sessions[3] != SessionId::NONE && told[0].len() == 1 && told[3].len() == 1);
    (client.server, client.conn) = (other.server, waiting[0]);
    assert_eq!(version_of(&mut members, &client, "/a"), 0);
}

/// Returns after how many milliseconds each of the connections is closed; 0 for one that stays.
fn closing_times<const N: usize>(members: &mut Members, clients: &[Client; N], since_ms: u64) -> [u64; N] {
    let mut closed_ms = [0; N];
    for _ in 0..400 {
        members.advance(10);
        for (client, closed_ms) in clients.iter().zip(&mut closed_ms) {
            if members.is_just_closed(client) {
                *closed_ms = members.now.mono_ms - since_ms;
            }
        }
    }
    closed_ms
}

#[test]
fn clients_wait_for_2_s_or_three_tenths_of_their_timeout() {
    let (mut members, leader, [long, other]) = with_clients();
    let short = members.client(long.server, 5000);
    members.hold(long.server, leader);
    members.send(&long, 1, write("/a"));
    members.send(&short, 1, write("/a"));
    members.settle();
    members.stop(other.server);
    members.stop(leader);
    let at_ms = members.now.mono_ms;
    members.advance(1000);
    let newcomers = [5000, TIMEOUT_MS].map(|timeout_ms| {
        let conn = members.connect(long.server, ConnectRequest::for_new_session(timeout_ms));
        Client { conn, ..long }
    });
    let waiting = [short, long, newcomers[0], newcomers[1]];
    assert_eq!(closing_times(&mut members, &waiting, at_ms), [1500, 2000, 2000, 2000]);
    let late = members.connect(long.server, ConnectRequest::for_new_session(TIMEOUT_MS));
    assert!(matches!(members.take(long.server, late)[..], [Told::Closed]), "it finds another server sooner");
    waiting.iter().for_each(|client| members.leave(client));
    members.release_all();
    members.start(leader);
    members.until_serves(leader);
    members.advance(500);
    let reader = members.client(leader, TIMEOUT_MS);
    assert_eq!(version_of(&mut members, &reader, "/a"), 0, "a client that was sent away is not served afterwards");
}

/// The next leader has no room for the writes of the lost one's time at once.
#[test]
fn next_leader_without_room_takes_kept_writes_in_order_before_later_ones() {
    let limits = Limits { outstanding_bytes_max: 300, ..Limits::default() };
    let mut members = Members::born_with(3, Settings::default(), limits);
    let (leader, servers) = (members.leader(), members.learners());
    let clients = [0, 1].map(|at| members.client(servers[at], TIMEOUT_MS));
    members.ask(&clients[0], born("/a")).unwrap();
    members.ask(&clients[1], born("/b")).unwrap();
    for (client, path) in clients.iter().zip(["/a", "/b"]) {
        members.hold(client.server, leader);
        (1..=20).for_each(|xid| members.send(client, xid, write(path)));
    }
    members.settle();
    members.hanging.extend(&servers);
    members.stop(leader);
    members.release_all();
    let newcomers = servers.iter().map(|&server| (server, ConnectRequest::for_new_session(TIMEOUT_MS)));
    let mut newcomers: Vec<_> = newcomers.map(|(server, request)| (server, members.connect(server, request))).collect();
    for _ in 0..1000 {
        members.advance(10);
        servers.iter().for_each(|&server| members.persist_once(server));
        newcomers.retain(|&(server, conn)| !matches!(members.take(server, conn)[..], [Told::Connected(_)]));
        if newcomers.len() < 2 {
            break;
        }
    }
    let mut told = clients.each_ref().map(|client| answers(&members.told(client)));
    assert!(told.iter().all(|told| told.len() < 10), "a newcomer at the leader waits for no write");
    members.hanging.clear();
    members.until_all_serve();
    members.settle();
    for (server, conn) in newcomers {
        assert!(matches!(members.take(server, conn)[..], [Told::Connected(_)]));
    }
    for (client, path) in clients.iter().zip(["/a", "/b"]) {
        (21..=30).for_each(|xid| members.send(client, xid, write(path)));
    }
    members.settle();
    for (client, told) in clients.iter().zip(&mut told) {
        told.extend(answers(&members.told(client)));
        assert_eq!(*told, (1..=30).map(|xid| (xid, Ok(xid))).collect::<Vec<_>>());
    }
}

fn send_2100(members: &mut Members, client: &Client, path: &str) {
    for from in 0..3 {
        (1..=700).for_each(|xid| members.send(client, from * 700 + xid, write(path)));
        members.settle();
    }
}

/// Returns an ensemble whose leader cut off 2,100 writes of a client: more than a learner may have in
/// flight. Their server has asked for as many as it may, and the leader has no room, because of 2,100
/// writes of its own client.
fn cut_off_2100(settings: Settings) -> (Members, [Client; 2]) {
    // Room for about 1,400 entries.
    let limits = Limits { outstanding_bytes_max: 100_000, ..Limits::default() };
    let mut members = Members::born_with(3, settings, limits);
    let (leader, servers) = (members.leader(), members.learners());
    let [client, other] = [0, 1].map(|at| members.client(servers[at], TIMEOUT_MS));
    members.ask(&client, born("/a")).unwrap();
    members.ask(&client, born("/b")).unwrap();
    members.hanging.insert(leader);
    members.hold(leader, other.server);
    // Only the leader, which is cut off, has these entries.
    send_2100(&mut members, &client, "/a");
    restart_apart(&mut members, leader, [client.server, other.server]);
    members.until_serves(other.server);
    let next = members.leader_of(&[leader, other.server]);
    let own = members.client(next, TIMEOUT_MS);
    members.hanging.extend([leader, other.server]);
    send_2100(&mut members, &own, "/b");
    members.link(client.server, leader);
    members.link(client.server, other.server);
    members.settle();
    members.advance(100);
    assert_eq!(members.server(client.server).writes_asked_again(), 1024);
    (members, [client, own])
}

/// Makes all servers serve, and checks that each write of a client is done once, in order.
fn all_2100_are_done(members: &mut Members, client: &Client) {
    members.hanging.clear();
    members.until_all_serve();
    members.settle();
    assert_eq!(answers(&members.told(client)), (1..=2100).map(|xid| (xid, Ok(xid))).collect::<Vec<_>>());
}

#[test]
fn many_writes_that_a_leader_cuts_off_are_asked_again_as_room_allows() {
    let (mut members, [client, own]) = cut_off_2100(Settings::default());
    all_2100_are_done(&mut members, &client);
    assert_eq!(answers(&members.told(&own)), (1..=2100).map(|xid| (xid, Ok(xid))).collect::<Vec<_>>());
    assert!(members.server(own.server).leads(), "it dropped no link");
}

/// Regression: the writes that had been asked again went behind those that had not.
#[test]
fn writes_asked_again_of_a_leader_that_is_lost_too_stay_in_order() {
    let (mut members, [client, own]) = cut_off_2100(Settings::default());
    members.stop(own.server);
    all_2100_are_done(&mut members, &client);
}

/// Regression: the entry that makes a local session global overtook writes that waited to be asked
/// again, also those of that session.
#[test]
fn upgrade_of_a_local_session_waits_behind_kept_writes() {
    let settings = Settings { local_sessions: true, local_sessions_upgrade: true, ..Settings::default() };
    let (mut members, [client, _]) = cut_off_2100(settings);
    let local = members.client(client.server, TIMEOUT_MS);
    members.send(&local, 1, Request::Write(create("/e", 1, CreateKind::Ephemeral)));
    members.settle();
    let is_upgrade = |said: &(u8, u8, PeerMessage)| match &said.2 {
        PeerMessage::Forward { payload, .. } => matches!(txn::decode(payload), Ok((_, Txn::UpgradeSession { .. }))),
        _ => false,
    };
    assert!(!members.said.iter().any(is_upgrade), "it waits");
    all_2100_are_done(&mut members, &client);
    assert_eq!(answers(&members.told(&local)), [(1, Ok(-1))]);
}

/// More sessions than a learner may ask for at once, with or without writes in flight.
const NEWCOMERS: usize = 1400;

fn connect_many(members: &mut Members, server: u8, count: usize, timeout_ms: i32) -> Vec<Client> {
    let connect = |_| Client {
        conn: members.connect(server, ConnectRequest::for_new_session(timeout_ms)),
        ..Client { server, conn: ConnId(0), session: SessionId::NONE, secret: [0; 16], timeout_ms }
    };
    (0..count).map(connect).collect()
}

/// Returns how many of these connections got a session, and how many were closed without an answer.
fn begun_and_closed(members: &mut Members, newcomers: &[Client]) -> (usize, usize) {
    let (mut begun, mut closed) = (0, 0);
    for newcomer in newcomers {
        match members.told(newcomer)[..] {
            [Told::Connected(reply)] if reply.session != SessionId::NONE => begun += 1,
            [Told::Closed] => closed += 1,
            [] => {}
            ref other => panic!("{other:?}"),
        }
    }
    (begun, closed)
}

/// Regression: a server that served again closed the connections for which it had no room at once.
#[test]
fn each_of_many_clients_that_came_without_a_leader_begins_a_session() {
    let (mut members, leader, clients) = with_clients();
    lose(&mut members, leader);
    let newcomers = clients.map(|client| connect_many(&mut members, client.server, NEWCOMERS, TIMEOUT_MS));
    members.release_all();
    members.until_all_serve();
    members.settle();
    for newcomers in newcomers {
        assert_eq!(begun_and_closed(&mut members, &newcomers), (NEWCOMERS, 0));
    }
}

/// The kept writes are asked first, and leave room for 256 sessions.
#[test]
fn clients_that_came_without_a_leader_begin_sessions_beside_kept_writes() {
    let (mut members, leader, clients) = with_clients();
    clients.iter().for_each(|client| members.hold(client.server, leader));
    for client in &clients {
        (1..=2100).for_each(|xid| members.send(client, xid, write("/a")));
    }
    lose(&mut members, leader);
    let newcomers = clients.map(|client| connect_many(&mut members, client.server, 400, TIMEOUT_MS));
    members.release_all();
    members.until_all_serve();
    members.settle();
    for (client, newcomers) in clients.iter().zip(newcomers) {
        assert_eq!(begun_and_closed(&mut members, &newcomers), (400, 0));
        let written = answers(&members.told(client));
        assert!(
            written.iter().map(|(xid, _)| *xid).eq(1..=2100) && written.is_sorted_by_key(|(_, done)| done.unwrap())
        );
    }
    assert_eq!(version_of(&mut members, &clients[0], "/a"), 4200);
}

/// Thousands of sessions begin without holding up the writes whose clients have waited longer.
#[test]
fn kept_writes_and_many_new_sessions_share_the_room() {
    let (mut members, [client, _]) = cut_off_2100(Settings::default());
    let newcomers = connect_many(&mut members, client.server, 3000, TIMEOUT_MS);
    all_2100_are_done(&mut members, &client);
    assert_eq!(begun_and_closed(&mut members, &newcomers), (3000, 0));
    let begins_session = members.said.iter().filter(|said| said.0 == client.server).filter_map(|said| match &said.2 {
        PeerMessage::Forward { payload, .. } => {
            Some(matches!(txn::decode(payload), Ok((_, Txn::CreateSession { .. }))))
        }
        _ => None,
    });
    let begins_session: Vec<_> = begins_session.collect();
    let last_write = begins_session.iter().rposition(|begins_session| !begins_session).unwrap();
    let begun_before = begins_session[..last_write].iter().filter(|begins_session| **begins_session).count();
    assert!((256..1500).contains(&begun_before), "{begun_before} sessions were asked before the last write");
}

/// The server serves, but its leader has no room for the writes before these sessions.
#[test]
fn client_that_waits_for_room_for_its_session_is_closed_when_its_wait_ends() {
    let (mut members, [client, _]) = cut_off_2100(Settings { session_timeout_min_ms: 1000, ..Settings::default() });
    let newcomers = connect_many(&mut members, client.server, 400, 2000);
    members.advance(200);
    let leaves = newcomers.last().unwrap();
    members.leave(leaves);
    let patient = connect_many(&mut members, client.server, 1, TIMEOUT_MS);
    members.advance(390);
    assert_eq!(begun_and_closed(&mut members, &newcomers), (0, 0));
    members.advance(10);
    assert_eq!(begun_and_closed(&mut members, &newcomers), (0, 143));
    assert!(members.server(client.server).is_serving());
    all_2100_are_done(&mut members, &client);
    assert_eq!(begun_and_closed(&mut members, &newcomers), (256, 0));
    assert_eq!(begun_and_closed(&mut members, &patient), (1, 0));
}

fn is_named_successor(said: &(u8, u8, PeerMessage)) -> bool {
    matches!(&said.2, PeerMessage::Zab(message) if matches!(**message, Message::HandOver { .. }))
}

/// Clients of the leader too: their server has another leader then.
#[test]
fn hand_over_answers_all_clients_and_closes_no_connection() {
    let (mut members, leader, [client, other]) = with_clients();
    let own = members.client(leader, TIMEOUT_MS);
    let all = [own, client, other];
    members.hanging.extend(members.ids());
    all.iter().for_each(|client| members.send(client, 1, write("/a")));
    members.settle();
    members.command(leader, |server, now| server.hand_over(now));
    all.iter().for_each(|client| members.send(client, 2, write("/a")));
    let newcomer = members.connect(leader, ConnectRequest::for_new_session(TIMEOUT_MS));
    members.settle();
    assert!(members.server(leader).leads());
    members.hanging.clear();
    members.settle();
    members.until_all_serve();
    members.settle();
    assert!(members.said.iter().any(is_named_successor) && members.leader() != leader);
    let told = all.map(|client| answers(&members.told(&client)));
    assert!(told.iter().all(|told| matches!(told[..], [(1, Ok(_)), (2, Ok(_))])), "{told:?}");
    assert!(matches!(members.take(leader, newcomer)[..], [Told::Connected(_)]));
    assert_eq!(version_of(&mut members, &own, "/a"), 6);
}

/// Regression: a stop closed the clients of a former leader as soon as that server served again. Their
/// writes had just been sent to the successor, so the clients did not learn that these were done.
#[test]
fn former_leader_owes_answers_when_it_serves_and_none_after_it_settled() {
    let (mut members, leader, _) = with_clients();
    let own = members.client(leader, TIMEOUT_MS);
    assert!(!members.server(leader).owes_answers());
    members.hanging.extend(members.ids());
    members.send(&own, 1, write("/a"));
    members.settle();
    assert!(members.server(leader).owes_answers(), "a write in flight");
    members.command(leader, |server, now| server.hand_over(now));
    members.send(&own, 2, write("/a"));
    let newcomer = members.connect(leader, ConnectRequest::for_new_session(TIMEOUT_MS));
    members.hanging.clear();
    members.until(|members| !members.server(leader).leads() && members.server(leader).is_serving());
    assert_eq!(answers(&members.told(&own)), [(1, Ok(1))]);
    assert!(members.server(leader).owes_answers(), "a write and a client that wait");
    members.settle();
    assert_eq!(answers(&members.told(&own)), [(2, Ok(2))]);
    assert!(matches!(members.take(leader, newcomer)[..], [Told::Connected(_)]));
    assert!(!members.server(leader).owes_answers());
}

/// Regression: the acknowledgement that committed a write also let the leader hand over. It closed the
/// writer's connection, because it had not applied the write yet.
#[test]
fn write_committed_by_the_acknowledgement_that_ends_a_leadership_is_answered() {
    for at in [0, 1] {
        let (mut members, leader, clients) = with_clients();
        let own = members.client(leader, TIMEOUT_MS);
        members.hanging.extend(members.ids());
        members.send(&own, 1, write("/a"));
        members.settle();
        members.command(leader, |server, now| server.hand_over(now));
        members.hanging.remove(&leader);
        members.settle();
        assert!(members.server(leader).leads() && answers(&members.told(&own)).is_empty());
        members.hanging.remove(&clients[at].server);
        members.settle();
        members.hanging.clear();
        members.settle();
        members.until_all_serve();
        assert_eq!(answers(&members.told(&own)), [(1, Ok(1))], "server {} acknowledges", clients[at].server);
        members.ask(&own, write("/a")).unwrap();
    }
}

/// A stop must not close a client that waits for its session alone.
#[test]
fn server_owes_an_answer_to_a_client_that_joins_or_leaves() {
    let (mut members, leader, [client, _]) = with_clients();
    let server = client.server;
    members.hold(server, leader);
    let joining = members.connect(server, ConnectRequest::for_new_session(TIMEOUT_MS));
    members.settle();
    assert!(members.server(server).owes_answers());
    members.release_all();
    assert!(matches!(members.take(server, joining)[..], [Told::Connected(_)]));
    assert!(!members.server(server).owes_answers());
    members.hold(server, leader);
    members.send(&client, 1, Request::CloseSession);
    members.settle();
    assert!(members.server(server).owes_answers());
    members.release_all();
    assert!(!members.server(server).owes_answers());
}

#[test]
fn clients_of_a_leader_go_on_after_a_hand_over_that_failed() {
    let (mut members, leader, [client, other]) = with_clients();
    let own = members.client(leader, TIMEOUT_MS);
    members.hanging.extend([leader, client.server, other.server]);
    members.send(&own, 1, write("/a"));
    members.settle();
    members.command(leader, |server, now| server.hand_over(now));
    members.send(&own, 2, write("/a"));
    members.send(&client, 2, write("/a"));
    let newcomer = members.connect(leader, ConnectRequest::for_new_session(TIMEOUT_MS));
    for _ in 0..200 {
        members.advance(10);
        if !members.server(leader).zab().is_handing_over() {
            break;
        }
    }
    members.hanging.clear();
    members.settle();
    assert_eq!(members.leader(), leader);
    assert!(!members.said.iter().any(is_named_successor));
    assert!(matches!(answers(&members.told(&own))[..], [(1, Ok(1)), (2, Ok(_))]));
    assert!(matches!(answers(&members.told(&client))[..], [(2, Ok(_))]));
    assert!(matches!(members.take(leader, newcomer)[..], [Told::Connected(_)]));
    assert_eq!(version_of(&mut members, &own, "/a"), 3);
}

/// A hand-over may take 1 s.
#[test]
fn client_with_a_short_timeout_leaves_a_leader_that_hands_over() {
    let settings = Settings { session_timeout_min_ms: 1000, ..Settings::default() };
    let mut members = Members::born_with(3, settings, Limits::default());
    let leader = members.leader();
    let [short, long] = [1000, TIMEOUT_MS].map(|timeout_ms| members.client(leader, timeout_ms));
    members.ask(&long, born("/a")).unwrap();
    members.hanging.extend(members.ids());
    members.send(&long, 1, write("/a"));
    members.settle();
    members.command(leader, |server, now| server.hand_over(now));
    members.send(&short, 1, write("/a"));
    members.advance(290);
    assert!(members.told(&short).is_empty());
    members.advance(20);
    assert!(members.server(leader).zab().is_handing_over() && members.is_just_closed(&short));
    members.hanging.clear();
    members.settle();
    members.until_all_serve();
    members.settle();
    assert_eq!(answers(&members.told(&long)), [(1, Ok(1))]);
}

/// Regression: the wait began anew when the hand-over ended. No server takes the lead afterwards.
#[test]
fn wait_for_a_leader_counts_from_the_beginning_of_a_hand_over() {
    let (mut members, leader, [client, other]) = with_clients();
    let waiting = [5000, TIMEOUT_MS].map(|timeout_ms| members.client(leader, timeout_ms));
    let in_flight = members.client(leader, TIMEOUT_MS);
    // The successor lacks these entries.
    members.hanging.extend([leader, client.server, other.server]);
    members.send(&client, 1, write("/a"));
    members.send(&in_flight, 1, write("/a"));
    members.settle();
    let at_ms = members.now.mono_ms;
    members.command(leader, |server, now| server.hand_over(now));
    waiting.iter().for_each(|client| members.send(client, 1, write("/a")));
    members.advance(900);
    assert!(members.server(leader).zab().is_handing_over());
    members.cut(client.server, other.server);
    [client.server, other.server].iter().for_each(|&learner| members.hold(leader, learner));
    // The leader's own disk goes on hanging, so it does not apply the entries.
    members.hanging.retain(|&server| server == leader);
    members.settle();
    assert!(!members.server(leader).leads(), "it has named its successor");
    assert!(members.is_just_closed(&in_flight), "the leader does not know what becomes of its write");
    assert_eq!(closing_times(&mut members, &waiting, at_ms), [1500, 2000]);
}

/// Meanwhile the leader had the requests of the client.
#[test]
fn wait_for_a_leader_begins_anew_after_a_moment_with_one() {
    let (mut members, leader, [client, other]) = with_clients();
    members.cut(client.server, leader);
    members.unlink(client.server, other.server);
    members.send(&client, 1, write("/a"));
    members.settle();
    members.unlink(client.server, leader);
    members.advance(1500);
    members.release_all();
    members.hanging.extend([leader, other.server]);
    members.link(client.server, leader);
    members.until_serves(client.server);
    members.settle();
    assert_eq!(members.server(client.server).writes_asked_again(), 1);
    members.unlink(client.server, leader);
    let at_ms = members.now.mono_ms;
    assert_eq!(closing_times(&mut members, &[client], at_ms), [2000]);
}

/// Entries of a former process may arrive late, and carry its numbers.
#[test]
fn server_numbers_its_forwards_anew_in_each_process() {
    let (mut members, _, [client, _]) = with_clients();
    members.ask(&client, write("/a")).unwrap();
    let former = last_number(&members, client.server);
    members.stop(client.server);
    members.start(client.server);
    members.until_all_serve();
    let next = members.client(client.server, TIMEOUT_MS);
    members.ask(&next, write("/a")).unwrap();
    assert!(last_number(&members, client.server).abs_diff(former) > 1 << 20);
    assert!(forwards(&members, client.server) > 0);
}
