//! The four-letter word `mntr` (surface 9.3): the metrics, a line each.

use super::listener::Port;
use super::metrics::{NAMESPACE, PART, Readings, Sample};
use std::fmt::{self, Write as _};
use zoolet_machine::Status;

/// Writes the answer to `mntr`.
pub(super) fn mntr(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    Readings::take(port, status).samples().try_for_each(|Sample { metric, label, value }| {
        // As ZooKeeper does with a label, `mntr` puts the part's name into the name of the metric.
        let place = metric.name.split_once(PART).or_else(|| metric.name.split_once(NAMESPACE));
        let (before, after) = place.unwrap_or((metric.name, ""));
        writeln!(out, "zk_{before}{}{after}\t{value}", label.unwrap_or_default())
    })
}
