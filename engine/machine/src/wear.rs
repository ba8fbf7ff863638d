//! Wear of a storage medium: its projected life and its daily write budget.
//!
//! Pure: bytes and monotonic time are arguments. The clock must count suspended time.

use std::collections::VecDeque;

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Interval between measurements, milliseconds; a shorter window gives no forecast.
pub const LOOK_MS: u64 = 10 * 60 * 1000;
/// Minimum window that a burst (a checkpoint, a snapshot) is averaged over, milliseconds.
const BURST_MS: u64 = 6 * 3600 * 1000;
/// Share of the budget below which an alarm ends, percent.
///
/// The gap to 100 keeps the alarm from flapping around the budget.
const BACK_PERCENT: u64 = 80;
/// Interval between repeated warnings while the budget stays exceeded, milliseconds.
const TOLD_MS: u64 = DAY_MS;
/// Minimum interval between any two lines, milliseconds.
const QUIET_MS: u64 = 3600 * 1000;

/// A storage medium's endurance and write budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Medium {
    /// Bytes that the cells take before they wear out; 0: no wear.
    pub endurance_bytes: u64,
    /// Bytes that reach the cells per byte written to the device, percent.
    pub amplification_percent: u64,
    /// Bytes that may be written to the device per day; 0: no budget.
    pub budget_bytes_per_day: u64,
}

/// The medium of the profile `emmc`.
impl Default for Medium {
    fn default() -> Self {
        Self { endurance_bytes: 24_000_000_000_000, amplification_percent: 400, budget_bytes_per_day: 1_600_000_000 }
    }
}

impl Medium {
    /// Returns a new medium's life in days at this rate.
    ///
    /// Returns `None` when the medium does not wear or nothing is written.
    pub fn life_days(&self, bytes_per_day: u64) -> Option<u64> {
        let cells_per_day = u128::from(bytes_per_day) * u128::from(self.amplification_percent);
        let days = (u128::from(self.endurance_bytes) * 100).checked_div(cells_per_day)?;
        (self.endurance_bytes > 0).then(|| u64::try_from(days).unwrap_or(u64::MAX))
    }

    /// Returns the bytes that the budget allows in `ms` milliseconds.
    fn allowed(&self, ms: u64) -> u64 {
        let bytes = u128::from(self.budget_bytes_per_day) * u128::from(ms) / u128::from(DAY_MS);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Formats a number of bytes with three digits, for people.
pub fn shown_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut unit, mut thousandths) = (0, u128::from(bytes) * 1000);
    while thousandths >= 1_000_000 {
        (unit, thousandths) = (unit + 1, thousandths / 1000);
    }
    let whole = thousandths / 1000;
    match (unit, whole) {
        (0, _) | (_, 100..) => format!("{whole} {}", UNITS[unit]),
        (_, 10..) => format!("{whole}.{} {}", thousandths / 100 % 10, UNITS[unit]),
        _ => format!("{whole}.{:02} {}", thousandths / 10 % 100, UNITS[unit]),
    }
}

/// Bytes written lately, and the daily rate that follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forecast {
    /// Length of the window, milliseconds: since start, at most a day.
    ///
    /// A window without measurements in between may be longer.
    pub over_ms: u64,
    /// Bytes written in the window.
    pub bytes: u64,
    /// Bytes per day at that rate; `None` in the first ten minutes.
    pub bytes_per_day: Option<u64>,
}

/// A change to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// More is written than the budget allows.
    Over,
    /// The rate is back within the budget.
    Back,
}

/// Bytes written to a medium, in a sliding window.
///
/// Invariant: `marks` is never empty. Times and bytes never decrease along `marks`, nor from the
/// last mark to `now`.
#[derive(Debug)]
pub struct Wear {
    medium: Medium,
    /// Past measurements, at least ten minutes apart.
    marks: VecDeque<Mark>,
    now: Mark,
    is_over: bool,
    reported: Option<(News, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    ms: u64,
    bytes: u64,
}

impl Wear {
    /// Starts at `now_ms` with nothing written.
    pub fn new(medium: Medium, now_ms: u64) -> Self {
        let now = Mark { ms: now_ms, bytes: 0 };
        Self { medium, marks: VecDeque::from([now]), now, is_over: false, reported: None }
    }

    /// Returns the medium.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Returns whether more is written than the budget allows.
    ///
    /// The alarm starts when the window exceeds its budget, which takes at least a quarter of a
    /// day's bytes. It ends below four fifths of the budget.
    pub fn is_over_budget(&self) -> bool {
        self.is_over
    }

