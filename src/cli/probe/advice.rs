//! What was found, in words, and the profile that is nearest to it.

use super::disk::DiskFound;
use super::machine::Machine;
use std::fmt::Write;
use zoolet_engine::store::{DeviceWear, FileSystem};
use zoolet_profiles::{Axis, Key, Profile, ProfileError};

/// No device that keeps what it was given takes less.
const PLAUSIBLE_US: u64 = 20;
/// What the kernel and the firmware keep of a box's memory, hundredths.
const KEPT_PERCENT: u64 = 15;

/// The profile `media/memory` whose figures are nearest, each as many times off as the other way round.
pub(super) fn nearest(disk: &DiskFound, machine: &Machine) -> Result<String, ProfileError> {
    Ok(format!("{}/{}", nearest_medium(disk)?, nearest_memory(machine)?))
}

fn nearest_medium(disk: &DiskFound) -> Result<&'static str, ProfileError> {
    match disk.file_system {
        FileSystem::Tmpfs => return Ok("tmpfs"),
        FileSystem::Ubifs => return Ok("nand-ubi"),
        _ => {}
    }
    let mut best = ("emmc", u64::MAX);
    for part in zoolet_profiles::parts(Axis::Media)? {
        if ["tmpfs", "nand-ubi"].contains(&part.name) {
            continue;
        }
        let profile = Profile::named(&format!("{}/512m", part.name), None)?;
        let figures = [(Key::SyncP50, disk.p50_us), (Key::SyncP99, disk.p99_us)];
        let off = figures.iter().map(|&(key, found)| times_off(profile.get(key), found)).fold(1, u64::saturating_mul);
        if off < best.1 {
            best = (part.name, off);
        }
    }
    Ok(best.0)
}

/// How many times one is the other, whichever is more, thousandths.
fn times_off(a: u64, b: u64) -> u64 {
    let (less, more) = (a.min(b).max(1), a.max(b).max(1));
    more.saturating_mul(1000) / less
}

/// The largest that is not larger than the box.
fn nearest_memory(machine: &Machine) -> Result<&'static str, ProfileError> {
    let has = machine.memory_bytes.unwrap_or(512 << 20);
    let mut best = ("128m", 0);
    for part in zoolet_profiles::parts(Axis::Memory)? {
        let needs = Profile::named(&format!("emmc/{}", part.name), None)?.get(Key::BoxBytes);
        if needs * (100 - KEPT_PERCENT) / 100 <= has && needs > best.1 {
            best = (part.name, needs);
        }
    }
    Ok(best.0)
}

/// What is wrong, or what its owner should know.
pub(super) fn warnings(disk: &DiskFound, machine: &Machine) -> Vec<String> {
    let mut lines: Vec<String> = disk.file_system.warning().map(str::to_owned).into_iter().collect();
    if disk.file_system != FileSystem::Tmpfs && disk.p50_us < PLAUSIBLE_US {
        lines.push(format!(
            "half of the syncs took less than {PLAUSIBLE_US} us: no device is as fast, so something between here and it keeps what it should pass on; \
             what was acknowledged can be lost with the power"
        ));
    }
    if disk.max_us > 1_000_000 {
        lines.push(format!(
            "one sync took {}: a leader whose disk stands still for a second hands over to another server",
            Key::SyncMax.unit().show(disk.max_us)
        ));
    }
    lines.extend(disk.wear.as_ref().and_then(DeviceWear::trouble));
    if machine.memory_bytes.is_some_and(|bytes| bytes < (128 << 20) / 100 * (100 - KEPT_PERCENT)) {
        lines.push("the box has less memory than the smallest profile is made for".to_owned());
    }
    if machine.has_aes == Some(false) {
        lines.push("the processor has no instructions for AES: links between servers cost more of it".to_owned());
    }
    if !machine.has_rtc {
        lines.push("there is no clock that goes on without power: times that are shown may say 1970 after a start; nothing else depends on them".to_owned());
    }
    lines
}

