//! The two clocks of the machine.

use rustix::time::{ClockId, clock_gettime};
use std::time::SystemTime;
use zoolet_engine::Now;

/// Milliseconds on a clock that never goes back and counts the time the box was suspended.
pub(super) fn mono_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

/// Both clocks.
pub(super) fn now() -> Now {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Now { mono_ms: mono_ms(), wall_ms: i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX) }
}
