//! Events that a core takes in one turn, and the length of a turn.

use crate::workload::Random;

/// Bounds of a turn in the binary: `TURN_EVENTS` and `TURN` of src/runtime/core.rs.
const TURN_EVENTS: u64 = 256;
const TURN_US: u64 = 2000;

/// The pace of a core.
///
/// Events that arrive during a turn wait. The next turn takes them together, from all links and
/// threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// One turn in this many takes time.
    lasts_one_in: u64,
    turn_us_max: u64,
}

impl Pace {
    /// Draws the pace of one process: some are always busy, some hardly ever.
    pub(super) fn drawn(random: &mut Random) -> Self {
        Self { lasts_one_in: random.logarithmic(1, 32), turn_us_max: random.logarithmic(1, TURN_US) }
    }

    /// Draws the maximum number of events of the next turn.
    pub(super) fn events(self, random: &mut Random) -> usize {
        random.logarithmic(1, TURN_EVENTS).min(TURN_EVENTS) as usize
    }

    /// Draws the duration of the turn that has just begun, in microseconds.
    pub(super) fn busy_us(self, random: &mut Random) -> u64 {
        if random.one_in(self.lasts_one_in) { random.logarithmic(1, self.turn_us_max) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_take_up_to_256_events_within_the_binarys_turn_limit() {
        let mut random = Random::new(1);
        let paces: Vec<_> = (0..100).map(|_| Pace::drawn(&mut random)).collect();
        let turn = |at: usize| (paces[at % 100].events(&mut random), paces[at % 100].busy_us(&mut random));
        let turns: Vec<_> = (0..10_000).map(turn).collect();
        assert_eq!(turns.iter().map(|(events, _)| *events).min(), Some(1));
        assert_eq!(turns.iter().map(|(events, _)| *events).max(), Some(256));
        assert!(turns.iter().any(|(_, us)| *us == 0) && turns.iter().any(|(_, us)| *us > 1000));
        assert!(turns.iter().all(|(_, us)| *us <= TURN_US));
    }
}
