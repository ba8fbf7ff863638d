//! Notices that this server did not run for a while.
//!
//! After such a pause the peers seem to have been silent, and links end. The clock stands still
//! while a machine is suspended, so that time is not noticed.

use super::link_tasks::LOOK;
use super::lock;
use std::mem;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Minimum delay of a check that is reported.
///
/// A pause may begin up to [`LOOK`] before the check is due. So each pause of 1 s is reported, after
/// which peers begin to end links.
const LATE_MIN: Duration = Duration::from_millis(500);

/// Time of the last check of any link. Each link is checked every [`LOOK`].
#[derive(Debug)]
pub(super) struct OwnPause(Mutex<Instant>);

impl OwnPause {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(now))
    }

    /// Records that the checks of a link begin. A time without links is no pause.
    pub(super) fn begin(&self, now: Instant) {
        *lock(&self.0) = now;
    }

    /// Records a check. Returns the minimum length of a pause before it, to the first link that is
    /// checked after the pause.
    pub(super) fn end(&self, now: Instant) -> Option<Duration> {
        let checked = mem::replace(&mut *lock(&self.0), now);
        let late = now.duration_since(checked).saturating_sub(LOOK);
        (late >= LATE_MIN).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_reported_once_for_all_links() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let pause = OwnPause::new(begun);
        pause.begin(at(60_000));
        assert_eq!(pause.end(at(60_500)), None, "there was no link before");
        assert_eq!(pause.end(at(61_400)), None, "shorter than LATE_MIN");
        assert_eq!(pause.end(at(63_900)), Some(Duration::from_secs(2)));
        assert_eq!(pause.end(at(63_901)), None, "another link, after the same pause");
    }

    #[test]
    fn pause_of_one_second_is_reported_at_any_time() {
        let begun = Instant::now();
        for ms in 0..500 {
            let pause = OwnPause::new(begun);
            // It begins this long after a check. The next check is due at 500 ms.
            let ends = begun + Duration::from_millis(ms + 1000);
            let found = pause.end(ends).expect("a pause of 1 s");
            assert!(found <= Duration::from_secs(1), "{found:?}");
        }
    }
}
