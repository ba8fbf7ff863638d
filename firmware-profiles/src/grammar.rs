//! How users write quantities: `500ms`, `1.5 h`, `64 KiB`, `100`.
//!
//! Options of the command line, `zoolet.toml` and profiles share this grammar and its errors. A size
//! without a unit is in bytes. A time needs a unit, unless it is a plain number of a file at a key
//! whose name carries the unit, such as `quorum_ms`.

use crate::unit::Unit;
use std::fmt;
use std::ops::RangeInclusive;

/// Digits that may follow the decimal point.
const FRACTION_DIGITS_MAX: usize = 6;

/// Beginnings of other names of durations, in lower case, with the name here.
const OTHER_DURATIONS: [(&str, &str); 9] = [
    ("us", "us"),
    ("\u{b5}s", "us"),
    ("micro", "us"),
    ("ms", "ms"),
    ("milli", "ms"),
    ("mi", "m"),
    ("s", "s"),
    ("h", "h"),
    ("d", "days"),
];

/// The place where a user writes a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// An option of the command line.
    Option,
    /// A text in quotes in a file.
    Quoted,
    /// A key of a file whose name carries the unit: a text in quotes, or a plain number.
    Key,
}

/// A value as a user wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written<'a> {
    /// Text, without its quotes.
    Text(&'a str),
    /// A plain number, in the unit of its key.
    Number(i128),
    /// Anything else.
    Other,
}

/// The quantities that an option or a key allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Unit of the range, the example and the result.
    pub unit: Unit,
    /// Allowed numbers; `None`: all.
    pub range: Option<RangeInclusive<u64>>,
    /// An allowed number, for error messages.
    pub example: u64,
    /// Where the user writes it.
    pub place: Place,
}

/// A quantity that is not allowed, in one line: `KEY = VALUE: allowed is ...`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Allowed {
    /// Returns the number that `value` means, in the unit.
    ///
    /// # Errors
    /// A malformed or disallowed quantity. The line names `key`, the value as `shown`, the allowed
    /// values with an example, and a probable correction.
    pub fn read(&self, key: &str, shown: &str, value: Written<'_>) -> Result<u64, Refusal> {
        let read = match value {
            Written::Text(text) => self.parse(text),
            Written::Number(number) if self.place == Place::Key => u64::try_from(number).map_err(|_| String::new()),
            Written::Number(_) | Written::Other => Err(String::new()),
        };
        let is_allowed = |number: &u64| self.range.as_ref().is_none_or(|range| range.contains(number));
        read.and_then(|number| Some(number).filter(is_allowed).ok_or_else(String::new)).map_err(|hint| {
            let hint = if hint.is_empty() { hint } else { format!("; {hint}") };
            Refusal(format!("{key} = {shown}: allowed is {self}{hint}"))
        })
    }

    /// Parses a quantity. The error is a hint, or empty if the allowed values say enough.
    fn parse(&self, text: &str) -> Result<u64, String> {
        let text = text.trim();
        let text = text.strip_prefix('+').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
        let (written, rest) = text.split_at(end);
        let (number, name) = (written.replace('_', ""), rest.trim_start());
        if !written.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(String::new());
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
        let smallest = match self.in_smallest(name) {
            Some(smallest) => smallest,
            None if name.is_empty() => return Err("the unit is missing".to_owned()),
            None => {
                // A value may have line breaks, but an error is one line.
                let gap = if name.len() < rest.len() { " " } else { "" };
                return Err(self.other_unit(name, &format!("{written}{gap}")));
            }
        };
        if fraction.is_empty() || fraction.len() > FRACTION_DIGITS_MAX || fraction.contains('.') {
            return Err(format!("1 to {FRACTION_DIGITS_MAX} digits may follow a decimal point"));
        }
        let total = in_smallest_units(whole, fraction, smallest).ok_or("the number is too large")?;
        let own = self.unit.in_smallest();
        let is_whole = total.remainder == 0 && total.units.is_multiple_of(own);
        is_whole.then_some(total.units / own).ok_or_else(|| format!("not a whole number{}", self.unit.of_units()))
    }

    /// Returns how many of the smallest unit the unit `name` is, if the unit allows this name.
    fn in_smallest(&self, name: &str) -> Option<u64> {
        let may_be_bare = matches!(self.unit, Unit::Count | Unit::Bytes);
        let known = self.unit.names().iter().find(|(known, _)| *known == name).map(|(_, smallest)| *smallest);
        known.or_else(|| (name.is_empty() && may_be_bare).then_some(1))
    }

    /// Returns the hint about an unknown unit, which stands behind `number`.
    fn other_unit(&self, name: &str, number: &str) -> String {
        if self.unit == Unit::Count {
            return "a count has no unit".to_owned();
        }
        let quote = if self.place == Place::Option { "" } else { "\"" };
        let meant = |unit: &str| format!("{quote}{number}{unit}{quote}");
        let lower = name.to_lowercase();
        let of_size = size_prefix(&lower);
        if let Some(prefix) = of_size.filter(|_| self.unit == Unit::Bytes) {
            let upper = prefix.to_ascii_uppercase();
            let binary = meant(&format!("{upper}iB"));
            let decimal = meant(&format!("{}B", if prefix == 'k' { prefix } else { upper }));
            return match lower.ends_with("ib") {
                true => format!("did you mean {binary}?"),
                false => format!("did you mean {binary} (powers of 1,024) or {decimal} (of 1,000)?"),
            };
        }
        let names = self.unit.names();
        let same = names.iter().map(|(known, _)| *known).find(|known| known.to_lowercase() == lower);
        let is_time = matches!(self.unit, Unit::Micros | Unit::Millis | Unit::Seconds);
        let of_beginning = || OTHER_DURATIONS.iter().find(|(beginning, _)| lower.starts_with(beginning));
        let is_name = name.chars().all(char::is_alphabetic) && (of_size.is_none() || lower.len() == 1);
        let other = of_beginning().filter(|_| is_time && is_name).map(|(_, unit)| *unit);
        match same.or(other) {
            // The grammar has no "day", and "1days" reads badly.
            Some("days") if number.trim_end() == "1" => {
                let gap = &number[1..];
                format!("did you mean {quote}24{gap}h{quote}?")
            }
            Some(unit) => format!("did you mean {}?", meant(unit)),
            None => {
                let all: Vec<&str> = names.iter().rev().map(|(known, _)| *known).collect();
                format!("the units are {}", all.join(", "))
            }
        }
    }
}

