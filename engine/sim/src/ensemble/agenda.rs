//! What is going to happen, in order.

use std::collections::BTreeMap;

/// Whether something is heard or judged. At one moment everything is heard before anything is judged: silence is found out only after whatever was said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// It brings news.
    News,
    /// It is a deadline.
    Deadline,
}

/// What is going to happen, by time in microseconds since the run began; of things at one time, the one that was noted first comes first.
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
    /// The time.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Things that happened.
    pub fn happened(&self) -> u64 {
        self.noted - self.ahead.len() as u64
    }

    /// When the next thing happens.
    pub fn next_us(&self) -> Option<u64> {
        self.ahead.first_key_value().map(|(&(at_us, ..), _)| at_us)
    }

    /// This happens at a time, or now if that has passed.
    pub fn at(&mut self, at_us: u64, rank: Rank, happening: H) {
        self.ahead.insert((at_us.max(self.now_us), rank, self.noted), happening);
        self.noted += 1;
    }

    /// This happens after so many microseconds.
    pub fn after(&mut self, delay_us: u64, happening: H) {
        self.at(self.now_us.saturating_add(delay_us), Rank::News, happening);
    }

    /// The next thing, if it happens no later than `until_us`; otherwise that becomes the time.
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
    fn at_one_time_news_come_before_deadlines_and_in_the_order_they_were_noted() {
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
