//! Checks of a profile's numbers against each other.

use crate::error::ProfileError;
use crate::key::Key;
use crate::profile::Profile;

/// Required life of a medium, in days.
const LIFE_DAYS: u64 = 3650;
/// Minimum number of segments in the log ring.
///
/// Three segments stay free, and a checkpoint starts when half are used.
const SEGMENTS_MIN: u64 = 6;
/// Allowed number of servers in a site.
const SERVERS: std::ops::RangeInclusive<u64> = 1..=16;
/// Largest loss, in lost datagrams per hundred.
const LOSS_MAX: u64 = 50;
/// Minimum of `fixed_bytes`, in bytes.
///
/// Files back 9.6 MiB of a server's resident memory, with everything at its bound.
const FIXED_BYTES_MIN: u64 = 10 << 20;
/// Write unit of the log, in bytes.
const BLOCK: u64 = 4096;

/// A rule: one number is at most `percent` hundredths of another.
#[derive(Clone, Copy, Debug)]
pub struct AtMost {
    /// The number that is bounded.
    pub less: Key,
    /// The number that bounds it.
    pub more: Key,
    /// Hundredths of `more` that `less` may reach.
    pub percent: u64,
    /// Reason for the rule, as errors show it.
    pub why: &'static str,
}

const fn at_most(less: Key, more: Key, percent: u64, why: &'static str) -> AtMost {
    AtMost { less, more, percent, why }
}

/// Every [`AtMost`] rule for the numbers of a profile.
pub const ORDERS: &[AtMost] = &[
    at_most(Key::SyncP50, Key::SyncP99, 100, "the median is at most the 99th percentile"),
    at_most(Key::SyncP99, Key::SyncMax, 100, "the 99th percentile is at most the maximum"),
    at_most(Key::FrameBytesMax, Key::LogSegmentBytes, 50, "a frame becomes an entry, which must fit into one segment"),
    at_most(Key::CeilingBytes, Key::BoxBytes, 50, "the rest is for the system and the box's own work"),
    at_most(Key::FixedBytes, Key::CeilingBytes, 50, "the rest of the ceiling is for the other parts"),
    at_most(Key::OutboundBytesMax, Key::OutboundBytesTotalMax, 100, "the total includes each client"),
    at_most(Key::FrameBytesMax, Key::OutboundBytesMax, 100, "a client must be able to read back the largest frame"),
    at_most(Key::MemtableBytes, Key::DiskReserveBytes, 25, "a checkpoint may need four memtables"),
    at_most(Key::ConnectionsPerAddressMax, Key::ConnectionsMax, 100, "the total includes each address"),
    at_most(Key::ConnectionsMax, Key::SessionsMax, 100, "a connection has a session, and sessions outlive connections"),
    at_most(Key::RoundTrip, Key::RoundTripP99, 100, "the median is at most the 99th percentile"),
    at_most(Key::HeartbeatBusy, Key::HeartbeatIdle, 100, "an idle leader sends no more heartbeats than a busy one"),
    at_most(Key::HeartbeatIdle, Key::Fresh, 80, "an idle leader would look silent"),
    at_most(Key::HeartbeatIdle, Key::Join, 80, "an idle leader would look silent"),
    at_most(Key::HeartbeatIdle, Key::Quorum, 25, "one lost heartbeat must not make a leader step down"),
    at_most(Key::HeartbeatIdle, Key::StalenessMax, 25, "one lost heartbeat must not make a server refuse clients"),
    at_most(Key::Quorum, Key::StalenessMax, 100, "a server would refuse clients while its leader still leads"),
    at_most(Key::Quorum, Key::SessionTimeoutMin, 100, "a session must outlive an election"),
    at_most(Key::SessionTimeoutMin, Key::SessionTimeoutMax, 100, "the shortest is at most the longest"),
];

/// Checks every rule.
///
/// # Errors
/// The first contradiction found.
pub(crate) fn check(profile: &Profile) -> Result<(), ProfileError> {
    check_alone(profile)?;
    check_sessions(profile)?;
    check_orders(profile)?;
    check_hangs(profile)?;
    check_ring(profile)?;
    check_wear(profile)
}

