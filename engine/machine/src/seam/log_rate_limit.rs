//! Rate limit for log lines: one line a minute about each matter.
//!
//! It keeps a flood from filling the disk. This module reads no clock and writes nothing. The
//! caller passes the time, and writes the line when it is admitted.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

/// Minimum interval between two lines about one matter, milliseconds.
pub const AGAIN_MS: u64 = 60_000;
/// Matters tracked at once. Lines about further matters are only counted.
const MATTERS_MAX: usize = 64;

/// The rate limit of one writer.
#[derive(Debug, Default)]
pub struct LogRateLimit {
    matters: BTreeMap<u64, Said>,
    /// Suppressed lines about untracked matters.
    left_out: u64,
}

#[derive(Debug)]
struct Said {
    at_ms: u64,
    left_out: u64,
}

impl Said {
    fn is_recent(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) < AGAIN_MS
    }
}

impl LogRateLimit {
    /// Returns the number of lines suppressed before this one, or `None` to suppress it.
    ///
    /// The number covers this `matter` and the untracked matters since the last admitted line. A
    /// matter is a cause and its object. It contains no figure that changes, except a rounded
    /// logarithm: then a line whose figure has become much larger is admitted.
    pub fn admit(&mut self, matter: impl Hash, now_ms: u64) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        matter.hash(&mut hasher);
        let matter = hasher.finish();
        if let Some(said) = self.matters.get_mut(&matter) {
            if said.is_recent(now_ms) {
                said.left_out += 1;
                return None;
            }
            said.at_ms = now_ms;
            return Some(mem::take(&mut said.left_out) + mem::take(&mut self.left_out));
        }
        if self.matters.len() >= MATTERS_MAX {
            let Self { matters, left_out } = self;
            matters.retain(|_, said| {
                let is_recent = said.is_recent(now_ms);
                *left_out += if is_recent { 0 } else { said.left_out };
                is_recent
            });
        }
        if self.matters.len() >= MATTERS_MAX {
            self.left_out += 1;
            return None;
        }
        self.matters.insert(matter, Said { at_ms: now_ms, left_out: 0 });
        Some(mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_notice_is_logged_once_a_minute_with_the_suppressed_count() {
        let mut log_limit = LogRateLimit::default();
        // A log that cannot write reports four times a second, for ten minutes.
        let times = (0..10 * AGAIN_MS).step_by(250);
        let said: Vec<u64> = times.filter_map(|now_ms| log_limit.admit("stalled", now_ms)).collect();
        assert_eq!(said, [0, 239, 239, 239, 239, 239, 239, 239, 239, 239]);
        // The cause is gone for an hour; the next line reports the suppressed ones.
        assert_eq!(log_limit.admit("stalled", 70 * AGAIN_MS), Some(239));
    }

    #[test]
    fn notices_on_different_matters_are_limited_separately() {
        let mut log_limit = LogRateLimit::default();
        assert_eq!(log_limit.admit((1, "refused"), 0), Some(0));
        assert_eq!(log_limit.admit((2, "refused"), 0), Some(0));
        assert_eq!(log_limit.admit((1, "gone"), 0), Some(0));
        assert_eq!(log_limit.admit((1, "refused"), 1), None);
    }

    #[test]
    fn flood_of_different_notices_is_bounded_and_counted() {
        let mut log_limit = LogRateLimit::default();
        let written = (0..1000).filter(|matter| log_limit.admit(matter, 5).is_some()).count();
        assert_eq!(written, MATTERS_MAX);
        assert_eq!(log_limit.admit(1000, 5 + AGAIN_MS), Some(1000 - MATTERS_MAX as u64));
    }

    #[test]
    fn clock_going_back_suppresses_notices_no_longer_than_its_step() {
        let mut log_limit = LogRateLimit::default();
        assert_eq!(log_limit.admit("it", 10 * AGAIN_MS), Some(0));
        assert_eq!(log_limit.admit("it", 0), None);
        assert_eq!(log_limit.admit("it", 11 * AGAIN_MS), Some(1));
    }
}
