//! Lines for the operator, bounded: what lasts is said once in a while, and a flood of strangers fills no disk.

use super::lock;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The same matter is said again after this.
const AGAIN: Duration = Duration::from_secs(60);
/// Different matters in that time. More are counted, not said.
const MATTERS_MAX: usize = 64;

/// Writes the lines.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    matters: HashMap<u64, Instant>,
    left_out: u64,
}

impl Notices {
    /// Writes a line, unless one about the same `matter` was written lately.
    pub(super) fn warn(&self, matter: impl Hash, line: &str) {
        let mut hasher = DefaultHasher::new();
        matter.hash(&mut hasher);
        let Some(left_out) = lock(&self.0).admit(hasher.finish(), Instant::now()) else { return };
        if left_out > 0 {
            tracing::warn!(left_out, "lines about other servers and who knocks were left out");
        }
        tracing::warn!("{line}");
    }
}

impl Said {
    /// Whether a line may be written, and how many were left out before it.
    fn admit(&mut self, matter: u64, now: Instant) -> Option<u64> {
        self.matters.retain(|_, said| now.duration_since(*said) < AGAIN);
        if self.matters.contains_key(&matter) {
            return None;
        }
        if self.matters.len() >= MATTERS_MAX {
            self.left_out += 1;
            return None;
        }
        self.matters.insert(matter, now);
        Some(mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_matter_is_said_once_a_minute_and_a_flood_is_counted() {
        let start = Instant::now();
        let mut said = Said::default();
        assert_eq!(said.admit(7, start), Some(0));
        assert_eq!(said.admit(7, start + AGAIN / 2), None);
        assert_eq!(said.admit(7, start + AGAIN), Some(0));
        let written = (100..1100).filter(|&matter| said.admit(matter, start + AGAIN).is_some()).count();
        assert_eq!(written, MATTERS_MAX - 1);
        assert_eq!(said.admit(8, start + 2 * AGAIN), Some(1000 - written as u64));
    }
}
