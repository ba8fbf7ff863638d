//! The rate limit of handshakes: ZooKeeper's token bucket.

use super::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use zoolet_machine::Limits;

/// Parts of a token: one for each millisecond of a minute.
///
/// Thus N handshakes a minute are N parts a millisecond, without a remainder.
const TOKEN: u64 = 60_000;

/// Bounds how many handshakes of all clients begin a session or continue one.
///
/// A handshake takes a token; without one its connection is closed. Thus sessions that an outage
/// disconnected come back at a bounded rate.
#[derive(Debug)]
pub(super) struct HandshakeRate {
    /// Largest contents of the bucket, in parts; 0 sets no limit.
    full: u64,
    per_minute: u64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    parts: u64,
    /// Time up to which the bucket was filled.
    filled: Instant,
}

impl HandshakeRate {
    /// Starts with a full bucket.
    pub(super) fn new(limits: &Limits, now: Instant) -> Self {
        let full = u64::from(limits.handshakes_burst_max) * TOKEN;
        let bucket = Mutex::new(Bucket { parts: full, filled: now });
        Self { full, per_minute: limits.handshakes_per_minute_max.into(), bucket }
    }

    /// Takes a token; returns whether the handshake may go on.
    pub(super) fn take(&self, now: Instant) -> bool {
        if self.full == 0 {
            return true;
        }
        let mut bucket = lock(&self.bucket);
        let ms = u64::try_from(now.saturating_duration_since(bucket.filled).as_millis()).unwrap_or(u64::MAX);
        bucket.filled += Duration::from_millis(ms);
        bucket.parts = bucket.parts.saturating_add(ms.saturating_mul(self.per_minute)).min(self.full);
        let left = bucket.parts.checked_sub(TOKEN);
        bucket.parts = left.unwrap_or(bucket.parts);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(handshakes_burst_max: u32, handshakes_per_minute_max: u32, now: Instant) -> HandshakeRate {
        HandshakeRate::new(&Limits { handshakes_burst_max, handshakes_per_minute_max, ..Limits::default() }, now)
    }

    #[test]
    fn bucket_allows_its_burst_and_then_the_rate() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let rate = rate(3, 600, start);
        assert_eq!([0, 0, 0, 0].map(|ms| rate.take(at(ms))), [true, true, true, false]);
        // A token each 100 ms, also when the clock is read more often than a part is added.
        assert_eq!(
            [30, 60, 99, 100, 101, 199, 200].map(|ms| rate.take(at(ms))),
            [false, false, false, true, false, false, true]
        );
        // A long pause fills the bucket, and no more.
        let later = [3_600_000; 4].map(|ms| rate.take(at(ms)));
        assert_eq!(later, [true, true, true, false]);
        assert!(!rate.take(at(0)), "a clock that was read earlier adds nothing");
    }

    #[test]
    fn largest_limits_do_not_overflow() {
        let start = Instant::now();
        let rate = rate(u32::MAX, u32::MAX, start);
        assert!(rate.take(start + Duration::from_secs(1 << 32)));
    }

    #[test]
    fn burst_of_0_sets_no_limit() {
        let start = Instant::now();
        let rate = rate(0, 1, start);
        assert!((0..1000).all(|_| rate.take(start)));
    }
}
