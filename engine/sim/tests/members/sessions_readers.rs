//! Read-only servers: a member without a leader serves the clients that ask to read only.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told, born, write};
use zoolet_machine::{Event, Limits, Settings};
use zoolet_model::{
    AddWatchMode, ConnectReply, ConnectRequest, CreateKind, ErrorCode, Reply, Request, SessionId, SetWatches,
};
use zoolet_sim::client::{create, get};

const TIMEOUT_MS: i32 = 6000;
/// The server looks for a leader for this long before it serves readers.
const PATIENCE_MS: u64 = 2100;

fn ensemble(read_only: bool) -> Members {
    let settings = Settings { read_only, ..Settings::default() };
    Members::born_with(3, settings, Limits::default())
}

fn for_reading(timeout_ms: i32) -> ConnectRequest {
    ConnectRequest { read_only: Some(true), ..ConnectRequest::for_new_session(timeout_ms) }
}

/// Connects a reader. `None` if the server closed its connection.
fn reader(members: &mut Members, server: u8) -> Option<(Client, ConnectReply)> {
    let conn = members.connect(server, for_reading(TIMEOUT_MS));
    members.settle();
    match members.take(server, conn)[..] {
        [Told::Connected(reply)] => {
            let client =
                Client { server, conn, session: reply.session, secret: reply.secret.0, timeout_ms: TIMEOUT_MS };
            Some((client, reply))
        }
        [Told::Closed] => None,
        ref other => panic!("{other:?}"),
    }
}

fn others(members: &Members, server: u8) -> Vec<u8> {
    members.ids().filter(|&other| other != server && members.runs(other)).collect()
}

/// Breaks the links of `server`. It looks for a leader at once.
fn unlink(members: &mut Members, server: u8) {
    others(members, server).into_iter().for_each(|other| members.unlink(server, other));
}

fn relink(members: &mut Members, server: u8) {
    others(members, server).into_iter().for_each(|other| members.link(server, other));
    members.until_serves(server);
}

/// Cuts `server` off from the others until it serves readers.
fn cut_off(members: &mut Members, server: u8) {
    unlink(members, server);
    for _ in 0..2000 {
        if members.status(server).read_only_ms.is_some() {
            return;
        }
        members.advance(10);
    }
    panic!("it never serves readers");
}

#[test]
fn member_without_a_leader_serves_readers_and_refuses_their_writes() {
    let mut members = ensemble(true);
    let server = members.learners()[0];
    let writer = members.client(server, TIMEOUT_MS);
    members.ask(&writer, born("/a")).unwrap();
    let applied = members.server(server).applied();
    cut_off(&mut members, server);
    let (client, reply) = reader(&mut members, server).unwrap();
    assert!(reply.session.began_local() && reply.read_only_ms.is_some() && reply.read_only_byte);
    members.send(&client, 5, get("/a"));
    members.settle();
    let told = members.told(&client);
    assert!(matches!(told[..], [Told::Reply(5, zxid, Ok(Reply::Data(..)))] if zxid == applied.as_i64()), "{told:?}");
    let refused = [
        born("/b"),
        write("/a"),
        Request::Write(create("/e".to_owned(), 1, CreateKind::Ephemeral)),
        Request::Multi(vec![create("/m".to_owned(), 1, CreateKind::Persistent)]),
        Request::Sync { path: None },
        Request::Reconfig,
    ];
    for request in refused {
        assert_eq!(members.ask(&client, request.clone()), Err(ErrorCode::NotReadOnly), "{request:?}");
    }
    assert_eq!(members.ask(&client, Request::Ping), Ok(Reply::Empty));
    let auth = Request::Auth { scheme: Some("digest".into()), auth: Some("u:p".into()) };
    assert_eq!(members.ask(&client, auth), Ok(Reply::Empty));
    assert_eq!(members.ask(&client, Request::SetWatches(SetWatches::default())), Ok(Reply::Empty));
    let watch = Request::AddWatch { path: "/a".into(), mode: AddWatchMode::Persistent };
    assert_eq!(members.ask(&client, watch), Ok(Reply::WatchAdded));
    assert_eq!(members.ask(&client, Request::CloseSession), Ok(Reply::Empty));
    assert_eq!(members.status(server).local_sessions, 0);
}

#[test]
fn only_readers_are_served_and_only_if_the_operator_allows_it() {
    for read_only in [false, true] {
        let mut members = ensemble(read_only);
        let server = members.learners()[0];
        unlink(&mut members, server);
        members.advance(20_000);
        assert_eq!(reader(&mut members, server).is_some(), read_only);
        for asked in [None, Some(false)] {
            let request = ConnectRequest { read_only: asked, ..ConnectRequest::for_new_session(TIMEOUT_MS) };
            let conn = members.connect(server, request);
            assert!(matches!(members.take(server, conn)[..], [Told::Closed]));
        }
    }
}

