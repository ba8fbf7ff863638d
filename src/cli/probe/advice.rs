//! Warnings and explanations for the figures, and the choice of the nearest profile.

use super::box_facts::Machine;
use super::clock::Rtc;
use super::disk::{DiskFound, Phase, SYNCS_MIN, Syncs};
use super::report::duration;
use std::fmt::Write;
use zoolet_machine::status::DeviceWear;
use zoolet_profiles::{Axis, Key, Profile, ProfileError};
use zoolet_store::FileSystem;

/// Minimum plausible time of a sync in microseconds: no medium that stores durably is faster.
const PLAUSIBLE_US: u64 = 20;
/// Minimum adequate encryption rate, in bytes per second.
///
/// Below it, a snapshot of some hundred megabytes takes too long.
const CIPHER_SLOW: u64 = 20_000_000;
/// Share of a box's memory that kernel and firmware keep, in hundredths.
const KEPT_PERCENT: u64 = 15;

/// Returns the nearest profile, `media/memory`; `None` if no sync identifies the medium.
///
/// The distance is a ratio, so twice as fast is as far away as half as fast.
pub(super) fn nearest(disk: &DiskFound, machine: &Machine) -> Result<Option<String>, ProfileError> {
    let memory = nearest_memory(machine)?;
    Ok(nearest_medium(disk)?.map(|medium| format!("{medium}/{memory}")))
}

fn nearest_medium(disk: &DiskFound) -> Result<Option<&'static str>, ProfileError> {
    match disk.file_system {
        FileSystem::Tmpfs => return Ok(Some("tmpfs")),
        FileSystem::Ubifs => return Ok(Some("nand-ubi")),
        _ => {}
    }
    let Some(syncs) = disk.syncs else { return Ok(None) };
    let mut best = ("emmc", u64::MAX);
    for part in zoolet_profiles::parts(Axis::Media)? {
        if ["tmpfs", "nand-ubi"].contains(&part.name) {
            continue;
        }
        let profile = Profile::named(&format!("{}/512m", part.name), None)?;
        let figures = [(Key::SyncP50, syncs.p50_us), (Key::SyncP99, syncs.p99_us)];
        let off = figures.iter().map(|&(key, found)| times_off(profile.get(key), found)).fold(1, u64::saturating_mul);
        if off < best.1 {
            best = (part.name, off);
        }
    }
    Ok(Some(best.0))
}

/// Returns the ratio of the larger to the smaller number, in thousandths.
fn times_off(a: u64, b: u64) -> u64 {
    let (less, more) = (a.min(b).max(1), a.max(b).max(1));
    more.saturating_mul(1000) / less
}

/// Returns the largest memory part that fits the box and the limits of this process.
fn nearest_memory(machine: &Machine) -> Result<&'static str, ProfileError> {
    let mut best = ("128m", 0);
    for part in zoolet_profiles::parts(Axis::Memory)? {
        let profile = Profile::named(&format!("emmc/{}", part.name), None)?;
        let needs = profile.get(Key::BoxBytes);
        if fits(machine, &profile) && needs > best.1 {
            best = (part.name, needs);
        }
    }
    Ok(best.0)
}

fn fits(machine: &Machine, profile: &Profile) -> bool {
    let has = machine.memory_bytes.unwrap_or(512 << 20);
    let may = machine.memory_allowed.map_or(u64::MAX, |(bytes, _)| bytes);
    profile.get(Key::BoxBytes) * (100 - KEPT_PERCENT) / 100 <= has && profile.get(Key::CeilingBytes) <= may
}

/// Returns a line for each problem that the owner of the box should know.
pub(super) fn warnings(disk: &DiskFound, machine: &Machine, profile: Option<&Profile>) -> Vec<String> {
    let mut lines: Vec<String> = disk.file_system.warning().map(str::to_owned).into_iter().collect();
    lines.extend(of_syncs(disk));
    lines.extend(profile.and_then(|profile| of_room(disk, profile)));
    lines.extend(disk.wear.as_ref().and_then(DeviceWear::trouble));
    if Profile::named("emmc/128m", None).is_ok_and(|smallest| !fits(machine, &smallest)) {
        lines.push(
            "there is less memory than the smallest profile needs: the kernel may kill a server under load".to_owned(),
        );
    }
    if let Some(percent) = machine.processor_percent.filter(|percent| *percent < 100) {
        lines.push(format!(
            "its cgroup allows {percent} % of one processor: a server that uses it up pauses until the next \
             period and sends no heartbeats; allow more (CPUQuota= of systemd)"
        ));
    }
    let (cipher, rate) = machine.ciphers.used();
    if (1..CIPHER_SLOW).contains(&rate) {
        lines.push(format!(
            "one processor encrypts {} MB a second ({cipher}, which links between servers use): sending a snapshot takes all of it",
            rate / 1_000_000
        ));
    }
    if !machine.rtcs.iter().any(Rtc::is_set) {
        lines.push(
            "no clock of the board is known to keep the time without power: displayed times may say 1970 after a start; nothing else depends on them"
                .to_owned(),
        );
    }
    lines
}

