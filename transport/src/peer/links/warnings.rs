//! Rate-limited warnings for the operator.
//!
//! A lasting problem is repeated at intervals, and a flood of connections cannot fill the disk.

use super::lock;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Instant;
use zoolet_machine::seam::log_rate_limit::LogRateLimit;

/// Writes warnings to the log.
#[derive(Debug)]
pub(super) struct Warnings {
    began: Instant,
    said: Mutex<LogRateLimit>,
}

impl Default for Warnings {
    fn default() -> Self {
        Self { began: Instant::now(), said: Mutex::default() }
    }
}

impl Warnings {
    /// Logs `line`, unless a line about the same `matter` was logged recently.
    pub(super) fn warn(&self, matter: impl Hash, line: &str) {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match lock(&self.said).admit(matter, now_ms) {
            None => {}
            Some(0) => tracing::warn!("{line}"),
            Some(left_out) => tracing::warn!(left_out, "{line}"),
        }
    }
}
