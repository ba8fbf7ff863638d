//! Long runs of every medium and network that has a profile.
//!
//! The load is as many writes as ten years of the medium's flash allow. The tests check that:
//! - the first leader stays
//! - no session expires
//! - writes take as long as the disk and the network
//! - the bytes of a day are within the budget.
//!
//! `ENSEMBLE_MINUTES=1440` runs 24 simulated hours of each, best with `--release`. The default is
//! as much as a plain `cargo test` has time for.
#![allow(clippy::print_stderr, reason = "what the runs had in them, for people")]
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use bytes::Bytes;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;
use zoolet_machine::Limits;
use zoolet_machine::record::key;
use zoolet_machine::seam::action::{Checkpoint, CheckpointMeta};
use zoolet_machine::state::Changes;
use zoolet_machine::wear::{self, Medium, Wear};
use zoolet_model::{Request, ServerId, Zxid};
use zoolet_profiles::{Axis, Key, Profile};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::ensemble::{
    DATA_BYTES, DiskModel, Host, Latencies, Load, MS, Path, Plan, SECOND, Site, Trace, World, conclude,
};
use zoolet_sim::oracle::{History, Summary};
use zoolet_store::{Store, Strategy, capped, disk_bytes_min};
use zoolet_zab::Timing;

/// Simulated minutes of a plain `cargo test`.
const MINUTES: u64 = 15;
const DAY_US: u64 = 24 * 3600 * SECOND;
/// Minimum bytes that a commit writes to the log.
const BLOCK: u64 = 4096;
const CLIENTS: u64 = 8;

fn minutes() -> u64 {
    std::env::var("ENSEMBLE_MINUTES").ok().and_then(|value| value.parse().ok()).unwrap_or(MINUTES)
}

fn ms(profile: &Profile, key: Key) -> u32 {
    u32::try_from(profile.get(key)).unwrap()
}

fn disk(profile: &Profile) -> DiskModel {
    DiskModel::Like(Latencies {
        p50_us: profile.get(Key::SyncP50),
        p99_us: profile.get(Key::SyncP99),
        max_us: profile.get(Key::SyncMax),
        hang_us: profile.get(Key::Hang) * MS,
        hangs_apart_us: profile.get(Key::HangInterval) * SECOND,
        bytes_per_second: profile.get(Key::WriteRate),
    })
}

/// Returns a path whose 99th percentile is that of the profile.
///
/// Its median is at least that of the profile.
fn path(profile: &Profile) -> Path {
    let (p50_us, p99_us) = (profile.get(Key::RoundTrip), profile.get(Key::RoundTripP99));
    // A round trip adds two exponentials. In units of the mean of one, their median is 1.7 and
    // their 99th percentile is 6.6.
    let jitter_us = (p99_us - p50_us) / 5;
    let latency_us = (p50_us / 2).saturating_sub(jitter_us * 84 / 100).max(p50_us / 10);
    Path { latency_us, jitter_us, loss_ppm: ms(profile, Key::Loss) * 10_000, ..Path::lan() }
}

fn site(profile: &Profile) -> Site {
    let timing = Timing {
        heartbeat_busy_ms: ms(profile, Key::HeartbeatBusy),
        heartbeat_idle_ms: ms(profile, Key::HeartbeatIdle),
        fresh_ms: ms(profile, Key::Fresh),
        join_ms: ms(profile, Key::Join),
        quorum_ms: ms(profile, Key::Quorum),
        disk_stall_ms: ms(profile, Key::DiskStall),
        ..Timing::default()
    };
    Site {
        timing,
        staleness_max_ms: ms(profile, Key::StalenessMax),
        path: Some(path(profile)),
        clients_are_local: true,
    }
}

/// Returns the limits that decide when data is written.
fn limits(profile: &Profile) -> Limits {
    let bytes = |key| u32::try_from(profile.get(key)).unwrap();
    Limits {
        memtable_bytes: bytes(Key::MemtableBytes),
        record_cache_bytes: bytes(Key::RecordCacheBytes),
        spare_cache_bytes: bytes(Key::SpareCacheBytes),
        base_cache_bytes: bytes(Key::BaseCacheBytes),
        log_segment_bytes: bytes(Key::LogSegmentBytes),
        log_segments: u32::try_from(profile.get(Key::LogBytes) / profile.get(Key::LogSegmentBytes)).unwrap(),
        disk_reserve_bytes: 0,
        ..Limits::default()
    }
}

