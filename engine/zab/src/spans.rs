//! A history as runs of consecutive counters.

use crate::{Epoch, Zxid};
use heapless::Deque;

/// How many epochs of history are told apart.
pub const SPANS_MAX: usize = 64;

/// One epoch's part of a history: every counter from 0 to `last` is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The epoch.
    pub epoch: Epoch,
    /// Its last counter in this history.
    pub last: u64,
}

/// A history, oldest epoch first. Counters of an epoch are consecutive and start at its no-op (0), so two numbers tell
/// all there is to know of an epoch. Beyond [`SPANS_MAX`] the oldest is forgotten: whoever is that far behind gets a snapshot.
///
/// Invariant: epochs strictly grow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spans(Deque<Span, SPANS_MAX>);

impl Spans {
    /// A history of nothing.
    pub const EMPTY: Self = Self(Deque::new());

    /// The newest entry; [`Zxid::ZERO`] of an empty history.
    pub fn last(&self) -> Zxid {
        self.0.back().and_then(|span| Zxid::new(span.epoch, span.last)).unwrap_or(Zxid::ZERO)
    }

    /// The spans, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.0.iter().copied()
    }

    /// Adds the entry that follows [`Spans::last`]: its successor, or the no-op of a later epoch.
    ///
    /// # Panics
    /// When `zxid` does not follow: a gap in the history would be lost data.
    pub fn push(&mut self, zxid: Zxid) {
        match self.0.back_mut() {
            Some(span) if span.epoch == zxid.epoch() => {
                assert_eq!(zxid.counter(), span.last + 1, "a history has no gaps");
                span.last = zxid.counter();
            }
            newest => {
                assert!(newest.is_none_or(|span| span.epoch < zxid.epoch()), "epochs grow");
                assert_eq!(zxid.counter(), 0, "an epoch starts at its no-op");
                self.push_span(Span { epoch: zxid.epoch(), last: 0 });
            }
        }
    }

    /// Adds a whole epoch's run, as a log restates it.
    ///
    /// # Panics
    /// When its epoch is not newer than the newest.
    pub fn push_span(&mut self, span: Span) {
        assert!(self.0.back().is_none_or(|newest| newest.epoch < span.epoch), "epochs grow");
        if self.0.is_full() {
            self.0.pop_front();
        }
        let pushed = self.0.push_back(span);
        debug_assert!(pushed.is_ok(), "room was made");
    }

    /// Forgets every entry above `to`.
    pub fn truncate(&mut self, to: Zxid) {
        while let Some(span) = self.0.back_mut() {
            if span.epoch > to.epoch() {
                self.0.pop_back();
            } else {
                if span.epoch == to.epoch() {
                    span.last = span.last.min(to.counter());
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zxid(epoch: u32, counter: u64) -> Zxid {
        Zxid::new(Epoch::new(epoch).unwrap(), counter).unwrap()
    }

    #[test]
    fn a_history_is_two_numbers_per_epoch() {
        let mut spans = Spans::EMPTY;
        assert_eq!(spans.last(), Zxid::ZERO);
        for entry in [zxid(1, 0), zxid(1, 1), zxid(1, 2), zxid(4, 0), zxid(4, 1)] {
            spans.push(entry);
            assert_eq!(spans.last(), entry);
        }
        assert_eq!(spans.iter().count(), 2);
        spans.truncate(zxid(1, 1));
        assert_eq!(spans.last(), zxid(1, 1));
    }

    #[test]
    #[should_panic(expected = "a history has no gaps")]
    fn a_gap_is_never_accepted() {
        let mut spans = Spans::EMPTY;
        spans.push(zxid(1, 0));
        spans.push(zxid(1, 2));
    }

    #[test]
    fn the_65th_epoch_forgets_the_first() {
        let mut spans = Spans::EMPTY;
        for epoch in 1..=65 {
            spans.push(zxid(epoch, 0));
        }
        assert_eq!(spans.iter().next().unwrap().epoch, Epoch::new(2).unwrap());
        assert_eq!(spans.last(), zxid(65, 0));
    }
}
