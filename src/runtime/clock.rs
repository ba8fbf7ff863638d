//! The two clocks of the machine.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};
use zoolet_machine::Now;

/// Returns the time since boot, which never goes back and includes time in suspend.
pub(super) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns the time since boot, milliseconds.
pub(super) fn mono_ms() -> u64 {
    let time = since_boot();
    time.as_secs() * 1000 + u64::from(time.subsec_millis())
}

/// Reads both clocks.
pub(super) fn now() -> Now {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Now { mono_ms: mono_ms(), wall_ms: i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX) }
}