#[test]
fn readers_wait_until_the_server_has_looked_for_a_leader_for_2_s() {
    let mut members = ensemble(true);
    let leader = members.leader();
    let server = members.learners()[0];
    unlink(&mut members, server);
    for _ in 0..2000 {
        members.advance(10);
        if members.status(server).role.is_empty() {
            let since_ms = members.now.mono_ms;
            let [conn, impatient] = [9000, 3000].map(|timeout_ms| members.connect(server, for_reading(timeout_ms)));
            members.advance(1980);
            assert!(members.take(server, conn).is_empty(), "too early");
            assert!(matches!(members.take(server, impatient)[..], [Told::Closed]));
            members.advance(30);
            let told = members.take(server, conn);
            assert!(matches!(told[..], [Told::Connected(_)]), "{told:?} after {} ms", members.now.mono_ms - since_ms);
            if reader(&mut members, server).is_some() {
                let age_ms = members.status(server).read_only_ms.unwrap();
                assert!((2000..PATIENCE_MS).contains(&age_ms), "{age_ms}");
                members.advance(500);
                assert!(members.status(server).read_only_ms.unwrap() >= 2500, "it grows");
                assert!(members.server(leader).is_serving());
                return;
            }
        }
    }
    panic!("it never serves readers");
}

#[test]
fn every_reader_is_closed_when_the_election_ends() {
    for local_sessions in [false, true] {
        let settings = Settings { read_only: true, local_sessions, ..Settings::default() };
        let mut members = Members::born_with(3, settings, Limits::default());
        let server = members.learners()[0];
        cut_off(&mut members, server);
        let (client, _) = reader(&mut members, server).unwrap();
        relink(&mut members, server);
        assert!(members.is_just_closed(&client));
        assert_eq!(members.status(server).read_only_ms, None);
        let mut back = client;
        members.come_back(&mut back, server, 0);
        members.settle();
        let told = members.told(&back);
        let is_there = matches!(told[..], [Told::Connected(reply)] if reply.session == client.session);
        assert_eq!(is_there, local_sessions, "it goes on only where sessions may be local: {told:?}");
    }
}

/// The server closes each connection of a client that does not ask to read only.
#[test]
fn local_session_that_cannot_read_outlives_the_time_without_a_leader() {
    let settings = Settings { read_only: true, local_sessions: true, ..Settings::default() };
    let mut members = Members::born_with(3, settings, Limits::default());
    let server = members.learners()[0];
    let mut client = members.client(server, TIMEOUT_MS);
    assert!(client.session.began_local());
    cut_off(&mut members, server);
    reader(&mut members, server).unwrap();
    assert_eq!(members.status(server).local_sessions, 2);
    members.advance(3 * TIMEOUT_MS as u64);
    assert_eq!(members.status(server).local_sessions, 1, "the silent reader alone expires");
    relink(&mut members, server);
    members.advance(TIMEOUT_MS as u64 / 2);
    members.come_back(&mut client, server, 0);
    members.settle();
    let told = members.told(&client);
    assert!(matches!(told[..], [Told::Connected(reply)] if reply.session == client.session), "{told:?}");
}

#[test]
fn reader_reads_newer_state_after_the_server_has_caught_up() {
    let mut members = ensemble(true);
    let (leader, server) = (members.leader(), members.learners()[0]);
    let writer = members.client(leader, 20_000);
    members.ask(&writer, born("/a")).unwrap();
    cut_off(&mut members, server);
    let (client, _) = reader(&mut members, server).unwrap();
    members.ask(&writer, born("/b")).unwrap();
    assert_eq!(members.ask(&client, get("/b")), Err(ErrorCode::NoNode), "an old state, and a committed one");
    relink(&mut members, server);
    members.advance(100);
    let (again, reply) = reader(&mut members, server).unwrap();
    assert_eq!(reply.read_only_ms, None, "the server has a leader");
    assert!(matches!(members.ask(&again, get("/b")), Ok(Reply::Data(..))));
    members.ask(&again, born("/c")).unwrap();
}

#[test]
fn global_session_is_closed_at_a_read_only_server_and_lives_on() {
    let mut members = ensemble(true);
    let server = members.learners()[0];
    let mut client = members.client(server, 20_000);
    members.ask(&client, born("/a")).unwrap();
    cut_off(&mut members, server);
    members.told(&client);
    let conn = members.connect(
        server,
        ConnectRequest {
            session: client.session,
            password: Some(client.secret.to_vec().into()),
            ..for_reading(20_000)
        },
    );
    assert!(matches!(members.take(server, conn)[..], [Told::Closed]), "no answer: it may continue elsewhere");
    let ahead = ConnectRequest { last_zxid_seen: i64::MAX, ..for_reading(20_000) };
    let conn = members.connect(server, ahead);
    assert!(matches!(members.take(server, conn)[..], [Told::Closed]), "it has seen more than this server");
    relink(&mut members, server);
    members.come_back(&mut client, server, 0);
    members.settle();
    assert!(matches!(members.told(&client)[..], [Told::Connected(reply)] if reply.session == client.session));
}

