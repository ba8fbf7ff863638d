//! An operator's commands to whole servers: orderly stops and membership changes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::Members;
use zoolet_machine::PeerMessage;
use zoolet_model::{CreateKind, Request, ServerId, Text};
use zoolet_sim::client::create;
use zoolet_zab::{Kind, Message, Refused};

const TIMEOUT_MS: i32 = 30_000;

fn members(of: &[(u8, Kind)]) -> Vec<(ServerId, Kind)> {
    of.iter().map(|&(server, kind)| (ServerId::new(server).unwrap(), kind)).collect()
}

fn reconfigure(ensemble: &mut Members, of: &[(u8, Kind)]) -> Result<(), Refused> {
    let (leader, of) = (ensemble.leader(), members(of));
    let outcome = ensemble.command(leader, |server, now| server.reconfigure(now, &of)).map(drop);
    ensemble.advance(100);
    outcome
}

fn roles(ensemble: &Members) -> Vec<(ServerId, Kind)> {
    let config = ensemble.server(ensemble.leader()).zab().config();
    config.members().iter().map(|member| (member.id, member.kind)).collect()
}

/// Regression: the leader dropped the HandOver messages with everything else it had queued, so an
/// election followed.
#[test]
fn stopped_leader_hands_over_and_its_successor_leads_at_once() {
    let mut ensemble = Members::born(3);
    let leader = ensemble.leader();
    let client = ensemble.client(ensemble.learners()[0], TIMEOUT_MS);
    ensemble.ask(&client, Request::Write(create("/before", 1, CreateKind::Persistent))).unwrap();
    ensemble.said.clear();
    ensemble.command(leader, |server, now| server.hand_over(now));
    ensemble.settle();
    assert!(!ensemble.server(leader).leads());
    let is_hand_over = |message: &PeerMessage| matches!(message, PeerMessage::Zab(message) if matches!(**message, Message::HandOver { .. }));
    assert_eq!(ensemble.said.iter().filter(|(from, _, message)| *from == leader && is_hand_over(message)).count(), 2);
    ensemble.stop(leader);
    let since_ms = ensemble.now.mono_ms;
    ensemble.until_all_serve();
    assert!(ensemble.now.mono_ms - since_ms <= 50, "{} ms", ensemble.now.mono_ms - since_ms);
    let next = ensemble.client(ensemble.leader(), TIMEOUT_MS);
    let before = Request::Exists { path: Text::from("/before"), watch: false };
    assert!(ensemble.ask(&next, before).is_ok());
}

#[test]
fn hand_over_at_a_follower_or_a_single_server_does_nothing() {
    let mut ensemble = Members::born(3);
    let (leader, follower) = (ensemble.leader(), ensemble.learners()[0]);
    ensemble.command(follower, |server, now| server.hand_over(now));
    ensemble.advance(100);
    assert_eq!(ensemble.leader(), leader);
    let mut alone = Members::born(1);
    alone.command(1, |server, now| server.hand_over(now));
    let client = alone.client(1, TIMEOUT_MS);
    assert!(alone.ask(&client, Request::Write(create("/a", 1, CreateKind::Persistent))).is_ok());
}

/// The membership then has one member, as for a standalone server. But that member is another
/// server.
#[test]
fn removed_member_asks_the_leader_about_sessions() {
    let mut ensemble = Members::born(3);
    let (leader, others) = (ensemble.leader(), ensemble.learners());
    let mut client = ensemble.client(leader, TIMEOUT_MS);
    reconfigure(&mut ensemble, &[(leader, Kind::Voter), (others[0], Kind::Voter)]).unwrap();
    reconfigure(&mut ensemble, &[(leader, Kind::Voter)]).unwrap();
    ensemble.until_serves(others[0]);
    ensemble.said.clear();
    ensemble.come_back(&mut client, others[0], 0);
    ensemble.settle();
    let asks = |message: &PeerMessage| matches!(message, PeerMessage::Revalidate { .. });
    assert!(ensemble.said.iter().any(|(from, _, message)| *from == others[0] && asks(message)));
}

#[test]
fn voter_can_become_an_observer_and_a_voter_again() {
    let mut ensemble = Members::born(3);
    let all = [(1, Kind::Voter), (2, Kind::Voter), (3, Kind::Voter)];
    let other = ensemble.learners()[0];
    let less: Vec<_> = all.map(|(server, kind)| (server, if server == other { Kind::Observer } else { kind })).into();
    reconfigure(&mut ensemble, &less).unwrap();
    assert_eq!(roles(&ensemble), members(&less));
    assert!(!ensemble.server(other).zab().is_voter());
    reconfigure(&mut ensemble, &all).unwrap();
    assert!(ensemble.server(other).zab().is_voter());
}

#[test]
fn removed_member_rejoins_with_its_old_disk_once_caught_up() {
    let mut ensemble = Members::born(3);
    let all = [(1, Kind::Voter), (2, Kind::Voter), (3, Kind::Voter)];
    let other = ensemble.learners()[0];
    let rest: Vec<_> = all.into_iter().filter(|(server, _)| *server != other).collect();
    reconfigure(&mut ensemble, &rest).unwrap();
    assert_eq!(roles(&ensemble), members(&rest));
    ensemble.stop(other);
    assert_eq!(reconfigure(&mut ensemble, &all), Err(Refused::NotCaughtUp(ServerId::new(other).unwrap())));
    ensemble.start(other);
    ensemble.until_all_serve();
    ensemble.advance(100);
    reconfigure(&mut ensemble, &all).unwrap();
    assert!(ensemble.server(other).zab().is_voter());
}

/// The leader itself becomes an observer.
#[test]
fn leader_demoted_to_observer_hands_over() {
    let mut ensemble = Members::born(3);
    let leader = ensemble.leader();
    let less: Vec<_> =
        (1..=3).map(|server| (server, if server == leader { Kind::Observer } else { Kind::Voter })).collect();
    reconfigure(&mut ensemble, &less).unwrap();
    ensemble.until_all_serve();
    assert_ne!(ensemble.leader(), leader);
}
