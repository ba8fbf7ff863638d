//! Checks that the answers about single keys are linearizable.
//!
//! Versions make the check simple. A set returns the version that it made, a read returns a
//! version, and every set makes the next version. So the order of all operations on a key is given,
//! and only two things can be wrong:
//! - The order of versions contradicts the order of time.
//! - One version has two values.
//!
//! The check is exact, except for writes that were neither answered nor seen. Only their number is
//! known.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Sets this value, which no other operation ever writes.
    Set(u64),
    /// Reads the newest value that the ensemble has.
    Read,
}

/// A successful answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Time of the answer.
    pub at: Duration,
    /// Version made or read.
    pub version: i32,
    /// Value read or set.
    pub value: u64,
}

/// An operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Index of the key.
    pub key: usize,
    /// The request.
    pub act: Act,
    /// Time at which it was sent, on the clock that all clients share.
    pub sent: Duration,
    /// Number of the client.
    pub client: usize,
    /// Id of the server.
    pub server: u8,
    /// `None` without a successful answer.
    pub answer: Option<Answer>,
}

/// Final state of a key, as read from a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Last {
    /// Final version.
    pub version: i32,
    /// Final value.
    pub value: u64,
}

/// A violation of linearizability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks every key.
///
/// `first` is the value of every key at version 0, and `last` holds the final state of each key.
///
/// # Errors
/// The first violation.
pub fn check(operations: &[Operation], first: u64, last: &[Last]) -> Result<(), Violation> {
    let mut by_key: Vec<Vec<&Operation>> = vec![Vec::new(); last.len()];
    for operation in operations {
        by_key[operation.key].push(operation);
    }
    for (key, (of_key, last)) in by_key.iter().zip(last).enumerate() {
        check_key(of_key, first, *last).map_err(|Violation(what)| Violation(format!("key {key}: {what}")))?;
    }
    Ok(())
}

fn check_key(operations: &[&Operation], first: u64, last: Last) -> Result<(), Violation> {
    let values = values(operations, first, last)?;
    check_values(operations, first, last, &values)?;
    check_time(operations, &values)
}

/// Returns the value of each version that an operation or the final state shows.
fn values(operations: &[&Operation], first: u64, last: Last) -> Result<BTreeMap<i32, u64>, Violation> {
    let mut values = BTreeMap::from([(0, first)]);
    let answers = operations.iter().filter_map(|operation| operation.answer);
    for (version, value) in answers.map(|answer| (answer.version, answer.value)).chain([(last.version, last.value)]) {
        let known = *values.entry(version).or_insert(value);
        if known != value {
            let line = format!("version {version} is {known:#x} and {value:#x} (in the end {last:?})");
            return Err(Violation(format!("{line}{}", witnesses(operations, &[known, value]))));
        }
    }
    Ok(values)
}

/// Formats every operation that wrote or read one of these values, one per line.
fn witnesses(operations: &[&Operation], values: &[u64]) -> String {
    let concerns = |operation: &Operation| match (operation.act, operation.answer) {
        (Act::Set(value), _) => values.contains(&value),
        (Act::Read, answer) => answer.is_some_and(|answer| values.contains(&answer.value)),
    };
    operations.iter().filter(|operation| concerns(operation)).map(|operation| format!("\n    {operation:?}")).collect()
}

/// Checks that exactly one operation set each version, and that no version is beyond the last.
fn check_values(
    operations: &[&Operation],
    first: u64,
    last: Last,
    values: &BTreeMap<i32, u64>,
) -> Result<(), Violation> {
    let mut unanswered: Vec<u64> = Vec::new();
    let mut made = BTreeMap::new();
    for operation in operations {
        match (operation.act, operation.answer) {
            (Act::Set(value), None) => unanswered.push(value),
            (Act::Set(value), Some(answer)) => {
                if let Some(other) = made.insert(answer.version, value) {
                    let version = answer.version;
                    return Err(Violation(format!(
                        "version {version} is acknowledged to {other:#x} and to {value:#x}"
                    )));
                }
            }
            (Act::Read, _) => {}
        }
    }
    if let Some((version, value)) = values.range(last.version.saturating_add(1)..).next() {
        return Err(Violation(format!("version {version} was {value:#x} and is gone: the last is {}", last.version)));
    }
    let mut seen = BTreeMap::new();
    for (&version, &value) in values {
        if let Some(other) = seen.insert(value, version) {
            return Err(Violation(format!("{value:#x} is version {other} and version {version}")));
        }
        if version != 0 && !made.contains_key(&version) && !unanswered.contains(&value) {
            return Err(Violation(format!("version {version} is {value:#x}, which nobody sent and waits for")));
        }
        if version == 0 && value != first {
            return Err(Violation(format!("version 0 is {value:#x}")));
        }
    }
    let unseen = unanswered.iter().filter(|value| !seen.contains_key(value)).count() as i64;
    let missing = i64::from(last.version) + 1 - values.len() as i64;
    if missing > unseen {
        return Err(Violation(format!("{missing} versions were made by nobody: {unseen} writes are unaccounted for")));
    }
    Ok(())
}

