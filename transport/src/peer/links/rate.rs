//! Rate limit of outgoing snapshots.

use super::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// Maximum unused time that counts towards later sends.
///
/// It makes up for a pause of the disk, and is too short for a burst.
const CREDIT: Duration = Duration::from_millis(20);

/// Rate limit shared by all transfers, in bytes per second.
#[derive(Debug)]
pub(super) struct Rate {
    bytes_per_second: u64,
    /// When everything admitted so far has been sent.
    free: Mutex<Instant>,
}

impl Rate {
    pub(super) fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), free: Mutex::new(now) }
    }

    /// Waits until `bytes` more may be sent.
    pub(super) async fn take(&self, bytes: usize) {
        let at = self.turn(bytes, Instant::now());
        sleep_until(at.into()).await;
    }

    /// Returns when the next `bytes` may be sent, and reserves their time.
    fn turn(&self, bytes: usize, now: Instant) -> Instant {
        let mut free = lock(&self.free);
        let earliest = now.checked_sub(CREDIT).unwrap_or(now);
        let turn = (*free).max(earliest);
        *free = turn + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_holds_and_a_pause_earns_little_credit() {
        let start = Instant::now();
        let rate = Rate::new(1000, start);
        assert!(rate.turn(500, start) <= start);
        assert_eq!(rate.turn(500, start), start + Duration::from_millis(500));
        assert_eq!(rate.turn(500, start), start + Duration::from_millis(1000));
        let later = start + Duration::from_secs(60);
        assert_eq!(rate.turn(500, later), later - CREDIT);
        assert_eq!(rate.turn(500, later), later - CREDIT + Duration::from_millis(500));
    }
}
