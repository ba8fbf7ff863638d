//! Long runs under load, disturbed only by slow and hanging disks.
//!
//! The first leader stays, and no session expires.
//!
//! `ENSEMBLE_MINUTES=1440` runs 24 simulated hours, best with `--release`. The default is as much
//! as a plain `cargo test` has time for.
#![allow(clippy::print_stderr, reason = "what the runs had in them, for people")]

use std::time::Instant;
use zoolet_sim::ensemble::{DiskModel, Plan, SECOND, Trace, conclude};
use zoolet_sim::oracle::Summary;

/// Simulated minutes of a plain `cargo test`.
const MINUTES: u64 = 20;

fn minutes() -> u64 {
    std::env::var("ENSEMBLE_MINUTES").ok().and_then(|value| value.parse().ok()).unwrap_or(MINUTES)
}

/// Runs three servers and eight clients on one kind of disk.
///
/// Each client sends about one request a second.
fn undisturbed(disk: DiskModel, minutes: u64) {
    let (seed, began) = (24, Instant::now());
    let plan = Plan::steady(3, disk, minutes * 60 * SECOND);
    let mut world = plan.build(seed, Trace::off());
    world.run_until(plan.safety_us);
    let (statistics, history, epochs) = conclude(seed, world).unwrap_or_else(|failure| panic!("{failure}"));
    let summary = Summary::of(&history);
    eprint!("{disk:?}: {epochs}\n{statistics}{summary:?}\n{:.0} s\n", began.elapsed().as_secs_f64());
    assert_eq!(epochs.elected(), 1, "{epochs}");
    assert_eq!((summary.closed, summary.told_expired), (0, 0), "nobody closes a session, so it would have expired");
    assert!(summary.writes > minutes * 100 && summary.syncs > minutes * 20, "there was a load: {summary:?}");
}

#[test]
fn leader_and_sessions_survive_load_on_sd_cards_that_hang() {
    undisturbed(DiskModel::Sd, minutes());
}

#[test]
fn leader_and_sessions_survive_load_on_emmc() {
    undisturbed(DiskModel::Emmc, (minutes() / 6).max(5));
}

#[test]
fn leader_and_sessions_survive_load_on_nvme() {
    undisturbed(DiskModel::Nvme, (minutes() / 6).max(5));
}
