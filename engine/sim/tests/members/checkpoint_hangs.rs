//! A checkpoint that hangs: it neither ends nor fails, and the writes behind it wait.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_boxes::{Boxes, Told, small_limits};
use zoolet_machine::status::{Alarm, Refusal, alarms};
use zoolet_machine::{ConnId, Limits, PeerMessage};
use zoolet_model::{CreateKind, ErrorCode, Request};
use zoolet_sim::client::create;
use zoolet_zab::{Message, Stance};

fn znode(number: u32) -> Request {
    Request::Write(create(format!("/n{number}"), 1000, CreateKind::Persistent))
}

/// Writes until a write is not answered at once, and returns its number.
fn fill(boxes: &mut Boxes, server: u8, conn: ConnId, from: u32) -> u32 {
    for number in from..from + 1000 {
        boxes.send(server, conn, znode(number));
        boxes.settle();
        match &boxes.told(server, conn)[..] {
            [] => return number,
            [Told::Reply(Ok(_))] => {}
            other => panic!("write {number}: {other:?}"),
        }
    }
    panic!("no write waits");
}

fn alarms_at(boxes: &mut Boxes, server: u8) -> Vec<Alarm> {
    alarms(&boxes.status(server))
}

/// Returns the alarms of this server that begin so.
fn raised(boxes: &mut Boxes, server: u8, what: &str) -> Vec<Alarm> {
    alarms_at(boxes, server).into_iter().filter(|alarm| alarm.what.starts_with(what)).collect()
}

/// Regression: every write of the ensemble waited without an end, no server raised an alarm, and
/// the leader kept the lead.
#[test]
fn leader_whose_checkpoint_holds_writes_for_10_s_hands_over() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, learners) = (boxes.leader(), boxes.learners());
    let conn = boxes.connect(learners[0]);
    boxes.checkpoints_hang.insert(leader);
    let waits = fill(&mut boxes, learners[0], conn, 0);
    boxes.advance(9_900);
    assert_eq!(boxes.leader(), leader, "a slow card may take as long");
    for server in boxes.ids() {
        assert_eq!(alarms_at(&mut boxes, server), []);
    }
    boxes.advance(500);
    let own = raised(&mut boxes, leader, "writes wait for a checkpoint, for 10 s");
    assert!(own.len() == 1 && own[0].holds_up, "{own:?}");
    let what = format!("writes are refused: server {leader} leads, a checkpoint does not end");
    assert_eq!(raised(&mut boxes, learners[1], &what).len(), 1, "the others tell of it");
    boxes.until("another leads", |boxes| !boxes.server(leader).leads());
    boxes.until_all_serve();
    boxes.until("the client is told", |boxes| boxes.at(learners[0]).told.contains_key(&conn));
    let told = boxes.told(learners[0], conn);
    assert!(matches!(told[..], [Told::Reply(Ok(_))]), "the next leader takes it: {told:?}");
    assert!(boxes.ask(learners[0], conn, znode(waits + 1)).is_ok());
    assert_eq!(boxes.status(leader).refusal, Some(Refusal::CheckpointHangs));
    assert_eq!(raised(&mut boxes, leader, "a checkpoint has not ended").len(), 1);
    boxes.checkpoints_hang.clear();
    boxes.end_checkpoint(leader);
    boxes.advance(1000);
    boxes.until_equal();
    for server in boxes.ids() {
        assert_eq!(alarms_at(&mut boxes, server), []);
    }
}

/// A checkpoint on a slow card takes long. It is healthy while writes have room.
#[test]
fn long_checkpoint_raises_no_alarm_while_writes_have_room() {
    let limits = Limits { memtable_bytes: 64 << 10, log_segments: 64, ..small_limits() };
    let mut boxes = Boxes::born(3, limits);
    let leader = boxes.leader();
    let conn = boxes.connect(leader);
    boxes.checkpoints_hang.insert(leader);
    let mut written = 0;
    while !boxes.is_checkpoint_unfinished(leader) {
        assert!(boxes.ask(leader, conn, znode(written)).is_ok());
        written += 1;
    }
    for number in written..written + 6 {
        boxes.advance(10_000);
        assert!(boxes.ask(leader, conn, znode(number)).is_ok());
        assert_eq!((boxes.leader(), alarms_at(&mut boxes, leader)), (leader, vec![]));
    }
}

/// Each checkpoint has a clock of its own: a slow card holds writes during each one for a while.
#[test]
fn checkpoints_that_each_hold_writes_for_8_s_raise_no_alarm() {
    let mut boxes = Boxes::born(3, small_limits());
    let leader = boxes.leader();
    let conn = boxes.connect(leader);
    boxes.checkpoints_hang.insert(leader);
    let mut next = 0;
    for _ in 0..6 {
        next = fill(&mut boxes, leader, conn, next) + 1;
        boxes.advance(8_000);
        assert_eq!((boxes.leader(), alarms_at(&mut boxes, leader)), (leader, vec![]));
        boxes.end_checkpoint(leader);
        let told = boxes.told(leader, conn);
        assert!(matches!(told[..], [Told::Reply(Ok(_))]), "{told:?}");
    }
}

