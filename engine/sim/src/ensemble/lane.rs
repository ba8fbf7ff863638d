//! Something that arrives in order, over a path where each piece takes its own time and cuts hold pieces back.

use std::collections::BTreeMap;

/// One direction of a stream: the sender's numbers, what waits for a cut to heal, and what arrived before something earlier.
#[derive(Debug)]
pub(super) struct Lane<T> {
    sent: u64,
    parked: BTreeMap<u64, T>,
    next: u64,
    ahead: BTreeMap<u64, T>,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { sent: 0, parked: BTreeMap::new(), next: 0, ahead: BTreeMap::new() }
    }
}

impl<T> Lane<T> {
    /// The number of the next thing that is sent.
    pub(super) fn number(&mut self) -> u64 {
        self.sent += 1;
        self.sent - 1
    }

    /// This did not get through; it is sent again when it can be.
    pub(super) fn park(&mut self, number: u64, what: T) {
        self.parked.insert(number, what);
    }

    /// What is to be sent again now.
    pub(super) fn take_parked(&mut self) -> BTreeMap<u64, T> {
        std::mem::take(&mut self.parked)
    }

    /// This got through.
    pub(super) fn arrive(&mut self, number: u64, what: T) {
        self.ahead.insert(number, what);
    }

    /// Whether everything that was sent has been read.
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.next
    }

    /// What can be read: everything before it was.
    pub(super) fn read(&mut self) -> Option<T> {
        let what = self.ahead.remove(&self.next)?;
        self.next += 1;
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_early_is_read_in_its_turn() {
        let mut lane = Lane::default();
        let numbers = [lane.number(), lane.number(), lane.number()];
        lane.park(numbers[0], "a");
        lane.arrive(numbers[2], "c");
        lane.arrive(numbers[1], "b");
        assert_eq!(lane.read(), None);
        assert!(!lane.is_empty());
        for (number, what) in lane.take_parked() {
            lane.arrive(number, what);
        }
        assert_eq!(std::iter::from_fn(|| lane.read()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(lane.is_empty());
    }
}