/// Warns if the log and its reserve do not fit.
///
/// A server needs that room before its first write.
fn of_room(disk: &DiskFound, profile: &Profile) -> Option<String> {
    let (free, needs) = (disk.free_bytes?, profile.get(Key::LogBytes) + profile.get(Key::DiskReserveBytes));
    (free < needs).then(|| {
        format!(
            "{} MiB are free, but the log and the reserve of such a server need {} MiB, without the data: free space, unless both exist already",
            free >> 20,
            needs.div_ceil(1 << 20)
        )
    })
}

fn of_syncs(disk: &DiskFound) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(stuck) = disk.stuck {
        lines.push(format!(
            "{} for {} s: while the disk of a server hangs, it acknowledges no write, and a leader hands over; \
             look for device errors (dmesg), and try another medium",
            stuck.what(),
            stuck.waited.as_secs()
        ));
    }
    let Some(syncs) = disk.syncs else { return lines };
    if disk.file_system != FileSystem::Tmpfs && syncs.p50_us < PLAUSIBLE_US {
        lines.push(format!(
            "half of the syncs took less than {PLAUSIBLE_US} us: no flash is as fast, so a cache before it \
             holds the data back; unless the cache has a battery, a power cut can lose acknowledged writes"
        ));
    }
    if syncs.count < SYNCS_MIN {
        lines.push(format!("only {} syncs returned in time: p99 is the longest of them", syncs.count));
    }
    if syncs.max_us > 1_000_000 && disk.stuck.is_none_or(|stuck| stuck.phase != Phase::Syncing) {
        lines.push(format!(
            "one sync took {}: a leader whose disk stalls for a second hands over to another server",
            duration(syncs.max_us)
        ));
    }
    lines
}

/// Explains the effect of the figures on writes, elections and the life of the medium.
pub(super) fn meaning(syncs: &Syncs, profile: &Profile) -> String {
    let mut text = String::new();
    _ = writeln!(
        text,
        "Writes: each waits for one sync, here p50 {}, p99 {}, longest {}. A client that waits for each write gets at most {} a second;",
        duration(syncs.p50_us),
        duration(syncs.p99_us),
        duration(syncs.max_us),
        1_000_000 / syncs.p50_us.max(1)
    );
    _ = writeln!(
        text,
        "concurrent writes share syncs. In an ensemble a write waits for the fastest majority of the disks."
    );
    let busy = profile.get(Key::HeartbeatBusy);
    _ = writeln!(
        text,
        "Elections: heartbeats do not wait for the disk, so a slow disk causes no election. Servers miss a lost leader after about {} ms of silence;",
        3 * busy
    );
    _ = writeln!(
        text,
        "a leader whose disk stalls for {} hands over if another server's disk is faster.",
        duration(1000 * profile.get(Key::DiskStall))
    );
    let budget = profile.get(Key::FlashBudget);
    if budget > 0 {
        _ = writeln!(
            text,
            "Life: such a medium lasts ten years with {} written a day: {} commits of one block each, {} a second all day.",
            Key::FlashBudget.unit().show(budget),
            budget / 4096,
            shown_rate(budget)
        );
    }
    text
}

