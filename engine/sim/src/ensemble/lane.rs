//! An ordered channel over a path that delays pieces differently and holds some back.

use std::collections::BTreeMap;

/// One direction of a stream.
///
/// It holds the sender's numbers, messages that wait for the end of a cut, and messages that
/// arrived ahead of an earlier one.
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
    /// Returns the number of the next message to send.
    pub(super) fn number(&mut self) -> u64 {
        self.sent += 1;
        self.sent - 1
    }

    /// Keeps a message that did not get through; it is sent again later.
    pub(super) fn park(&mut self, number: u64, what: T) {
        self.parked.insert(number, what);
    }

    /// Takes the messages to send again.
    pub(super) fn take_parked(&mut self) -> BTreeMap<u64, T> {
        std::mem::take(&mut self.parked)
    }

    /// Takes in a message that got through.
    pub(super) fn arrive(&mut self, number: u64, what: T) {
        self.ahead.insert(number, what);
    }

    /// Returns whether every sent message has been read.
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.next
    }

    /// Returns the next message in order, if it has arrived.
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
    fn pieces_that_arrive_early_are_read_in_send_order() {
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
