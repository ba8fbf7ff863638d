//! The measurements of a run.

use super::histogram::Histogram;
use std::collections::BTreeMap;
use zoolet_model::ErrorCode;

/// Measurements so far; times are nanoseconds since the start of the clock.
pub(super) struct Measured {
    /// Counted requests; each ends as acknowledged or as an error.
    pub(super) requests: u64,
    pub(super) reads: Histogram,
    pub(super) writes: Histogram,
    /// Latencies until a lock is held, or until each watcher has its event.
    pub(super) parts: Histogram,
    pub(super) errors: BTreeMap<i32, u64>,
    /// In flight when their connection broke; their outcome is unknown.
    pub(super) lost: u64,
    /// Requests of an open loop that were due but never sent.
    ///
    /// Earlier requests waited for answers, or no server was reachable.
    pub(super) unsent: u64,
    pub(super) reconnects: u64,
    pub(super) sessions_lost: u64,
    pub(super) last_answer: u64,
    writes_seen: Option<u64>,
    pub(super) longest_write_gap: u64,
}

/// Kind of a request; a lock cycle and a fan-out count as writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    Read,
    Write,
}

impl Measured {
    pub(super) fn new() -> Self {
        Self {
            requests: 0,
            reads: Histogram::new(),
            writes: Histogram::new(),
            parts: Histogram::new(),
            errors: BTreeMap::new(),
            lost: 0,
            unsent: 0,
            reconnects: 0,
            sessions_lost: 0,
            last_answer: 0,
            writes_seen: None,
            longest_write_gap: 0,
        }
    }

    pub(super) fn answered(&mut self, sort: Sort, error: i32, sent: u64, now: u64) {
        self.last_answer = now;
        if error != 0 {
            *self.errors.entry(error).or_default() += 1;
            return;
        }
        let latency = now.saturating_sub(sent);
        match sort {
            Sort::Read => self.reads.record(latency),
            Sort::Write => {
                self.writes.record(latency);
                self.write_seen(now);
            }
        }
    }

    fn write_seen(&mut self, now: u64) {
        if let Some(before) = self.writes_seen.replace(now) {
            self.longest_write_gap = self.longest_write_gap.max(now.saturating_sub(before));
        }
    }

    /// Ends the measurement; the silence at the end counts as a gap.
    ///
    /// Otherwise a server that dies and stays dead would show no gap.
    pub(super) fn end(&mut self, now: u64) {
        if let Some(before) = self.writes_seen {
            self.longest_write_gap = self.longest_write_gap.max(now.saturating_sub(before));
        }
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }

    pub(super) fn refused(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns the number of requests without an answer at the end of the run.
    pub(super) fn unanswered(&self) -> u64 {
        self.requests.saturating_sub(self.acknowledged() + self.refused() + self.lost)
    }

    /// Returns the number of requests that were sent but not acknowledged.
    pub(super) fn errors_of_all_kinds(&self) -> u64 {
        self.refused() + self.lost + self.unanswered()
    }

    /// Returns the count of each kind of error, by name.
    pub(super) fn error_counts(&self) -> Vec<(String, u64)> {
        let named = |(code, count): (&i32, &u64)| {
            let name = ErrorCode::from_code(*code).map_or_else(|| code.to_string(), |code| format!("{code:?}"));
            (name, *count)
        };
        let mut counts: Vec<_> = self.errors.iter().map(named).collect();
        for (name, count) in [("ConnectionLost", self.lost), ("Unanswered", self.unanswered())] {
            if count > 0 {
                counts.push((name.to_owned(), count));
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_counts_as_acknowledged_or_as_an_error() {
        let mut measured = Measured::new();
        measured.requests = 10;
        measured.answered(Sort::Read, 0, 5, 8);
        measured.answered(Sort::Write, 0, 5, 9);
        measured.answered(Sort::Write, -101, 5, 9);
        measured.answered(Sort::Read, -4, 5, 9);
        measured.lost = 3;
        assert_eq!((measured.acknowledged(), measured.errors_of_all_kinds()), (2, 8));
        let expected = [("NoNode", 1), ("-4", 1), ("ConnectionLost", 3), ("Unanswered", 3)];
        assert_eq!(measured.error_counts(), expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn the_longest_gap_lies_between_acknowledged_writes_or_at_the_end() {
        let mut measured = Measured::new();
        for (sort, error, now) in [
            (Sort::Write, 0, 100),
            (Sort::Write, 0, 110),
            (Sort::Read, 0, 115),
            (Sort::Write, -101, 120),
            (Sort::Write, 0, 140),
        ] {
            measured.answered(sort, error, 0, now);
        }
        assert_eq!(measured.longest_write_gap, 30);
        measured.end(160);
        assert_eq!(measured.longest_write_gap, 30);
        measured.end(200);
        assert_eq!(measured.longest_write_gap, 60);
    }
}