fn medium(profile: &Profile) -> Medium {
    Medium {
        endurance_bytes: profile.get(Key::Endurance),
        amplification_percent: profile.get(Key::DeviceAmplification),
        budget_bytes_per_day: profile.get(Key::FlashBudget),
    }
}

/// Returns a client's pause between two requests, in microseconds.
///
/// With this pause, the log's blocks take seven tenths of a day's write budget. Half of the
/// requests write, and no client sends more than one request a second.
fn think_us(profile: &Profile) -> u64 {
    match profile.get(Key::FlashBudget) * 7 / 10 / BLOCK {
        0 => SECOND,
        writes_a_day => (DAY_US * CLIENTS / 2 / writes_a_day).max(SECOND),
    }
}

/// Expected figures of a simulated day.
///
/// They are separate from the profiles: a change of a medium or network must show its effect on
/// writes here.
struct Day {
    /// Limited by the medium's budget, and to one request a second per client.
    writes_an_hour: RangeInclusive<u64>,
    /// Depends on which clients write while which server leads.
    ///
    /// A write at the leader saves a trip. The range covers five seeds or more, plus a twentieth at
    /// each end.
    p50_us: RangeInclusive<u64>,
    /// Checked for whole days only.
    ///
    /// A shorter run has too few of the slowest hundredth of syncs.
    p99_us: RangeInclusive<u64>,
}

fn lives(name: &str, network: &str, day: &Day) {
    let (seed, began) = (24, Instant::now());
    let profile = Profile::named(name, Some(network)).unwrap();
    let timeout_ms = |key| i32::try_from(profile.get(key)).unwrap();
    let timeouts_ms = [timeout_ms(Key::SessionTimeoutMin), timeout_ms(Key::SessionTimeoutMax)];
    let load = Load::Steady { think_us: think_us(&profile), timeouts_ms, readers_one_in: 0, data_bytes: DATA_BYTES };
    let plan = Plan {
        limits: limits(&profile),
        load,
        site: site(&profile),
        ..Plan::steady(3, disk(&profile), minutes() * 60 * SECOND)
    };
    let mut world = plan.build(seed, Trace::off());
    let servers: Vec<ServerId> = (1..=3).filter_map(ServerId::new).collect();
    // One-time writes are no wear: the files of a new directory, and the zeros that fill the ring's
    // segments.
    world.run_until(60 * SECOND);
    let written = |world: &World| -> Vec<u64> {
        servers.iter().map(|&server| world.host(server).unwrap().metered().recurring()).collect()
    };
    let made = written(&world);
    let mut wears: Vec<_> = servers.iter().map(|_| Wear::new(medium(&profile), 0)).collect();
    let look_us = wear::LOOK_MS * MS;
    for now_us in (look_us..=plan.safety_us).step_by(look_us as usize).chain([plan.safety_us]) {
        world.run_until(now_us);
        for (&server, wear) in servers.iter().zip(&mut wears) {
            wear.note(now_us / MS, world.host(server).unwrap().metered().recurring());
            assert!(!wear.is_over_budget(), "{name}, {network}: {:?} after {now_us} us", wear.forecast());
        }
    }
    let written = written(&world).into_iter().zip(made).map(|(all, made)| all - made).max().unwrap();
    servers.iter().for_each(|&server| compare_counts(name, world.host(server).unwrap()));
    let (_, history, epochs) = conclude(seed, world).unwrap_or_else(|failure| panic!("{name}, {network}: {failure}"));
    let summary = Summary::of(&history);
    let (p50_us, p99_us) = writes(&history);
    let budget = profile.get(Key::FlashBudget);
    eprintln!(
        "{name}, {network}: {} writes, p50 {p50_us} us, p99 {p99_us} us, {written} bytes, {budget} a day; {epochs}; {:.0} s",
        summary.writes,
        began.elapsed().as_secs_f64()
    );
    assert_eq!(epochs.elected(), 1, "{name}, {network}: {epochs}");
    assert_eq!((summary.closed, summary.told_expired), (0, 0), "{name}, {network}: nobody closes a session");
    assert!(
        summary.writes > 10 * minutes() && summary.syncs > minutes(),
        "{name}, {network}: there was a load: {summary:?}"
    );
    let writes_an_hour = summary.writes * 60 / minutes();
    assert!(day.writes_an_hour.contains(&writes_an_hour), "{name}, {network}: {writes_an_hour} writes an hour");
    assert!(day.p50_us.contains(&p50_us), "{name}, {network}: half of the writes take {p50_us} us");
    let is_day = minutes() >= 24 * 60;
    assert!(!is_day || day.p99_us.contains(&p99_us), "{name}, {network}: p99 of writes {p99_us} us");
    let slowest_us = 2 * profile.get(Key::SyncP99) + 2 * profile.get(Key::RoundTripP99);
    assert!(p99_us <= slowest_us, "{name}, {network}: p99 of writes {p99_us} us, not more than {slowest_us} us");
    let most = budget * minutes() / (24 * 60);
    assert!(budget == 0 || written <= most, "{name}, {network}: {written} bytes, not more than {most}");
}

