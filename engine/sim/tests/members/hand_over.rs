//! Hand-over: a leader names its successor, so no election is needed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Members, born};
use zoolet_machine::seam::event::Shortage;
use zoolet_machine::status::{Alarm, DiskTrouble, DiskTroubles, Refusal};
use zoolet_machine::{Event, PeerMessage};
use zoolet_model::{ErrorCode, Reply, Request, WriteOp};
use zoolet_zab::Message;

/// Returns the successors that a leader named, one for each server told.
fn named_by(members: &Members, leader: u8) -> Vec<u8> {
    let named = |(from, _, message): &(u8, u8, PeerMessage)| match message {
        PeerMessage::Zab(message) if *from == leader => match **message {
            Message::HandOver { to, .. } => Some(to.as_u8()),
            _ => None,
        },
        _ => None,
    };
    members.said.iter().filter_map(named).collect()
}

/// Regression: the leader stopped leading in the same turn and dropped its queued HandOver
/// messages.
#[test]
fn leader_with_a_hanging_disk_names_its_successor() {
    let mut members = Members::born(3);
    let (leader, learners) = (members.leader(), members.learners());
    let client = members.client(learners[0], 30_000);
    members.hanging.insert(leader);
    assert_eq!(members.ask(&client, born("/a")), Ok(Reply::Path("/a".into())), "two disks are a quorum");
    let epoch = members.server(leader).zab().epoch();
    members.advance(1500);
    members.until_serves(learners[0]);
    let named = named_by(&members, leader);
    assert_eq!(named.len(), 2, "both others are told: {named:?}");
    assert_eq!((members.leader(), Some(members.server(learners[0]).zab().epoch())), (named[0], epoch.next()));
    assert_eq!(members.ask(&client, born("/b")), Ok(Reply::Path("/b".into())), "its connection outlived that");
}

/// Reports whether disk space is short, as the checkpoint thread does.
///
/// The server's checkpoints fail from then on.
fn space(members: &mut Members, server: u8, is_short: bool) {
    members.failing.insert(server);
    members.handle(server, Event::Space { shortage: is_short.then_some(Shortage::Disk) });
}

/// Returns the leaders seen while time passes, one for each change.
fn leaders_during(members: &mut Members, ms: u64) -> Vec<u8> {
    let mut seen = vec![members.leader()];
    for _ in 0..ms / 100 {
        members.advance(100);
        let leads = |&id: &u8| members.server(id).leads() && members.server(id).is_serving();
        if let Some(leader) = members.ids().find(leads)
            && seen.last() != Some(&leader)
        {
            seen.push(leader);
        }
    }
    seen
}

#[test]
fn leader_without_disk_space_hands_over_to_a_member_with_space() {
    let mut members = Members::born(5);
    let (leader, learners) = (members.leader(), members.learners());
    let client = members.client(learners[0], 30_000);
    // With room on all learners, the highest id would lead.
    let [successor, full] = [learners[2], learners[3]];
    space(&mut members, full, true);
    members.advance(500);
    space(&mut members, leader, true);
    members.advance(3000);
    assert_eq!(members.leader(), successor, "the highest id with room");
    assert_eq!(members.ask(&client, born("/a")), Ok(Reply::Path("/a".into())));
    assert_eq!(members.server(leader).refusing_writes(), None, "another one takes them");
    assert_eq!(leaders_during(&mut members, 60_000), [successor], "nothing else changes");
    let told: Vec<_> = members.status(successor).said.iter().map(|m| (m.id.as_u8(), m.health.refusal)).collect();
    let refusal = |id| [leader, full].contains(&id).then_some(Refusal::Shortage(Shortage::Disk));
    let others: Vec<_> = members.ids().filter(|&id| id != successor).map(|id| (id, refusal(id))).collect();
    assert_eq!(told, others, "one server tells of all");
}

#[test]
fn disk_troubles_raise_alarms_on_all_other_servers_until_fixed() {
    let mut members = Members::born(3);
    let worn = members.learners()[0];
    let troubles: DiskTroubles = [DiskTrouble::Slow, DiskTrouble::Worn].into_iter().collect();
    members.handle(worn, Event::DiskTroubles(troubles));
    members.advance(500);
    let told = |members: &mut Members, id: u8| {
        let of_disk = |alarm: &Alarm| alarm.what.contains(" its disk ");
        members.status(id).alarms.into_iter().filter(of_disk).map(|alarm| alarm.what).collect::<Vec<_>>()
    };
    let others: Vec<u8> = members.ids().filter(|&id| id != worn).collect();
    for &id in &others {
        let both = [format!("server {worn}: its disk is slow"), format!("server {worn}: its disk is nearly worn out")];
        assert_eq!(told(&mut members, id), both);
    }
    members.handle(worn, Event::DiskTroubles(DiskTroubles::default()));
    members.advance(500);
    others.iter().for_each(|&id| assert_eq!(told(&mut members, id), [""; 0]));
}

