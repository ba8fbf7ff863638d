//! Peers repair a server with damaged or missing data.
//!
//! Until then nothing that the server holds is trusted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::member_boxes::{Boxes, Told, small_limits};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_machine::txn::{self, Header, Txn};
use zoolet_machine::{Event, Limits, PeerMessage};
use zoolet_model::{CreateKind, Epoch, Request, ServerId, SessionSecret, Zxid};
use zoolet_sim::client;
use zoolet_store::disk::Disk;
use zoolet_store::{Store, Strategy};
use zoolet_zab::AppendSeq;

fn write_much(boxes: &mut Boxes, server: u8, count: u32) {
    let conn = boxes.connect(server);
    let _ = boxes.ask(server, conn, Request::Write(client::create("/a", 10, CreateKind::Persistent)));
    for _ in 0..count {
        boxes.ask(server, conn, Request::Write(client::set("/a", 900))).unwrap();
    }
}

#[test]
fn server_with_a_lost_base_gets_a_snapshot_and_votes_again() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, lost) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 150);
    boxes.until_equal();
    boxes.kill(lost);
    let disk = boxes.disk(lost).clone();
    for name in disk.list().unwrap().into_iter().filter(|name| name.starts_with("base")) {
        disk.remove(&name).unwrap();
    }
    disk.sync_directory().unwrap();
    boxes.said.clear();
    boxes.start(lost);
    boxes.until_equal();
    assert!(boxes.was_said(leader, lost, |message| matches!(message, PeerMessage::Snapshot { .. })));
    assert!(boxes.server(lost).zab().is_voter());
    let third = boxes.ids().find(|&server| server != leader && server != lost).unwrap();
    boxes.kill(third);
    write_much(&mut boxes, leader, 3);
    boxes.until_equal();
}

/// Regression: the leader's next process numbered its transfers from 1 again. When the learner
/// cancelled the first of them, it removed a base that waited for its installation.
#[test]
fn processes_of_a_server_use_different_transfer_numbers() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    let mut numbers = Vec::new();
    for _ in 0..2 {
        boxes.isolate(away);
        write_much(&mut boxes, leader, 300);
        boxes.said.clear();
        boxes.rejoin(away);
        boxes.until_equal();
        numbers.extend(boxes.said.iter().find_map(|(_, _, message)| match message {
            PeerMessage::Snapshot { transfer, .. } => Some(*transfer),
            _ => None,
        }));
        // The next process of the same server leads again.
        boxes.kill(leader);
        boxes.start(leader);
        boxes.until_equal();
        let other = boxes.leader();
        boxes.command(other, |server, now| server.hand_over(now));
        boxes.until("it leads again", |boxes| boxes.server(leader).leads());
        boxes.until_equal();
    }
    assert!(numbers.len() == 2 && numbers[0] != numbers[1], "{numbers:?}");
}

/// Regression: seeds 83 and 239 of lost disks. The learner waited forever for the rest of a
/// snapshot, because its link stayed up.
#[test]
fn learner_requests_a_snapshot_again_after_its_transfer_fails() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    boxes.kill(away);
    write_much(&mut boxes, leader, 300);
    (boxes.snapshots_fail, boxes.snapshots_wait) = (2, true);
    boxes.start(away);
    boxes.advance(1_000);
    // The leader's status shows this third snapshot until the learner has caught up.
    assert_eq!(boxes.status(leader).snapshots, Some((ServerId::new(away).unwrap(), 3)));
    boxes.snapshots_wait = false;
    boxes.until_equal();
    assert_eq!((boxes.snapshots_fail, boxes.status(leader).snapshots), (0, None));
    assert!(boxes.was_said(leader, away, |message| matches!(message, PeerMessage::Snapshot { .. })));
}

/// Regression: attempts followed each other as fast as links came up. Each attempt may write a
/// whole base to flash.
#[test]
fn learner_with_a_full_disk_backs_off_between_snapshot_requests() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    boxes.kill(away);
    write_much(&mut boxes, leader, 300);
    let disk = boxes.disk(away).clone();
    // Enough room for the log.
    disk.set_capacity(Some(disk.used_bytes() + (1 << 20)));
    boxes.start(away);
    boxes.advance(150_000);
    let pauses: Vec<_> = boxes.snapshots_asked.windows(2).map(|times| times[1] - times[0]).collect();
    let least = [1, 2, 4, 8, 16, 32, 32].map(|seconds| seconds * 1000);
    assert!(pauses.len() >= least.len() - 1, "{pauses:?}");
    for (pause, least) in pauses.iter().zip(least) {
        assert!((least..least + 1000).contains(pause), "{pauses:?}");
    }
    let told = boxes.status(away).snapshot_not_taken.unwrap();
    assert!(told.contains("no space left"), "{told}");
    disk.set_capacity(None);
    boxes.advance(33_000);
    boxes.until_equal();
    assert_eq!(boxes.status(away).snapshot_not_taken, None);
}