/// Asserts that a server counts the bytes that its disk made durable.
///
/// A page that is rewritten before its sync reaches the device once.
fn compare_counts(name: &str, host: &Host) {
    let (counted, synced) = (host.metered(), host.synced_bytes());
    eprintln!("{name}: {counted:?} counted, {synced} synced");
    assert!(counted.total() >= synced && counted.total() - synced <= synced / 100, "{name}: {counted:?}, {synced}");
}

/// Returns the median and the 99th percentile of completed writes, microseconds.
fn writes(history: &History) -> (u64, u64) {
    let is_write = |request: &Request| matches!(request, Request::Write(_));
    let mut took: Vec<u64> = history
        .operations
        .iter()
        .filter(|asked| is_write(&asked.request))
        .filter_map(|asked| Some(asked.answer.as_ref()?.at.us - asked.invoked.us))
        .collect();
    took.sort_unstable();
    let at = |percent| took.get(took.len() * percent / 100).copied().unwrap_or(0);
    (at(50), at(99))
}

#[test]
fn steady_load_on_sd_cards_stays_within_latency_and_byte_budget() {
    let day = Day { writes_an_hour: 1_850..=2_050, p50_us: 2_140..=2_830, p99_us: 95_000..=115_000 };
    lives("sd-a1/512m", "lan", &day);
}

#[test]
fn steady_load_on_emmc_stays_within_latency_and_byte_budget() {
    let day = Day { writes_an_hour: 11_000..=11_900, p50_us: 2_130..=2_680, p99_us: 20_000..=24_000 };
    lives("emmc/512m", "lan", &day);
}

#[test]
fn steady_load_on_bare_nand_stays_within_latency_and_byte_budget() {
    let day = Day { writes_an_hour: 2_000..=2_200, p50_us: 2_690..=3_300, p99_us: 19_000..=23_000 };
    lives("nand-ubi/128m", "lan", &day);
}

#[test]
fn steady_load_on_usb_drives_stays_within_latency_and_byte_budget() {
    let day = Day { writes_an_hour: 14_000..=15_000, p50_us: 1_870..=2_390, p99_us: 4_000..=4_800 };
    lives("usb-ssd/2g", "lan", &day);
}

#[test]
fn steady_load_on_nvme_stays_within_latency_and_byte_budget() {
    let day = Day { writes_an_hour: 14_000..=15_000, p50_us: 1_100..=1_540, p99_us: 3_000..=3_700 };
    lives("nvme/2g", "lan", &day);
}

#[test]
fn steady_load_on_tmpfs_stays_within_latency_and_byte_budget() {
    let day = Day { writes_an_hour: 14_000..=15_000, p50_us: 940..=1_370, p99_us: 2_800..=3_520 };
    lives("tmpfs/256m", "lan", &day);
}

#[test]
fn steady_load_on_wifi_stays_within_latency_and_byte_budget() {
    let day = Day { writes_an_hour: 11_000..=11_900, p50_us: 44_000..=70_000, p99_us: 167_000..=210_000 };
    lives("emmc/512m", "wifi", &day);
}

#[test]
fn steady_load_on_sd_over_wifi_stays_within_latency_and_byte_budget() {
    let day = Day { writes_an_hour: 1_850..=2_050, p50_us: 45_700..=74_200, p99_us: 185_000..=220_000 };
    lives("sd-a1/512m", "wifi", &day);
}

#[test]
fn steady_load_on_metered_links_stays_within_latency_and_byte_budget() {
    // Writes at the leader save a trip, so the median depends on how many of the writes go there.
    let day = Day { writes_an_hour: 11_000..=11_900, p50_us: 126_000..=300_000, p99_us: 530_000..=730_000 };
    lives("emmc/512m", "metered", &day);
}