#[test]
fn reader_of_a_former_process_is_expired() {
    let mut members = ensemble(true);
    let server = members.learners()[0];
    cut_off(&mut members, server);
    let (client, _) = reader(&mut members, server).unwrap();
    members.stop(server);
    members.start(server);
    unlink(&mut members, server);
    members.advance(PATIENCE_MS + 1000);
    let conn = members.connect(
        server,
        ConnectRequest {
            session: SessionId(client.session.0),
            password: Some(client.secret.to_vec().into()),
            ..for_reading(TIMEOUT_MS)
        },
    );
    let told = members.take(server, conn);
    let refused = |reply: ConnectReply| reply.timeout_ms == 0 && reply.read_only_ms.is_some();
    assert!(matches!(told[..], [Told::Connected(reply), Told::Closed] if refused(reply)), "{told:?}");
}

#[test]
fn owner_in_the_process_reads_beside_its_session() {
    let mut members = ensemble(true);
    let server = members.learners()[0];
    let mut client = members.client_in_process(server, 20_000);
    members.ask(&client, born("/a")).unwrap();
    cut_off(&mut members, server);
    members.told(&client);
    let conn = members.conn();
    let request = ConnectRequest {
        session: client.session,
        password: Some(client.secret.to_vec().into()),
        ..for_reading(20_000)
    };
    members.handle(server, Event::Connect { conn, peer: None, request });
    client.conn = conn;
    let told = members.told(&client);
    assert!(
        matches!(told[..], [Told::Connected(reply)] if reply.session == client.session && reply.read_only_ms.is_some()),
        "{told:?}"
    );
    assert!(matches!(members.ask(&client, get("/a")), Ok(Reply::Data(..))));
    assert_eq!(members.ask(&client, Request::CloseSession), Err(ErrorCode::NotReadOnly));
    relink(&mut members, server);
    assert!(matches!(members.told(&client)[..], [Told::Closed]));
}

#[test]
fn disk_that_accepts_nothing_still_serves_readers() {
    let mut members = ensemble(true);
    let server = members.learners()[0];
    let writer = members.client(members.leader(), 20_000);
    members.ask(&writer, born("/a")).unwrap();
    members.hanging.insert(server);
    members.handle(server, Event::LogStalled { is_read_only: true });
    let (client, reply) = reader(&mut members, server).unwrap();
    assert!(reply.read_only_ms.is_some_and(|age_ms| age_ms < 1000), "it lacks no commit");
    members.ask(&writer, born("/b")).unwrap();
    for _ in 0..5 {
        members.advance(1000);
        members.ask(&writer, Request::Ping).unwrap();
        assert!(matches!(members.ask(&client, get("/a")), Ok(Reply::Data(..))));
    }
    assert!(members.status(server).read_only_ms.unwrap() >= 5000);
    assert_eq!(members.ask(&client, born("/c")), Err(ErrorCode::NotReadOnly));
    // The disk cannot store a snapshot in the place of a damaged base.
    members.handle(server, Event::BaseDamaged { what: "a page".to_owned() });
    assert!(matches!(members.ask(&client, get("/a")), Ok(Reply::Data(..))));
    members.hanging.clear();
    members.handle(server, Event::LogResumed);
    members.settle();
    assert!(members.told(&client).iter().any(|told| matches!(told, Told::Closed)));
}

/// The link to the leader still stands, so this follower does not leave it.
#[test]
fn follower_of_a_silent_leader_serves_readers_until_it_hears_the_leader_again() {
    let mut members = ensemble(true);
    let (leader, server) = (members.leader(), members.learners()[0]);
    members.hold(leader, server);
    members.advance(2900);
    assert_eq!(members.status(server).read_only_ms, None, "its state may still be current");
    members.advance(1000);
    let (client, reply) = reader(&mut members, server).unwrap();
    assert!(reply.read_only_ms.is_some_and(|age_ms| (3000..4500).contains(&age_ms)), "{reply:?}");
    members.ask(&client, Request::Ping).unwrap();
    members.release(leader, server);
    members.until_serves(server);
    members.advance(200);
    assert!(members.is_just_closed(&client));
}

/// The election that follows the silence is no reason to send readers away.
#[test]
fn reader_beside_a_silent_leader_stays_when_the_leader_is_lost() {
    let mut members = ensemble(true);
    let (leader, server) = (members.leader(), members.learners()[0]);
    members.hold(leader, server);
    members.advance(4000);
    let (client, _) = reader(&mut members, server).unwrap();
    let age_ms = members.status(server).read_only_ms.unwrap();
    unlink(&mut members, server);
    for step in 1..=40 {
        members.advance(100);
        members.ask(&client, Request::Ping).unwrap();
        assert_eq!(members.status(server).read_only_ms, Some(age_ms + step * 100), "its state grows old");
    }
    members.release(leader, server);
    relink(&mut members, server);
    assert!(members.is_just_closed(&client));
}

#[test]
fn silent_reader_expires() {
    let mut members = ensemble(true);
    let server = members.learners()[0];
    cut_off(&mut members, server);
    let (client, _) = reader(&mut members, server).unwrap();
    for _ in 0..7 {
        members.advance(1000);
    }
    assert!(members.is_just_closed(&client));
    assert_eq!(members.status(server).local_sessions, 0);
}
