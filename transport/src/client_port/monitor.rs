//! The four-letter word `mntr` (surface 9.3): the metrics, a line each.

use super::listener::Port;
use super::metrics::{PART, Readings, Sample};
use std::fmt::{self, Write as _};
use zoolet_machine::Status;

/// Writes the answer to `mntr`.
pub(super) fn mntr(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    Readings::take(port, status).samples().try_for_each(|Sample { metric, part, value }| {
        // As ZooKeeper does with a label, `mntr` puts the part's name into the name of the metric.
        let (before, after) = metric.name.split_once(PART).unwrap_or((metric.name, ""));
        let part = part.map_or("", |part| part.name());
        writeln!(out, "zk_{before}{part}{after}\t{value}")
    })
}
