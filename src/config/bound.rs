//! A number that a file may set: its key, its unit, its range and the field that stores it.

use super::keys::{KIB, LIMITS, SETTINGS};
use super::{BoxMemory, Config, ConfigError, Timing};
use std::ops::RangeInclusive;
use zoolet_profiles::{self as quantities, Allowed, Unit, Written};
use zoolet_store::disk_bytes_min;

/// A number in a `T` that a file may set.
pub(super) struct Bound<T = Config> {
    /// Key in its TOML table, unit last; also the name of the field.
    pub(super) key: &'static str,
    /// Unit that the key's name ends with.
    pub(super) unit: Unit,
    pub(super) allowed: RangeInclusive<u64>,
    pub(super) place: fn(&mut T) -> Place<'_>,
    #[cfg(test)]
    pub(super) about: super::keys::About,
}

/// Field that stores a number.
pub(super) enum Place<'a> {
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

/// A holder of numbers that has default ones, for the examples of error messages.
pub(super) trait Numbers: Sized {
    /// Returns the numbers of the default profile.
    fn usual() -> Self;
}

impl Numbers for Config {
    fn usual() -> Self {
        Self::for_box("", BoxMemory::Mib512)
    }
}

impl Numbers for Timing {
    fn usual() -> Self {
        Self::default()
    }
}

impl<T: Numbers> Bound<T> {
    /// Stores the number that `value` means. The error shows `key` and `shown`, as in the file.
    pub(super) fn set(&self, target: &mut T, key: &str, shown: &str, value: Written<'_>) -> Result<(), ConfigError> {
        let allowed = Allowed {
            unit: self.unit,
            range: Some(self.allowed.clone()),
            example: self.example(),
            place: quantities::Place::Key,
        };
        let number = allowed.read(key, shown, value).map_err(|refusal| ConfigError::new(refusal.to_string()))?;
        if self.store(target, number) { Ok(()) } else { Err(ConfigError::value(key, shown, allowed)) }
    }

    /// The same for a `zoo.cfg`, whose numbers have no unit.
    pub(super) fn set_plain(&self, target: &mut T, key: &str, text: &str) -> Result<(), ConfigError> {
        let number = text.parse::<i128>().ok().and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|number| self.allowed.contains(number));
        let is_set = number.is_some_and(|number| self.store(target, number));
        if is_set { Ok(()) } else { Err(ConfigError::value(key, text, self.plain_numbers())) }
    }

    /// Returns whether the field could store the number.
    fn store(&self, target: &mut T, number: u64) -> bool {
        match (self.place)(target) {
            Place::Small(place) => u32::try_from(number).map(|number| *place = number).is_ok(),
            Place::Large(place) => {
                *place = number;
                true
            }
        }
    }

    /// Returns the number in `target`.
    pub(super) fn get(&self, target: &mut T) -> u64 {
        match (self.place)(target) {
            Place::Small(place) => (*place).into(),
            Place::Large(place) => *place,
        }
    }

    /// Returns the default; for a size the next that is short to write.
    fn example(&self) -> u64 {
        let usual = self.get(&mut T::usual());
        if self.unit == Unit::Bytes { usual.next_multiple_of(KIB) } else { usual }
    }

    fn plain_numbers(&self) -> String {
        let unit = match self.unit {
            Unit::Millis => ", in milliseconds",
            Unit::Bytes => ", in bytes",
            _ => "",
        };
        format!("a whole number from {} to {}{unit}", self.allowed.start(), self.allowed.end())
    }
}

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
    use super::super::keys::{General, OfSettings, TIMING};
    use super::*;
    use crate::quantity_table::{Row, rows};

    #[test]
    fn every_limit_and_setting_has_a_key_in_zoolet_toml() {
        let config = Config::new("x");
        let shown = format!("{:#?} {:#?}", config.limits, config.settings);
        for field in shown.lines().filter_map(|line| line.trim().split_once(": ").map(|(name, _)| name)) {
            let is_named = General::NAMES.contains(&field) || OfSettings::NAMES.contains(&field);
            let found = is_named || LIMITS.iter().chain(SETTINGS).any(|bound| bound.key == field);
            assert!(found, "{field} has no key in zoolet.toml");
        }
    }

    /// The names of the keys carry their units, so plain numbers are clear.
    #[test]
    fn every_name_ends_with_its_unit() {
        let of_name = |key: &str| match key {
            key if key.ends_with("_ms") => Unit::Millis,
            key if key.split('_').any(|word| word == "bytes") => Unit::Bytes,
            _ => Unit::Count,
        };
        let numbers = LIMITS.iter().chain(SETTINGS).map(|bound| (bound.key, bound.unit));
        for (key, unit) in numbers.chain(TIMING.iter().map(|bound| (bound.key, bound.unit))) {
            assert_eq!(unit, of_name(key), "{key}");
        }
    }

    #[test]
    fn a_file_reads_quantities_as_the_table_says() {
        for Row { is_time, text, number, hint } in rows() {
            let key = if is_time { "handshake_timeout_ms" } else { "disk_bytes_max" };
            let (bound, mut config) = (named(key).unwrap(), Config::new("x"));
            // The table is about the syntax.
            let bound = Bound { allowed: 0..=u64::MAX, ..*bound };
            match (bound.set(&mut config, key, &text, Written::Text(&text)), number) {
                (Ok(()), Some(number)) => assert_eq!(bound.get(&mut config), number, "{text:?}"),
                (Err(error), None) => {
                    let line = error.to_string().replace('"', "");
                    assert!(line.ends_with(&hint) && line.contains(": allowed is a "), "{text:?}: {line}");
                    assert_eq!(line.contains("; "), !hint.is_empty(), "{text:?}: {line}");
                }
                (read, _) => panic!("{text:?} gave {read:?}"),
            }
        }
    }

    #[test]
    fn every_default_is_within_its_allowed_range() {
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
