//! Formats the measurements as text for people and as JSON for programs.

use super::histogram::Histogram;
use super::measured::Measured;
use super::options::{Op, Options, Until};
use std::fmt::Write;
use std::time::Duration;
use zoolet_transport::json::Object;

/// Version of the JSON object, raised when a field is removed or changes its meaning.
///
/// A new field does not raise it.
const VERSION: u32 = 1;

pub(super) struct Report<'a> {
    pub(super) options: &'a Options,
    pub(super) measured: &'a Measured,
    /// From the end of the warm-up to the end of the run, in nanoseconds.
    pub(super) measured_ns: u64,
    pub(super) prepared: Duration,
    /// CPU time of this process during the measurement.
    pub(super) cpu: Duration,
    pub(super) interrupted: bool,
    pub(super) failure: Option<&'a str>,
}

impl Report<'_> {
    fn per_second(&self) -> f64 {
        self.measured.acknowledged() as f64 * 1e9 / self.measured_ns.max(1) as f64
    }

    fn cpu_us_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.measured.requests.max(1) as f64
    }

    fn latency(&self) -> Histogram {
        let mut all = self.measured.reads.clone();
        all.add(&self.measured.writes);
        all
    }

    /// Returns the name of a request's measured part; `None` if the operation has no parts.
    fn parts(&self) -> Option<&'static str> {
        match self.options.op {
            Op::Lock => Some("acquire"),
            Op::Watch => Some("event"),
            Op::Set | Op::Get | Op::Exists | Op::Children | Op::Mix | Op::Create | Op::CreateDelete => None,
        }
    }

    pub(super) fn text(&self) -> String {
        let (options, measured) = (self.options, self.measured);
        let mut text = format!("{}\n", title(options));
        let seconds = self.measured_ns as f64 / 1e9;
        let _ = writeln!(
            text,
            "{:.0}/s: {} acknowledged in {seconds:.2} s, {} errors",
            self.per_second(),
            measured.acknowledged(),
            measured.errors_of_all_kinds()
        );
        for (name, count) in measured.error_counts() {
            let _ = writeln!(text, "error    {name} {count}");
        }
        if measured.unsent > 0 {
            let _ = writeln!(text, "unsent   {} requests were due but not sent", measured.unsent);
        }
        text += &latency_line("latency", &self.latency());
        if options.op == Op::Mix {
            text += &latency_line("reads", &measured.reads);
            text += &latency_line("writes", &measured.writes);
        }
        if let Some(part) = self.parts() {
            text += &latency_line(part, &measured.parts);
        }
        if measured.writes.count() > 0 {
            let _ = writeln!(text, "longest gap between acknowledged writes {}", time(measured.longest_write_gap));
        }
        if measured.reconnects > 0 {
            let _ = writeln!(text, "reconnects {}, with a new session {}", measured.reconnects, measured.sessions_lost);
        }
        let _ = writeln!(
            text,
            "this generator used {:.2} s of CPU, {:.2} us a request",
            self.cpu.as_secs_f64(),
            self.cpu_us_per_request()
        );
        if self.interrupted {
            text += "interrupted\n";
        }
        text
    }

    pub(super) fn json(&self) -> String {
        let (options, measured) = (self.options, self.measured);
        let (duration, requests) = match options.until {
            Until::Elapsed(time) => (Some(time.as_secs_f64()), None),
            Until::Requests(count) => (None, Some(count)),
        };
        let asked = Object::new()
            .text("servers", &options.servers.join(","))
            .text("op", options.op.name())
            .raw("connections", options.connections)
            .raw("outstanding", options.outstanding)
            .raw("size", options.size)
            .raw("keys", options.keys)
            .raw("read_percent", options.read_percent)
            .text("distribution", options.distribution.name())
            .optional("duration_s", duration)
            .optional("requests", requests)
            .raw("warmup_s", options.warmup.as_secs_f64())
            .optional("rate", options.rate)
            .raw("ephemeral", options.ephemeral)
            .raw("sequential", options.sequential)
            .raw("locks", options.locks)
            .text("path", &options.path)
            .raw("seed", options.seed);
        let errors =
            measured.error_counts().into_iter().fold(Object::new(), |all, (name, count)| all.raw(&name, count));
        let mut object = Object::new()
            .raw("version", VERSION)
            .raw("options", asked.end())
            .raw("seconds", format_args!("{:.3}", self.measured_ns as f64 / 1e9))
            .raw("requests", measured.requests)
            .raw("acknowledged", measured.acknowledged())
            .raw("errors", measured.errors_of_all_kinds())
            .raw("errors_by_name", errors.end())
            .raw("unsent", measured.unsent)
            .raw("per_second", format_args!("{:.1}", self.per_second()))
            .raw("latency_us", latency(&self.latency()))
            .raw("read_latency_us", latency(&measured.reads))
            .raw("write_latency_us", latency(&measured.writes));
        if let Some(part) = self.parts() {
            object = object.raw(&format!("{part}_latency_us"), latency(&measured.parts));
        }
        let line = object
            .raw("longest_write_gap_us", microseconds(measured.longest_write_gap))
            .raw("reconnects", measured.reconnects)
            .raw("sessions_lost", measured.sessions_lost)
            .raw("prepare_s", format_args!("{:.3}", self.prepared.as_secs_f64()))
            .raw("generator_cpu_s", format_args!("{:.3}", self.cpu.as_secs_f64()))
            .raw("generator_cpu_us_per_request", format_args!("{:.3}", self.cpu_us_per_request()))
            .raw("interrupted", self.interrupted);
        let line = match self.failure {
            Some(failure) => line.text("failure", failure),
            None => line.raw("failure", "null"),
        };
        line.end() + "\n"
    }
}