#[test]
fn full_members_refuse_writes_until_a_quorum_has_space() {
    let mut members = Members::born(3);
    let (leader, learners) = (members.leader(), members.learners());
    members.advance(500);
    members.ids().for_each(|id| space(&mut members, id, true));
    assert_eq!(leaders_during(&mut members, 60_000), [leader], "nobody is better off");
    for id in members.ids() {
        let alarms = members.status(id).alarms;
        let why = if id == leader {
            "writes are refused: the disk is full".to_owned()
        } else {
            format!("writes are refused: server {leader} leads, the disk is full, and no voter has room")
        };
        assert!(alarms.iter().any(|alarm| alarm.what == why && !alarm.remedy.is_empty()), "{alarms:?}");
    }
    let client = members.client(learners[0], 30_000);
    assert_eq!(members.ask(&client, born("/a")), Err(ErrorCode::SystemError));
    space(&mut members, learners[1], false);
    let seen = leaders_during(&mut members, 20_000);
    assert_eq!(seen, [leader, learners[1]], "once, and when the room has lasted");
    let client = members.client(leader, 30_000);
    assert_eq!(members.ask(&client, born("/a")), Err(ErrorCode::SystemError), "one of three has room");
    space(&mut members, leader, false);
    members.advance(500);
    assert_eq!(members.ask(&client, born("/a")), Ok(Reply::Path("/a".into())));
}

/// Regression: a new leader assumed that the others had room until it heard of their disks. It
/// handed over at once, and so did the next leader.
#[test]
fn leader_elected_among_full_members_does_not_hand_over() {
    let mut members = Members::born(3);
    members.ids().for_each(|id| space(&mut members, id, true));
    members.advance(3000);
    let first = members.leader();
    members.stop(first);
    members.advance(3000);
    let second = members.leader();
    assert_eq!(leaders_during(&mut members, 10_000), [second]);
    let client = members.client(second, 30_000);
    let gone = Request::Write(WriteOp::Delete { path: "/none".into(), version: -1 });
    assert_eq!(members.ask(&client, gone), Err(ErrorCode::NoNode), "deletes go on");
}

/// Each of the two members is full while it leads, and has room as soon as it follows.
#[test]
fn members_full_only_while_leading_do_not_flap_leadership() {
    let mut members = Members::born(3);
    let learners = members.learners();
    space(&mut members, learners[1], true);
    members.advance(500);
    let (mut changes, mut leader) = (0, members.leader());
    space(&mut members, leader, true);
    for _ in 0..600 {
        members.advance(100);
        let leads = |&id: &u8| members.server(id).leads() && members.server(id).is_serving();
        if let Some(next) = members.ids().find(leads).filter(|&next| next != leader) {
            space(&mut members, leader, false);
            space(&mut members, next, true);
            (leader, changes) = (next, changes + 1);
        }
    }
    assert!((1..=6).contains(&changes), "{changes} in a minute: at most one in 10 s");
}

#[test]
fn stopping_leader_hands_over_to_a_member_with_disk_space() {
    let mut members = Members::born(3);
    let (leader, learners) = (members.leader(), members.learners());
    // With room on both learners, the higher id would lead.
    space(&mut members, learners[1], true);
    members.advance(500);
    members.command(leader, |server, now| server.hand_over(now));
    members.advance(2000);
    assert_eq!(members.leader(), learners[0]);
}

#[test]
fn lagging_learner_raises_alarms_on_other_servers_until_it_catches_up() {
    let mut members = Members::born(3);
    let (leader, learners) = (members.leader(), members.learners());
    let client = members.client(learners[0], 30_000);
    members.hanging.insert(learners[1]);
    for number in 0..15 {
        assert!(members.ask(&client, born(&format!("/{number}"))).is_ok(), "two disks are a quorum");
        members.advance(1000);
    }
    let slow = learners[1];
    let alarms = |members: &mut Members, id| -> Vec<String> {
        members.status(id).alarms.into_iter().map(|alarm| alarm.what).filter(|what| what.contains("lags")).collect()
    };
    let by_leader = alarms(&mut members, leader);
    assert!(by_leader.len() == 1 && by_leader[0].starts_with(&format!("server {slow} lags by ")), "{by_leader:?}");
    let said = format!("server {slow} lags, reports its leader, server {leader}");
    assert_eq!(alarms(&mut members, learners[0]), [said]);
    members.hanging.clear();
    members.advance(3000);
    members.ids().for_each(|id| assert_eq!(alarms(&mut members, id), [""; 0]));
}

/// Progress alone is reported at most every 5 s. An unchanged state is not reported.
#[test]
fn idle_ensemble_sends_no_health_messages() {
    let mut members = Members::born(3);
    members.advance(20_000);
    let healths = |members: &Members| {
        members.said.iter().filter(|(_, _, message)| matches!(message, PeerMessage::Health(_))).count()
    };
    let before = healths(&members);
    members.advance(600_000);
    assert_eq!(healths(&members), before);
    let client = members.client(1, 30_000);
    for number in 0..100 {
        assert!(members.ask(&client, born(&format!("/{number}"))).is_ok());
        members.advance(100);
    }
    let told = healths(&members) - before;
    assert!(told <= 3 * 6, "10 s of writes, six directions: {told}");
}
