//! Times as zkCli prints them, in UTC.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Returns a time such as `Thu Nov 26 09:30:44 UTC 2026`, from milliseconds since 1970.
pub(super) fn text(ms: i64) -> String {
    let seconds = ms.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let weekday = DAYS[usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
    format!(
        "{weekday} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        MONTHS[month],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Returns a time such as `2026-11-26T09:30:44.123Z`, from milliseconds since 1970.
pub(in crate::cli::shell) fn instant(ms: i64) -> String {
    let (seconds, ms) = (ms.div_euclid(1000), ms.rem_euclid(1000));
    let ((year, month, day), second) = (date(seconds.div_euclid(86_400)), seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z", month + 1)
}

/// Returns year, month from 0 and day from 1, from days since 1970.
fn date(days: i64) -> (i64, usize, i64) {
    let leaps = |year: i64| (year - 1).div_euclid(4) - (year - 1).div_euclid(100) + (year - 1).div_euclid(400);
    let begins = |year: i64| (year - 1970) * 365 + leaps(year) - leaps(1970);
    let mut year = 1970 + days.div_euclid(366);
    while begins(year + 1) <= days {
        year += 1;
    }
    let is_leap = begins(year + 1) - begins(year) == 366;
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut rest = days - begins(year);
    for (month, length) in lengths.into_iter().enumerate() {
        if rest < length {
            return (year, month, rest + 1);
        }
        rest -= length;
    }
    (year, 11, 31)
}

#[cfg(test)]
mod tests {
    use super::{instant, text};

    #[test]
    fn instants_sort_as_texts() {
        assert_eq!(instant(1_709_251_199_007), "2024-02-29T23:59:59.007Z");
        assert_eq!(instant(-1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn times_are_written_as_javas_dates() {
        for (ms, expected) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (1_795_685_444_999, "Thu Nov 26 09:30:44 UTC 2026"),
            (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_709_251_199_000, "Thu Feb 29 23:59:59 UTC 2024"),
            (1_735_603_200_000, "Tue Dec 31 00:00:00 UTC 2024"),
            (-1, "Wed Dec 31 23:59:59 UTC 1969"),
            (4_102_444_800_000, "Fri Jan 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(text(ms), expected);
        }
    }
}
