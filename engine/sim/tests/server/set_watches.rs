//! A setWatches with more paths than one turn examines, or more watches than there is room for.
//!
//! The former takes several turns, and entries are applied in between. No event is missed or sent
//! twice, and the answer names the state that all events before it belong to. The latter registers
//! nothing, and still sends the missed events.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::collections::BTreeSet;
use zoolet_machine::{ConnId, Limits};
use zoolet_model::{
    AddWatchMode, ConnectRequest, CreateKind, ErrorCode, EventKind, Reply, Request, SetWatches, Text, WatchEvent,
};
use zoolet_sim::client::create;
use zoolet_sim::one_server::{Conditions, Sent, World};

/// Enough paths for three turns.
const PATHS: u64 = 3000;
const READER: ConnId = ConnId(1);
const WRITER: ConnId = ConnId(2);

fn path(number: u64) -> Text {
    format!("/{number:04}").into()
}

/// Returns a reader's messages for a setWatches, and the paths created meanwhile.
///
/// None of the paths exist when the reader sends the request.
fn told_while_others_write(seed: u64) -> (Vec<Sent>, BTreeSet<Text>) {
    let mut world = World::new(Conditions { fetch_ms_max: 20, ..Conditions::default() }, seed);
    world.start();
    world.run_for(10);
    for conn in [READER, WRITER] {
        world.connect(conn, None, ConnectRequest::for_new_session(30_000));
    }
    world.run_for(10);
    world.take(READER);
    let watches = SetWatches { exist: (0..PATHS).map(path).collect(), ..SetWatches::default() };
    world.request(READER, 1, Request::SetWatches(watches));
    let mut made = BTreeSet::new();
    for xid in 0..200 {
        let path = path(world.random().below(PATHS));
        world.request(WRITER, xid, Request::Write(create(path.clone(), 0, CreateKind::Persistent)));
        made.insert(path);
        let pause_ms = world.random().below(4);
        world.run_for(pause_ms);
    }
    world.run_until_quiet();
    (world.take(READER), made)
}

#[test]
fn changes_during_a_long_set_watches_fire_once_in_zxid_order() {
    let (mut made_up, mut fired_before, mut fired_behind) = (0, 0, 0);
    for seed in 0..6 {
        let (got, made) = told_while_others_write(seed);
        let answer = got.iter().position(|sent| matches!(sent, Sent::Reply { .. })).unwrap();
        let Sent::Reply { xid: 1, zxid: shown, result: Ok(Reply::Empty) } = got[answer] else {
            panic!("seed {seed}: {:?}", got[answer]);
        };
        let mut told = BTreeSet::new();
        for (at, sent) in got.into_iter().enumerate().filter(|(at, _)| *at != answer) {
            let Sent::Event(WatchEvent { kind: EventKind::NodeCreated, path, zxid }) = sent else {
                panic!("seed {seed}: {sent:?}");
            };
            assert!(told.insert(path), "seed {seed}: told twice");
            assert_eq!(at < answer, zxid <= shown, "seed {seed}: {zxid:#x} and an answer of {shown:#x}");
            made_up += usize::from(zxid == -1);
            fired_before += usize::from(zxid != -1 && at < answer);
            fired_behind += usize::from(at > answer);
        }
        assert_eq!(told, made, "seed {seed}");
    }
    assert!(
        made_up > 20 && fired_before > 20 && fired_behind > 20,
        "{made_up} made up, {fired_before} fired before the answer and {fired_behind} behind it"
    );
}

/// Returns a server with room for `watches_max` watches, a reader and a writer.
fn with_room_for(watches_max: u32, fetch_ms_max: u64) -> World {
    let limits = Limits { watches_max, ..Limits::default() };
    let mut world = World::new(Conditions { limits, fetch_ms_max, ..Conditions::default() }, 1);
    world.start();
    world.run_for(10);
    for conn in [READER, WRITER] {
        world.connect(conn, None, ConnectRequest::for_new_session(30_000));
    }
    world.run_for(10);
    world.take(READER);
    world
}

fn make(world: &mut World, number: u64) {
    world.request(WRITER, 1, Request::Write(create(path(number), 0, CreateKind::Persistent)));
    world.run_until_quiet();
}

/// The number of a created path, and whether its event was a missed one.
type Created = (u64, bool);

