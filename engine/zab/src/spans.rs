//! A history as runs of consecutive counters.

use crate::{Epoch, Zxid};
use heapless::Deque;

/// Maximum number of epochs a history remembers.
pub const SPANS_MAX: usize = 64;

/// One epoch's part of a history: every counter from 0 to `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The epoch.
    pub epoch: Epoch,
    /// Last counter of the epoch in this history.
    pub last: u64,
}

/// A history as one span per epoch, oldest first.
///
/// Counters of an epoch are consecutive and start at its no-op (0), so two numbers describe an
/// epoch. Beyond [`SPANS_MAX`] epochs the oldest is forgotten: a learner that far behind gets a
/// snapshot. [`Spans::forgotten`] still answers for it after a truncation.
///
/// Invariant: epochs strictly increase.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spans(Deque<Span, SPANS_MAX>);

impl Spans {
    /// The empty history.
    pub const EMPTY: Self = Self(Deque::new());

    /// Returns the history of a snapshot that ends at `zxid`.
    ///
    /// Only the epoch of `zxid` is remembered.
    pub fn snapshot(zxid: Zxid) -> Self {
        let mut spans = Self::EMPTY;
        if zxid != Zxid::ZERO {
            spans.push_span(Span { epoch: zxid.epoch(), last: zxid.counter() });
        }
        spans
    }

    /// Returns the last zxid that may belong to a forgotten epoch.
    ///
    /// [`Zxid::ZERO`] while fewer than half of [`SPANS_MAX`] spans are in use. A full history has
    /// forgotten epochs, and a truncation leaves it with fewer spans. The number of spans is then
    /// the only trace: a log restates the spans alone, and compares them when it opens.
    ///
    /// Half allows for a truncation of 32 epochs, each of a leader that failed before its first
    /// commit. A shorter history that forgot nothing may get too high an answer. The answer is
    /// still below its oldest entry, so it costs at most a snapshot instead of a Diff.
    pub fn forgotten(&self) -> Zxid {
        let oldest = self.oldest().filter(|_| self.0.len() >= SPANS_MAX / 2);
        oldest.and_then(|oldest| Zxid::from_bits(oldest.to_bits() - 1)).unwrap_or(Zxid::ZERO)
    }

    /// Returns the newest entry; [`Zxid::ZERO`] if the history is empty.
    pub fn last(&self) -> Zxid {
        self.0.back().and_then(|span| Zxid::new(span.epoch, span.last)).unwrap_or(Zxid::ZERO)
    }

