//! Units, and how quantities are shown: `4 MiB`, `1.3 ms`, `20 days`.

use std::fmt;

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A count, written without a unit.
    Count,
    /// Bytes; written with `B`, `kB`, `MB`, `GB`, `TB` (powers of 1,000), `KiB`, `MiB`, `GiB` or
    /// `TiB` (of 1,024).
    Bytes,
    /// Microseconds; durations are written with `us`, `ms`, `s`, `m` or `min`, `h`, or
    /// `days`.
    Micros,
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Hundredths; written with `%`.
    Percent,
}

/// Names of sizes, in bytes, the largest first.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];

/// A day, in microseconds.
const DAY: u64 = 86_400_000_000;

/// Names of durations, in microseconds, the longest first.
const DURATIONS: [(&str, u64); 7] = [
    ("days", DAY),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1000),
    ("us", 1),
];

const PERCENT: [(&str, u64); 1] = [("%", 1)];

impl Unit {
    /// Formats a number of this unit for people.
    pub const fn show(self, value: u64) -> Quantity {
        Quantity { unit: self, value }
    }

    /// Returns the names of units that a quantity may have, the largest first.
    pub(crate) const fn names(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Count => &[],
            Self::Bytes => &SIZES,
            Self::Micros | Self::Millis | Self::Seconds => &DURATIONS,
            Self::Percent => &PERCENT,
        }
    }

    /// Returns how many of the smallest named unit this unit is.
    pub(crate) const fn in_smallest(self) -> u64 {
        match self {
            Self::Millis => 1000,
            Self::Seconds => 1_000_000,
            Self::Count | Self::Bytes | Self::Micros | Self::Percent => 1,
        }
    }
}

/// A number with its unit, which [`Display`](fmt::Display) writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quantity {
    unit: Unit,
    value: u64,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let smallest = self.value.saturating_mul(self.unit.in_smallest());
        // A name fits a value of at least 1 that is whole or has one decimal. Zero is written in
        // the unit itself.
        let is_short = |of: u64| match smallest {
            0 => of == self.unit.in_smallest(),
            // One day is 24 h: the name is a plural.
            _ if of == DAY => smallest >= 2 * of && smallest.is_multiple_of(of),
            _ => smallest >= of && smallest.saturating_mul(10).is_multiple_of(of),
        };
        let Some((name, of)) = self.unit.names().iter().find(|(_, of)| is_short(*of)) else {
            return write!(f, "{}", self.value);
        };
        let (whole, tenth) = (smallest / of, smallest % of * 10 / of);
        if tenth == 0 { write!(f, "{whole} {name}") } else { write!(f, "{whole}.{tenth} {name}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{Allowed, Place, Written};

    #[test]
    fn a_quantity_is_shown_as_it_may_be_written() {
        for (unit, value, expected) in [
            (Unit::Count, 10_000, "10000"),
            (Unit::Bytes, 4 << 20, "4 MiB"),
            (Unit::Bytes, 1_600_000_000, "1.6 GB"),
            (Unit::Bytes, 24_000_000_000_000, "24 TB"),
            (Unit::Bytes, 1 << 40, "1 TiB"),
            (Unit::Bytes, 0, "0 B"),
            (Unit::Bytes, 1_048_575, "1048575 B"),
            (Unit::Micros, 1300, "1.3 ms"),
            (Unit::Micros, 170, "170 us"),
            (Unit::Millis, 0, "0 ms"),
            (Unit::Millis, 350, "350 ms"),
            (Unit::Millis, 5000, "5 s"),
            (Unit::Millis, 90_000, "1.5 min"),
            (Unit::Seconds, 3600, "1 h"),
            (Unit::Seconds, 86_400, "24 h"),
            (Unit::Seconds, 7 * 86_400, "7 days"),
            (Unit::Percent, 15, "15 %"),
        ] {
            let shown = unit.show(value).to_string();
            assert_eq!(shown, expected);
            let allowed = Allowed { unit, range: None, example: 1, place: Place::Quoted };
            assert_eq!(allowed.read("key", &shown, Written::Text(&shown)), Ok(value), "{shown}");
        }
    }
}