    /// Records the total `bytes` written since start; returns a change to report.
    ///
    /// Call it every ten minutes, and before each status answer.
    pub fn note(&mut self, now_ms: u64, bytes: u64) -> Option<News> {
        self.now = Mark { ms: self.now.ms.max(now_ms), bytes: self.now.bytes.max(bytes) };
        if self.marks.back().is_none_or(|last| self.now.ms - last.ms >= LOOK_MS) {
            self.marks.push_back(self.now);
        }
        // Start the window at the latest mark that is at least a day old.
        while self.marks.get(1).is_some_and(|second| self.now.ms - second.ms >= DAY_MS) {
            self.marks.pop_front();
        }
        self.judge();
        self.tell()
    }

    /// Returns the bytes written lately, and their daily rate.
    pub fn forecast(&self) -> Forecast {
        let first = self.marks.front().copied().unwrap_or(self.now);
        let (over_ms, bytes) = (self.now.ms - first.ms, self.now.bytes - first.bytes);
        let per_day = (u128::from(bytes) * u128::from(DAY_MS)).checked_div(u128::from(over_ms)).unwrap_or(0);
        let per_day = u64::try_from(per_day).unwrap_or(u64::MAX);
        Forecast { over_ms, bytes, bytes_per_day: (over_ms >= LOOK_MS).then_some(per_day) }
    }

    fn judge(&mut self) {
        let Forecast { over_ms, bytes, .. } = self.forecast();
        let allowed = self.medium.allowed(over_ms.max(BURST_MS));
        let most = if self.is_over { allowed / 100 * BACK_PERCENT } else { allowed };
        self.is_over = self.medium.budget_bytes_per_day > 0 && bytes > most;
    }

    fn tell(&mut self) -> Option<News> {
        let news = match (self.is_over, self.reported) {
            (true, None) => News::Over,
            (_, Some((_, at))) if self.now.ms - at < QUIET_MS => return None,
            (true, Some((News::Over, at))) if self.now.ms - at < TOLD_MS => return None,
            (true, Some(_)) => News::Over,
            (false, Some((News::Over, _))) => News::Back,
            (false, None | Some((News::Back, _))) => return None,
        };
        self.reported = Some((news, self.now.ms));
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    const MEGABYTE: u64 = 1_000_000;

    /// The budget is 240 MB a day, or 10 MB an hour.
    ///
    /// The endurance of 8,760 GB is ten years of that budget at ten times amplification.
    fn medium() -> Medium {
        Medium {
            endurance_bytes: 8_760_000 * MEGABYTE,
            amplification_percent: 1000,
            budget_bytes_per_day: 240 * MEGABYTE,
        }
    }

    /// A steady load in bytes per hour, measured every ten minutes.
    struct Load {
        wear: Wear,
        ms: u64,
        bytes: u64,
        reported: Vec<(u64, News)>,
    }

    impl Load {
        fn new(began_ms: u64) -> Self {
            Self { wear: Wear::new(medium(), began_ms), ms: began_ms, bytes: 0, reported: Vec::new() }
        }

        fn go_on(&mut self, hours: u64, bytes_an_hour: u64) {
            for _ in 0..hours * 6 {
                self.ms += LOOK_MS;
                self.bytes += bytes_an_hour / 6;
                let news = self.wear.note(self.ms, self.bytes);
                self.reported.extend(news.map(|news| (self.ms / HOUR_MS, news)));
            }
        }
    }

    #[test]
    fn projected_life_is_endurance_divided_by_the_daily_device_writes() {
        assert_eq!(medium().life_days(240 * MEGABYTE), Some(3650));
        assert_eq!(medium().life_days(480 * MEGABYTE), Some(1825));
        assert_eq!(medium().life_days(1), Some(876_000 * MEGABYTE));
        assert_eq!(medium().life_days(0), None, "what is not written to does not wear");
        assert_eq!(Medium { endurance_bytes: 0, ..medium() }.life_days(1), None);
        let endless = Medium { endurance_bytes: u64::MAX, amplification_percent: 1, budget_bytes_per_day: 1 };
        assert_eq!(endless.life_days(1), Some(u64::MAX));
        assert_eq!(endless.life_days(u64::MAX), Some(100));
        // Ten years, as the profile says.
        let of_profile = Medium::default();
        assert_eq!(of_profile.life_days(of_profile.budget_bytes_per_day), Some(3750));
    }

    #[test]
    fn byte_counts_are_shown_with_three_digits() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (8_202, "8.20 kB"),
            (99_999, "99.9 kB"),
            (1_600_000_000, "1.60 GB"),
            (240_000_000, "240 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(shown_bytes(bytes), shown);
        }
    }

    #[test]
    fn daily_writes_are_projected_from_at_least_ten_minutes() {
        let mut wear = Wear::new(medium(), 5_000);
        wear.note(5_000 + 9 * MINUTE_MS, 3 * MEGABYTE);
        assert_eq!(
            wear.forecast(),
            Forecast { over_ms: 9 * MINUTE_MS, bytes: 3 * MEGABYTE, bytes_per_day: None },
            "what a start writes is no day"
        );
        wear.note(5_000 + 10 * MINUTE_MS, 3 * MEGABYTE);
        assert_eq!(wear.forecast().bytes_per_day, Some(3 * 144 * MEGABYTE));
    }