/// Place of an operation in the key's order, and the time in which it took effect.
struct Placed {
    sent: Duration,
    /// `None` if it may take effect at any later time.
    answered: Option<Duration>,
    version: i32,
    is_set: bool,
}

/// Checks that the order of versions agrees with the order of time.
fn check_time(operations: &[&Operation], values: &BTreeMap<i32, u64>) -> Result<(), Violation> {
    let version_of: BTreeMap<u64, i32> = values.iter().map(|(&version, &value)| (value, version)).collect();
    let placed = |operation: &&Operation| {
        let (is_set, version) = match (operation.act, operation.answer) {
            (Act::Set(value), None) => (true, *version_of.get(&value)?),
            (Act::Set(_), Some(answer)) => (true, answer.version),
            (Act::Read, answer) => (false, answer?.version),
        };
        Some(Placed { sent: operation.sent, answered: operation.answer.map(|answer| answer.at), version, is_set })
    };
    let mut by_sent: Vec<Placed> = operations.iter().filter_map(placed).collect();
    by_sent.sort_by_key(|placed| placed.sent);
    let mut by_answered: Vec<&Placed> = by_sent.iter().filter(|placed| placed.answered.is_some()).collect();
    by_answered.sort_by_key(|placed| placed.answered);
    // The newest version of the operations that were answered before this one was sent.
    let (mut over, mut newest) = (0, i32::MIN);
    for placed in &by_sent {
        while let Some(before) = by_answered.get(over).filter(|before| before.answered < Some(placed.sent)) {
            newest = newest.max(before.version);
            over += 1;
        }
        if placed.version < newest || (placed.is_set && placed.version == newest) {
            let what = if placed.is_set { "a set makes" } else { "a read shows" };
            let (version, at) = (placed.version, placed.sent);
            return Err(Violation(format!(
                "{what} version {version}, sent at {at:?}, when {newest} had been answered"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(act: Act, sent: u64, answer: Option<(u64, i32, u64)>) -> Operation {
        let answer = answer.map(|(at, version, value)| Answer { at: Duration::from_millis(at), version, value });
        Operation { key: 0, act, sent: Duration::from_millis(sent), client: 0, server: 1, answer }
    }

    fn set(value: u64, sent: u64, answered: u64, version: i32) -> Operation {
        operation(Act::Set(value), sent, Some((answered, version, value)))
    }

    fn unanswered(value: u64, sent: u64) -> Operation {
        operation(Act::Set(value), sent, None)
    }

    fn read(sent: u64, answered: u64, version: i32, value: u64) -> Operation {
        operation(Act::Read, sent, Some((answered, version, value)))
    }

    fn wrong(operations: &[Operation], last: (i32, u64)) -> String {
        let last = Last { version: last.0, value: last.1 };
        check(operations, 0, &[last]).map_or_else(|violation| violation.0, |()| String::new())
    }

    #[test]
    fn linearizable_history_passes() {
        let overlapping =
            [set(1, 0, 100, 2), set(2, 50, 60, 1), read(40, 55, 0, 0), read(55, 65, 2, 1), read(70, 80, 2, 1)];
        assert_eq!(wrong(&overlapping, (2, 1)), "");
        assert_eq!(wrong(&[unanswered(1, 0), read(10, 20, 0, 0), read(30, 40, 1, 1)], (1, 1)), "", "late");
        assert_eq!(wrong(&[unanswered(1, 0), read(10, 20, 0, 0)], (0, 0)), "", "never");
        assert_eq!(wrong(&[unanswered(1, 0), set(2, 10, 20, 2)], (2, 2)), "", "unseen, under another");
    }

    #[test]
    fn lost_write_is_detected() {
        assert!(wrong(&[set(1, 0, 10, 1)], (0, 0)).contains("is gone"));
        assert!(wrong(&[set(1, 0, 10, 1), set(2, 20, 30, 1)], (1, 2)).contains("version 1 is 0x1 and 0x2"));
        assert!(wrong(&[read(0, 10, 1, 9)], (1, 9)).contains("nobody sent"));
        assert!(wrong(&[set(1, 0, 10, 2)], (2, 1)).contains("1 versions were made by nobody"));
        assert!(
            wrong(&[set(1, 0, 10, 1), set(2, 20, 30, 2), read(40, 50, 3, 1)], (3, 1))
                .contains("version 1 and version 3")
        );
    }

    #[test]
    fn order_against_real_time_is_detected() {
        assert!(wrong(&[set(1, 0, 10, 1), read(20, 30, 0, 0)], (1, 1)).contains("a read shows version 0"));
        assert!(wrong(&[set(1, 0, 10, 2), set(2, 20, 30, 1)], (2, 1)).contains("a set makes version 1"));
        assert!(
            wrong(&[unanswered(1, 0), read(5, 10, 1, 1), read(20, 30, 0, 0)], (1, 1))
                .contains("a read shows version 0")
        );
        // A value that is read before it is sent.
        assert!(wrong(&[read(0, 10, 1, 1), unanswered(1, 20)], (1, 1)).contains("a set makes version 1"));
    }
}
