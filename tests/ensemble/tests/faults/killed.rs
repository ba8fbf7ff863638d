//! Servers die, freeze and come back under load.
//!
//! Nothing acknowledged is lost, all servers agree, and all of them serve again.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::time::Duration;
use zoolet_ensemble_tests::load::Shape;
use zoolet_ensemble_tests::site::Plan;
use zoolet_ensemble_tests::trial::Trial;

fn trial(seed: u64) -> Trial {
    Trial::start(Plan::new(Trial::product().unwrap(), 3), Shape::default(), seed).unwrap()
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn killed_leader_is_replaced_and_rejoins() {
    let mut trial = trial(1);
    for _ in 0..3 {
        let leader = trial.wait_for_leader().unwrap();
        trial.server_mut(leader).kill();
        assert_ne!(trial.wait_for_other_leader(leader).unwrap(), leader);
        trial.progress().unwrap();
        trial.restart(leader).unwrap();
        trial.progress().unwrap();
    }
    assert!(trial.finish().unwrap().moves > 0, "no client was disturbed");
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn killed_followers_rejoin_and_the_leader_keeps_leading() {
    let mut trial = trial(2);
    let leader = trial.wait_for_leader().unwrap();
    for follower in trial.followers().unwrap() {
        trial.server_mut(follower).kill();
        trial.progress().unwrap();
        trial.restart(follower).unwrap();
        trial.progress().unwrap();
    }
    assert_eq!(trial.wait_for_leader().unwrap(), leader, "a leader that has its quorum leads on");
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn servers_killed_at_once_come_back_with_every_acked_write() {
    let mut trial = trial(3);
    for _ in 0..3 {
        let ids = trial.ids();
        ids.iter().for_each(|id| trial.server_mut(*id).send_kill());
        ids.iter().for_each(|id| trial.server_mut(*id).reap());
        ids.iter().for_each(|id| trial.server_mut(*id).start().unwrap());
        trial.wait_for_all().unwrap();
        trial.progress().unwrap();
    }
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn writes_stop_without_a_quorum_and_resume_with_a_quorum() {
    let mut trial = trial(4);
    let followers = trial.followers().unwrap();
    followers.iter().for_each(|id| trial.server_mut(*id).kill());
    assert!(trial.stands_still(Duration::from_secs(2)));
    trial.restart(followers[0]).unwrap();
    trial.progress().unwrap();
    trial.restart(followers[1]).unwrap();
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn frozen_leader_is_replaced_and_follows_once_thawed() {
    let mut trial = trial(5);
    for _ in 0..3 {
        let leader = trial.wait_for_leader().unwrap();
        trial.server_mut(leader).freeze();
        trial.wait_for_other_leader(leader).unwrap();
        trial.progress().unwrap();
        trial.server_mut(leader).thaw();
        trial.progress().unwrap();
        trial.wait_for_all().unwrap();
    }
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn frozen_follower_does_not_hold_up_writes() {
    let mut trial = trial(6);
    let leader = trial.wait_for_leader().unwrap();
    for follower in trial.followers().unwrap() {
        let said_before = trial.server(follower).said().len();
        trial.server_mut(follower).freeze();
        trial.progress().unwrap();
        // Longer than any server waits for it.
        std::thread::sleep(Duration::from_secs(3));
        trial.progress().unwrap();
        trial.server_mut(follower).thaw();
        trial.progress().unwrap();
        trial.wait_for_all().unwrap();
        // Without this line its log blames the others, which it could not hear.
        let log = trial.server(follower).said().split_off(said_before);
        let seconds = log.split_once("this server did not run for ").and_then(|(_, rest)| rest.split_once(" s"));
        let seconds: f64 = seconds.expect(&log).0.parse().unwrap();
        assert!(seconds >= 2.4, "a check is due every 0.5 s: {log}");
    }
    assert_eq!(trial.wait_for_leader().unwrap(), leader, "a leader that has its quorum leads on");
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn five_servers_survive_the_loss_of_leader_and_follower() {
    let shape = Shape { clients: 10, ..Shape::default() };
    let mut trial = Trial::start(Plan::new(Trial::product().unwrap(), 5), shape, 7).unwrap();
    let leader = trial.wait_for_leader().unwrap();
    let follower = trial.followers().unwrap()[0];
    trial.server_mut(follower).kill();
    trial.server_mut(leader).kill();
    trial.wait_for_other_leader(leader).unwrap();
    trial.progress().unwrap();
    trial.server_mut(leader).start().unwrap();
    trial.server_mut(follower).start().unwrap();
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn leader_stops_cleanly_on_sigterm_and_rejoins_without_session_loss() {
    let mut trial = trial(8);
    for _ in 0..3 {
        let leader = trial.wait_for_leader().unwrap();
        trial.server_mut(leader).send_terminate();
        let status = trial.server_mut(leader).wait_for_end(Duration::from_secs(20)).unwrap();
        assert!(status.success() || !trial.plan.product.is_zoolet(), "{status:?}");
        trial.progress().unwrap();
        trial.restart(leader).unwrap();
        trial.progress().unwrap();
    }
    let seen = trial.finish().unwrap();
    assert_eq!(seen.sessions_lost, 0, "who moves in time keeps its session");
}
