//! A setWatches with more paths than one turn examines.
//!
//! It takes several turns, and entries are applied in between. No event is missed or sent twice,
//! and the answer names the state that all events before it belong to.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::collections::BTreeSet;
use zoolet_machine::ConnId;
use zoolet_model::{ConnectRequest, CreateKind, EventKind, Reply, Request, SetWatches, Text, WatchEvent};
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