/// Splits messages into creations and the results of requests, both in order.
fn events_and_results(got: Vec<Sent>) -> (Vec<Created>, Vec<Result<Reply, ErrorCode>>) {
    let (mut events, mut results) = (Vec::new(), Vec::new());
    for sent in got {
        match sent {
            Sent::Event(WatchEvent { kind: EventKind::NodeCreated, path, zxid }) => {
                assert!(results.is_empty() || zxid != -1, "missed events come before the answer");
                events.push((path.trim_start_matches('/').parse().unwrap(), zxid == -1));
            }
            Sent::Reply { result, .. } => results.push(result),
            other => panic!("{other:?}"),
        }
    }
    (events, results)
}

/// Regression: the check of the room counted again the watches that the connection had. A session that
/// sets its watches again after its queue of events overflowed was refused.
#[test]
fn set_watches_on_the_connection_that_has_the_watches_needs_no_room() {
    let mut world = with_room_for(2, 20);
    let persistent = Request::AddWatch { path: path(1), mode: AddWatchMode::Persistent };
    let again = SetWatches { persistent: vec![path(1)], exist: vec![path(2)], ..SetWatches::default() };
    for (xid, request) in [(1, persistent), (2, Request::Exists { path: path(2), watch: true })] {
        world.request(READER, xid, request);
    }
    world.request(READER, 3, Request::SetWatches(again));
    world.run_until_quiet();
    let (events, results) = events_and_results(world.take(READER));
    assert_eq!((events, &results[2..]), (vec![], &[Ok(Reply::Empty)][..]));
    make(&mut world, 2);
    assert_eq!(events_and_results(world.take(READER)).0, [(2, false)]);
}

/// A session in process repeats a refused request. Meanwhile it may have read a znode again, and set
/// its watch.
#[test]
fn refused_set_watches_sends_no_event_for_a_watch_that_the_connection_has() {
    let mut world = with_room_for(1, 20);
    make(&mut world, 1);
    world.request(READER, 1, Request::Exists { path: path(1), watch: true });
    world.run_until_quiet();
    world.take(READER);
    let exist = (1..4).map(path).collect();
    world.request(READER, 2, Request::SetWatches(SetWatches { exist, ..SetWatches::default() }));
    world.run_until_quiet();
    assert_eq!(events_and_results(world.take(READER)), (vec![], vec![Err(ErrorCode::SystemError)]));
}

/// Regression: a refused client heard of no change that it had missed. If it waited for a lock, it
/// waited forever.
///
/// Room may come while the records are fetched. Then all watches are registered, or still none.
#[test]
fn refused_set_watches_sends_the_missed_events_and_registers_nothing() {
    const MISSED: [u64; 3] = [7, 1500, PATHS - 1];
    let (mut refused, mut accepted) = (0, 0);
    for room_after_ms in 0..40 {
        let mut world = with_room_for(PATHS as u32, 20);
        for number in MISSED {
            make(&mut world, number);
        }
        let taker = ConnId(3);
        world.connect(taker, None, ConnectRequest::for_new_session(30_000));
        world.request(taker, 1, Request::AddWatch { path: "/".into(), mode: AddWatchMode::Persistent });
        world.run_for(10);
        let exist = (0..PATHS).map(path).collect();
        world.request(READER, 1, Request::SetWatches(SetWatches { exist, ..SetWatches::default() }));
        world.run_for(room_after_ms);
        world.disconnect(taker);
        world.run_until_quiet();
        let (events, results) = events_and_results(world.take(READER));
        assert_eq!(events, MISSED.map(|number| (number, true)), "room after {room_after_ms} ms");
        for number in [0, PATHS - 2] {
            make(&mut world, number);
        }
        let (events, _) = events_and_results(world.take(READER));
        match results[..] {
            [Ok(Reply::Empty)] => {
                accepted += 1;
                assert_eq!(events, [(0, false), (PATHS - 2, false)], "room after {room_after_ms} ms");
            }
            [Err(ErrorCode::SystemError)] => {
                refused += 1;
                assert_eq!(events, [], "room after {room_after_ms} ms");
            }
            ref other => panic!("{other:?}"),
        }
        for conn in [READER, WRITER] {
            world.disconnect(conn);
        }
        world.run_until_quiet();
        assert_eq!(world.server().under_way(), 0, "room after {room_after_ms} ms");
    }
    assert!(refused > 5 && accepted > 0, "{refused} refused and {accepted} accepted");
}
