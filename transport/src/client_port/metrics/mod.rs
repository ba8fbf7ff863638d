//! The metrics of a server: a registry, and the values at one moment.
//!
//! [`METRICS`] lists each metric once: name, kind, unit, help, and where its value comes from. A
//! format, such as `mntr`, prints what `Readings::samples` returns and names no metric itself. The
//! table of `docs/reference/metrics.md` comes from the same list.

mod registry;

pub use registry::METRICS;

use super::listener::Port;
use super::traffic::TrafficReading;
use super::words::{Average, version};
use std::fmt;
use std::time::Instant;
use zoolet_machine::Status;
use zoolet_machine::budget::{Part, Reading};
use zoolet_machine::server::QuotaRefusals;
use zoolet_machine::status::LearnerStatus;
use zoolet_zab::Kind::Voter;

/// The place of a part's name in the name of a metric that each part has.
pub(super) const PART: &str = "<part>";
/// The place of a namespace in the name of a metric that each namespace has.
pub(super) const NAMESPACE: &str = "<namespace>";

/// A metric: its name and meaning, and the source of its value.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name without a format's prefix. `<part>` stands for the name of each [`Part`], and
    /// `<namespace>` for the first name of a path.
    pub name: &'static str,
    /// How the value changes.
    pub kind: Kind,
    /// The quantity that the value counts.
    pub unit: Unit,
    /// The meaning, for each format: a phrase that stands alone, without links and full stop.
    pub help: &'static str,
    source: Source,
}

impl Metric {
    /// Returns whether the driver measures it, as a line of [`Status::disk`].
    pub const fn is_of_driver(&self) -> bool {
        matches!(self.source, Source::Driver)
    }
}

/// How a value changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number that only grows, since the start of the process or the last `srst`.
    Counter,
    /// A number that may rise and fall.
    Gauge,
    /// A word or a phrase.
    Text,
}

impl Kind {
    /// Returns the name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Text => "text",
        }
    }
}

/// The quantity that a value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Objects or operations, which the help names; or text.
    One,
    /// 0 or 1.
    Flag,
    /// Bytes.
    Bytes,
    /// Bytes in a day.
    BytesPerDay,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Days.
    Days,
    /// Hundredths.
    Percent,
    /// Bytes if the part's name ends in `_bytes`, otherwise objects.
    OfPart,
}

impl Unit {
    /// Returns the symbol of the unit; empty for a plain number or text.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::One => "",
            Self::Flag => "0 or 1",
            Self::Bytes => "bytes",
            Self::BytesPerDay => "bytes/day",
            Self::Ms => "ms",
            Self::Us => "us",
            Self::Days => "days",
            Self::Percent => "%",
            Self::OfPart => "the part's",
        }
    }
}

/// Where the value of a metric comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A number that every server has.
    Always(fn(&Readings<'_>) -> u64),
    /// A value that some servers have, depending on role or system.
    Sometimes(for<'a> fn(&Readings<'a>) -> Option<Value<'a>>),
    /// The line of this name in [`Status::disk`]. The driver leaves out unknown values.
    Driver,
    /// A number for each part of the budget.
    EachPart(fn(&Reading) -> u64),
    /// A number for each namespace that has one.
    EachNamespace(for<'a> fn(&'a Status) -> &'a QuotaRefusals),
}

/// A value at one moment.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Number(u64),
    /// A number that may be -1 for "none yet".
    Signed(i64),
    Mean(Average),
    Word(&'a str),
    Text(String),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Mean(mean) => mean.fmt(f),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A metric with its value.
pub(super) struct Sample<'a> {
    pub(super) metric: &'static Metric,
    /// The part or namespace that the value belongs to, for a metric that each of them has.
    pub(super) label: Option<&'a str>,
    pub(super) value: Value<'a>,
}

/// All figures of a server at one moment, from which the metrics are computed.
pub(super) struct Readings<'a> {
    version: String,
    uptime_ms: u64,
    traffic: TrafficReading,
    status: &'a Status,
    budget: [Reading; Part::ALL.len()],
    /// Open file descriptors and their maximum; `None` where the system does not tell.
    files: Option<(u64, u64)>,
}

impl<'a> Readings<'a> {
    pub(super) fn take(port: &Port, status: &'a Status) -> Self {
        let mut budget = port.budget.snapshot();
        // The engine counts some parts itself. Its answer is newer than its last update of the
        // budget.
        for (part, amount) in &status.held {
            budget[*part as usize].current = *amount;
        }
        Self {
            version: version(&port.settings.about),
            uptime_ms: port.us_since_start(Instant::now()) / 1000,
            traffic: port.traffic.read(),
            status,
            budget,
            files: file_descriptors(),
        }
    }

