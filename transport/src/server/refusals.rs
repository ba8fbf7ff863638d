//! One log line for each refusal, and a bound on lines: a flood of bad clients must not fill a disk.

use super::lock;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines in one window.
const LINES_MAX: u32 = 20;
/// The window.
const WINDOW: Duration = Duration::from_secs(10);

/// Writes the lines.
#[derive(Debug)]
pub(super) struct Refusals(Mutex<Window>);

#[derive(Debug)]
struct Window {
    began: Instant,
    lines: u32,
    left_out: u64,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Window { began: now, lines: 0, left_out: 0 }))
    }

    /// Says who was refused and why, unless too many lines were written lately.
    pub(super) fn log(&self, peer: IpAddr, reason: impl fmt::Display) {
        if self.admit() {
            tracing::warn!(client = %peer, "closed: {reason}");
        }
    }

    /// Says that nobody could be accepted.
    pub(super) fn log_accept(&self, error: &io::Error) {
        if self.admit() {
            tracing::warn!("cannot accept connections: {error}");
        }
    }

    fn admit(&self) -> bool {
        let admitted = lock(&self.0).admit(Instant::now());
        if let Some(left_out @ 1..) = admitted {
            tracing::warn!(left_out, "closed connections were not logged one by one");
        }
        admitted.is_some()
    }
}

impl Window {
    /// Whether a line may be written, and how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.began) >= WINDOW {
            self.began = now;
            self.lines = 0;
        }
        if self.lines >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_counted_not_written() {
        let start = Instant::now();
        let mut window = Window { began: start, lines: 0, left_out: 0 };
        let written = (0..1000).filter(|_| window.admit(start).is_some()).count();
        assert_eq!(written, LINES_MAX as usize);
        assert_eq!(window.admit(start + WINDOW), Some(1000 - u64::from(LINES_MAX)));
        assert_eq!(window.admit(start + WINDOW), Some(0));
    }
}
