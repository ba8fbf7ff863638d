//! Full disks of followers, with the real log, base and reserve.
//!
//! A leader with room refuses writes while its full followers can still acknowledge entries.
//! Otherwise even the deletes that free space would hang.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_boxes::{Boxes, Told, small_limits};
use zoolet_machine::status::{Refusal, alarms};
use zoolet_machine::{ConnId, Limits};
use zoolet_model::{CreateKind, ErrorCode, Reply, Request, WriteOp};
use zoolet_sim::client::create;

/// Writes that would use up the reserve and the log several times.
const WRITES: u32 = 3000;

fn znode(number: u32) -> Request {
    Request::Write(create(format!("/n{number}"), 1000, CreateKind::Persistent))
}

fn delete(number: u32) -> Request {
    Request::Write(WriteOp::Delete { path: format!("/n{number}").as_str().into(), version: -1 })
}

/// Returns three servers that have written a while, their leader and its followers.
fn in_use() -> (Boxes, u8, Vec<u8>, ConnId) {
    let (memtable_bytes, log_segment_bytes, disk_reserve_bytes) = (64 << 10, 64 << 10, 512 << 10);
    let limits = Limits { memtable_bytes, log_segment_bytes, disk_reserve_bytes, ..small_limits() };
    let mut boxes = Boxes::born(3, limits);
    let (leader, followers) = (boxes.leader(), boxes.learners());
    let conn = boxes.connect(leader);
    for number in 0..100 {
        assert!(boxes.ask(leader, conn, znode(number)).is_ok());
    }
    (boxes, leader, followers, conn)
}

/// Lets another program take all free space of a server's disk.
fn fill(boxes: &Boxes, server: u8) {
    let disk = boxes.disk(server);
    disk.set_capacity(Some(disk.used_bytes()));
}

/// Fills the disk of one follower and creates znodes until it reports that. Returns the next number.
fn fill_and_write(boxes: &mut Boxes, follower: u8, leader: u8, conn: ConnId) -> u32 {
    fill(boxes, follower);
    for number in 100..WRITES {
        if boxes.server(follower).refusal().is_some() {
            return number;
        }
        assert!(boxes.ask(leader, conn, znode(number)).is_ok(), "two of three have room");
    }
    panic!("the follower never lacks room");
}

/// Creates znodes until one is refused, and returns its number.
fn create_until_refused(boxes: &mut Boxes, server: u8, conn: ConnId, from: u32) -> u32 {
    for number in from..from + WRITES {
        match boxes.ask(server, conn, znode(number)) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, ErrorCode::SystemError);
                return number;
            }
        }
    }
    panic!("no write was refused");
}

fn alarms_at(boxes: &mut Boxes, server: u8) -> Vec<(String, String)> {
    alarms(&boxes.status(server)).into_iter().map(|alarm| (alarm.what, alarm.remedy)).collect()
}

/// Regression: the leader accepted every write and committed none once the followers had used up
/// their reserves. Deletes and new sessions hung too, and no status said that writes stood still.
#[test]
fn leader_refuses_writes_while_fewer_than_a_quorum_of_disks_have_room() {
    let (mut boxes, leader, followers, conn) = in_use();
    followers.iter().for_each(|&follower| fill(&boxes, follower));
    let refused = create_until_refused(&mut boxes, leader, conn, 100);
    let from_follower = boxes.connect(followers[0]);
    assert_eq!(boxes.ask(followers[0], from_follower, znode(refused)), Err(ErrorCode::SystemError));

    let full =
        [1, 2, 3].into_iter().filter(|&server| server != leader).map(|id| format!("server {id}: the disk is full"));
    let lacks = format!("1 of 3 voters has room, and writes need 2; {}", full.collect::<Vec<_>>().join("; "));
    let remedy = "free space on the disks of these servers until 2 voters have room, or delete znodes";
    boxes.advance(500);
    let alarm = (format!("writes are refused: {lacks}"), remedy.to_owned());
    assert!(alarms_at(&mut boxes, leader).contains(&alarm), "{:?}", alarms_at(&mut boxes, leader));
    let alarm = (format!("writes are refused: server {leader} leads, {lacks}"), remedy.to_owned());
    for &follower in &followers {
        assert!(alarms_at(&mut boxes, follower).contains(&alarm), "{:?}", alarms_at(&mut boxes, follower));
    }

    // The remedy and everything that it needs goes on.
    for server in boxes.ids() {
        let session = boxes.connect(server);
        assert_eq!(boxes.ask(server, session, delete(u32::from(server))), Ok(Reply::Empty));
        assert!(boxes.ask(server, session, Request::Sync { path: Some("/".into()) }).is_ok());
        boxes.send(server, session, Request::CloseSession);
        boxes.advance(100);
        let told = boxes.told(server, session);
        assert!(matches!(told.first(), Some(Told::Reply(Ok(Reply::Empty)))), "{told:?}");
    }
    boxes.advance(60_000);
    assert_eq!(boxes.leader(), leader, "another leader would refuse the same writes");
    // The former session has expired.
    let conn = boxes.connect(leader);
    assert_eq!(boxes.ask(leader, conn, znode(refused)), Err(ErrorCode::SystemError));

    boxes.disk(followers[0]).set_capacity(None);
    boxes.advance(1000);
    assert!(boxes.ask(leader, conn, znode(refused)).is_ok(), "two of three have room");
    let is_about_writes = |(what, _): &(String, String)| what.starts_with("writes are refused");
    assert!(!alarms_at(&mut boxes, leader).iter().any(is_about_writes));
    assert_eq!(boxes.leader(), leader);
}