/// Under constant load the log reaches back a short time only. The sender must hurry, or the next
/// snapshot arrives too late as well.
#[test]
fn snapshot_sender_counts_the_previous_snapshots_that_came_too_late() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    boxes.kill(away);
    write_much(&mut boxes, leader, 300);
    boxes.snapshots_wait = true;
    boxes.start(away);
    boxes.advance(1_000);
    assert_eq!(boxes.too_late, [0]);
    write_much(&mut boxes, leader, 300);
    boxes.snapshots_wait = false;
    boxes.until_equal();
    assert_eq!(boxes.too_late, [0, 1]);
    // The learner caught up in between.
    boxes.kill(away);
    write_much(&mut boxes, leader, 300);
    boxes.start(away);
    boxes.until_equal();
    assert_eq!(boxes.too_late, [0, 1, 0]);
}

/// Regression: a cancelled transfer counted as one that came too late. The next one took twice the
/// rate from the writes that the limit protects.
#[test]
fn cancelled_snapshot_does_not_count_as_late() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    boxes.kill(away);
    write_much(&mut boxes, leader, 300);
    boxes.snapshots_cancelled = 1;
    boxes.start(away);
    boxes.advance(1_000);
    assert_eq!(boxes.too_late, [0]);
    boxes.kill(away);
    boxes.start(away);
    boxes.until_equal();
    assert_eq!(boxes.too_late, [0, 0]);
}

/// Regression: seed 487186478. The leader's newest checkpoint was older than the damage. The leader
/// sent the same snapshot without end, and the learner wrote each copy to its flash.
#[test]
fn learner_needing_damaged_log_entries_gets_exactly_one_snapshot() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, away) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 100);
    boxes.until_equal();
    boxes.kill(away);
    // More than stays in memory, less than triggers the next checkpoint.
    write_much(&mut boxes, leader, 10);
    let disk = boxes.disk(leader).clone();
    for (name, bytes) in disk.files().into_iter().filter(|(name, _)| name.starts_with("seg")) {
        (0..bytes).step_by(50).for_each(|at| assert!(disk.corrupt(&name, at, 4)));
    }
    boxes.said.clear();
    boxes.start(away);
    boxes.until_equal();
    let snapshots = boxes.said.iter().filter(|(_, _, message)| matches!(message, PeerMessage::Snapshot { .. }));
    assert_eq!(snapshots.count(), 1);
}

/// Opening a base does not read all of it, so a fetch finds the damage. Alone, a server could only
/// refuse the request, or stop again and again before an entry that needs the damaged record.
#[test]
fn server_that_finds_base_damage_stops_serving_and_gets_a_snapshot() {
    for is_leader in [false, true] {
        let mut boxes = Boxes::born(3, small_limits());
        let victim = if is_leader { boxes.leader() } else { boxes.learners()[0] };
        let conn = boxes.connect(victim);
        for at in 0..250 {
            let path = format!("/n{at}");
            boxes
                .ask(victim, conn, Request::Write(client::create(path.as_str(), 900, CreateKind::Persistent)))
                .unwrap();
        }
        boxes.until_equal();
        let disk = boxes.disk(victim).clone();
        for (name, bytes) in disk.files().into_iter().filter(|(name, _)| name.ends_with(".run")) {
            (0..bytes).step_by(50).for_each(|at| assert!(disk.corrupt(&name, at, 4)));
        }
        boxes.said.clear();
        let told = (0..250).map(|at| {
            boxes.send(victim, conn, Request::GetData { path: format!("/n{at}").into(), watch: false });
            boxes.settle();
            boxes.told(victim, conn)
        });
        let told: Vec<_> = told.flatten().take_while(|told| !matches!(told, Told::Closed)).collect();
        assert!(told.len() < 250 && told.iter().all(|told| matches!(told, Told::Reply(Ok(_)))), "{told:?}");
        boxes.until_equal();
        let has_snapshot = |from| boxes.was_said(from, victim, |said| matches!(said, PeerMessage::Snapshot { .. }));
        assert!(boxes.ids().any(has_snapshot) && boxes.server(victim).zab().is_voter());
        let conn = boxes.connect(victim);
        for at in 0..250 {
            boxes.ask(victim, conn, Request::GetData { path: format!("/n{at}").into(), watch: false }).unwrap();
        }
    }
}

