//! Points in time on the clock of one session.

use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant of a [`Coordinator`](crate::Coordinator)'s clock.
///
/// It is not a duration: `sleep(instant)` does not compile. [`Instant::remaining`] tells how long
/// to wait for it. Clocks have different starts, so compare only instants of one session, or of
/// sessions in one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(Duration);

impl Instant {
    /// The start of the clock. No instant is earlier.
    pub const START: Self = Self(Duration::ZERO);

    /// Returns the instant that is this long after the start of the clock.
    pub const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Returns the time from the start of the clock to this instant.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Returns the time left from `now` until this instant; zero once it has passed.
    pub const fn remaining(self, now: Self) -> Duration {
        self.0.saturating_sub(now.0)
    }

    /// Returns the instant `duration` later, or the last one that the clock can represent.
    #[must_use]
    pub const fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// Returns the instant `duration` earlier, or the start of the clock.
    #[must_use]
    pub const fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Returns the time from `earlier` to this instant; zero if `earlier` is the later one.
    fn sub(self, earlier: Self) -> Duration {
        self.remaining(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_of_a_past_instant_is_zero() {
        let (early, late) = (Instant::at(Duration::from_secs(2)), Instant::at(Duration::from_secs(5)));
        assert_eq!((late.remaining(early), early.remaining(late)), (Duration::from_secs(3), Duration::ZERO));
        assert_eq!((late - early, early - late), (Duration::from_secs(3), Duration::ZERO));
        assert_eq!(early.saturating_sub(Duration::MAX), Instant::START);
        assert_eq!(late.saturating_add(Duration::MAX).since_start(), Duration::MAX);
    }
}