/// Bytes of a write that take longer than its sync.
const LARGE: usize = 512 << 10;

/// The figures are separate from the profiles: a change of a write rate must show its effect on
/// writes here. Most of the time goes into writing the bytes to the disk, or on a fast disk into
/// the links.
#[test]
fn half_mib_write_takes_the_transfer_time_of_each_medium() {
    for (name, least_us, most_us) in [
        ("sd-a1/512m", 50_000, 62_000),
        ("emmc/512m", 27_000, 31_000),
        ("nand-ubi/128m", 170_000, 190_000),
        ("usb-ssd/2g", 6_500, 7_800),
        ("nvme/2g", 1_800, 2_500),
        ("tmpfs/256m", 1_250, 1_600),
    ] {
        let profile = Profile::named(name, None).unwrap();
        let load =
            Load::Steady { think_us: 4 * SECOND, timeouts_ms: [20_000, 20_000], readers_one_in: 0, data_bytes: LARGE };
        let limits = Limits { frame_bytes_max: 2 * LARGE as u32, ..limits(&profile) };
        let steady = Plan::steady(3, disk(&profile), 300 * SECOND);
        let plan = Plan { clients: 2, limits, load, site: site(&profile), ..steady };
        let mut world = plan.build(25, Trace::off());
        world.run_until(plan.safety_us);
        let (_, history, epochs) = conclude(25, world).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        let (p50_us, p99_us) = writes(&history);
        eprintln!("{name}: {} large writes, p50 {p50_us} us, p99 {p99_us} us; {epochs}", Summary::of(&history).writes);
        assert_eq!(epochs.elected(), 1, "{name}: {epochs}");
        assert!((least_us..=most_us).contains(&p50_us), "{name}: half of the writes take {p50_us} us");
    }
}

/// Tests the bound of a profile, and the smallest bound that any configuration with the profile's
/// numbers may have.
#[test]
fn each_disk_bound_admits_writes_after_a_full_memory_checkpoint() {
    let names = |axis| zoolet_profiles::parts(axis).unwrap().into_iter().map(|part| part.name);
    for (media, memory) in names(Axis::Media).flat_map(|media| names(Axis::Memory).map(move |memory| (media, memory))) {
        let profile = Profile::named(&format!("{media}/{memory}"), None).unwrap();
        let disk_reserve_bytes = u32::try_from(profile.get(Key::DiskReserveBytes)).unwrap();
        let limits = Limits { disk_reserve_bytes, ..limits(&profile) };
        for disk_bytes_max in [profile.get(Key::DiskBytesMax), disk_bytes_min(&limits)] {
            checkpoint_within(&format!("{media}/{memory}"), Limits { disk_bytes_max, ..limits });
        }
    }
}

fn checkpoint_within(name: &str, limits: Limits) {
    let disk = capped(Arc::new(SimDisk::new(1)), limits.disk_bytes_max);
    let Store { base, reserve, .. } = Store::open(disk, Strategy::Recycle, &limits, 1).unwrap();
    reserve.recheck(&base);
    let mut changes = Changes::default();
    for number in 0.. {
        if changes.bytes() >= 2 * limits.memtable_bytes as usize {
            break;
        }
        changes.insert(key::data(&format!("/{number}")).unwrap(), Some(Bytes::from(vec![3; 60_000])));
    }
    let meta = CheckpointMeta { zxid: Zxid::from_bits(1).unwrap(), digest: 0, totals: Bytes::new() };
    reserve.checkpoint(&base, &Checkpoint { changes: Arc::new(changes), meta }).unwrap();
    reserve.recheck(&base);
    assert_eq!(reserve.shortage(), None, "{name}, at most {} bytes of disk", limits.disk_bytes_max);
}

/// A new part of a profile must get a day above.
#[test]
fn each_profiled_medium_and_network_has_a_test() {
    let names = |axis| zoolet_profiles::parts(axis).unwrap().into_iter().map(|part| part.name).collect::<Vec<_>>();
    assert_eq!(names(Axis::Media), ["sd-a1", "emmc", "nand-ubi", "usb-ssd", "nvme", "tmpfs"]);
    assert_eq!(names(Axis::Network), ["lan", "wifi", "metered"]);
}