    #[test]
    fn wear_window_spans_one_day_and_drops_older_writes() {
        let mut load = Load::new(0);
        load.go_on(24, 6 * MEGABYTE);
        let day = Forecast { over_ms: DAY_MS, bytes: 144 * MEGABYTE, bytes_per_day: Some(144 * MEGABYTE) };
        assert_eq!(load.wear.forecast(), day);
        load.go_on(12, 0);
        assert_eq!(load.wear.forecast().bytes_per_day, Some(72 * MEGABYTE));
        load.go_on(100, 6 * MEGABYTE);
        assert_eq!(load.wear.forecast(), day);
        assert!(load.wear.marks.len() <= 146, "{}", load.wear.marks.len());
    }

    #[test]
    fn over_budget_alarm_ends_only_well_below_the_budget() {
        let mut load = Load::new(0);
        load.go_on(48, 10 * MEGABYTE);
        assert!(!load.wear.is_over_budget(), "all of the budget is within it");
        load.go_on(24, 11 * MEGABYTE);
        assert!(load.wear.is_over_budget());
        load.go_on(48, 9 * MEGABYTE);
        assert!(load.wear.is_over_budget(), "a little less is no reason to call it over");
        load.go_on(48, 7 * MEGABYTE);
        assert!(!load.wear.is_over_budget());
        load.go_on(48, 9 * MEGABYTE);
        assert!(!load.wear.is_over_budget(), "nor does it come back for what raised none");
    }

    #[test]
    fn write_burst_alarms_only_above_a_quarter_of_the_daily_budget() {
        let mut wear = Wear::new(medium(), 0);
        wear.note(1_000, 59 * MEGABYTE);
        assert!(!wear.is_over_budget());
        wear.note(2_000, 61 * MEGABYTE);
        assert!(wear.is_over_budget());
        wear.note(HOUR_MS * 9, 61 * MEGABYTE);
        assert!(!wear.is_over_budget(), "in nine hours it is less than three quarters of what nine hours may have");
    }

    #[test]
    fn over_budget_notice_repeats_daily_and_at_most_hourly() {
        let mut load = Load::new(0);
        load.go_on(72, 20 * MEGABYTE);
        assert_eq!(load.reported, [(3, News::Over), (27, News::Over), (51, News::Over)]);
        load.go_on(24, 0);
        assert_eq!(load.reported.split_off(3), [(75, News::Over), (86, News::Back)]);
        load.go_on(240, 9 * MEGABYTE);
        assert_eq!(load.reported.len(), 3, "nothing more is said of what is as it should be");

        // No pattern of raising and ending the alarm reports more than once an hour.
        let mut wear = Wear::new(medium(), 0);
        let mut reported = Vec::new();
        for minute in 0..48 * 60 {
            wear.now.ms = minute * MINUTE_MS;
            wear.is_over = minute % 7 < 3;
            reported.extend(wear.tell().map(|_| minute));
        }
        assert!(reported.len() > 20, "{reported:?}");
        assert!(reported.windows(2).all(|pair| pair[1] - pair[0] >= 60), "{reported:?}");
    }

    #[test]
    fn budget_of_zero_is_never_exceeded() {
        let mut wear = Wear::new(Medium { endurance_bytes: 0, amplification_percent: 0, budget_bytes_per_day: 0 }, 0);
        assert_eq!(wear.note(DAY_MS, u64::MAX), None);
        assert!(!wear.is_over_budget());
        assert_eq!(wear.forecast().bytes_per_day, Some(u64::MAX));
    }

    /// A monotonic clock may still jump: no division by zero, and no figure decreases.
    #[test]
    fn clock_jumps_lengthen_the_wear_window_or_change_nothing() {
        for began_ms in [0, 1, 1_795_000_000_000, u64::MAX - DAY_MS * 20] {
            let mut load = Load::new(began_ms);
            load.go_on(24, 6 * MEGABYTE);
            let before = load.wear.forecast();
            assert_eq!(before.bytes_per_day, Some(144 * MEGABYTE));
            // Time and counters go back to the beginning.
            load.wear.note(0, 0);
            assert_eq!(load.wear.forecast(), before);
            // After ten days suspended, the window spans them until the next mark is a day old. The
            // forecast shows that length.
            load.ms += 10 * DAY_MS;
            load.wear.note(load.ms, load.bytes);
            let Forecast { over_ms, bytes_per_day, .. } = load.wear.forecast();
            assert_eq!((over_ms, bytes_per_day), (10 * DAY_MS, Some(0)));
            load.go_on(24, 6 * MEGABYTE);
            assert_eq!(load.wear.forecast(), before);
        }
    }
}
