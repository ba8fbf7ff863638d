//! The state of one run that all its connections share.

use super::measured::Measured;
use super::options::{Options, Until};
use super::pace::due_between;
use super::requests::NUMBER_DIGITS;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;
use zoolet_transport::wire::client_side::Header;

/// The course of a run; times are nanoseconds since `origin`.
pub(super) struct Course {
    pub(super) options: Options,
    pub(super) servers: Rc<[SocketAddr]>,
    origin: Cell<Instant>,
    /// End of the warm-up: requests sent from here on count.
    begins: u64,
    ends: u64,
    /// Counted requests that may still be sent.
    left: Cell<u64>,
    /// When the run was stopped early.
    stopped: Cell<Option<u64>>,
    pub(super) measured: RefCell<Measured>,
    pub(super) created: Rc<Created>,
}

/// The znodes that a run of creates leaves behind.
#[derive(Default)]
pub(super) struct Created {
    next: Cell<u64>,
    sequence: Cell<Option<(u64, u64)>>,
}

impl Created {
    /// Takes the number of one more znode.
    pub(super) const fn take_next(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Returns how many numbers were taken.
    pub(super) const fn count(&self) -> u64 {
        self.next.get()
    }

    /// Remembers the number of a sequential znode, which ends the reply's only field, the path.
    pub(super) fn saw_sequence(&self, header: Header, frame: &[u8]) {
        let digits = frame.last_chunk::<NUMBER_DIGITS>().filter(|_| header.error == 0);
        let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        if let Some(number) = number {
            let (first, end) = self.sequence.get().unwrap_or((number, number));
            self.sequence.set(Some((first.min(number), end.max(number + 1))));
        }
    }

    /// Returns the range of numbers that the server assigned to sequential znodes.
    ///
    /// Assumes that no other client created znodes under that parent in between.
    pub(super) fn sequence(&self) -> Range<u64> {
        self.sequence.get().map_or(0..0, |(first, end)| first..end)
    }
}

impl Course {
    pub(super) fn new(options: Options, servers: Rc<[SocketAddr]>, created: Rc<Created>) -> Self {
        let begins = nanoseconds(options.warmup);
        let (ends, left) = match options.until {
            Until::Elapsed(time) => (begins + nanoseconds(time), u64::MAX),
            Until::Requests(count) => (u64::MAX, count),
        };
        Self {
            options,
            servers,
            origin: Cell::new(Instant::now()),
            begins,
            ends,
            left: Cell::new(left),
            stopped: Cell::new(None),
            measured: RefCell::new(Measured::new()),
            created,
        }
    }

    /// Starts the clock.
    pub(super) fn start(&self) {
        self.origin.set(Instant::now());
    }

    pub(super) fn now(&self) -> u64 {
        nanoseconds(self.origin.get().elapsed())
    }

    pub(super) const fn begins(&self) -> u64 {
        self.begins
    }

    /// Returns whether a request sent at this time counts.
    pub(super) const fn counts(&self, sent: u64) -> bool {
        sent >= self.begins
    }

    /// Returns whether one more request may be sent, and counts it after the warm-up.
    pub(super) fn admit(&self, sent: u64) -> bool {
        if self.is_over(sent) {
            return false;
        }
        if self.counts(sent) {
            self.left.set(self.left.get() - 1);
            self.measured.borrow_mut().requests += 1;
        }
        true
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.stopped.get().is_some() || now >= self.ends || self.left.get() == 0
    }

    /// Stops the run: no more requests are sent.
    pub(super) fn stop(&self) {
        self.stopped.set(Some(self.stopped.get().unwrap_or_else(|| self.now())));
    }

    /// Returns how many requests of an open loop were due but not sent by `finished`.
    ///
    /// It is computed from all sent requests, because an abandoned connection reports nothing. If
    /// the user interrupts the run, only requests due before that count; after a failure, later
    /// ones count too.
    pub(super) fn unsent(&self, finished: u64, interrupted: bool) -> u64 {
        let Some(rate) = self.options.rate else { return 0 };
        let wanted_until = self.stopped.get().filter(|_| interrupted).unwrap_or(finished).min(self.ends);
        let due = due_between(self.begins, wanted_until, rate);
        due.saturating_sub(self.measured.borrow().requests).min(self.left.get())
    }

    /// Returns the end of the measurement, when no more answers are expected.
    ///
    /// A clean run over a number of requests ends with its last answer. Any other run ends now,
    /// because abandoned requests have waited until now, or at its planned end if that is earlier.
    /// An answer after the planned end extends the run.
    pub(super) fn finished(&self, is_clean: bool, last_answer: u64) -> u64 {
        match self.options.until {
            Until::Requests(_) if is_clean => last_answer,
            Until::Requests(_) | Until::Elapsed(_) => last_answer.max(self.now().min(self.ends)),
        }
    }

    /// Returns the nanoseconds measured so far.
    pub(super) fn measuring(&self) -> u64 {
        self.now().min(self.ends).saturating_sub(self.begins)
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
