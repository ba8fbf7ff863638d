//! The log lines of all servers in one test process.

use super::PATIENCE;
use std::fmt::{Debug, Write as _};
use std::sync::{Condvar, Mutex, Once};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static CAME: Condvar = Condvar::new();

/// Begins to collect lines. Earlier lines are lost.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Collector).unwrap());
}

/// Returns the lines so far that contain all parts.
pub(crate) fn with(parts: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
}

/// Waits for a line that contains all parts, and returns it.
#[track_caller]
pub(crate) fn wait(parts: &[&str]) -> String {
    let until = Instant::now() + PATIENCE;
    let mut lines = LINES.lock().unwrap();
    loop {
        if let Some(line) = lines.iter().find(|line| parts.iter().all(|part| line.contains(part))) {
            return line.clone();
        }
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "waited for a line with {parts:?}; there are {lines:#?}");
        lines = CAME.wait_timeout(lines, left).unwrap().0;
    }
}

struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("zoolet")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
        CAME.notify_all();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        write!(self.0, "{value:?} ").unwrap();
    }
}
