//! Bytes written to the storage medium, and the wear that results.

use crate::status::{Cause, DeviceWear, Written};
use crate::wear::{Forecast, Medium, shown_bytes};

/// Bytes written to the storage medium. The driver fills it in; the machine leaves it out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlashStatus {
    /// Bytes by cause since the start.
    pub written: Written,
    /// Bytes of logged entries: ordered requests with their headers.
    pub entry_bytes: u64,
    /// The medium's figures, from the profile.
    pub medium: Medium,
    /// Bytes written lately, without one-time preparation.
    pub forecast: Forecast,
    /// Whether the recent writes exceed the budget.
    pub is_over_budget: bool,
    /// The device's own wear report; `None` when it gives none.
    pub device: Option<DeviceWear>,
}

impl FlashStatus {
    /// Returns bytes written per byte of entries, percent; `None` before the first entry.
    pub fn amplification_percent(&self) -> Option<u64> {
        self.written.recurring().saturating_mul(100).checked_div(self.entry_bytes)
    }

    /// Returns a new medium's life in days at the present rate.
    pub fn life_days(&self) -> Option<u64> {
        self.medium.life_days(self.forecast.bytes_per_day?)
    }

    /// Formats the over-budget alarm: how much is written, and the main cause.
    pub fn over_budget(&self) -> String {
        let recurring = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Prepared);
        let most = recurring.max_by_key(|cause| self.written.of(*cause)).unwrap_or(Cause::Log);
        format!(
            "flash writes exceed the budget: {} in {}, budget {} a day; largest cause since the start: {}, {}",
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
    fn write_amplification_is_recurring_bytes_per_entry_byte() {
        let written = Written::default().with(Cause::Log, 8192).with(Cause::Base, 1000).with(Cause::Prepared, 1 << 30);
        let flash = FlashStatus { written, entry_bytes: 919, ..FlashStatus::default() };
        assert_eq!(flash.amplification_percent(), Some(1000));
        assert_eq!(FlashStatus { entry_bytes: 0, ..flash }.amplification_percent(), None);
    }

    #[test]
    fn over_budget_message_names_amount_budget_and_largest_cause() {
        let written = Written::default().with(Cause::Log, 8 << 20).with(Cause::Base, 900_000_000);
        let forecast = Forecast { over_ms: 3 * 3_600_000, bytes: 1_250_000_000, bytes_per_day: Some(10_000_000_000) };
        let written = written.with(Cause::Prepared, 1 << 40);
        let flash = FlashStatus { written, forecast, is_over_budget: true, ..FlashStatus::default() };
        assert_eq!(
            flash.over_budget(),
            "flash writes exceed the budget: 1.25 GB in 3 h, budget 1.60 GB a day; largest cause since the start: base, 900 MB"
        );
        assert_eq!(flash.life_days(), Some(600));
    }
}
