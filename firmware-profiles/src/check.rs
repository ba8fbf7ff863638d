//! What no single number can see.

use crate::error::ProfileError;
use crate::key::Key;
use crate::profile::Profile;

/// So long a medium is to last.
const LIFE_DAYS: u64 = 3650;
/// The log's ring: three segments are kept free, and a checkpoint starts at half of them.
const SEGMENTS_MIN: u64 = 6;
/// Servers of a site.
const SERVERS: std::ops::RangeInclusive<u64> = 1..=16;
/// What the log writes at once.
const BLOCK: u64 = 4096;

/// A number must be at most another one, so many hundredths of it.
#[derive(Clone, Copy, Debug)]
pub struct AtMost {
    /// The one.
    pub less: Key,
    /// The other one.
    pub more: Key,
    /// The hundredths.
    pub percent: u64,
    /// What would happen otherwise.
    pub why: &'static str,
}

const fn at_most(less: Key, more: Key, percent: u64, why: &'static str) -> AtMost {
    AtMost { less, more, percent, why }
}

/// Every order that the numbers of a profile have to keep.
pub const ORDERS: &[AtMost] = &[
    at_most(Key::SyncP50, Key::SyncP99, 100, "a median is not above the longest of a hundred"),
    at_most(Key::SyncP99, Key::SyncMax, 100, "the longest of a hundred is not above the longest of all"),
    at_most(Key::FrameBytesMax, Key::LogSegmentBytes, 50, "a frame becomes an entry, which is in one segment"),
    at_most(Key::CeilingBytes, Key::BoxBytes, 50, "the rest is for the system and for what the box is there for"),
    at_most(Key::FixedBytes, Key::CeilingBytes, 50, "most of the ceiling is for what is in it"),
    at_most(Key::OutboundBytesMax, Key::OutboundBytesTotalMax, 100, "one client is one of all"),
    at_most(Key::FrameBytesMax, Key::OutboundBytesMax, 100, "what was written must be readable"),
    at_most(Key::MemtableBytes, Key::DiskReserveBytes, 25, "what a checkpoint may need is four memtables"),
    at_most(Key::ConnectionsPerAddressMax, Key::ConnectionsMax, 100, "one address is one of all"),
    at_most(Key::RoundTrip, Key::RoundTripP99, 100, "a median is not above the longest of a hundred"),
    at_most(Key::HeartbeatBusy, Key::HeartbeatIdle, 100, "who is idle says no more than who is busy"),
    at_most(Key::HeartbeatIdle, Key::Fresh, 80, "a leader that is idle would look silent"),
    at_most(Key::HeartbeatIdle, Key::Join, 80, "a leader that is idle would look silent"),
    at_most(Key::HeartbeatIdle, Key::Quorum, 25, "a heartbeat that is lost is no reason to step down"),
    at_most(Key::HeartbeatIdle, Key::StalenessMax, 25, "a heartbeat that is lost is no reason to serve nobody"),
    at_most(Key::Quorum, Key::StalenessMax, 100, "clients would be sent away from a leader that still leads"),
    at_most(Key::Quorum, Key::SessionTimeoutMin, 100, "a session is to outlive an election"),
    at_most(Key::SessionTimeoutMin, Key::SessionTimeoutMax, 100, "it is the shortest"),
];