/// Checks the bounds that do not depend on other numbers.
fn check_alone(profile: &Profile) -> Result<(), ProfileError> {
    let least = Key::FixedBytes.unit().show(FIXED_BYTES_MIN);
    let fixed = format!("at least {least}, the resident memory of the program itself");
    for (key, range, allowed) in [
        (Key::Loss, 0..=LOSS_MAX, format!("at most {LOSS_MAX} %: with more, no ensemble keeps its quorum")),
        (Key::FixedBytes, FIXED_BYTES_MIN..=u64::MAX, fixed),
        (Key::LogSegmentBytes, BLOCK..=u64::MAX, "a multiple of 4 KiB".to_owned()),
        (Key::ServersMax, SERVERS, "a whole number from 1 to 16".to_owned()),
    ] {
        if !range.contains(&profile.get(key)) {
            return Err(wrong(profile, &[(key, allowed)]));
        }
    }
    if !profile.get(Key::LogSegmentBytes).is_multiple_of(BLOCK) {
        return Err(wrong(profile, &[(Key::LogSegmentBytes, "a multiple of 4 KiB".to_owned())]));
    }
    Ok(())
}

fn check_orders(profile: &Profile) -> Result<(), ProfileError> {
    for AtMost { less, more, percent, why } in ORDERS {
        let (value, limit) = (profile.get(*less), profile.get(*more));
        let most = limit.saturating_mul(*percent) / 100;
        if value > most {
            let shown = |number| less.unit().show(number);
            let least = value.saturating_mul(100).div_ceil(*percent);
            let of_less = format!("at most {} ({why})", shown(most));
            let of_more = format!("at least {} ({} is {}: {why})", shown(least), less.name(), shown(value));
            return Err(wrong(profile, &[(*less, of_less), (*more, of_more)]));
        }
    }
    Ok(())
}

/// Returns the shortest session timeout that outlasts a hanging disk, in milliseconds.
///
/// A session of the leader's own process survives until the disk is back and a leader is elected.
pub(crate) fn session_timeout_min_ms(profile: &Profile) -> u64 {
    profile.get(Key::Hang).saturating_add(profile.get(Key::Quorum))
}

/// Checks that sessions outlast a hang of the disk and an election.
///
/// Runs before the check of [`ORDERS`]: the shortest timeout may be derived from `hang_ms`, and an
/// order would then name a number that no file sets.
fn check_sessions(profile: &Profile) -> Result<(), ProfileError> {
    let (least, most) = (session_timeout_min_ms(profile), profile.get(Key::SessionTimeoutMax));
    let shown = |number| Key::SessionTimeoutMax.unit().show(number);
    let enough =
        format!("at least {}, hang_ms plus quorum_ms: a session must outlive a hang of the disk", shown(least));
    if least > most {
        let below = |other: Key| {
            let left = shown(most.saturating_sub(profile.get(other)));
            format!(
                "at most {left}: a session must outlive it plus {}, and session_timeout_max_ms is {}",
                other.name(),
                shown(most)
            )
        };
        let ways = [(Key::Hang, below(Key::Quorum)), (Key::Quorum, below(Key::Hang)), (Key::SessionTimeoutMax, enough)];
        return Err(wrong(profile, &ways));
    }
    if profile.get(Key::SessionTimeoutMin) < least {
        return Err(wrong(profile, &[(Key::SessionTimeoutMin, enough)]));
    }
    Ok(())
}

fn check_hangs(profile: &Profile) -> Result<(), ProfileError> {
    let (hang, interval) = (profile.get(Key::Hang), profile.get(Key::HangInterval));
    if (hang == 0) != (interval == 0) {
        return Err(both_or_none(profile, Key::HangInterval, Key::Hang));
    }
    let sync = profile.get(Key::SyncMax);
    if hang != 0 && hang.saturating_mul(1000) < sync {
        let of_hang = "at least sync_max_us: a hang is longer than a usual sync".to_owned();
        return Err(wrong(profile, &[(Key::Hang, of_hang), (Key::SyncMax, at_most_of(profile, Key::Hang))]));
    }
    if profile.get(Key::DiskStall).saturating_mul(1000) < sync.max(1_000_000) {
        let of_stall = "at least sync_max_us and 1 s: a usual sync must not make the leader hand over".to_owned();
        return Err(wrong(profile, &[(Key::DiskStall, of_stall), (Key::SyncMax, at_most_of(profile, Key::DiskStall))]));
    }
    Ok(())
}

