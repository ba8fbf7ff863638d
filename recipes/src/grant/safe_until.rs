//! The instant until which hardware may act on a grant.

use crate::Instant;
use std::time::Duration;

/// The instant until which hardware may act on a grant, even if nothing is heard any more.
///
/// No other participant is granted the same before it. The instant is of the session's clock, which
/// is the same for all sessions of a machine and runs while the machine sleeps. Hardware on the same
/// clock takes [`SafeUntil::instant`], and other hardware the time that [remains](SafeUntil::remaining).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SafeUntil(Instant);

impl SafeUntil {
    pub(crate) const fn new(instant: Instant) -> Self {
        Self(instant)
    }

    /// Returns the instant of the session's clock.
    pub const fn instant(self) -> Instant {
        self.0
    }

    /// Returns how long hardware may act from `now` on; zero once the instant has passed.
    ///
    /// Read `now` before, not after, anything that may take long: a process may be stopped between
    /// two lines.
    pub const fn remaining(self, now: Instant) -> Duration {
        self.0.remaining(now)
    }

    /// Whether hardware must have stopped at `now`.
    pub fn has_passed(self, now: Instant) -> bool {
        self.0 <= now
    }
}