#[test]
fn learner_rejects_entries_of_another_history_and_gets_a_snapshot() {
    let mut boxes = Boxes::born(3, Limits::default());
    let (leader, learner) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 3);
    boxes.until_equal();
    let before = boxes.server(learner).applied();
    boxes.said.clear();
    write_much(&mut boxes, leader, 1);
    let entries = boxes.said.iter().rev().find_map(|(_, to, message)| match message {
        PeerMessage::Entries(entries) if *to == learner => Some(entries.clone()),
        _ => None,
    });
    // The next entry, forged to continue another history.
    let mut entries = entries.unwrap();
    let next = boxes.server(learner).zab().last().next().unwrap();
    (entries.from, entries.to, entries.entries[0].zxid) = (next, next, next);
    entries.entries.truncate(1);
    entries.chain_before ^= 1;
    boxes.said.clear();
    boxes.inject(leader, learner, PeerMessage::Entries(entries));
    boxes.settle();
    assert!(boxes.server(learner).zab().last() < next && boxes.server(learner).applied() > before);
    // The learner requests a snapshot, because it cannot know what else differs.
    boxes.until_equal();
    assert!(boxes.was_said(leader, learner, |message| matches!(message, PeerMessage::Snapshot { .. })));
}

#[test]
fn server_with_a_divergent_history_has_no_vote_after_a_restart() {
    let mut boxes = Boxes::born(3, Limits::default());
    let (leader, learner) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 3);
    boxes.until_equal();
    let last = boxes.server(learner).zab().last();
    boxes.said.clear();
    write_much(&mut boxes, leader, 1);
    let entries = boxes.said.iter().rev().find_map(|(_, to, message)| match message {
        PeerMessage::Entries(entries) if *to == learner && entries.from > last => Some(entries.clone()),
        _ => None,
    });
    let mut entries = entries.unwrap();
    let next = boxes.server(learner).zab().last().next().unwrap();
    (entries.from, entries.to, entries.entries[0].zxid) = (next, next, next);
    entries.entries.truncate(1);
    entries.chain_before ^= 1;
    // The learner hears its peers, but they do not hear it.
    boxes.cut.extend(boxes.ids().map(|other| (learner, other)));
    boxes.inject(leader, learner, PeerMessage::Entries(entries));
    boxes.settle();
    boxes.isolate(learner);
    boxes.kill(learner);
    boxes.start(learner);
    assert!(!boxes.server(learner).zab().is_voter());
    boxes.rejoin(learner);
    boxes.until_equal();
    assert!(boxes.server(learner).zab().is_voter());
}

/// An ensemble is born once. When all logs are lost, the servers serve nothing and remove nothing,
/// because the remaining files may be wanted.
#[test]
fn servers_that_all_lost_their_logs_form_no_new_ensemble() {
    let mut boxes = Boxes::born(3, small_limits());
    let leader = boxes.leader();
    write_much(&mut boxes, leader, 100);
    boxes.until_equal();
    let ensemble = boxes.server(1).zab().ensemble();
    boxes.ids().for_each(|server| boxes.kill(server));
    for server in boxes.ids() {
        let disk = boxes.disk(server).clone();
        for name in disk.list().unwrap().into_iter().filter(|name| name.starts_with("seg-")) {
            assert!(disk.corrupt(&name, 90, 1));
        }
    }
    for _ in 0..3 {
        boxes.ids().for_each(|server| boxes.start(server));
        boxes.advance(5000);
        for server in boxes.ids() {
            assert!(!boxes.server(server).is_serving());
            boxes.kill(server);
        }
    }
    for server in boxes.ids() {
        assert!(boxes.disk(server).list().unwrap().iter().any(|name| name == "base-0.manifest"), "{server}");
    }
    // One of these servers beside two new disks is no quorum either.
    let kept = boxes.ids().next().unwrap();
    boxes.ids().filter(|&server| server != kept).for_each(|server| boxes.wipe(server));
    for _ in 0..2 {
        boxes.ids().for_each(|server| boxes.start(server));
        boxes.advance(5000);
        assert!(boxes.ids().all(|server| !boxes.server(server).is_serving()));
        boxes.ids().for_each(|server| boxes.kill(server));
    }
    assert_ne!(ensemble, zoolet_zab::EnsembleId::UNBORN);
}

