//! Writes to the medium: their count, their budget, and the device's health.

use super::{clock, lock};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::{info, warn};
use zoolet_machine::status::DeviceWear;
use zoolet_machine::status::FlashStatus;
use zoolet_machine::wear::{self, Medium, News, Wear};
use zoolet_store::Meter;

/// The medium below a node's data directory.
pub(super) struct Flash {
    data: PathBuf,
    meter: Arc<Meter>,
    state: Mutex<State>,
}

struct State {
    wear: Wear,
    device: Option<DeviceWear>,
    /// The device's trouble as last logged.
    reported: Option<String>,
    look_at_ms: u64,
}

impl Flash {
    pub(super) fn new(medium: Medium, data: &Path) -> Self {
        let now_ms = clock::mono_ms();
        let wear = Wear::new(medium, now_ms);
        let state = State { wear, device: None, reported: None, look_at_ms: now_ms };
        Self { data: data.to_path_buf(), meter: Arc::default(), state: Mutex::new(state) }
    }

    /// Returns the counter of bytes written to the medium.
    pub(super) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Returns the counter for writes to the file `path`.
    ///
    /// It is the medium's if the file is on the same file system, otherwise a new one.
    pub(super) fn meter_of(&self, path: &Path) -> Arc<Meter> {
        use std::os::unix::fs::MetadataExt;
        let device = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.dev());
        let is_here = path.parent().is_some_and(|directory| device(directory) == device(&self.data));
        if is_here { Arc::clone(&self.meter) } else { Arc::default() }
    }

    /// Returns the time until the next check.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(lock(&self.state).look_at_ms.saturating_sub(clock::mono_ms()))
    }

    /// Checks the bytes written and the device's health, if a check is due.
    pub(super) fn look(&self, entry_bytes: u64) {
        if self.patience() > Duration::ZERO {
            return;
        }
        // Not under the lock, which the core takes: the kernel may take any time.
        let device = zoolet_store::device_wear(&self.data);
        let trouble = device.as_ref().and_then(DeviceWear::trouble);
        let mut state = lock(&self.state);
        state.look_at_ms = clock::mono_ms() + wear::LOOK_MS;
        state.device = device;
        let is_news = trouble.is_some() && trouble != state.reported;
        state.reported.clone_from(&trouble);
        drop(state);
        if let Some(trouble) = trouble.filter(|_| is_news) {
            warn!("{trouble}");
        }
        self.status(entry_bytes);
    }

    /// Returns the current status, and logs when the budget is exceeded or met again.
    pub(super) fn status(&self, entry_bytes: u64) -> FlashStatus {
        let written = self.meter.written();
        let mut state = lock(&self.state);
        let news = state.wear.note(clock::mono_ms(), written.recurring());
        let status = FlashStatus {
            written,
            entry_bytes,
            medium: state.wear.medium(),
            forecast: state.wear.forecast(),
            is_over_budget: state.wear.is_over_budget(),
            device: state.device.clone(),
        };
        drop(state);
        match news {
            Some(News::Over) => warn!("{}", status.over_budget()),
            Some(News::Back) => info!("writes to the flash are within their budget again"),
            None => {}
        }
        status
    }
}

/// Returns names with units, and values, for metrics. Unknown values are left out.
pub(super) fn lines(flash: &FlashStatus) -> Vec<(&'static str, u64)> {
    use zoolet_machine::status::Cause;
    let of = |cause| flash.written.of(cause);
    let known = [
        ("flash_log_bytes", Some(of(Cause::Log))),
        ("flash_prepared_bytes", Some(of(Cause::Prepared))),
        ("flash_base_bytes", Some(of(Cause::Base))),
        ("flash_snapshot_bytes", Some(of(Cause::Snapshot))),
        ("flash_image_bytes", Some(of(Cause::Image))),
        ("flash_other_bytes", Some(of(Cause::Other))),
        ("flash_amplification_percent", flash.amplification_percent()),
        ("flash_window_ms", Some(flash.forecast.over_ms)),
        ("flash_window_bytes", Some(flash.forecast.bytes)),
        ("flash_bytes_per_day", flash.forecast.bytes_per_day),
        ("flash_budget_bytes_per_day", Some(flash.medium.budget_bytes_per_day)),
        ("flash_over_budget", Some(flash.is_over_budget.into())),
        ("flash_life_days", flash.life_days()),
        ("flash_device_used_percent", flash.device.as_ref().and_then(|device| device.used_percent.map(u64::from))),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