    /// Returns the spans, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.0.iter().copied()
    }

    /// Adds the entry after [`Spans::last`]: its successor or a later epoch's no-op.
    ///
    /// # Panics
    /// If `zxid` does not follow: a gap in the history would be lost data.
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

    /// Adds entries of one epoch; the first must follow [`Spans::last`].
    ///
    /// # Panics
    /// Like [`Spans::push`], and if the range spans two epochs or is empty.
    pub fn push_range(&mut self, from: Zxid, to: Zxid) {
        assert!(from.epoch() == to.epoch() && from <= to, "a range is of one epoch");
        self.push(from);
        if let Some(span) = self.0.back_mut() {
            span.last = to.counter();
        }
    }

    /// Returns whether `zxid` can come directly after [`Spans::last`].
    ///
    /// It can as the successor, or as the no-op of a later epoch. Epoch 0 has no entries.
    pub fn is_next(&self, zxid: Zxid) -> bool {
        let last = self.last();
        if zxid.epoch() > last.epoch() { zxid.counter() == 0 } else { last != Zxid::ZERO && last.next() == Some(zxid) }
    }

    /// Returns the number of entries after `from` up to `to`.
    ///
    /// Both must be in this history or [`Zxid::ZERO`].
    pub fn distance(&self, from: Zxid, to: Zxid) -> u64 {
        let upper = |span: &Span| if span.epoch == to.epoch() { to.counter().min(span.last) } else { span.last };
        let counted = |span: &Span| if span.epoch == from.epoch() { from.counter() + 1 } else { 0 };
        let between = self.0.iter().filter(|span| span.epoch >= from.epoch() && span.epoch <= to.epoch());
        between.map(|span| (upper(span) + 1).saturating_sub(counted(span))).sum()
    }

    /// Adds a whole epoch's span, as a log restates it.
    ///
    /// # Panics
    /// If its epoch is not newer than the newest.
    pub fn push_span(&mut self, span: Span) {
        assert!(self.0.back().is_none_or(|newest| newest.epoch < span.epoch), "epochs grow");
        if self.0.is_full() {
            self.0.pop_front();
        }
        let pushed = self.0.push_back(span);
        debug_assert!(pushed.is_ok(), "room was made");
    }

    /// Returns the first entry of the oldest remembered epoch; `None` if empty.
    pub fn oldest(&self) -> Option<Zxid> {
        self.0.front().map(|span| Zxid::first_of(span.epoch))
    }

    /// Returns whether the remembered history contains `zxid`.
    pub fn contains(&self, zxid: Zxid) -> bool {
        self.0.iter().any(|span| span.epoch == zxid.epoch() && zxid.counter() <= span.last)
    }

    /// Returns the entry after `zxid`; `None` after the last.
    ///
    /// `zxid` must be in this history or [`Zxid::ZERO`].
    pub fn after(&self, zxid: Zxid) -> Option<Zxid> {
        let mut spans = self.0.iter();
        if let Some(span) = spans.find(|span| span.epoch >= zxid.epoch()) {
            if span.epoch > zxid.epoch() {
                return Some(Zxid::first_of(span.epoch));
            }
            if zxid.counter() < span.last {
                return zxid.next();
            }
        }
        spans.next().map(|span| Zxid::first_of(span.epoch))
    }

    /// Returns the last entry in the epoch of `zxid`; `None` for an unknown epoch.
    pub fn last_of_epoch(&self, zxid: Zxid) -> Option<Zxid> {
        self.0.iter().find(|span| span.epoch == zxid.epoch()).and_then(|span| Zxid::new(span.epoch, span.last))
    }

    /// Returns one span for each epoch with an entry above `zxid`.
    pub fn above(&self, zxid: Zxid) -> Self {
        let mut above = Self::EMPTY;
        let parts = self.iter().filter(|span| Zxid::new(span.epoch, span.last).is_some_and(|last| last > zxid));
        parts.for_each(|span| above.push_span(span));
        above
    }

    /// Returns the last entry that both histories contain, if any.
    ///
    /// Only one server ever proposes in an epoch, after agreeing on everything before it. So two
    /// histories with a common epoch are equal up to their last common entry.
    pub fn last_common(&self, other: &Self) -> Option<Zxid> {
        let in_both = |span: &Span| {
            let also = other.0.iter().find(|also| also.epoch == span.epoch)?;
            Zxid::new(span.epoch, span.last.min(also.last))
        };
        self.0.iter().rev().find_map(in_both)
    }

    /// Returns whether the history may contain `zxid`.
    ///
    /// True for a remembered entry, an entry of an epoch that may be forgotten, and [`Zxid::ZERO`].
    pub fn may_contain(&self, zxid: Zxid) -> bool {
        zxid == Zxid::ZERO || self.contains(zxid) || zxid <= self.forgotten()
    }

    /// Removes every entry above `to`, an entry of this history or [`Zxid::ZERO`].
    ///
    /// If no remembered epoch is left, `to` lies in a forgotten one. That epoch is then remembered
    /// again, and earlier ones are not.
    pub fn truncate(&mut self, to: Zxid) {
        while self.0.back().is_some_and(|span| span.epoch > to.epoch()) {
            self.0.pop_back();
        }
        match self.0.back_mut() {
            Some(span) if span.epoch == to.epoch() => span.last = span.last.min(to.counter()),
            Some(_) => {}
            None => *self = Self::snapshot(to),
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
    fn spans_store_a_history_as_one_run_per_epoch() {
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

    fn spans(of: &[(u32, u64)]) -> Spans {
        let mut spans = Spans::EMPTY;
        of.iter().for_each(|&(epoch, last)| spans.push_span(Span { epoch: Epoch::new(epoch).unwrap(), last }));
        spans
    }

    #[test]
    fn last_common_zxid_lies_in_the_last_shared_epoch() {
        let leader = spans(&[(1, 9), (3, 4), (4, 0)]);
        assert_eq!(leader.last_common(&spans(&[(1, 9), (3, 7)])), Some(zxid(3, 4)));
        assert_eq!(leader.last_common(&spans(&[(1, 12), (2, 7)])), Some(zxid(1, 9)));
        assert_eq!(leader.last_common(&spans(&[(1, 3)])), Some(zxid(1, 3)));
        assert_eq!(leader.last_common(&spans(&[(2, 3)])), None);
    }

    #[test]
    fn next_entry_and_distance_cross_epoch_boundaries() {
        let history = spans(&[(1, 1), (3, 0)]);
        let mut at = Zxid::ZERO;
        for next in [zxid(1, 0), zxid(1, 1), zxid(3, 0)] {
            assert_eq!(history.after(at), Some(next));
            at = next;
        }
        assert_eq!(history.after(at), None);
        assert_eq!(history.distance(Zxid::ZERO, zxid(3, 0)), 3);
        assert_eq!(history.distance(zxid(1, 1), zxid(3, 0)), 1);
        assert_eq!(history.distance(zxid(1, 0), zxid(1, 1)), 1);
        assert_eq!(history.above(zxid(1, 0)), history);
        assert_eq!(history.above(zxid(1, 1)), spans(&[(3, 0)]));
        assert!(history.contains(zxid(1, 1)) && !history.contains(zxid(1, 2)) && !history.contains(zxid(2, 0)));
    }

    #[test]
    #[should_panic(expected = "a history has no gaps")]
    fn pushing_an_entry_after_a_gap_panics() {
        let mut spans = Spans::EMPTY;
        spans.push(zxid(1, 0));
        spans.push(zxid(1, 2));
    }

    #[test]
    fn spans_forget_the_first_epoch_at_the_65th() {
        let mut spans = Spans::EMPTY;
        for epoch in 1..=65 {
            spans.push(zxid(epoch, 0));
        }
        assert_eq!(spans.iter().next().unwrap().epoch, Epoch::new(2).unwrap());
        assert_eq!(spans.last(), zxid(65, 0));
        assert!(spans.may_contain(zxid(1, 7)) && spans.may_contain(zxid(2, 0)) && !spans.may_contain(zxid(2, 1)));
    }

    #[test]
    fn truncated_history_still_knows_that_it_forgot_epochs() {
        let mut spans = Spans::EMPTY;
        (1..=80).for_each(|epoch| spans.push(zxid(epoch, 0)));
        spans.truncate(zxid(70, 0));
        assert_eq!((spans.oldest(), spans.iter().count()), (Some(zxid(17, 0)), 54));
        assert!(spans.forgotten() >= zxid(16, 0), "{}", spans.forgotten());
        assert!(spans.may_contain(zxid(3, 0)) && !spans.may_contain(zxid(17, 1)));
    }

    #[test]
    fn truncation_to_a_forgotten_epoch_leaves_only_its_end() {
        let mut spans = Spans::EMPTY;
        (1..=80).for_each(|epoch| spans.push(zxid(epoch, 0)));
        let mut nothing = spans.clone();
        spans.truncate(zxid(3, 0));
        assert_eq!(spans, Spans::snapshot(zxid(3, 0)));
        nothing.truncate(Zxid::ZERO);
        assert_eq!(nothing, Spans::EMPTY);
    }
}