/// What it means for writes and for elections.
pub(super) fn meaning(disk: &DiskFound, profile: &Profile) -> String {
    let us = Key::SyncP50.unit();
    let mut text = String::new();
    _ = writeln!(
        text,
        "A write waits for one sync: {} usually, {} once in a hundred times, {} at worst here. One client that waits for each gets {} a second at most;",
        us.show(disk.p50_us),
        us.show(disk.p99_us),
        us.show(disk.max_us),
        1_000_000 / disk.p50_us.max(1)
    );
    _ = writeln!(
        text,
        "many at a time share their syncs. In an ensemble a write waits for the fastest majority of the disks."
    );
    let busy = profile.get(Key::HeartbeatBusy);
    _ = writeln!(
        text,
        "Heartbeats wait for no disk, so a slow one elects nobody: a leader that is gone is missed after about {} ms of silence, a leader that is there and whose",
        3 * busy
    );
    _ = writeln!(
        text,
        "disk stands still for {} hands over if another server's is faster.",
        Key::DiskStall.unit().show(profile.get(Key::DiskStall))
    );
    let budget = profile.get(Key::FlashBudget);
    if budget > 0 {
        _ = writeln!(
            text,
            "For ten years such a medium may be written {} a day: {} commits of one block each, {} a second all day.",
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

/// A profile of this box: the nearest one, with what was measured.
pub(super) fn tuned(nearest: &str, network: &str, disk: &DiskFound) -> String {
    let (media, memory) = nearest.split_once('/').unwrap_or((nearest, "512m"));
    let mut text = format!(
        "title = \"What zoolet probe found\"\nmedia = \"{media}\"\nmemory = \"{memory}\"\nnetwork = \"{network}\"\n"
    );
    let mut overrides = |key: Key, value: u64| {
        _ = write!(
            text,
            "\n[overrides.{}]\nvalue = \"{}\"\nreason = \"this disk\"\nevidence = \"measured\"\nsource = \"zoolet probe: {} syncs of 4 KiB on {}\"\n",
            key.name(),
            key.unit().show(value),
            disk.syncs,
            disk.file_system.name()
        );
    };
    overrides(Key::SyncP50, disk.p50_us);
    overrides(Key::SyncP99, disk.p99_us);
    overrides(Key::SyncMax, disk.max_us);
    overrides(Key::WriteRate, disk.bytes_per_second);
    // What is usual for it is no reason to hand over.
    let profile = Profile::named(nearest, None).ok();
    let said_ms = |key| profile.as_ref().map_or(0, |profile| profile.get(key));
    let longest_ms = disk.max_us.div_ceil(1000);
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
    use super::*;

    fn disk(p50_us: u64, p99_us: u64, max_us: u64) -> DiskFound {
        DiskFound {
            file_system: FileSystem::Ext,
            bytes_per_second: 20_000_000,
            syncs: 2000,
            p50_us,
            p99_us,
            max_us,
            written_bytes: 40 << 20,
            wear: None,
        }
    }

    fn machine(mebibytes: u64) -> Machine {
        Machine { memory_bytes: Some(mebibytes << 20), has_aes: Some(true), has_rtc: true, ..Machine::default() }
    }

    #[test]
    fn the_nearest_is_the_one_that_is_least_times_off() {
        for (p50_us, p99_us, mebibytes, expected) in [
            (150, 400, 15_800, "nvme/2g"),
            (900, 3000, 1900, "usb-ssd/2g"),
            (1100, 30_000, 487, "emmc/512m"),
            (1500, 120_000, 240, "sd-a1/256m"),
            (1500, 120_000, 121, "sd-a1/128m"),
            (1500, 120_000, 60, "sd-a1/128m"),
        ] {
            let found = nearest(&disk(p50_us, p99_us, 500_000), &machine(mebibytes)).unwrap();
            assert_eq!(found, expected, "{p50_us} us, {p99_us} us, {mebibytes} MiB");
        }
        let ubifs = DiskFound { file_system: FileSystem::Ubifs, ..disk(150, 400, 500) };
        assert_eq!(nearest(&ubifs, &machine(121)).unwrap(), "nand-ubi/128m");
    }

    #[test]
    fn what_is_written_is_a_profile_however_slow_the_disk() {
        for max_us in [150, 20_000, 999_999, 1_000_001, 30_000_000] {
            for (p50_us, p99_us) in [(100, 150), (1, 1), (2_000_000, 3_000_000)] {
                let disk = disk(p50_us.min(max_us), p99_us.min(max_us), max_us);
                for memory in [60, 487, 1900] {
                    let nearest = nearest(&disk, &machine(memory)).unwrap();
                    let profile = Profile::read("box.toml", &tuned(&nearest, "lan", &disk), None).unwrap();
                    assert_eq!(profile.get(Key::SyncMax), max_us);
                    assert!(!meaning(&disk, &profile).is_empty());
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        let said = |disk: &DiskFound, machine: &Machine| warnings(disk, machine).join("\n");
        assert_eq!(said(&disk(150, 400, 900), &machine(487)), "");
        assert!(said(&disk(5, 9, 20), &machine(487)).contains("no device is as fast"));
        assert!(said(&disk(500, 900, 1_200_000), &machine(487)).contains("one sync took 1.2 s"));
        let tmpfs = DiskFound { file_system: FileSystem::Tmpfs, ..disk(5, 9, 20) };
        assert!(said(&tmpfs, &machine(487)).contains("gone with the power"));
        assert!(!said(&tmpfs, &machine(487)).contains("no device"));
        assert!(said(&disk(150, 400, 900), &machine(60)).contains("less memory than the smallest profile"));
        let wear = DeviceWear { device: "mmcblk0".to_owned(), used_percent: Some(90), spare: None };
        let worn = DiskFound { wear: Some(wear), ..disk(150, 400, 900) };
        assert_eq!(said(&worn, &machine(487)), "mmcblk0 has used 90 to 100 % of its life");
        let bare = Machine { has_aes: Some(false), has_rtc: false, ..machine(487) };
        assert_eq!(warnings(&disk(150, 400, 900), &bare).len(), 2);
    }
}