#[test]
fn deletes_alone_make_room_on_full_followers_and_end_the_refusal() {
    let (mut boxes, leader, followers, conn) = in_use();
    // The servers fill these disks themselves.
    followers.iter().for_each(|&follower| boxes.disk(follower).set_capacity(Some(4 << 20)));
    let refused = create_until_refused(&mut boxes, leader, conn, 100);
    for number in 0..refused {
        assert_eq!(boxes.ask(leader, conn, delete(number)), Ok(Reply::Empty), "{number} of {refused}");
    }
    boxes.until("writes go on", |boxes| boxes.server(leader).refusing_writes().is_none());
    assert!(boxes.ask(leader, conn, znode(refused)).is_ok());
}

/// With one follower down, the full one would have to acknowledge the entries.
#[test]
fn writes_are_refused_while_one_follower_is_full_and_the_other_is_down() {
    let (mut boxes, leader, followers, conn) = in_use();
    let number = fill_and_write(&mut boxes, followers[0], leader, conn);
    boxes.kill(followers[1]);
    assert_eq!(boxes.ask(leader, conn, znode(number)), Err(ErrorCode::SystemError));
    assert_eq!(boxes.ask(leader, conn, delete(0)), Ok(Reply::Empty));
    let lacks = [followers[0], followers[1]];
    let what =
        alarms_at(&mut boxes, leader).into_iter().find(|(what, _)| what.starts_with("writes are refused")).unwrap();
    for server in lacks {
        assert!(what.0.contains(&format!("server {server}: ")), "{what:?}");
    }
    boxes.start(followers[1]);
    boxes.until_all_serve();
    assert!(boxes.ask(leader, conn, znode(number)).is_ok(), "two of three have room again");
}

/// The others' writes need no acknowledgement of one full follower. It acknowledges them until its
/// reserve and its log are full, and catches up once it has room.
#[test]
fn one_full_follower_falls_behind_says_why_and_catches_up() {
    let (mut boxes, leader, followers, conn) = in_use();
    fill(&boxes, followers[0]);
    let mut number = 100;
    while boxes.server(followers[0]).refusal() != Some(Refusal::LogFull) {
        assert!(boxes.ask(leader, conn, znode(number)).is_ok(), "{number}");
        number += 1;
        assert!(number < WRITES, "its log always has room");
    }
    boxes.advance(500);
    let why = "the disk is full, and the log cannot grow";
    let own = alarms_at(&mut boxes, followers[0]);
    assert!(own.iter().any(|(what, remedy)| what.contains(why) && remedy.starts_with("free space")), "{own:?}");
    let of_other = (
        format!("server {} would refuse writes if it led: {why}", followers[0]),
        "free space there; until then that server falls behind, and deleting znodes does not help it".to_owned(),
    );
    assert!(alarms_at(&mut boxes, leader).contains(&of_other));
    for server in [leader, followers[1]] {
        assert_eq!(boxes.server(server).refusing_writes(), None);
    }
    assert!(boxes.ask(leader, conn, znode(number)).is_ok());
    boxes.disk(followers[0]).set_capacity(None);
    boxes.advance(1000);
    boxes.until_equal();
}

/// A disk that hangs reports no error. Its server sends heartbeats and acknowledges nothing.
#[test]
fn writes_are_refused_while_one_follower_is_full_and_the_disk_of_the_other_hangs() {
    let (mut boxes, leader, followers, conn) = in_use();
    let number = fill_and_write(&mut boxes, followers[0], leader, conn);
    boxes.hanging.insert(followers[1]);
    assert!(boxes.ask(leader, conn, znode(number)).is_ok(), "nobody knows yet that the disk hangs");
    boxes.advance(2000);
    assert_eq!(boxes.ask(leader, conn, znode(number + 1)), Err(ErrorCode::SystemError));
    assert_eq!(boxes.ask(leader, conn, delete(0)), Ok(Reply::Empty));
    boxes.hanging.clear();
    boxes.advance(2000);
    assert!(boxes.ask(leader, conn, znode(number + 1)).is_ok(), "two of three have room again");
}
