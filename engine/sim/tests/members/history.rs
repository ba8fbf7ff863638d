//! Servers of one ensemble share one history, even across crashes and isolation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::member_boxes::{Boxes, Told, small_limits};
use zoolet_machine::{Limits, PeerMessage};
use zoolet_model::{CreateKind, Reply, Request, Zxid};
use zoolet_sim::client;
use zoolet_sim::client::get;
use zoolet_zab::Message;

fn create(path: &str) -> Request {
    Request::Write(client::create(path, 10, CreateKind::Persistent))
}

/// Sets `bytes` bytes of data. The length identifies the writer.
fn set(path: &str, bytes: usize) -> Request {
    Request::Write(client::set(path, bytes))
}

fn length(reply: &Reply) -> usize {
    match reply {
        Reply::Data(Some(data), _) => data.len(),
        other => panic!("{other:?}"),
    }
}

fn said_snap(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Snapshot { .. })
}

fn said_diff(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Zab(message) if matches!(**message, Message::Diff { .. }))
}

fn said_trunc(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Zab(message) if matches!(**message, Message::Trunc { .. }))
}

/// Creates `/a0` to `/a9` if missing, then sets them in turn.
///
/// `count` is the number of sets in all.
fn write_much(boxes: &mut Boxes, server: u8, count: u32) {
    let conn = boxes.connect(server);
    for at in 0..10 {
        let _ = boxes.ask(server, conn, create(&format!("/a{at}")));
    }
    for at in 0..count {
        boxes.ask(server, conn, set(&format!("/a{}", at % 10), 900)).unwrap();
    }
}

#[test]
fn ensemble_is_born_once_all_servers_are_up_with_one_entry() {
    let mut boxes = Boxes::new(3, Limits::default());
    boxes.start(1);
    boxes.start(2);
    boxes.advance(5000);
    assert!(
        [1, 2].iter().all(|&server| !boxes.server(server).is_serving() && boxes.server(server).applied() == Zxid::ZERO)
    );
    boxes.start(3);
    boxes.until_equal();
    assert_eq!(boxes.server(1).applied().epoch().as_u32(), 1);
    assert_eq!(boxes.server(1).applied().counter(), 0);
    let ensembles: Vec<_> = boxes.ids().map(|server| boxes.server(server).zab().ensemble()).collect();
    assert!(ensembles[0].0 != 0 && ensembles.iter().all(|ensemble| *ensemble == ensembles[0]));
    let leader = boxes.leader();
    for server in boxes.ids() {
        let status = boxes.status(server);
        assert_eq!(status.role, if server == leader { "leader" } else { "follower" });
        assert_eq!((status.epoch.as_u32(), status.leader.map(|id| id.as_u8()), status.behind), (1, Some(leader), 0));
    }
}

#[test]
fn write_at_any_server_is_applied_at_every_server() {
    let mut boxes = Boxes::born(3, Limits::default());
    for server in boxes.ids() {
        let conn = boxes.connect(server);
        let path = format!("/from{server}");
        assert!(matches!(boxes.ask(server, conn, create(&path)), Ok(Reply::PathStat(..) | Reply::Path(_))));
    }
    boxes.until_equal();
    for server in boxes.ids() {
        let conn = boxes.connect(server);
        for path in ["/from1", "/from2", "/from3"] {
            assert!(matches!(boxes.ask(server, conn, get(path)), Ok(Reply::Data(..))));
        }
    }
}

#[test]
fn returning_follower_receives_only_the_entries_it_missed() {
    let mut boxes = Boxes::born(3, Limits::default());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 5);
    boxes.kill(away);
    write_much(&mut boxes, leader, 30);
    boxes.said.clear();
    boxes.start(away);
    boxes.until_equal();
    assert_eq!(boxes.leader(), leader, "it disturbs nobody");
    assert!(boxes.was_said(leader, away, said_diff) && !boxes.was_said(leader, away, said_snap));
    let entries: usize = boxes
        .said
        .iter()
        .map(|(_, to, message)| match message {
            PeerMessage::Entries(entries) if *to == away => entries.entries.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(entries, 41, "a session, ten creates of what there is, thirty sets");
}

#[test]
fn follower_behind_the_leaders_log_gets_a_durable_snapshot() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 5);
    boxes.kill(away);
    write_much(&mut boxes, leader, 300);
    boxes.said.clear();
    boxes.start(away);
    boxes.until_equal();
    assert!(boxes.was_said(leader, away, said_snap));
    // The received snapshot is durable: after a restart a diff is enough.
    write_much(&mut boxes, leader, 5);
    boxes.kill(away);
    boxes.said.clear();
    boxes.start(away);
    boxes.until_equal();
    assert!(boxes.was_said(leader, away, said_diff) && !boxes.was_said(leader, away, said_snap));
}

