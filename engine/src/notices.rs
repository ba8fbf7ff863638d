//! What an operator was told lately, so that what lasts is said once a minute and a flood fills no disk. Reads no clock and writes nothing: whoever asks
//! says what time it is, and writes the line or does not.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

/// The same matter is said again after this, milliseconds.
pub const AGAIN_MS: u64 = 60_000;
/// Different matters in that time. Of more only their lines are counted.
const MATTERS_MAX: usize = 64;

/// The lines of one writer.
#[derive(Debug, Default)]
pub struct Notices {
    matters: BTreeMap<u64, Said>,
    /// Lines about matters that are not among those.
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

impl Notices {
    /// Whether a line about this `matter` may be written now, and how many were left out since the last one: of the same matter, and of those for which
    /// there was no room at all. A matter is a cause and whom it is about, without figures that change.
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
    fn a_lasting_matter_is_said_once_a_minute_with_how_often_it_was_not() {
        let mut notices = Notices::default();
        // Four times a second for ten minutes, as a log that cannot write.
        let times = (0..10 * AGAIN_MS).step_by(250);
        let said: Vec<u64> = times.filter_map(|now_ms| notices.admit("stalled", now_ms)).collect();
        assert_eq!(said, [0, 239, 239, 239, 239, 239, 239, 239, 239, 239]);
        // Over for an hour: what was left out is told with the next line.
        assert_eq!(notices.admit("stalled", 70 * AGAIN_MS), Some(239));
    }

    #[test]
    fn matters_do_not_silence_each_other() {
        let mut notices = Notices::default();
        assert_eq!(notices.admit((1, "refused"), 0), Some(0));
        assert_eq!(notices.admit((2, "refused"), 0), Some(0));
        assert_eq!(notices.admit((1, "gone"), 0), Some(0));
        assert_eq!(notices.admit((1, "refused"), 1), None);
    }

    #[test]
    fn a_flood_of_matters_is_counted() {
        let mut notices = Notices::default();
        let written = (0..1000).filter(|matter| notices.admit(matter, 5).is_some()).count();
        assert_eq!(written, MATTERS_MAX);
        assert_eq!(notices.admit(1000, 5 + AGAIN_MS), Some(1000 - MATTERS_MAX as u64));
    }

    #[test]
    fn a_clock_that_goes_back_silences_for_no_longer_than_it_went() {
        let mut notices = Notices::default();
        assert_eq!(notices.admit("it", 10 * AGAIN_MS), Some(0));
        assert_eq!(notices.admit("it", 0), None);
        assert_eq!(notices.admit("it", 11 * AGAIN_MS), Some(1));
    }
}
