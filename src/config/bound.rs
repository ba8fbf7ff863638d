//! Every number that a file may set: its key, its range and the field that stores it.

use super::{Config, ConfigError, Timing};
use std::ops::RangeInclusive;
use zoolet_store::disk_bytes_min;

/// A number in a `T` that a file may set.
pub(super) struct Bound<T = Config> {
    /// Key in its TOML table, unit last.
    pub(super) key: &'static str,
    pub(super) allowed: RangeInclusive<u64>,
    place: fn(&mut T) -> Place<'_>,
}

/// Field that stores a number.
enum Place<'a> {
    Small(&'a mut u32),
    Large(&'a mut u64),
}

impl<'a> From<&'a mut u32> for Place<'a> {
    fn from(place: &'a mut u32) -> Self {
        Self::Small(place)
    }
}

impl<'a> From<&'a mut u64> for Place<'a> {
    fn from(place: &'a mut u64) -> Self {
        Self::Large(place)
    }
}

impl<T> Bound<T> {
    /// Stores `number` if it is allowed. The error shows `key` and `text`, as written in the file.
    pub(super) fn set(&self, target: &mut T, key: &str, text: &str, number: Option<i128>) -> Result<(), ConfigError> {
        let number =
            number.and_then(|number| u64::try_from(number).ok()).filter(|number| self.allowed.contains(number));
        let is_set = number.is_some_and(|number| match (self.place)(target) {
            Place::Small(place) => u32::try_from(number).map(|number| *place = number).is_ok(),
            Place::Large(place) => {
                *place = number;
                true
            }
        });
        if is_set { Ok(()) } else { Err(ConfigError::value(key, text, self.allowed_text())) }
    }

    /// Returns the number in `target`.
    pub(super) fn get(&self, target: &mut T) -> u64 {
        match (self.place)(target) {
            Place::Small(place) => (*place).into(),
            Place::Large(place) => *place,
        }
    }

    fn allowed_text(&self) -> String {
        let unit = match self.key {
            key if key.ends_with("_ms") => ", in milliseconds",
            key if key.split('_').any(|word| word == "bytes") => ", in bytes",
            _ => "",
        };
        format!("a whole number from {} to {}{unit}", self.allowed.start(), self.allowed.end())
    }
}

const MIB: u64 = 1 << 20;

/// The table `[limits]`.
pub(super) const LIMITS: &[Bound] = &[
    Bound { key: "frame_bytes_max", allowed: 4096..=64 * MIB, place: |c| (&mut c.limits.frame_bytes_max).into() },
    Bound { key: "connections_max", allowed: 1..=1_000_000, place: |c| (&mut c.limits.connections_max).into() },
    Bound {
        key: "connections_per_address_max",
        allowed: 0..=1_000_000,
        place: |c| (&mut c.limits.connections_per_address_max).into(),
    },
    Bound { key: "sessions_max", allowed: 1..=10_000_000, place: |c| (&mut c.limits.sessions_max).into() },
    Bound {
        key: "ephemerals_per_session_max",
        allowed: 0..=1_000_000,
        place: |c| (&mut c.limits.ephemerals_per_session_max).into(),
    },
    Bound { key: "watches_max", allowed: 0..=100_000_000, place: |c| (&mut c.limits.watches_max).into() },
    Bound { key: "outstanding_max", allowed: 1..=1_000_000, place: |c| (&mut c.limits.outstanding_max).into() },
    Bound {
        key: "outstanding_bytes_max",
        allowed: 64 << 10..=1024 * MIB,
        place: |c| (&mut c.limits.outstanding_bytes_max).into(),
    },
    Bound {
        key: "outbound_bytes_max",
        allowed: 64 << 10..=1024 * MIB,
        place: |c| (&mut c.limits.outbound_bytes_max).into(),
    },
    Bound {
        key: "outbound_bytes_total_max",
        allowed: 64 << 10..=2048 * MIB,
        place: |c| (&mut c.limits.outbound_bytes_total_max).into(),
    },
    Bound { key: "memtable_bytes", allowed: 64 << 10..=1024 * MIB, place: |c| (&mut c.limits.memtable_bytes).into() },
    Bound {
        key: "record_cache_bytes",
        allowed: 64 << 10..=2048 * MIB,
        place: |c| (&mut c.limits.record_cache_bytes).into(),
    },
    Bound {
        key: "base_cache_bytes",
        allowed: 64 << 10..=2048 * MIB,
        place: |c| (&mut c.limits.base_cache_bytes).into(),
    },
    Bound { key: "disk_reserve_bytes", allowed: 0..=4095 * MIB, place: |c| (&mut c.limits.disk_reserve_bytes).into() },
    // 0, or at least the minimum that `check_together` computes.
    Bound { key: "disk_bytes_max", allowed: 0..=1 << 50, place: |c| (&mut c.limits.disk_bytes_max).into() },
    Bound {
        key: "log_segment_bytes",
        allowed: 64 << 10..=1024 * MIB,
        place: |c| (&mut c.limits.log_segment_bytes).into(),
    },
    // Three segments are kept free, and a checkpoint starts when half of the ring is used. With
    // fewer than six segments, writes would wait forever.
    Bound { key: "log_segments", allowed: 6..=1024, place: |c| (&mut c.limits.log_segments).into() },
];