#[test]
fn server_disconnects_its_clients_when_a_snapshot_replaces_its_state() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 5);
    let conn = boxes.connect(away);
    boxes.isolate(away);
    write_much(&mut boxes, leader, 300);
    boxes.rejoin(away);
    boxes.until_equal();
    assert!(boxes.was_said(leader, away, said_snap));
    assert!(matches!(boxes.at(away).told.get(&conn).map(Vec::as_slice), Some([Told::Closed])));
}

/// A snapshot does not tell which writes it contains. The server closes the connection.
#[test]
fn write_in_flight_at_a_server_that_gets_a_snapshot_is_not_done_afterwards() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 5);
    let conn = boxes.connect(away);
    boxes.send(away, conn, set("/a1", 77));
    boxes.isolate(away);
    write_much(&mut boxes, leader, 300);
    boxes.rejoin(away);
    boxes.until_equal();
    assert!(boxes.was_said(leader, away, said_snap));
    assert!(matches!(boxes.at(away).told.get(&conn).map(Vec::as_slice), Some([Told::Closed])));
    boxes.advance(1000);
    let reader = boxes.connect(away);
    let read = boxes.ask(away, reader, get("/a1")).unwrap();
    assert_eq!(length(&read), 900, "it is not done afterwards");
}

#[test]
fn uncommitted_entries_of_a_deposed_leader_are_truncated() {
    let mut boxes = Boxes::born(3, Limits::default());
    let old = boxes.leader();
    write_much(&mut boxes, old, 5);
    let conn = boxes.connect(old);
    boxes.isolate(old);
    for at in 0..3 {
        boxes.send(old, conn, set(&format!("/a{at}"), 77));
    }
    boxes.settle();
    assert_eq!(boxes.server(old).unapplied(), 3);
    boxes.until("the others have another leader", |boxes| {
        boxes.ids().any(|server| server != old && boxes.server(server).leads() && boxes.server(server).is_serving())
    });
    boxes.rejoin(old);
    boxes.until_equal();
    let leader = boxes.leader();
    assert!(leader != old && boxes.was_said(leader, old, said_trunc));
    let reader = boxes.connect(old);
    let read = boxes.ask(old, reader, get("/a1")).unwrap();
    assert_eq!(length(&read), 900);
}

#[test]
fn leader_adopts_the_new_disk_of_a_wiped_member_as_voter() {
    let mut boxes = Boxes::born(3, Limits::default());
    let (leader, wiped) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 20);
    let before = boxes.server(leader).zab().config().member(zoolet_model::ServerId::new(wiped).unwrap()).unwrap().disk;
    boxes.kill(wiped);
    boxes.wipe(wiped);
    boxes.start(wiped);
    boxes.until_equal();
    boxes.advance(1000);
    let after = boxes.server(leader).zab().config().member(zoolet_model::ServerId::new(wiped).unwrap()).unwrap().disk;
    assert_ne!(before, after, "the membership names the new disk");
    assert!(boxes.server(wiped).zab().is_voter());
    // Without the other voter, the two remaining ones decide.
    let third = boxes.ids().find(|&server| server != leader && server != wiped).unwrap();
    boxes.kill(third);
    write_much(&mut boxes, leader, 3);
    boxes.until_equal();
}

#[test]
fn next_leader_continues_with_every_acked_write() {
    let mut boxes = Boxes::born(3, small_limits());
    for round in 0..6 {
        let leader = boxes.leader();
        write_much(&mut boxes, leader, 20);
        let applied = boxes.server(leader).applied();
        boxes.kill(leader);
        boxes.until_all_serve();
        let next = boxes.leader();
        assert!(boxes.server(next).applied() > applied, "round {round}");
        boxes.start(leader);
        boxes.until_equal();
    }
    for server in boxes.ids() {
        assert_eq!(boxes.status(server).differs, None);
    }
}

#[test]
fn single_server_is_an_ensemble_and_continues_after_a_restart() {
    let mut boxes = Boxes::born(1, Limits::default());
    assert_eq!(boxes.status(1).role, "standalone");
    write_much(&mut boxes, 1, 3);
    let (applied, ensemble) = (boxes.server(1).applied(), boxes.server(1).zab().ensemble());
    boxes.kill(1);
    boxes.start(1);
    boxes.until_all_serve();
    assert_eq!(boxes.server(1).applied().epoch().as_u32(), applied.epoch().as_u32() + 1);
    assert_eq!(boxes.server(1).zab().ensemble(), ensemble);
}

#[test]
fn read_at_a_follower_sees_the_write_sent_just_before() {
    let mut boxes = Boxes::born(3, Limits::default());
    let follower = boxes.learners()[0];
    let conn = boxes.connect(follower);
    boxes.ask(follower, conn, create("/mine")).unwrap();
    boxes.send(follower, conn, set("/mine", 2));
    boxes.send(follower, conn, get("/mine"));
    boxes.settle();
    let told = boxes.told(follower, conn);
    let [Told::Reply(Ok(_)), Told::Reply(Ok(read))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(length(read), 2);
    let synced = boxes.ask(follower, conn, Request::Sync { path: Some("/mine".into()) });
    assert!(synced.is_ok(), "{synced:?}");
}
