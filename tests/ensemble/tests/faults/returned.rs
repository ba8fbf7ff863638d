//! Servers that come back changed: without data, far behind, as a copy of another, at another
//! address.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, and tell what they saw")]

use std::time::Duration;
use zoolet_ensemble_tests::load::Shape;
use zoolet_ensemble_tests::site::{Form, Plan, copy_all};
use zoolet_ensemble_tests::trial::Trial;

/// Small, so that the log does not hold much.
const SMALL: &str = "[limits]\nframe_bytes_max = 100000\nlog_segment_bytes = 262144\nlog_segments = 8\n\
                     memtable_bytes = 131072\nrecord_cache_bytes = 65536";

/// Starts a trial whose servers may be wiped.
///
/// It uses ZooKeeper's format. An empty directory that a zoolet.toml names may be a file system
/// that is not mounted, and is accepted only with an explicit option.
fn wiped(seed: u64) -> Trial {
    let plan = Plan { form: Form::ZooCfg, ..Plan::new(Trial::product().unwrap(), 3) };
    Trial::start(plan, Shape::default(), seed).unwrap()
}

fn trial(seed: u64, settings: &str, shape: Shape) -> Trial {
    let plan = Plan { settings: settings.to_owned(), ..Plan::new(Trial::product().unwrap(), 3) };
    Trial::start(plan, shape, seed).unwrap()
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn wiped_follower_rejoins_and_votes_without_a_command() {
    let mut trial = wiped(21);
    let follower = trial.followers().unwrap()[0];
    trial.server_mut(follower).kill();
    trial.progress().unwrap();
    trial.server(follower).wipe().unwrap();
    trial.restart(follower).unwrap();
    trial.progress().unwrap();
    // It votes: with the other follower gone, the quorum needs it.
    let other = trial.followers().unwrap().into_iter().find(|id| *id != follower).unwrap();
    trial.server_mut(other).kill();
    trial.progress().unwrap();
    trial.restart(other).unwrap();
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn every_server_can_be_wiped_in_turn_including_the_leader() {
    let mut trial = wiped(22);
    for id in trial.ids() {
        trial.server_mut(id).kill();
        trial.server(id).wipe().unwrap();
        trial.progress().unwrap();
        trial.restart(id).unwrap();
        trial.progress().unwrap();
    }
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn follower_far_behind_catches_up_by_snapshot_and_otherwise_by_log() {
    let shape = Shape { bytes: 2000, pause: Duration::ZERO, ..Shape::default() };
    let mut trial = trial(23, SMALL, shape);
    let follower = trial.followers().unwrap()[0];
    let snapshots = |trial: &Trial| trial.server(follower).said().matches("installed a snapshot").count();
    trial.server_mut(follower).kill();
    trial.progress_by(100).unwrap();
    trial.restart(follower).unwrap();
    trial.progress().unwrap();
    assert_eq!(snapshots(&trial), 0, "what it lacked was in the log");
    // Three times the log's size: no server has the missing entries any more.
    trial.server_mut(follower).kill();
    trial.progress_by(3000).unwrap();
    trial.restart(follower).unwrap();
    trial.progress().unwrap();
    assert!(snapshots(&trial) > 0, "what it lacked was not in the log any more");
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn server_on_a_copy_of_another_servers_disk_is_refused() {
    let mut trial = trial(24, "", Shape::default());
    let followers = trial.followers().unwrap();
    let (original, clone) = (followers[0], followers[1]);
    trial.server_mut(original).kill();
    trial.server_mut(clone).kill();
    trial.server(clone).wipe().unwrap();
    let (from, to) = (trial.server(original).place.data.clone(), trial.server(clone).place.data.clone());
    copy_all(&from, &to).unwrap();
    let before = trial.server(clone).said().lines().count();
    trial.restart(original).unwrap();
    trial.progress().unwrap();
    trial.server_mut(clone).start().unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(trial.server(clone).status(), None, "it serves although its disk is another's");
    let said = trial.server(clone).said();
    let refusals: Vec<&str> = said.lines().skip(before).collect();
    println!("the clone said: {refusals:#?}");
    assert!(!refusals.is_empty(), "it says nothing");
    trial.progress().unwrap();
    // With an empty disk it joins again.
    trial.server_mut(clone).kill();
    trial.server(clone).wipe().unwrap();
    trial.restart(clone).unwrap();
    trial.finish().unwrap();
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn server_returning_on_a_new_port_is_found() {
    let mut trial = trial(25, "", Shape::default());
    let follower = trial.followers().unwrap()[0];
    trial.server_mut(follower).kill();
    trial.progress().unwrap();
    // Only its own file has the new port. The others learn it from the server that shows the known
    // key.
    let config = trial.server(follower).config().to_owned();
    let old = trial.server(follower).place.peer();
    let new = std::net::SocketAddr::new(old.ip(), old.port() + 1);
    let text = std::fs::read_to_string(&config).unwrap().replace(&old.to_string(), &new.to_string());
    std::fs::write(&config, text).unwrap();
    trial.restart(follower).unwrap();
    trial.progress().unwrap();
    // Servers that restart still know the port: without the other follower, the quorum needs this
    // one.
    let other = trial.followers().unwrap().into_iter().find(|id| *id != follower).unwrap();
    trial.server_mut(other).kill();
    let leader = trial.wait_for_leader().unwrap();
    trial.server_mut(leader).kill();
    trial.server_mut(leader).start().unwrap();
    trial.progress().unwrap();
    trial.restart(other).unwrap();
    trial.finish().unwrap();
}