/// The numbers of the table `[settings]`.
pub(super) const SETTINGS: &[Bound] = &[
    Bound { key: "tick_ms", allowed: 10..=60_000, place: |c| (&mut c.settings.tick_ms).into() },
    Bound {
        key: "session_timeout_min_ms",
        allowed: 10..=86_400_000,
        place: |c| (&mut c.settings.session_timeout_min_ms).into(),
    },
    Bound {
        key: "session_timeout_max_ms",
        allowed: 10..=86_400_000,
        place: |c| (&mut c.settings.session_timeout_max_ms).into(),
    },
    Bound {
        key: "handshake_timeout_ms",
        allowed: 100..=86_400_000,
        place: |c| (&mut c.settings.handshake_timeout_ms).into(),
    },
    Bound {
        key: "container_check_interval_ms",
        allowed: 10..=86_400_000,
        place: |c| (&mut c.settings.container_check_interval_ms).into(),
    },
    Bound {
        key: "containers_per_minute_max",
        allowed: 1..=1_000_000,
        place: |c| (&mut c.settings.containers_per_minute_max).into(),
    },
    Bound { key: "staleness_max_ms", allowed: 200..=86_400_000, place: |c| (&mut c.settings.staleness_max_ms).into() },
];

/// The table `[timing]`.
pub(super) const TIMING: &[Bound<Timing>] = &[
    Bound { key: "heartbeat_busy_ms", allowed: 10..=60_000, place: |t| (&mut t.heartbeat_busy_ms).into() },
    Bound { key: "heartbeat_idle_ms", allowed: 10..=60_000, place: |t| (&mut t.heartbeat_idle_ms).into() },
    Bound { key: "fresh_ms", allowed: 100..=600_000, place: |t| (&mut t.fresh_ms).into() },
    Bound { key: "join_ms", allowed: 100..=600_000, place: |t| (&mut t.join_ms).into() },
    Bound { key: "quorum_ms", allowed: 200..=600_000, place: |t| (&mut t.quorum_ms).into() },
    // Below one second, a card that erases a block would count as hanging.
    Bound { key: "disk_stall_ms", allowed: 1000..=600_000, place: |t| (&mut t.disk_stall_ms).into() },
];

/// Returns the bound of that key in `[limits]` or `[settings]`.
pub(super) fn named(key: &str) -> Option<&'static Bound> {
    LIMITS.iter().chain(SETTINGS).find(|bound| bound.key == key)
}

/// Checks numbers that depend on each other.
pub(super) fn check_together(config: &Config, names: &TogetherNames) -> Result<(), ConfigError> {
    let settings = &config.settings;
    if settings.session_timeout_min_ms > settings.session_timeout_max_ms {
        return Err(ConfigError::value(
            names.timeout_min,
            settings.session_timeout_min_ms,
            format_args!("at most {} = {}", names.timeout_max, settings.session_timeout_max_ms),
        ));
    }
    if !config.limits.log_segment_bytes.is_multiple_of(4096) {
        return Err(ConfigError::value(
            "limits.log_segment_bytes",
            config.limits.log_segment_bytes,
            "a multiple of 4096",
        ));
    }
    let least = disk_bytes_min(&config.limits);
    if (1..least).contains(&config.limits.disk_bytes_max) {
        return Err(ConfigError::value(
            names.disk,
            config.limits.disk_bytes_max,
            format_args!("0 for no bound, or at least {least}: the log's ring, {DISK_PARTS}"),
        ));
    }
    // The largest frame becomes one log entry, and a batch never crosses a segment's end.
    let room = config.limits.log_segment_bytes / 2;
    if config.limits.frame_bytes_max > room {
        return Err(ConfigError::value(
            names.frame,
            config.limits.frame_bytes_max,
            format_args!("at most {room}, half of log_segment_bytes"),
        ));
    }
    Ok(())
}

/// Parts of the smallest disk bound beside the log's ring, for error messages.
pub(super) const DISK_PARTS: &str = "9/8 of disk_reserve_bytes, 25/4 of memtable_bytes and 4 MiB";

/// The names in a `zoolet.toml`.
pub(super) const OF_TOML: TogetherNames = TogetherNames {
    timeout_min: "settings.session_timeout_min_ms",
    timeout_max: "settings.session_timeout_max_ms",
    frame: "limits.frame_bytes_max",
    disk: "limits.disk_bytes_max",
};

/// Names of keys that depend on each other, as the file at hand spells them.
pub(super) struct TogetherNames {
    pub(super) timeout_min: &'static str,
    pub(super) timeout_max: &'static str,
    pub(super) frame: &'static str,
    pub(super) disk: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields that are not numbers, read by name.
    const OTHERS: [&str; 2] = ["super_digest", "skip_acl"];

    #[test]
    fn every_field_has_a_key() {
        let config = Config::new("x");
        let shown = format!("{:#?} {:#?}", config.limits, config.settings);
        for field in shown.lines().filter_map(|line| line.trim().split_once(": ").map(|(name, _)| name)) {
            let found = OTHERS.contains(&field) || LIMITS.iter().chain(SETTINGS).any(|bound| bound.key == field);
            assert!(found, "{field} has no key in zoolet.toml");
        }
    }

    #[test]
    fn every_default_is_allowed() {
        let mut timing = Timing::default();
        for bound in TIMING {
            let value = bound.get(&mut timing);
            assert!(bound.allowed.contains(&value), "{} = {value}", bound.key);
        }
        let mut config = Config::new("x");
        for bound in LIMITS.iter().chain(SETTINGS) {
            let value = bound.get(&mut config);
            assert!(bound.allowed.contains(&value), "{} = {value}", bound.key);
        }
    }
}