/// # Errors
/// The first thing that does not fit together.
pub(crate) fn check(profile: &Profile) -> Result<(), ProfileError> {
    for AtMost { less, more, percent, why } in ORDERS {
        let most = profile.get(*more).saturating_mul(*percent) / 100;
        if profile.get(*less) > most {
            let allowed = format!("at most {} ({why})", less.unit().show(most));
            return Err(wrong(profile, *less, &allowed));
        }
    }
    let (hang, interval) = (profile.get(Key::Hang), profile.get(Key::HangInterval));
    if (hang == 0) != (interval == 0) {
        return Err(wrong(profile, Key::HangInterval, "0 s where hang_ms is 0, and not where it is not"));
    }
    if hang != 0 && hang.saturating_mul(1000) < profile.get(Key::SyncMax) {
        return Err(wrong(profile, Key::Hang, "at least sync_max_us: it is longer than what is usual"));
    }
    if profile.get(Key::SessionTimeoutMin) < session_timeout_min_ms(profile) {
        return Err(wrong(
            profile,
            Key::SessionTimeoutMin,
            "at least hang_ms and quorum_ms: a session is to outlive a disk that hangs",
        ));
    }
    if profile.get(Key::DiskStall).saturating_mul(1000) < profile.get(Key::SyncMax).max(1_000_000) {
        return Err(wrong(
            profile,
            Key::DiskStall,
            "at least sync_max_us and 1 s: what is usual is no reason to hand over",
        ));
    }
    if !profile.get(Key::LogSegmentBytes).is_multiple_of(BLOCK) {
        return Err(wrong(profile, Key::LogSegmentBytes, "a multiple of 4 KiB"));
    }
    let segments = profile.get(Key::LogBytes).checked_div(profile.get(Key::LogSegmentBytes)).unwrap_or(0);
    if segments < SEGMENTS_MIN {
        return Err(wrong(profile, Key::LogBytes, "at least six of log_segment_bytes"));
    }
    let (most, least) = (profile.get(Key::DiskBytesMax), disk_bytes_min(profile));
    if (1..least).contains(&most) {
        let allowed = format!(
            "0 B for no bound, or at least {} (log_bytes, disk_reserve_bytes, and two bases of twice memtable_bytes)",
            Key::DiskBytesMax.unit().show(least)
        );
        return Err(wrong(profile, Key::DiskBytesMax, &allowed));
    }
    if !SERVERS.contains(&profile.get(Key::ServersMax)) {
        return Err(wrong(profile, Key::ServersMax, "a whole number from 1 to 16"));
    }
    check_wear(profile)
}

/// A session of the leader's own process lives on when its disk is back, and a leader found.
pub(crate) fn session_timeout_min_ms(profile: &Profile) -> u64 {
    profile.get(Key::Hang).saturating_add(profile.get(Key::Quorum))
}

/// What a data directory always has, and two bases that each hold what memory does before it is written.
fn disk_bytes_min(profile: &Profile) -> u64 {
    let bases = profile.get(Key::MemtableBytes).saturating_mul(4);
    profile.get(Key::LogBytes).saturating_add(profile.get(Key::DiskReserveBytes)).saturating_add(bases)
}

fn check_wear(profile: &Profile) -> Result<(), ProfileError> {
    let (budget, endurance) = (profile.get(Key::FlashBudget), profile.get(Key::Endurance));
    if (budget == 0) != (endurance == 0) {
        return Err(wrong(profile, Key::FlashBudget, "0 B where endurance_bytes is 0, and not where it is not"));
    }
    let amplification = profile.get(Key::DeviceAmplification);
    let most = endurance.saturating_mul(100).checked_div(amplification.saturating_mul(LIFE_DAYS)).unwrap_or(0);
    if budget > most {
        let most = Key::FlashBudget.unit().show(most);
        let allowed = format!("at most {most}: endurance_bytes / device_amplification_percent / {LIFE_DAYS} days");
        return Err(wrong(profile, Key::FlashBudget, &allowed));
    }
    Ok(())
}

