//! Quantities as text: `4 MiB`, `1.3 ms`, `20 days`.

use std::fmt;

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A count, written without a unit.
    Count,
    /// Bytes; written with `B`, `kB`, `MB`, `GB`, `TB` (powers of 1,000), `KiB`, `MiB`, `GiB` or
    /// `TiB` (of 1,024).
    Bytes,
    /// Microseconds; durations are written with `us`, `ms`, `s`, `min`, `h` or `days`.
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

/// Names of durations, in microseconds, the longest first.
const DURATIONS: [(&str, u64); 6] =
    [("days", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1)];

const PERCENT: [(&str, u64); 1] = [("%", 1)];

impl Unit {
    /// Parses a quantity; `None` if it is malformed or not whole in this unit.
    pub fn parse(self, text: &str) -> Option<u64> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
        let (number, name) = (text[..end].replace('_', ""), text[end..].trim_start());
        if self == Self::Count {
            return if name.is_empty() { number.parse().ok() } else { None };
        }
        let (_, in_smallest) = self.names().iter().find(|(known, _)| *known == name)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
        if fraction.is_empty() || fraction.len() > 6 {
            return None;
        }
        let of_fraction = fraction.parse::<u64>().ok()?.checked_mul(*in_smallest)?;
        let divisor = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
        if !of_fraction.is_multiple_of(divisor) {
            return None;
        }
        let smallest = whole.parse::<u64>().ok()?.checked_mul(*in_smallest)?.checked_add(of_fraction / divisor)?;
        let own = self.in_smallest();
        smallest.is_multiple_of(own).then_some(smallest / own)
    }

    /// Describes the accepted syntax, for error messages.
    pub const fn example(self) -> &'static str {
        match self {
            Self::Count => "a whole number, such as \"16\"",
            Self::Bytes => "a number of bytes in B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as \"4 MiB\"",
            Self::Micros => {
                "a duration in whole microseconds, written in us, ms, s, min, h or days, such as \"1.3 ms\""
            }
            Self::Millis => {
                "a duration in whole milliseconds, written in us, ms, s, min, h or days, such as \"350 ms\""
            }
            Self::Seconds => "a duration in whole seconds, written in us, ms, s, min, h or days, such as \"1 h\"",
            Self::Percent => "a percentage, such as \"15 %\"",
        }
    }

    /// Formats a number of this unit for people.
    pub const fn show(self, value: u64) -> Quantity {
        Quantity { unit: self, value }
    }

    const fn names(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Count => &[],
            Self::Bytes => &SIZES,
            Self::Micros | Self::Millis | Self::Seconds => &DURATIONS,
            Self::Percent => &PERCENT,
        }
    }

    /// Returns how many of the smallest named unit this unit is.
    const fn in_smallest(self) -> u64 {
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

    #[test]
    fn quantities_are_read_and_written() {
        for (unit, text, value) in [
            (Unit::Count, "10_000", 10_000),
            (Unit::Bytes, "4 MiB", 4 << 20),
            (Unit::Bytes, "1.6 GB", 1_600_000_000),
            (Unit::Bytes, "24 TB", 24_000_000_000_000),
            (Unit::Bytes, "1 TiB", 1 << 40),
            (Unit::Micros, "1.3 ms", 1300),
            (Unit::Micros, "170 us", 170),
            (Unit::Millis, "350 ms", 350),
            (Unit::Millis, "5 s", 5000),
            (Unit::Seconds, "1 h", 3600),
            (Unit::Percent, "15 %", 15),
        ] {
            assert_eq!(unit.parse(text), Some(value), "{text}");
            assert_eq!(unit.parse(&unit.show(value).to_string()), Some(value), "{}", unit.show(value));
        }
        assert_eq!(Unit::Bytes.parse("4MiB"), Some(4 << 20));
        let shown = [
            Unit::Bytes.show(0).to_string(),
            Unit::Bytes.show(1_048_575).to_string(),
            Unit::Micros.show(1300).to_string(),
            Unit::Millis.show(90_000).to_string(),
            Unit::Millis.show(0).to_string(),
        ];
        assert_eq!(shown, ["0 B", "1048575 B", "1.3 ms", "1.5 min", "0 ms"]);
    }

    #[test]
    fn whoever_wrote_another_unit_is_told_every_one() {
        for unit in [Unit::Bytes, Unit::Micros, Unit::Millis, Unit::Seconds, Unit::Percent] {
            let words: Vec<&str> = unit.example().split([' ', ',']).collect();
            for (name, _) in unit.names() {
                assert!(words.iter().any(|word| word.trim_end_matches('"') == *name), "{name} is not in {words:?}");
            }
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for (unit, text) in [
            (Unit::Count, "16 B"),
            (Unit::Count, "1.5"),
            (Unit::Bytes, "16"),
            (Unit::Bytes, "4 mib"),
            (Unit::Bytes, "1 KB"),
            (Unit::Bytes, "1.5 B"),
            (Unit::Bytes, "99999999999 TB"),
            (Unit::Millis, "1.5 us"),
            (Unit::Millis, "-1 s"),
            (Unit::Millis, "1. s"),
            (Unit::Millis, ".5 s"),
            (Unit::Seconds, "1500 ms"),
            (Unit::Percent, "15"),
            (Unit::Percent, ""),
        ] {
            assert_eq!(unit.parse(text), None, "{text}");
        }
    }
}
