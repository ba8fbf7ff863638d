//! The two clocks of a box: a monotonic clock, and a wall clock that people set.

use super::MS;
use crate::workload::Random;
use zoolet_machine::Now;

/// A step of the wall clock, in milliseconds: 56 years.
///
/// A box without a battery starts in 1970 and jumps to the true time.
pub const WALL_STEP_MS: i64 = 56 * 365 * 24 * 3_600_000;

/// Start of a correct wall clock, in milliseconds since 1970.
const WALL_START_MS: i64 = 1_700_000_000_000;

/// Maximum drift of a clock, in parts per million.
pub const DRIFT_PPM_MAX: i64 = 500;

/// Draws the drift of a clock, in parts per million; both bounds are reached.
pub(super) fn draw_drift(random: &mut Random) -> i64 {
    let drift = random.between(0, 2 * DRIFT_PPM_MAX as u64 + 1) as i64;
    drift - DRIFT_PPM_MAX
}

/// The two clocks of a box, as functions of the run's time.
///
/// The monotonic clock keeps counting while a process or the whole box sleeps.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The value of the monotonic clock at `since_us`, in microseconds.
    shown_us: u64,
    since_us: u64,
    drift_ppm: i64,
    frozen: bool,
    wall_offset_ms: i64,
}

impl Clock {
    /// Returns a clock that shows `shown_us` at `now_us`.
    pub fn new(now_us: u64, shown_us: u64, drift_ppm: i64) -> Self {
        Self { shown_us, since_us: now_us, drift_ppm, frozen: false, wall_offset_ms: 0 }
    }

    /// Returns the values of both clocks.
    pub fn now(&self, now_us: u64) -> Now {
        let wall_us = i64::try_from(now_us).unwrap_or(i64::MAX);
        let wall_ms = WALL_START_MS + wall_us / MS as i64 + self.wall_offset_ms;
        Now { mono_ms: self.mono_us(now_us) / MS, wall_ms }
    }

    /// Returns the time at which the monotonic clock shows `mono_ms`.
    ///
    /// `None` while the clock is frozen before that value.
    pub fn when(&self, now_us: u64, mono_ms: u64) -> Option<u64> {
        self.when_us(now_us, mono_ms.saturating_mul(MS))
    }

    /// As [`Clock::when`], for a value in microseconds.
    pub(super) fn when_us(&self, now_us: u64, mono_us: u64) -> Option<u64> {
        let missing_us = mono_us.saturating_sub(self.mono_us(now_us));
        if missing_us == 0 {
            return Some(now_us);
        }
        if self.frozen {
            return None;
        }
        let rate = u128::from(self.rate());
        let real_us = (u128::from(missing_us) * 1_000_000).div_ceil(rate);
        // One microsecond more, because the division in `mono_us` rounds down.
        Some(now_us.saturating_add(u64::try_from(real_us).unwrap_or(u64::MAX)).saturating_add(1))
    }

    /// Sets the drift of the monotonic clock, in parts per million.
    pub fn drift(&mut self, now_us: u64, ppm: i64) {
        self.catch_up(now_us);
        self.drift_ppm = ppm;
    }

    /// Returns whether the monotonic clock is frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Freezes the monotonic clock.
    pub fn freeze(&mut self, now_us: u64) {
        self.catch_up(now_us);
        self.frozen = true;
    }

    /// Ends a freeze.
    ///
    /// The clock continues from its frozen value. If it `catches_up`, it continues as if it had
    /// never stopped.
    pub fn thaw(&mut self, now_us: u64, catches_up: bool) {
        if self.frozen {
            let stood_us = now_us.saturating_sub(self.since_us);
            self.frozen = false;
            self.since_us = now_us;
            self.shown_us += if catches_up { stood_us } else { 0 };
        }
    }

    /// Steps the wall clock, as a person or NTP does.
    pub fn step_wall(&mut self, by_ms: i64) {
        self.wall_offset_ms += by_ms;
    }

    /// Restarts the monotonic clock after a power cycle.
    pub fn reboot(&mut self, now_us: u64) {
        (self.since_us, self.shown_us, self.frozen) = (now_us, MS, false);
    }

    /// Returns the value of the monotonic clock, in microseconds.
    pub(super) fn mono_us(&self, now_us: u64) -> u64 {
        if self.frozen {
            return self.shown_us;
        }
        let passed_us = u128::from(now_us.saturating_sub(self.since_us));
        self.shown_us + u64::try_from(passed_us * u128::from(self.rate()) / 1_000_000).unwrap_or(u64::MAX / 2)
    }

    fn rate(&self) -> u64 {
        1_000_000u64.saturating_add_signed(self.drift_ppm)
    }

    /// Moves the reference point of the clock to `now_us`.
    ///
    /// A frozen clock keeps the start of the freeze, which [`Clock::thaw`] needs.
    fn catch_up(&mut self, now_us: u64) {
        if !self.frozen {
            self.shown_us = self.mono_us(now_us);
            self.since_us = now_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_reaches_a_deadline_exactly_at_the_predicted_time() {
        for drift_ppm in [-500, -3, 0, 7, 500] {
            let clock = Clock::new(123, 5_000_789, drift_ppm);
            for mono_ms in [5001, 5002, 60_000, 86_400_000] {
                let at_us = clock.when(123, mono_ms).unwrap();
                assert_eq!(clock.now(at_us).mono_ms, mono_ms);
                assert!(clock.now(at_us - 3).mono_ms < mono_ms);
            }
        }
    }

    #[test]
    fn drawn_drifts_reach_both_bounds_and_nothing_beyond() {
        let mut random = Random::new(1);
        let drifts: Vec<i64> = (0..20_000).map(|_| draw_drift(&mut random)).collect();
        let (least, most) = (drifts.iter().min().copied(), drifts.iter().max().copied());
        assert_eq!((least, most), (Some(-DRIFT_PPM_MAX), Some(DRIFT_PPM_MAX)));
    }

    #[test]
    fn monotonic_clock_never_goes_back_under_drift_freeze_or_wall_step() {
        let mut clock = Clock::new(0, 1_000_000, 0);
        let mut last = clock.now(0).mono_ms;
        for (step, now_us) in (0..40).map(|step| (step, step * 777_777)) {
            match step % 5 {
                0 => clock.drift(now_us, -500),
                1 => clock.freeze(now_us),
                2 => clock.step_wall(-WALL_STEP_MS),
                3 => clock.thaw(now_us, step % 2 == 0),
                _ => clock.drift(now_us, 500),
            }
            let now = clock.now(now_us);
            assert!(now.mono_ms >= last && now.wall_ms < WALL_START_MS + 40_000);
            last = now.mono_ms;
        }
    }

    #[test]
    fn frozen_clock_stands_still_until_thawed() {
        let mut clock = Clock::new(0, 0, 0);
        clock.freeze(10_000);
        assert_eq!(
            (clock.now(99_000).mono_ms, clock.when(99_000, 11), clock.when(99_000, 10)),
            (10, None, Some(99_000))
        );
        let mut behind = clock.clone();
        behind.thaw(110_000, false);
        clock.thaw(110_000, true);
        assert_eq!((behind.now(120_000).mono_ms, clock.now(120_000).mono_ms), (20, 120));
    }

    #[test]
    fn clock_frozen_twice_catches_up_the_whole_frozen_time() {
        let mut clock = Clock::new(0, 0, 0);
        clock.freeze(10_000);
        clock.freeze(50_000);
        clock.drift(60_000, 0);
        clock.thaw(110_000, true);
        assert_eq!(clock.now(120_000).mono_ms, 120);
    }
}