    /// Returns the metrics that this server has now, in the order of the registry.
    ///
    /// The metrics of namespaces follow the others, and then those of parts, part by part.
    pub(super) fn samples(&self) -> impl Iterator<Item = Sample<'a>> {
        let of_server = METRICS.iter().filter_map(|metric| {
            let value = self.value(metric)?;
            Some(Sample { metric, label: None, value })
        });
        let of_namespaces = METRICS.iter().filter_map(|metric| match metric.source {
            Source::EachNamespace(numbers) => Some((metric, numbers(self.status))),
            Source::Always(_) | Source::Sometimes(_) | Source::Driver | Source::EachPart(_) => None,
        });
        let of_namespaces = of_namespaces.flat_map(|(metric, numbers)| {
            numbers.iter().map(move |(name, number)| Sample {
                metric,
                label: Some(name),
                value: Value::Number(*number),
            })
        });
        let of_parts = self.budget.iter().flat_map(|reading| {
            METRICS.iter().filter_map(|metric| match metric.source {
                Source::EachPart(number) => {
                    let value = Value::Number(number(reading));
                    Some(Sample { metric, label: Some(reading.part.name()), value })
                }
                Source::Always(_) | Source::Sometimes(_) | Source::Driver | Source::EachNamespace(_) => None,
            })
        });
        of_server.chain(of_namespaces).chain(of_parts)
    }

    fn value(&self, metric: &Metric) -> Option<Value<'a>> {
        match metric.source {
            Source::Always(number) => Some(Value::Number(number(self))),
            Source::Sometimes(value) => value(self),
            Source::Driver => {
                let line = self.status.disk.iter().find(|(name, _)| *name == metric.name);
                line.map(|(_, number)| Value::Number(*number))
            }
            Source::EachPart(_) | Source::EachNamespace(_) => None,
        }
    }

    fn current(&self, part: Part) -> u64 {
        self.budget[part as usize].current
    }

    fn leads(&self) -> bool {
        self.status.role == "leader"
    }

    fn is_in_ensemble(&self) -> bool {
        self.status.role != "standalone"
    }

    /// Returns the number of learners that are `counted`; `None` unless the server leads.
    fn learners(&self, counted: impl Fn(&LearnerStatus) -> bool) -> Option<Value<'a>> {
        let count = || self.status.learners.iter().filter(|learner| counted(learner)).count();
        self.leads().then(|| Value::Number(count() as u64))
    }

    fn is_voter(&self, learner: &LearnerStatus) -> bool {
        self.status.members.iter().any(|&(id, kind)| id == learner.id && kind == Voter)
    }

    /// Returns a size of proposals, -1 before the first; `None` unless the server leads.
    fn proposal_size(&self, which: fn([u64; 3]) -> u64) -> Option<Value<'a>> {
        self.leads().then(|| Value::Signed(self.status.proposals.0.map_or(-1, |sizes| which(sizes) as i64)))
    }
}

/// Returns ZooKeeper's `server_state`.
///
/// A follower of a silent leader may still have its role while it serves only readers.
pub(super) fn server_state(status: &Status) -> &'static str {
    if status.read_only_ms.is_some() { "read-only" } else { status.role }
}

/// ZooKeeper counts the root twice (surface 9.3).
pub(super) fn znode_count(status: &Status) -> u64 {
    status.znodes + 1
}

/// Returns the open file descriptors and their maximum; `None` where the system does not tell.
fn file_descriptors() -> Option<(u64, u64)> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    Some((open as u64, line.split_whitespace().next()?.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_metric_has_a_name_of_its_own_and_a_meaning() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            let is_of_parts = matches!(metric.source, Source::EachPart(_));
            assert_eq!(metric.name.contains(PART), is_of_parts, "{}", metric.name);
            let is_of_namespaces = matches!(metric.source, Source::EachNamespace(_));
            assert_eq!(metric.name.contains(NAMESPACE), is_of_namespaces, "{}", metric.name);
            let is_phrase =
                !metric.help.is_empty() && !metric.help.ends_with('.') && !metric.help.contains(['[', '|', '\n']);
            assert!(is_phrase, "{}: {:?}", metric.name, metric.help);
        }
    }
}