fn shown_rate(budget: u64) -> String {
    let tenths = budget * 10 / 4096 / 86_400;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Returns the nearest profile with the measurements as overrides, as text.
pub(super) fn tuned(nearest: &str, network: &str, disk: &DiskFound, syncs: &Syncs) -> String {
    let (media, memory) = nearest.split_once('/').unwrap_or((nearest, "512m"));
    let mut text = format!(
        "title = \"Measured by zoolet probe\"\nmedia = \"{media}\"\nmemory = \"{memory}\"\nnetwork = \"{network}\"\n"
    );
    let mut overrides = |key: Key, value: u64| {
        _ = write!(
            text,
            "\n[overrides.{}]\nvalue = \"{}\"\nreason = \"this disk\"\nevidence = \"measured\"\nsource = \"zoolet probe: {} syncs of 4 KiB on {}\"\n",
            key.name(),
            key.unit().show(value),
            syncs.count,
            disk.file_system.name()
        );
    };
    overrides(Key::SyncP50, syncs.p50_us);
    overrides(Key::SyncP99, syncs.p99_us);
    overrides(Key::SyncMax, syncs.max_us);
    if let Some(rate) = disk.bytes_per_second {
        overrides(Key::WriteRate, rate);
    }
    // A stall that is usual for this disk must not cause a hand-over.
    let profile = Profile::named(nearest, None).ok();
    let said_ms = |key| profile.as_ref().map_or(0, |profile| profile.get(key));
    let longest_ms = syncs.max_us.div_ceil(1000);
    if longest_ms > said_ms(Key::DiskStall) {
        overrides(Key::DiskStall, longest_ms * 2);
    }
    if said_ms(Key::Hang) > 0 && longest_ms > said_ms(Key::Hang) {
        overrides(Key::Hang, longest_ms);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::ciphers::Ciphers;
    use super::super::disk::Stuck;
    use super::*;
    use std::time::Duration;

    fn syncs(p50_us: u64, p99_us: u64, max_us: u64) -> Syncs {
        Syncs { count: 2000, p50_us, p99_us, max_us }
    }

    fn disk(p50_us: u64, p99_us: u64, max_us: u64) -> DiskFound {
        DiskFound {
            directory: "/data".into(),
            file_system: FileSystem::Ext,
            free_bytes: Some(5 << 30),
            bytes_per_second: Some(20_000_000),
            syncs: Some(syncs(p50_us, p99_us, max_us)),
            written_bytes: 40 << 20,
            wear: None,
            stuck: None,
        }
    }

    fn machine(mebibytes: u64) -> Machine {
        let rtc = Rtc {
            device: "rtc0".to_owned(),
            name: "rtc_cmos".to_owned(),
            says_s: Some(1_800_000_000),
            system_s: 1_800_000_000,
            set_the_system: true,
        };
        Machine {
            memory_bytes: Some(mebibytes << 20),
            ciphers: Ciphers { aes: 500_000_000, chacha: 200_000_000 },
            rtcs: vec![rtc],
            ..Machine::default()
        }
    }

    fn allowed(mebibytes: u64) -> Machine {
        Machine { memory_allowed: Some((mebibytes << 20, "its cgroup allows")), ..machine(15_800) }
    }

    #[test]
    fn nearest_profile_differs_least_from_the_measured_box() {
        for (p50_us, p99_us, machine, expected) in [
            (150, 400, machine(15_800), "nvme/2g"),
            (900, 3000, machine(1900), "usb-ssd/2g"),
            (1100, 30_000, machine(487), "emmc/512m"),
            (1500, 120_000, machine(240), "sd-a1/256m"),
            (1500, 120_000, machine(121), "sd-a1/128m"),
            (1500, 120_000, machine(60), "sd-a1/128m"),
            (1500, 120_000, allowed(200), "sd-a1/256m"),
            (1500, 120_000, allowed(64), "sd-a1/128m"),
            (1500, 120_000, allowed(20), "sd-a1/128m"),
        ] {
            let found = nearest(&disk(p50_us, p99_us, 500_000), &machine).unwrap();
            assert_eq!(found.as_deref(), Some(expected), "{p50_us} us, {p99_us} us, {machine:?}");
        }
        let ubifs = DiskFound { file_system: FileSystem::Ubifs, ..disk(150, 400, 500) };
        assert_eq!(nearest(&ubifs, &machine(121)).unwrap().as_deref(), Some("nand-ubi/128m"));
        let silent = DiskFound { syncs: None, ..disk(0, 0, 0) };
        assert_eq!(nearest(&silent, &machine(487)).unwrap(), None);
    }

    #[test]
    fn written_profile_is_valid_for_any_disk_speed() {
        for max_us in [150, 20_000, 999_999, 1_000_001, 30_000_000] {
            for (p50_us, p99_us) in [(100, 150), (1, 1), (2_000_000, 3_000_000)] {
                let disk = disk(p50_us.min(max_us), p99_us.min(max_us), max_us);
                let syncs = disk.syncs.unwrap();
                for memory in [60, 487, 1900] {
                    let nearest = nearest(&disk, &machine(memory)).unwrap().unwrap();
                    let profile = Profile::read("box.toml", &tuned(&nearest, "lan", &disk, &syncs), None).unwrap();
                    assert_eq!(profile.get(Key::SyncMax), max_us);
                    assert!(!meaning(&syncs, &profile).is_empty());
                }
            }
        }
    }

    fn said(disk: &DiskFound, machine: &Machine) -> String {
        warnings(disk, machine, None).join("\n")
    }

    #[test]
    fn unsuitable_disk_is_warned_of_with_the_reason() {
        let usual = disk(150, 400, 900);
        assert_eq!(said(&usual, &machine(487)), "");
        assert!(said(&disk(5, 9, 20), &machine(487)).contains("no flash is as fast"));
        assert!(said(&disk(500, 900, 1_200_000), &machine(487)).contains("one sync took 1.2 s"));
        let tmpfs = DiskFound { file_system: FileSystem::Tmpfs, ..disk(5, 9, 20) };
        assert!(said(&tmpfs, &machine(487)).contains("lost with the power"));
        assert!(!said(&tmpfs, &machine(487)).contains("no flash"));
        let few = DiskFound { syncs: Some(Syncs { count: 40, ..syncs(300_000, 500_000, 500_000) }), ..usual.clone() };
        assert!(said(&few, &machine(487)).contains("only 40 syncs returned"));
        let wear = DeviceWear { device: "mmcblk0".to_owned(), used_percent: Some(90), spare: None };
        let worn = DiskFound { wear: Some(wear), ..usual };
        assert_eq!(said(&worn, &machine(487)), "mmcblk0 has used 90 to 100 % of its life");
        let stuck = Some(Stuck { phase: Phase::Syncing, waited: Duration::from_millis(22_900) });
        let lines = warnings(&DiskFound { stuck, ..disk(500, 900, 22_900_000) }, &machine(487), None);
        assert!(lines.len() == 1 && lines[0].starts_with("a sync has not returned for 22 s: "), "{lines:?}");
        let lines = warnings(&DiskFound { stuck, syncs: None, ..disk(0, 0, 0) }, &machine(487), None);
        assert!(lines.len() == 1 && lines[0].starts_with("a sync has not returned for 22 s: "), "{lines:?}");
    }

    #[test]
    fn disk_without_space_for_log_and_reserve_is_warned_of() {
        let profile = Profile::named("sd-a1/128m", None).unwrap();
        let with = |free_bytes| DiskFound { free_bytes, ..disk(150, 400, 900) };
        let said = |free_bytes| warnings(&with(free_bytes), &machine(487), Some(&profile));
        let needs = (64 + 8) << 20;
        assert!(
            said(Some(needs - 1))[0]
                .starts_with("71 MiB are free, but the log and the reserve of such a server need 72 MiB")
        );
        assert_eq!((said(Some(needs)), said(None)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn unsuitable_machine_is_warned_of_with_the_reason() {
        let usual = disk(150, 400, 900);
        for (machine, part) in [
            (machine(60), "less memory than the smallest profile"),
            (allowed(63), "less memory than the smallest profile"),
            (Machine { processor_percent: Some(20), ..machine(487) }, "20 % of one processor"),
            (Machine { rtcs: Vec::new(), ..machine(487) }, "no clock of the board is known"),
            (
                Machine { ciphers: Ciphers { aes: 9_000_000, chacha: 9_999_999 }, ..machine(487) },
                "encrypts 9 MB a second",
            ),
        ] {
            let lines = warnings(&usual, &machine, None);
            assert!(lines.len() == 1 && lines[0].contains(part), "{part}: {lines:?}");
        }
        let rtcs = machine(487).rtcs.into_iter().map(|rtc| Rtc { says_s: Some(0), ..rtc }).collect();
        let lost = Machine { rtcs, ..machine(487) };
        assert!(said(&usual, &lost).contains("no clock of the board is known"), "one that says 1970 keeps no time");
        assert_eq!(said(&usual, &allowed(64)), "", "a server of the smallest profile takes no more");
        let more = Machine { processor_percent: Some(150), ..machine(487) };
        assert_eq!(said(&usual, &more), "");
    }
}
