//! Links between servers on which a relay loses, delays and cuts traffic.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::time::Duration;
use zoolet_ensemble_tests::load::Shape;
use zoolet_ensemble_tests::relay::{Faults, Pair};
use zoolet_ensemble_tests::site::{Between, Plan};
use zoolet_ensemble_tests::trial::Trial;

/// Longer than any silence that servers tolerate.
const LONG: Duration = Duration::from_secs(4);

fn trial(seed: u64) -> Trial {
    let plan = Plan { between: Between::Relay(seed), ..Plan::new(Trial::product().unwrap(), 3) };
    Trial::start(plan, Shape::default(), seed).unwrap()
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn five_percent_packet_loss_causes_no_election() {
    let trial = trial(11);
    let before = trial.epoch().unwrap();
    trial.relay().unwrap().set_all(Faults { loss_per_mille: 50, ..Faults::default() });
    for _ in 0..10 {
        trial.progress().unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(trial.epoch().unwrap(), before, "nobody was elected");
    assert!(trial.relay().unwrap().total().lost > 20, "{:?}", trial.relay().unwrap().total());
    trial.relay().unwrap().heal();
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn round_trips_of_100_ms_cause_no_election() {
    let trial = trial(12);
    let before = trial.epoch().unwrap();
    let (delay, jitter) = (Duration::from_millis(50), Duration::from_millis(20));
    trial.relay().unwrap().set_all(Faults { delay, jitter, ..Faults::default() });
    std::thread::sleep(LONG);
    trial.progress().unwrap();
    assert_eq!(trial.epoch().unwrap(), before, "nobody was elected");
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn unplugged_leader_is_replaced_and_follows_once_replugged() {
    let trial = trial(13);
    for _ in 0..3 {
        let leader = trial.wait_for_leader().unwrap();
        trial.pull_cable(leader).unwrap();
        trial.wait_for_other_leader(leader).unwrap();
        trial.progress().unwrap();
        // The old leader does not answer clients while it cannot reach the ensemble.
        trial.wait("who is cut off does not serve", || trial.server(leader).status().is_none()).unwrap();
        trial.plug_in(leader).unwrap();
        trial.wait_for_all().unwrap();
        trial.progress().unwrap();
    }
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn replugged_follower_causes_no_election() {
    let trial = trial(14);
    let before = trial.epoch().unwrap();
    for follower in trial.followers().unwrap() {
        trial.pull_cable(follower).unwrap();
        std::thread::sleep(LONG);
        trial.progress().unwrap();
        trial.plug_in(follower).unwrap();
        trial.wait_for_all().unwrap();
        trial.progress().unwrap();
    }
    assert_eq!(trial.epoch().unwrap(), before, "nobody was elected");
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn servers_agree_after_repeatedly_pulled_cables() {
    let trial = trial(15);
    for round in 0..12u8 {
        let victim = round % 3 + 1;
        trial.pull_cable(victim).unwrap();
        std::thread::sleep(Duration::from_millis(u64::from(round) * 150));
        trial.plug_in(victim).unwrap();
    }
    trial.wait_for_all().unwrap();
    trial.finish().unwrap();
}

/// Cuts one direction of a pair. Whichever server leads then, writes go on, and all agree after the
/// heal.
fn one_way(seed: u64, pair: impl Fn(u8, u8) -> Pair) {
    let trial = trial(seed);
    let leader = trial.wait_for_leader().unwrap();
    let follower = trial.followers().unwrap()[0];
    trial.relay().unwrap().set(pair(leader, follower), Faults::CUT);
    std::thread::sleep(LONG);
    trial.progress().unwrap();
    std::thread::sleep(LONG);
    trial.progress().unwrap();
    trial.relay().unwrap().heal();
    trial.wait_for_all().unwrap();
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn cut_from_leader_to_follower_does_not_stop_writes() {
    one_way(16, Pair::new);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn cut_from_follower_to_leader_does_not_stop_writes() {
    one_way(17, |leader, follower| Pair::new(follower, leader));
}

/// Cuts one direction between the leader and each follower. Another server leads, and all agree
/// after the heal.
fn replaced(seed: u64, pair: impl Fn(u8, u8) -> Pair) {
    let trial = trial(seed);
    let leader = trial.wait_for_leader().unwrap();
    for follower in trial.followers().unwrap() {
        trial.relay().unwrap().set(pair(leader, follower), Faults::CUT);
    }
    trial.wait_for_other_leader(leader).unwrap();
    trial.progress().unwrap();
    trial.relay().unwrap().heal();
    trial.wait_for_all().unwrap();
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn leader_unheard_by_all_followers_is_replaced() {
    replaced(18, Pair::new);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn leader_deaf_to_all_followers_is_replaced() {
    replaced(19, |leader, follower| Pair::new(follower, leader));
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn full_cut_between_two_of_three_servers_does_not_stop_writes() {
    let trial = trial(20);
    let leader = trial.wait_for_leader().unwrap();
    let follower = trial.followers().unwrap()[0];
    trial.relay().unwrap().set(Pair::new(leader, follower), Faults::CUT);
    trial.relay().unwrap().set(Pair::new(follower, leader), Faults::CUT);
    std::thread::sleep(LONG);
    trial.progress().unwrap();
    trial.relay().unwrap().heal();
    trial.wait_for_all().unwrap();
    trial.finish().unwrap();
}