/// Without another voter only the alarm remains.
#[test]
fn standalone_server_whose_checkpoint_hangs_raises_an_alarm() {
    // The log is full first, and the memtable has room.
    let mut boxes = Boxes::born(1, Limits { memtable_bytes: 1 << 20, ..small_limits() });
    let conn = boxes.connect(1);
    boxes.checkpoints_hang.insert(1);
    fill(&mut boxes, 1, conn, 0);
    // Nothing happens meanwhile.
    boxes.now.mono_ms += 12_500;
    let own = raised(&mut boxes, 1, "writes wait for a checkpoint, for 12 s");
    assert!(own.len() == 1 && own[0].holds_up, "{own:?}");
    boxes.end_checkpoint(1);
    assert_eq!(raised(&mut boxes, 1, "writes wait"), []);
    let told = boxes.told(1, conn);
    assert!(matches!(told[..], [Told::Reply(Ok(_))]), "{told:?}");
}

/// Returns three servers of which one, the second value, waits to install a snapshot behind its
/// hanging checkpoint. The other learner is the third value.
fn installing_behind_a_checkpoint() -> (Boxes, u8, u8) {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, learners) = (boxes.leader(), boxes.learners());
    // Of two servers with equal histories, the one with the higher id is elected.
    let (other, installs) = (learners[0], learners[1]);
    let conn = boxes.connect(leader);
    boxes.checkpoints_hang.insert(installs);
    let mut number = 0;
    let mut write = |boxes: &mut Boxes| {
        assert!(boxes.ask(leader, conn, znode(number)).is_ok());
        number += 1;
    };
    while !boxes.is_checkpoint_unfinished(installs) {
        write(&mut boxes);
    }
    boxes.isolate(installs);
    (0..300).for_each(|_| write(&mut boxes));
    boxes.rejoin(installs);
    boxes.until("its history is that of the leader", |boxes| {
        boxes.server(installs).zab().last() == boxes.server(leader).zab().last()
    });
    assert!(!boxes.server(installs).is_serving());
    (boxes, installs, other)
}

/// Regression: the server was elected, and led without serving for as long as its checkpoint hung.
#[test]
fn server_that_installs_behind_a_hanging_checkpoint_is_not_elected() {
    let (mut boxes, installs, other) = installing_behind_a_checkpoint();
    boxes.kill(boxes.leader());
    boxes.until("the other serves", |boxes| boxes.server(other).is_serving());
    assert_eq!(boxes.leader(), other);
    let conn = boxes.connect(other);
    assert!(boxes.ask(other, conn, znode(5000)).is_ok(), "the server that installs acknowledges");
    boxes.end_checkpoint(installs);
    boxes.until_equal();
}

/// Regression: a leader that stopped handed over to a server that was installing a snapshot.
#[test]
fn leader_does_not_hand_over_to_a_server_that_installs() {
    let (mut boxes, installs, other) = installing_behind_a_checkpoint();
    let leader = boxes.leader();
    // The server reports its installation with its next pong.
    boxes.advance(1_000);
    boxes.command(leader, |server, now| server.hand_over(now));
    boxes.until("another serves", |boxes| boxes.server(other).leads() && boxes.server(other).is_serving());
    boxes.end_checkpoint(installs);
    boxes.until_equal();
    assert_eq!(boxes.leader(), other);
}

/// The other server must not lead: it may lack acknowledged entries.
#[test]
fn server_that_installs_gives_no_vote_to_a_server_with_less_history() {
    let (mut boxes, installs, other) = installing_behind_a_checkpoint();
    let leader = boxes.leader();
    boxes.isolate(other);
    boxes.cut.retain(|&(from, to)| (from, to) != (leader, installs) && (from, to) != (installs, leader));
    let conn = boxes.connect(leader);
    assert!(boxes.ask(leader, conn, znode(5000)).is_ok());
    boxes.kill(leader);
    boxes.said.clear();
    boxes.rejoin(other);
    boxes.advance(5_000);
    let is_elected = |message: &PeerMessage| {
        let PeerMessage::Zab(message) = message else { return false };
        matches!(&**message, Message::Notification(said) if matches!(said.stance, Stance::Leading { .. }))
    };
    assert!(!boxes.was_said(other, installs, is_elected) && !boxes.was_said(installs, other, is_elected));
    boxes.end_checkpoint(installs);
    boxes.until_equal();
    let conn = boxes.connect(other);
    assert_eq!(boxes.ask(other, conn, znode(5000)), Err(ErrorCode::NodeExists));
}