fn title(options: &Options) -> String {
    let Options { op, connections, outstanding, size, keys, .. } = options;
    let mut title = format!("{} at {}: ", op.name(), options.servers.join(","));
    let _ = match op {
        Op::Watch => write!(title, "{connections} watchers of one znode, {size} bytes"),
        Op::Lock => write!(title, "{connections} contenders for {} locks", options.locks),
        Op::Create | Op::CreateDelete => write!(title, "{connections} connections x {outstanding}, {size} bytes"),
        Op::Set | Op::Get | Op::Exists | Op::Children | Op::Mix => {
            let keys = format!("{keys} keys, {}", options.distribution.name());
            write!(title, "{connections} connections x {outstanding}, {size} bytes, {keys}")
        }
    };
    if *op == Op::Mix {
        let _ = write!(title, ", {}% reads", options.read_percent);
    }
    for (is_so, name) in [(options.ephemeral, "ephemeral"), (options.sequential, "sequential")] {
        if is_so {
            let _ = write!(title, ", {name}");
        }
    }
    if let Some(rate) = options.rate {
        let _ = write!(title, ", {rate}/s requested");
    }
    title
}

fn latency_line(name: &str, histogram: &Histogram) -> String {
    let [p50, p90, p99, p999] = [500, 900, 990, 999].map(|rank| time(histogram.per_mille(rank)));
    let (mean, max) = (time(histogram.mean()), time(histogram.max()));
    format!("{name:8} p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p999}  max {max}  mean {mean}\n")
}

fn latency(histogram: &Histogram) -> String {
    Object::new()
        .raw("count", histogram.count())
        .raw("min", microseconds(histogram.min()))
        .raw("mean", microseconds(histogram.mean()))
        .raw("p50", microseconds(histogram.per_mille(500)))
        .raw("p90", microseconds(histogram.per_mille(900)))
        .raw("p99", microseconds(histogram.per_mille(990)))
        .raw("p999", microseconds(histogram.per_mille(999)))
        .raw("max", microseconds(histogram.max()))
        .end()
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{:.1}", nanoseconds as f64 / 1e3)
}

fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000_000 => format!("{:.1} us", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.2} s", nanoseconds as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_fitting_unit() {
        let shown = [0, 999, 12_340, 1_500_000, 2_000_000_000].map(time);
        assert_eq!(shown, ["0.0 us", "1.0 us", "12.3 us", "1.50 ms", "2.00 s"]);
    }
}