fn at_most_of(profile: &Profile, key: Key) -> String {
    format!("at most {}, which is {}", key.name(), key.unit().show(profile.get(key)))
}

fn check_ring(profile: &Profile) -> Result<(), ProfileError> {
    let (log, segment) = (profile.get(Key::LogBytes), profile.get(Key::LogSegmentBytes));
    if log / segment < SEGMENTS_MIN {
        let most = Key::LogSegmentBytes.unit().show(log / SEGMENTS_MIN / BLOCK * BLOCK);
        let of_segment = format!("at most {most}, a sixth of log_bytes, rounded down to 4 KiB");
        let ways =
            [(Key::LogBytes, "at least six times log_segment_bytes".to_owned()), (Key::LogSegmentBytes, of_segment)];
        return Err(wrong(profile, &ways));
    }
    Ok(())
}

fn check_wear(profile: &Profile) -> Result<(), ProfileError> {
    let (budget, endurance) = (profile.get(Key::FlashBudget), profile.get(Key::Endurance));
    if (budget == 0) != (endurance == 0) {
        return Err(both_or_none(profile, Key::FlashBudget, Key::Endurance));
    }
    let amplification = profile.get(Key::DeviceAmplification);
    if amplification < 100 && (amplification, endurance) != (0, 0) {
        let allowed = "at least 100 %: the cells take every byte that is written; or 0 % where endurance_bytes is 0";
        return Err(wrong(
            profile,
            &[
                (Key::DeviceAmplification, allowed.to_owned()),
                (Key::Endurance, "0 B where device_amplification_percent is 0".to_owned()),
            ],
        ));
    }
    let most = endurance.saturating_mul(100).checked_div(amplification.saturating_mul(LIFE_DAYS)).unwrap_or(0);
    if budget > most {
        let most = Key::FlashBudget.unit().show(most);
        let life = format!("endurance_bytes / device_amplification_percent / {LIFE_DAYS} days");
        let of_others = |side: &str| format!("{side}, or a flash_bytes_per_day of at most {most}: {life}");
        let ways = [
            (Key::FlashBudget, format!("at most {most}: {life}")),
            (Key::Endurance, of_others("more")),
            (Key::DeviceAmplification, of_others("less")),
        ];
        return Err(wrong(profile, &ways));
    }
    Ok(())
}

/// Returns the error for two numbers of which exactly one is 0.
fn both_or_none(profile: &Profile, one: Key, other: Key) -> ProfileError {
    let where_other =
        |key: Key, other: Key| (key, format!("{} where {} is 0, and only there", key.unit().show(0), other.name()));
    wrong(profile, &[where_other(one, other), where_other(other, one)])
}