fn wrong(profile: &Profile, key: Key, allowed: &str) -> ProfileError {
    let value = key.unit().show(profile.get(key));
    let file = profile.file_of(key);
    ProfileError::new(format!("{}: {} = {value} of {file}: allowed is {allowed}", profile.name(), key.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_one_unit_is_compared() {
        for AtMost { less, more, .. } in ORDERS {
            assert_eq!(less.unit(), more.unit(), "{} and {}", less.name(), more.name());
        }
    }

    fn with(key: Key, value: u64) -> Result<Profile, ProfileError> {
        let text = format!(
            "title = \"a box\"\nmedia = \"emmc\"\nmemory = \"512m\"\n[overrides.{}]\nvalue = \"{}\"\nreason = \"to see\"\nevidence = \"guess\"\n",
            key.name(),
            key.unit().show(value)
        );
        Profile::read("box.toml", &text, None)
    }

    /// Whatever a file says, it is a profile or one line.
    #[test]
    fn no_number_is_too_large_to_be_refused() {
        for key in Key::ALL {
            for value in [0, 1, u64::from(u32::MAX), u64::MAX / 1_000_000, u64::MAX] {
                let (Ok(_) | Err(_)) = with(*key, value);
            }
        }
        assert!(with(Key::Hang, u64::MAX / 1000).is_err());
    }

    #[test]
    fn each_contradiction_is_found() {
        for (key, value, expected) in [
            ("sync_p50_us", "2 s", "sync_p50_us = 2 s of box.toml: allowed is at most 20 ms (a median"),
            ("frame_bytes_max", "3 MiB", "at most 2 MiB (a frame becomes an entry"),
            ("ceiling_bytes", "300 MiB", "at most 256 MiB (the rest is for the system"),
            ("memtable_bytes", "16 MiB", "memtable_bytes = 16 MiB of box.toml: allowed is at most 8 MiB"),
            ("heartbeat_busy_ms", "360 ms", "at most 350 ms (who is idle says no more"),
            ("heartbeat_idle_ms", "450 ms", "at most 400 ms (a leader that is idle would look silent)"),
            ("fresh_ms", "400 ms", "heartbeat_idle_ms = 350 ms of network/lan.toml: allowed is at most 320 ms"),
            ("quorum_ms", "5 s", "quorum_ms = 5 s of box.toml: allowed is at most 3 s (clients would be sent away"),
            (
                "session_timeout_min_ms",
                "1 s",
                "quorum_ms = 2 s of network/lan.toml: allowed is at most 1 s (a session is to outlive",
            ),
            (
                "hang_ms",
                "1 h",
                "session_timeout_min_ms = 3602 s of box.toml: allowed is at most 40 s (it is the shortest)",
            ),
            (
                "session_timeout_min_ms",
                "2900 ms",
                "session_timeout_min_ms = 2.9 s of box.toml: allowed is at least hang_ms and quorum_ms",
            ),
            ("hang_interval_s", "0 s", "hang_interval_s = 0 s of box.toml: allowed is 0 s where hang_ms is 0"),
            ("hang_ms", "100 ms", "hang_ms = 100 ms of box.toml: allowed is at least sync_max_us"),
            ("disk_stall_ms", "900 ms", "disk_stall_ms = 900 ms of box.toml: allowed is at least sync_max_us and 1 s"),
            ("log_segment_bytes", "4000 kB", "log_segment_bytes = 4 MB of box.toml: allowed is a multiple of 4 KiB"),
            ("log_bytes", "20 MiB", "log_bytes = 20 MiB of box.toml: allowed is at least six of log_segment_bytes"),
            (
                "disk_bytes_max",
                "100 MiB",
                "disk_bytes_max = 100 MiB of box.toml: allowed is 0 B for no bound, or at least 128 MiB (log_bytes",
            ),
            ("servers_max", "17", "servers_max = 17 of box.toml: allowed is a whole number from 1 to 16"),
            ("servers_max", "0", "servers_max = 0 of box.toml: allowed is a whole number from 1"),
            ("flash_bytes_per_day", "0 B", "flash_bytes_per_day = 0 B of box.toml: allowed is 0 B where"),
            ("flash_bytes_per_day", "2 GB", "flash_bytes_per_day = 2 GB of box.toml: allowed is at most 1643835616 B"),
        ] {
            let text = format!(
                "title = \"a box\"\nmedia = \"emmc\"\nmemory = \"512m\"\n[overrides.{key}]\nvalue = \"{value}\"\n\
                 reason = \"to see\"\nevidence = \"guess\"\n"
            );
            let error = Profile::read("box.toml", &text, None).unwrap_err().to_string();
            assert!(error.starts_with("box.toml: ") && error.contains(expected), "{key} gave {error}");
        }
    }
}
