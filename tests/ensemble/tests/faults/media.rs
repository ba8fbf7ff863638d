//! The binary on every medium that has a profile.
//!
//! The syncs of the disks take as long as the profile says, and one of them hangs. While no disk
//! hangs there is no election. No session ends, and a write takes as long as two syncs.
//!
//! The simulator covers whole days of the same (`engine/sim/tests/ensemble/profiles.rs`). These
//! tests run the real log on a real file system for a minute.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, and tell what they saw")]

use std::io::Read as _;
use std::time::{Duration, Instant};
use zoolet_ensemble_tests::history::Act;
use zoolet_ensemble_tests::load::{Seen, Shape};
use zoolet_ensemble_tests::site::Plan;
use zoolet_ensemble_tests::slow::{SlowDisk, longest_pause};
use zoolet_ensemble_tests::trial::Trial;
use zoolet_powercut::mount::SyncTimes;
use zoolet_powercut::not_checked;
use zoolet_profiles::{Key, Profile};

/// Time to measure the machine's own latency, on disks whose syncs take at most 500 us.
const IDEAL: Duration = Duration::from_secs(6);
/// Seconds under load while no disk hangs; `ENSEMBLE_MEDIA_S` overrides it.
const CALM_S: u64 = 20;
/// Number of attempts if the machine itself stands still.
const TRIES: u32 = 3;
/// A longer pause of the machine makes an attempt inconclusive: two heartbeats.
const PAUSE: Duration = Duration::from_millis(100);
/// Time within which a load causes the next sync, at which a disk begins to hang.
const NEXT_SYNC: Duration = Duration::from_millis(500);

fn calm_time() -> Duration {
    Duration::from_secs(std::env::var("ENSEMBLE_MEDIA_S").map_or(CALM_S, |text| text.parse().unwrap()))
}

/// Half of the syncs are shorter than the profile's median, and one in a hundred takes its p99.
fn syncs(profile: &Profile) -> SyncTimes {
    SyncTimes {
        us_max: 2 * profile.get(Key::SyncP50),
        tail_per_mille: 10,
        tail: Duration::from_micros(profile.get(Key::SyncP99)),
        bytes_per_second: profile.get(Key::WriteRate),
    }
}

fn ms(profile: &Profile, key: Key) -> Duration {
    Duration::from_millis(profile.get(key))
}

/// Returns the number, median and 99th percentile of the writes sent between two times.
fn latencies(seen: &Seen, from: Duration, to: Duration) -> (usize, Duration, Duration) {
    let is_meant = |sent: Duration| sent >= from && sent < to;
    let writes =
        seen.operations.iter().filter(|operation| matches!(operation.act, Act::Set(_)) && is_meant(operation.sent));
    let mut took: Vec<Duration> =
        writes.filter_map(|operation| Some(operation.answer?.at.saturating_sub(operation.sent))).collect();
    took.sort_unstable();
    (took.len(), took[took.len() / 2], took[took.len() * 99 / 100])
}

