//! Progress on stderr, a line per second.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Prints only on request or to a terminal.
pub(super) struct Progress {
    wanted: bool,
    said: Instant,
    what: &'static str,
    done: u64,
    total: u64,
}

impl Progress {
    pub(super) fn new(asked_for: bool) -> Self {
        let wanted = asked_for || std::io::stderr().is_terminal();
        Self { wanted, said: Instant::now(), what: "", done: 0, total: 0 }
    }

    /// Begins a phase that creates, sets or deletes `total` znodes.
    pub(super) fn begin(&mut self, what: &'static str, total: u64) {
        (self.what, self.done, self.total) = (what, 0, total);
    }

    pub(super) fn done(&mut self, more: usize) {
        self.done += more as u64;
        if self.wanted && self.said.elapsed() >= Duration::from_secs(1) {
            self.said = Instant::now();
            self.say(&format!("{} {} of {} znodes", self.what, self.done, self.total));
        }
    }

    /// Prints a line.
    pub(super) fn say(&self, line: &str) {
        if self.wanted {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}