/// Returns the letter of a size's unit such as `k`, `kb`, `ki` or `kib`, in lower case.
fn size_prefix(lower: &str) -> Option<char> {
    let prefix = lower.chars().next().filter(|letter| "kmgt".contains(*letter))?;
    ["", "b", "ib"].contains(&&lower[1..]).then_some(prefix)
}

/// A quantity in the smallest unit of its kind.
struct Total {
    units: u64,
    /// Zero if the quantity is whole in this unit.
    remainder: u64,
}

/// Multiplies a decimal number with `smallest`; `None` if the result is too large.
fn in_smallest_units(whole: &str, fraction: &str, smallest: u64) -> Option<Total> {
    let divisor = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let of_fraction = fraction.parse::<u64>().ok()?.checked_mul(smallest)?;
    let units = whole.parse::<u64>().ok()?.checked_mul(smallest)?.checked_add(of_fraction / divisor)?;
    Some(Total { units, remainder: of_fraction % divisor })
}

/// Describes the allowed quantities, with an example.
impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.unit.kind())?;
        if let Some(range) = &self.range {
            write!(f, " from {} to {}", self.unit.show(*range.start()), self.unit.show(*range.end()))?;
        }
        if self.unit == Unit::Count && self.range.is_some() {
            return Ok(());
        }
        let shown = self.unit.show(self.example).to_string();
        match self.place {
            Place::Option => {
                let plain = if self.unit == Unit::Bytes { format!("{} or ", self.example) } else { String::new() };
                write!(f, ", such as {plain}{}", shown.replace(' ', ""))
            }
            Place::Quoted => write!(f, ", such as \"{shown}\""),
            Place::Key => write!(f, ", such as \"{shown}\" or {}", self.example),
        }
    }
}

impl Unit {
    /// Returns a usual number, for error messages.
    pub(crate) const fn example(self) -> u64 {
        match self {
            Self::Count => 16,
            Self::Bytes => 4 << 20,
            Self::Micros => 1300,
            Self::Millis => 350,
            Self::Seconds => 3600,
            Self::Percent => 15,
        }
    }