fn live_on(media: &str) {
    let profile = Profile::named(&format!("{media}/512m"), None).unwrap();
    let scratch = std::env::temp_dir().join(format!("zoolet-media-{}-{media}", std::process::id()));
    let disks: Vec<SlowDisk> = (1..=3).map(|number| SlowDisk::mount(&scratch, number).unwrap()).collect();
    let mut plan = Plan::new(Trial::product().unwrap(), 3);
    // A log ring that fits a file system in memory.
    plan.settings = format!("profile = \"{media}/512m\"\n[limits]\nlog_segments = 6\ndisk_reserve_bytes = 0");
    plan.data = (1..).zip(&disks).map(|(id, disk)| (id, disk.path().to_owned())).collect();
    let shape = Shape { clients: 3, outstanding: 1, pause: Duration::from_millis(20), ..Shape::default() };
    let trial = Trial::start(plan, shape, 41).unwrap();
    trial.progress().unwrap();
    let began = trial.now();
    std::thread::sleep(IDEAL);
    let ideal = (began, trial.now());
    disks.iter().for_each(|disk| disk.slow_down(syncs(&profile)));

    // Ends the requests that were in flight when the disks became slow.
    trial.progress().unwrap();
    let mut calm = None;
    for _ in 0..TRIES {
        let (epoch, from) = (trial.epoch().unwrap(), trial.now());
        let late = longest_pause(calm_time());
        let is_same = trial.epoch().unwrap() == epoch;
        assert!(is_same || late > PAUSE, "{media}: an election although no disk hung, and {late:?} late");
        if is_same && late <= PAUSE {
            calm = Some((from, trial.now(), late));
            break;
        }
    }

    // One sync takes the profile's longest hang. If that exceeds the leader's wait for its disk,
    // the leader hands over.
    let (hang, stall) = (ms(&profile, Key::Hang), ms(&profile, Key::DiskStall));
    let mut stood_still = None;
    if !hang.is_zero() {
        let leader = trial.wait_for_leader().unwrap();
        let disk = &disks[usize::from(leader) - 1];
        disk.slow_down(SyncTimes { tail_per_mille: 1000, tail: hang, ..SyncTimes::default() });
        std::thread::sleep(NEXT_SYNC);
        disk.slow_down(syncs(&profile));
        if hang > 2 * stall {
            let began = Instant::now();
            trial.wait_for_other_leader(leader).unwrap();
            trial.progress().unwrap();
            stood_still = Some(began.elapsed());
        }
        std::thread::sleep(hang);
        trial.progress().unwrap();
    }
    disks.iter().for_each(|disk| disk.slow_down(SyncTimes { us_max: 500, ..SyncTimes::default() }));
    let (site, seen) = trial.finish_and_keep().unwrap();
    assert_eq!(seen.sessions_lost, 0, "{media}: sessions were lost");
    match calm {
        Some((from, to, late)) => {
            let (writes, p50, p99) = latencies(&seen, from, to);
            let (_, _, machine) = latencies(&seen, ideal.0, ideal.1);
            let (disk_p50, disk_p99) = (profile.get(Key::SyncP50), profile.get(Key::SyncP99));
            println!(
                "{media}: {writes} writes, p50 {p50:?} (disk {disk_p50} us), p99 {p99:?} (disk {disk_p99} us; {machine:?} on quick disks, and the \
                 machine {late:?} late); the leader's disk hung for {hang:?}, another one served after {stood_still:?}"
            );
            // This machine also runs the servers and the clients, on few cores. It may be slower
            // now than on quick disks, so its own latency counts twice, and its longest pause once.
            let most = Duration::from_micros(2 * disk_p99) + 2 * machine + late;
            assert!(p99 <= most, "{media}: one write in a hundred takes {p99:?}, of the disk's syncs {disk_p99} us");
        }
        None => not_checked(format_args!(
            "{media} while nothing hangs, because this machine stood still each time it was looked at"
        )),
    }
    // Servers end before their disks go.
    drop(site);
    drop(disks);
    let _ = std::fs::remove_dir(scratch);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn three_servers_serve_at_sd_card_sync_times() {
    live_on("sd-a1");
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn three_servers_serve_at_emmc_sync_times() {
    live_on("emmc");
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn three_servers_serve_at_raw_nand_sync_times() {
    live_on("nand-ubi");
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn three_servers_serve_at_usb_ssd_sync_times() {
    live_on("usb-ssd");
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn three_servers_serve_at_nvme_sync_times() {
    live_on("nvme");
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn three_servers_serve_at_tmpfs_sync_times() {
    live_on("tmpfs");
}

/// A new mount namespace copies every mount, and the kernel releases a file system only with its
/// last mount.
#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn slow_disk_unmounts_although_another_mount_namespace_holds_it() {
    let scratch = std::env::temp_dir().join(format!("zoolet-media-{}-held", std::process::id()));
    let disk = SlowDisk::mount(&scratch, 1).unwrap();
    let path = disk.path().to_owned();
    // The empty line reports that the namespace is there. `cat` ends when its input is dropped.
    let mut holder = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", "echo; cat"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0];
    let has_it = holder.stdout.take().unwrap().read_exact(&mut said).is_ok();
    drop(disk);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    if !has_it {
        not_checked("a disk that another namespace has, because none can be made here");
    }
    assert!(!path.exists(), "it is unmounted, and its directory is removed");
    let _ = std::fs::remove_dir(scratch);
}