#[test]
fn different_state_digests_raise_an_alarm_and_do_not_stop_writes() {
    let mut boxes = Boxes::born(3, Limits::default());
    let (leader, learner) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 1100);
    boxes.until_equal();
    let said: Vec<_> = boxes
        .said
        .iter()
        .filter(|(_, to, message)| *to == leader && matches!(message, PeerMessage::Digest { .. }))
        .collect();
    assert!(said.len() >= 2, "both learners have told theirs");
    assert_eq!(boxes.status(leader).differs, None);
    let zxid = Zxid::new(boxes.server(leader).zab().epoch(), 1024).unwrap();
    boxes.inject(learner, leader, PeerMessage::Digest { zxid, digest: 5 });
    boxes.settle();
    assert_eq!(boxes.status(leader).differs, Some((ServerId::new(learner).unwrap(), zxid)));
    write_much(&mut boxes, leader, 3);
    boxes.until_equal();
    assert_ne!(boxes.status(leader).differs, None, "nothing was repaired yet");
    write_much(&mut boxes, leader, 1000);
    boxes.until_equal();
    assert_eq!(boxes.status(leader).differs, None, "the digests at 2048 agree");
}

#[test]
fn repair_of_one_learner_keeps_the_alarm_about_another() {
    let mut boxes = Boxes::born(3, Limits::default());
    let (leader, learners) = (boxes.leader(), boxes.learners());
    write_much(&mut boxes, leader, 1100);
    boxes.until_equal();
    let epoch = boxes.server(leader).zab().epoch();
    let zxid = |counter| Zxid::new(epoch, counter).unwrap();
    for &learner in &learners {
        boxes.inject(learner, leader, PeerMessage::Digest { zxid: zxid(1024), digest: 5 });
    }
    boxes.settle();
    boxes.cut.insert((learners[1], leader));
    // The first learner's digest at 2048 agrees, and the other one's does not arrive.
    write_much(&mut boxes, leader, 1000);
    let differs = boxes.status(leader).differs.map(|(peer, _)| peer.as_u8());
    assert_eq!(differs, Some(learners[1]));
}

#[test]
fn alarm_about_a_differing_learner_ends_with_the_leadership() {
    let mut boxes = Boxes::born(3, Limits::default());
    let (leader, learner) = (boxes.leader(), boxes.learners()[0]);
    write_much(&mut boxes, leader, 1100);
    boxes.until_equal();
    let zxid = Zxid::new(boxes.server(leader).zab().epoch(), 1024).unwrap();
    boxes.inject(learner, leader, PeerMessage::Digest { zxid, digest: 5 });
    boxes.settle();
    assert!(boxes.status(leader).differs.is_some());
    boxes.isolate(leader);
    boxes.advance(10_000);
    boxes.rejoin(leader);
    boxes.until_equal();
    assert_ne!(boxes.leader(), leader);
    assert_eq!(boxes.status(leader).differs, None, "a learner receives no digests");
}

/// Regression: the alarm stayed until the process ended, and held up every upgrade.
#[test]
fn a_snapshot_for_the_peer_that_differed_ends_the_alarm() {
    let mut boxes = Boxes::born(3, small_limits());
    let (leader, learner) = (boxes.leader(), boxes.learners()[0]);
    let differed = |boxes: &mut Boxes| boxes.status(leader).differs.map(|(peer, _)| peer.as_u8());
    write_much(&mut boxes, leader, 1100);
    boxes.until_equal();
    let zxid = Zxid::new(boxes.server(leader).zab().epoch(), 1024).unwrap();
    boxes.inject(learner, leader, PeerMessage::Digest { zxid, digest: 5 });
    boxes.settle();
    boxes.kill(learner);
    boxes.start(learner);
    boxes.until_equal();
    assert_eq!(differed(&mut boxes), Some(learner), "a restart repairs nothing");
    boxes.kill(learner);
    boxes.wipe(learner);
    boxes.start(learner);
    boxes.until_equal();
    assert_eq!(differed(&mut boxes), None);
}

