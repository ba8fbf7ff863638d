//! Future events in the order of their times.

use std::collections::BTreeMap;

/// Whether an event brings news or is a deadline.
///
/// At one instant all news is heard before a deadline is judged. So a timeout never overlooks a
/// message that arrived in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// It brings news.
    News,
    /// It is a deadline.
    Deadline,
}

/// Future events, by time in microseconds since the run began.
///
/// Events of equal time and rank happen in the order in which they were scheduled.
#[derive(Debug)]
pub struct Agenda<H> {
    now_us: u64,
    noted: u64,
    ahead: BTreeMap<(u64, Rank, u64), H>,
}

impl<H> Default for Agenda<H> {
    fn default() -> Self {
        Self { now_us: 0, noted: 0, ahead: BTreeMap::new() }
    }
}

impl<H> Agenda<H> {
    /// Returns the present time.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Returns the number of events that happened.
    pub fn happened(&self) -> u64 {
        self.noted - self.ahead.len() as u64
    }

    /// Returns the time of the next event.
    pub fn next_us(&self) -> Option<u64> {
        self.ahead.first_key_value().map(|(&(at_us, ..), _)| at_us)
    }

    /// Schedules an event at `at_us`, or now if that has passed.
    pub fn at(&mut self, at_us: u64, rank: Rank, happening: H) {
        self.ahead.insert((at_us.max(self.now_us), rank, self.noted), happening);
        self.noted += 1;
    }

    /// Schedules an event after `delay_us` microseconds, as news.
    pub fn after(&mut self, delay_us: u64, happening: H) {
        self.at(self.now_us.saturating_add(delay_us), Rank::News, happening);
    }

    /// Takes the next event, if it is due by `until_us`; otherwise the time becomes `until_us`.
    pub fn next(&mut self, until_us: u64) -> Option<H> {
        match self.ahead.first_entry() {
            Some(entry) if entry.key().0 <= until_us => {
                self.now_us = entry.key().0;
                Some(entry.remove())
            }
            _ => {
                self.now_us = self.now_us.max(until_us);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simultaneous_news_precede_deadlines_in_insertion_order() {
        let mut agenda = Agenda::default();
        agenda.at(5, Rank::Deadline, "judged");
        agenda.at(5, Rank::News, "first");
        agenda.at(5, Rank::News, "second");
        agenda.at(9, Rank::News, "late");
        agenda.after(4, "before");
        let seen: Vec<_> = std::iter::from_fn(|| agenda.next(8)).collect();
        assert_eq!(seen, ["before", "first", "second", "judged"]);
        assert_eq!((agenda.now_us(), agenda.happened(), agenda.next_us()), (8, 4, Some(9)));
        agenda.at(2, Rank::News, "never in the past");
        assert_eq!((agenda.next(8), agenda.now_us()), (Some("never in the past"), 8));
    }
}