    /// Names this kind of number, for error messages.
    const fn kind(self) -> &'static str {
        match self {
            Self::Count => "a whole number",
            Self::Bytes => "a size",
            Self::Micros | Self::Millis | Self::Seconds => "a time",
            Self::Percent => "a percentage",
        }
    }

    const fn of_units(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => " of bytes",
            Self::Micros => " of microseconds",
            Self::Millis => " of milliseconds",
            Self::Seconds => " of seconds",
            Self::Percent => " of percent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(unit: Unit, place: Place, value: Written<'_>) -> Result<u64, String> {
        let allowed = Allowed { unit, range: None, example: 16, place };
        allowed.read("key", "V", value).map_err(|refusal| refusal.to_string())
    }

    /// The table of all quantities; each user of the grammar tests it too.
    #[test]
    fn quantities_are_read_as_the_table_says() {
        let mut count = 0;
        for (unit, text, expected) in rows(include_str!("quantities.tsv")) {
            match (read(unit, Place::Option, Written::Text(text)), expected) {
                (Ok(number), Ok(expected)) => assert_eq!(number, expected, "{text:?}"),
                (Err(line), Err("")) => assert!(!line.contains(';'), "{text:?}: {line}"),
                (Err(line), Err(hint)) => assert!(line.ends_with(&format!("; {hint}")), "{text:?}: {line}"),
                (read, expected) => panic!("{text:?} gave {read:?}, not {expected:?}"),
            }
            count += 1;
        }
        assert!(count > 70, "{count}");
    }

    /// Returns unit, text, and number or hint of each row.
    fn rows(table: &str) -> impl Iterator<Item = (Unit, &str, Result<u64, &str>)> {
        table.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let [kind, text, number, hint]: [&str; 4] = line.splitn(4, '\t').collect::<Vec<_>>().try_into().unwrap();
            let unit = if kind == "time" { Unit::Millis } else { Unit::Bytes };
            (unit, text, number.parse().map_err(|_| hint))
        })
    }

    #[test]
    fn counts_percentages_and_other_units_of_time() {
        for (unit, text, expected) in [
            (Unit::Count, "10_000", Ok(10_000)),
            (Unit::Count, "16 B", Err("a whole number, such as \"16\" or 16; a count has no unit")),
            (Unit::Count, "1.5", Err("a whole number, such as \"16\" or 16; not a whole number")),
            (Unit::Micros, "1.3 ms", Ok(1300)),
            (Unit::Micros, "170 us", Ok(170)),
            (Unit::Seconds, "1 h", Ok(3600)),
            (Unit::Seconds, "20 days", Ok(1_728_000)),
            (Unit::Seconds, "1500 ms", Err("a time, such as \"16 s\" or 16; not a whole number of seconds")),
            (Unit::Percent, "15 %", Ok(15)),
            (Unit::Percent, "15", Err("a percentage, such as \"16 %\" or 16; the unit is missing")),
            (Unit::Percent, "15 s", Err("a percentage, such as \"16 %\" or 16; the units are %")),
            (Unit::Seconds, "1\n H", Err("a time, such as \"16 s\" or 16; did you mean \"1 h\"?")),
            (Unit::Percent, "", Err("a percentage, such as \"16 %\" or 16")),
        ] {
            let expected = expected.map_err(|allowed| format!("key = V: allowed is {allowed}"));
            assert_eq!(read(unit, Place::Key, Written::Text(text)), expected, "{text}");
        }
    }

    #[test]
    fn a_plain_number_is_in_the_unit_of_its_key_and_nowhere_else() {
        assert_eq!(read(Unit::Millis, Place::Key, Written::Number(350)), Ok(350));
        let refused = |place, value| read(Unit::Millis, place, value).unwrap_err();
        assert_eq!(refused(Place::Key, Written::Number(-1)), "key = V: allowed is a time, such as \"16 ms\" or 16");
        assert_eq!(refused(Place::Quoted, Written::Number(350)), "key = V: allowed is a time, such as \"16 ms\"");
        assert_eq!(refused(Place::Option, Written::Other), "key = V: allowed is a time, such as 16ms");
    }

    #[test]
    fn a_refusal_names_key_value_range_example_and_correction() {
        let allowed = Allowed { unit: Unit::Bytes, range: Some(65_536..=1 << 30), example: 8 << 20, place: Place::Key };
        let refused = |text| allowed.read("memtable_bytes", "V", Written::Text(text)).unwrap_err().to_string();
        let of_range = "memtable_bytes = V: allowed is a size from 64 KiB to 1 GiB, such as \"8 MiB\" or 8388608";
        assert_eq!(refused("1 KiB"), of_range);
        assert_eq!(refused("16 mib"), format!("{of_range}; did you mean \"16 MiB\"?"));
    }
}