#[test]
fn a_server_counts_commits_of_earlier_epochs_that_it_has_not_applied() {
    let mut boxes = Boxes::born(3, Limits { log_segments: 64, ..small_limits() });
    let (leader, slow) = (boxes.leader(), boxes.learners()[0]);
    let conn = boxes.connect(leader);
    for number in 0..200 {
        let path = format!("/{number}");
        boxes.ask(leader, conn, Request::Write(client::create(path.as_str(), 500, CreateKind::Persistent))).unwrap();
    }
    boxes.until_equal();
    boxes.kill(slow);
    boxes.start(slow);
    boxes.until_equal();
    // The first of these writes needs a record of the base, which holds up the others.
    boxes.fetches_wait.insert(slow);
    for number in 0..30 {
        boxes.ask(leader, conn, Request::Write(client::set(format!("/{number}").as_str(), 100))).unwrap();
    }
    let (before, epoch) = (boxes.status(slow).behind, boxes.server(slow).zab().epoch());
    assert!(before > 10, "{before}");
    boxes.kill(leader);
    boxes.until("a new epoch commits", |boxes| boxes.server(slow).zab().committed().epoch() > epoch);
    let after = boxes.status(slow).behind;
    assert!(after > before, "{before}, then {after}");
}

/// A server of an earlier release left an epoch without a membership.
#[test]
fn directory_without_a_membership_is_born_on_the_next_start() {
    let mut boxes = Boxes::new(1, Limits::default());
    let disk = boxes.disk(1).clone();
    let mut store = Store::open(Arc::new(disk), Strategy::Recycle, &boxes.limits, 77).unwrap();
    let epoch = Epoch::new(1).unwrap();
    let mut buffer = BytesMut::new();
    let mut encode = |ensemble_ms, txn: &Txn<'_>| -> Bytes {
        txn::encode(Header { wall_ms: 5, ensemble_ms, ..Header::default() }, txn, &mut buffer)
    };
    let session = Txn::CreateSession { timeout_ms: 30_000, secret: SessionSecret([3; 16]), home: None };
    let records = vec![
        LogRecord::Promise(epoch),
        LogRecord::Epoch(epoch),
        LogRecord::Entry { zxid: Zxid::new(epoch, 0).unwrap(), payload: encode(0, &Txn::NoOp) },
        LogRecord::Entry { zxid: Zxid::new(epoch, 1).unwrap(), payload: encode(900, &session) },
    ];
    store
        .log
        .append(&[Append { seq: AppendSeq(store.log.appended().0 + 4), records: records.into(), ..Append::default() }])
        .unwrap();
    drop(store);
    boxes.start(1);
    boxes.until_all_serve();
    assert_eq!(boxes.status(1).role, "standalone");
    assert_eq!((boxes.server(1).sessions(), boxes.server(1).applied().epoch().as_u32()), (1, 2));
    assert!(boxes.server(1).zab().config().is_born());
    let ensemble = boxes.server(1).zab().ensemble();
    write_much(&mut boxes, 1, 3);
    boxes.kill(1);
    boxes.start(1);
    boxes.until_all_serve();
    assert_eq!(boxes.server(1).zab().ensemble(), ensemble);
    boxes.handle(1, Event::Status { ticket: 3 });
}

/// The small server's log can never hold the entry, however often it starts. The server keeps
/// running and names the reason when it refuses the leader's link.
#[test]
fn entry_too_large_for_one_servers_log_excludes_only_that_server() {
    let large = Limits { log_segment_bytes: 32 << 10, ..small_limits() };
    let mut boxes = Boxes::born(3, large);
    let (leader, small) = (boxes.leader(), boxes.learners()[0]);
    boxes.kill(small);
    boxes.wipe(small);
    boxes.limits = small_limits();
    boxes.start(small);
    boxes.until_equal();
    let conn = boxes.connect(leader);
    boxes.ask(leader, conn, Request::Write(client::create("/a", 10, CreateKind::Persistent))).unwrap();
    boxes.ask(leader, conn, Request::Write(client::set("/a", 20_000))).unwrap();
    boxes.advance(1_000);
    let behind = boxes.server(leader).applied() > boxes.server(small).applied();
    assert!(behind && boxes.server(leader).is_serving() && boxes.runs(small));
    boxes.ask(leader, conn, Request::Write(client::set("/a", 10))).unwrap();
}