/// Returns the error for numbers that contradict each other; `ways` lists what each may be.
///
/// It names the number that the box's own file sets, if there is one: the file's author can correct
/// that number.
pub(crate) fn wrong(profile: &Profile, ways: &[(Key, String)]) -> ProfileError {
    let own = ways.iter().find(|(key, _)| profile.is_own(*key));
    let Some((key, allowed)) = own.or(ways.first()) else { return ProfileError::new(profile.name()) };
    let value = key.unit().show(profile.get(*key));
    // A part or a board sets the number in another file than the one that the line begins with.
    let file = Some(profile.file_of(*key)).filter(|file| *file != profile.name());
    let of_file = file.map_or(String::new(), |file| format!(" of {file}"));
    ProfileError::new(format!("{}: {} = {value}{of_file}: allowed is {allowed}", profile.name(), key.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compared_keys_have_the_same_unit() {
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

    /// Every value gives either a profile or an error: extreme numbers overflow nothing.
    #[test]
    fn extreme_numbers_give_a_profile_or_an_error() {
        for key in Key::ALL {
            for value in [0, 1, u64::from(u32::MAX), u64::MAX / 1_000_000, u64::MAX] {
                let (Ok(_) | Err(_)) = with(*key, value);
            }
        }
        assert!(with(Key::Hang, u64::MAX / 1000).is_err());
    }

    #[test]
    fn each_contradiction_is_refused_with_the_allowed_range() {
        for (key, value, expected) in [
            ("sync_p50_us", "2 s", "sync_p50_us = 2 s: allowed is at most 20 ms (the median"),
            ("frame_bytes_max", "3 MiB", "at most 2 MiB (a frame becomes an entry"),
            ("ceiling_bytes", "300 MiB", "at most 256 MiB (the rest is for the system"),
            ("memtable_bytes", "16 MiB", "memtable_bytes = 16 MiB: allowed is at most 8 MiB"),
            ("heartbeat_busy_ms", "360 ms", "at most 350 ms (an idle leader sends no more"),
            ("heartbeat_idle_ms", "450 ms", "at most 400 ms (an idle leader would look silent)"),
            (
                "fresh_ms",
                "400 ms",
                "fresh_ms = 400 ms: allowed is at least 438 ms (heartbeat_idle_ms is 350 ms: an idle leader",
            ),
            ("quorum_ms", "100 ms", "quorum_ms = 100 ms: allowed is at least 1.4 s (heartbeat_idle_ms is"),
            ("quorum_ms", "5 s", "quorum_ms = 5 s: allowed is at most 3 s (a server would refuse clients"),
            (
                "session_timeout_min_ms",
                "1 s",
                "session_timeout_min_ms = 1 s: allowed is at least 3 s, hang_ms plus quorum_ms: a session",
            ),
            (
                "hang_ms",
                "1 h",
                "hang_ms = 1 h: allowed is at most 38 s: a session must outlive it plus quorum_ms, and session",
            ),
            (
                "session_timeout_max_ms",
                "3 s",
                "session_timeout_max_ms = 3 s: allowed is at least 4 s (session_timeout_min_ms is 4 s: the shortest",
            ),
            (
                "session_timeout_min_ms",
                "2900 ms",
                "session_timeout_min_ms = 2.9 s: allowed is at least 3 s, hang_ms plus quorum_ms",
            ),
            ("hang_interval_s", "0 s", "hang_interval_s = 0 s: allowed is 0 s where hang_ms is 0"),
            ("hang_ms", "100 ms", "hang_ms = 100 ms: allowed is at least sync_max_us"),
            ("disk_stall_ms", "900 ms", "disk_stall_ms = 900 ms: allowed is at least sync_max_us and 1 s"),
            ("log_segment_bytes", "4000 kB", "log_segment_bytes = 4 MB: allowed is a multiple of 4 KiB"),
            ("log_bytes", "20 MiB", "log_bytes = 20 MiB: allowed is at least six times log_segment_bytes"),
            (
                "log_segment_bytes",
                "32 MiB",
                "log_segment_bytes = 32 MiB: allowed is at most 10920 KiB, a sixth of log_bytes",
            ),
            ("sync_max_us", "2 s", "sync_max_us = 2 s: allowed is at most"),
            ("loss_percent", "51 %", "loss_percent = 51 %: allowed is at most 50 %: with more"),
            ("loss_percent", "200 %", "loss_percent = 200 %: allowed is at most 50 %"),
            ("device_amplification_percent", "50 %", "allowed is at least 100 %: the cells take every byte"),
            ("device_amplification_percent", "0 %", "allowed is at least 100 %: the cells take every byte"),
            ("device_amplification_percent", "1000 %", "allowed is less, or a flash_bytes_per_day of at most"),
            ("endurance_bytes", "0 B", "endurance_bytes = 0 B: allowed is 0 B where flash_bytes_per_day is 0"),
            ("endurance_bytes", "1 TB", "endurance_bytes = 1 TB: allowed is more, or a flash_bytes_per_day of"),
            ("fixed_bytes", "1 B", "fixed_bytes = 1 B: allowed is at least 10 MiB"),
            ("sessions_max", "10", "sessions_max = 10: allowed is at least 4096 (connections_max is 4096: a"),
            ("connections_max", "10_001", "connections_max = 10001: allowed is at most 10000 (a connection has"),
            ("servers_max", "17", "servers_max = 17: allowed is a whole number from 1 to 16"),
            ("servers_max", "0", "servers_max = 0: allowed is a whole number from 1"),
            ("flash_bytes_per_day", "0 B", "flash_bytes_per_day = 0 B: allowed is 0 B where"),
            ("flash_bytes_per_day", "2 GB", "flash_bytes_per_day = 2 GB: allowed is at most 1643835616 B"),
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
