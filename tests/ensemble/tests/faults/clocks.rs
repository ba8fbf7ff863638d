//! Clocks that step: a server's calendar jumps forward and back, as on a box without a battery.
//!
//! The test uses the release binary. libfaketime (Debian: faketime) moves the calendar of its
//! process. The clock since boot, on which all timeouts depend, cannot be stepped and stays as it
//! is.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zoolet_ensemble_tests::load::Shape;
use zoolet_ensemble_tests::site::Plan;
use zoolet_ensemble_tests::trial::Trial;
use zoolet_powercut::client::word;

const YEAR_S: i64 = 365 * 86_400;

fn library() -> PathBuf {
    let of_machine = std::fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let mut found = of_machine.map(|path| path.join("faketime/libfaketimeMT.so.1")).filter(|path| path.is_file());
    found.next().expect("libfaketime (Debian: faketime)")
}

/// The clock steps of the servers, one file each. Removed when dropped.
struct Clocks(PathBuf);

impl Clocks {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("zoolet-clocks-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn file(&self, id: u8) -> PathBuf {
        self.0.join(id.to_string())
    }

    /// Sets the offset of a server's calendar from now on, in seconds.
    fn step(&self, id: u8, seconds: i64) {
        // Renamed into place, because the server reads the file all the time.
        let new = self.0.join("new");
        std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(new, self.file(id)).unwrap();
    }

    fn environment(&self, id: u8) -> Vec<(String, OsString)> {
        self.step(id, 0);
        let faketime = [
            ("LD_PRELOAD", library().into_os_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file(id).into_os_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ];
        faketime.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn clock_jumps_of_years_cause_no_election_and_lose_no_session() {
    let clocks = Clocks::new();
    let mut plan = Plan::new(Trial::product().unwrap(), 3);
    plan.environment = (1..=3).map(|id| (id, clocks.environment(id))).collect();
    let mut trial = Trial::start(plan, Shape::default(), 41).unwrap();
    let (before, leader) = (trial.epoch().unwrap(), trial.wait_for_leader().unwrap());
    let other = leader % 3 + 1;
    for (id, years) in [(leader, 30), (leader, -40), (other, 5), (leader, 0), (other, -20)] {
        clocks.step(id, years * YEAR_S);
        std::thread::sleep(Duration::from_millis(1500));
        trial.progress().unwrap();
        assert_eq!(trial.epoch().unwrap(), before, "an election after a step of server {id} by {years} years");
    }
    // One server starts with a calendar that is 50 years back.
    let follower = trial.followers().unwrap()[0];
    clocks.step(follower, -50 * YEAR_S);
    trial.server_mut(follower).kill();
    trial.restart(follower).unwrap();
    trial.progress().unwrap();
    let said = trial.server(follower).said();
    assert!(said.lines().any(|line| line.starts_with("197")), "its clock was not moved: {said}");
    assert_eq!(trial.finish().unwrap().sessions_lost, 0);
}

/// All servers, or one of them, start in 1970. Their clocks are set in the middle of an election,
/// and set back.
#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn servers_may_start_in_1970_and_step_their_clocks() {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    for (wrong, seed) in [(vec![1, 2, 3], 42), (vec![2], 43)] {
        let clocks = Clocks::new();
        let mut plan = Plan::new(Trial::product().unwrap(), 3);
        plan.environment = (1..=3).map(|id| (id, clocks.environment(id))).collect();
        wrong.iter().for_each(|&id| clocks.step(id, -since_1970));
        let mut trial = Trial::start(plan, Shape::default(), seed).unwrap();
        for &id in &wrong {
            let said = trial.server(id).said();
            assert!(said.lines().any(|line| line.starts_with("1970-01-01T00:")), "its clock was not moved: {said}");
            assert!(word(trial.server(id).client(), "zool", Duration::from_secs(2)).unwrap().contains("\"alarms\":[]"));
        }
        for years in [50, -20] {
            let leader = trial.wait_for_leader().unwrap();
            trial.server_mut(leader).kill();
            trial.ids().into_iter().for_each(|id| clocks.step(id, years * YEAR_S));
            trial.wait_for_other_leader(leader).unwrap();
            wrong.iter().for_each(|&id| clocks.step(id, -since_1970));
            trial.restart(leader).unwrap();
            trial.progress().unwrap();
        }
        assert_eq!(trial.finish().unwrap().sessions_lost, 0);
    }
}
