//! What is written to the medium, and what that makes of it.

use crate::store::{Cause, DeviceWear, Written};
use crate::wear::{Forecast, Medium, shown_bytes};

/// What is written to the medium. Whoever drives the machine knows it; the machine itself leaves it empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlashStatus {
    /// Bytes by cause since the start.
    pub written: Written,
    /// Bytes of the entries that were written to the log for: requests as they are ordered, with their headers.
    pub entry_bytes: u64,
    /// What it takes, as the profile says.
    pub medium: Medium,
    /// What was written lately, without what is only made ready once.
    pub forecast: Forecast,
    /// Whether that is more than the budget.
    pub is_over_budget: bool,
    /// What the device says of itself.
    pub device: Option<DeviceWear>,
}

impl FlashStatus {
    /// What was written for what was to be kept, hundredths; `None` before anything was.
    pub fn amplification_percent(&self) -> Option<u64> {
        self.written.recurring().saturating_mul(100).checked_div(self.entry_bytes)
    }

    /// How long a new medium lasts at the present rate, days.
    pub fn life_days(&self) -> Option<u64> {
        self.medium.life_days(self.forecast.bytes_per_day?)
    }

    /// That more is written than the budget, how much, and what for; a line for people.
    pub fn over_budget(&self) -> String {
        let recurring = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Prepared);
        let most = recurring.max_by_key(|cause| self.written.of(*cause)).unwrap_or(Cause::Log);
        format!(
            "more is written to the flash than its budget: {} in {}, and {} are for a day; most since the start: {}, {}",
            shown_bytes(self.forecast.bytes),
            shown_time(self.forecast.over_ms),
            shown_bytes(self.medium.budget_bytes_per_day),
            most.name(),
            shown_bytes(self.written.of(most)),
        )
    }
}

fn shown_time(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_is_what_was_written_for_what_was_to_be_kept() {
        let written = Written::default().with(Cause::Log, 8192).with(Cause::Base, 1000).with(Cause::Prepared, 1 << 30);
        let flash = FlashStatus { written, entry_bytes: 919, ..FlashStatus::default() };
        assert_eq!(flash.amplification_percent(), Some(1000));
        assert_eq!(FlashStatus { entry_bytes: 0, ..flash }.amplification_percent(), None);
    }

    #[test]
    fn what_is_over_says_how_much_and_what_for() {
        let written = Written::default().with(Cause::Log, 8 << 20).with(Cause::Base, 900_000_000);
        let forecast = Forecast { over_ms: 3 * 3_600_000, bytes: 1_250_000_000, bytes_per_day: Some(10_000_000_000) };
        let written = written.with(Cause::Prepared, 1 << 40);
        let flash = FlashStatus { written, forecast, is_over_budget: true, ..FlashStatus::default() };
        assert_eq!(
            flash.over_budget(),
            "more is written to the flash than its budget: 1.25 GB in 3 h, and 1.60 GB are for a day; most since the start: base, 900 MB"
        );
        assert_eq!(flash.life_days(), Some(600));
    }
}
