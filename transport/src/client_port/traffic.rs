//! Counters of the client port.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one client port since its start.
///
/// A latency lasts from a request's decoding until its answer is queued.
#[derive(Debug)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    bytes_received: AtomicU64,
    bytes_sent: AtomicU64,
    outstanding: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
    dropped: AtomicU64,
    sessionless_expired: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    latency_us_min: AtomicU64,
    latency_us_max: AtomicU64,
    latency_us_sum: AtomicU64,
    answered: AtomicU64,
    response_bytes_last: AtomicU64,
    response_bytes_min: AtomicU64,
    response_bytes_max: AtomicU64,
    auth_failed: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrafficReading {
    /// Messages received, handshakes and pings included.
    pub received: u64,
    /// Messages sent, watch events included.
    pub sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Requests read but not answered.
    pub outstanding: u64,
    /// Connections accepted, those closed because of a limit included.
    pub accepted: u64,
    /// Connections closed because a limit was reached.
    pub rejected: u64,
    /// Connections closed for a client's fault, such as invalid bytes or unread replies.
    pub dropped: u64,
    /// Connections closed because they made no session in time; part of `dropped`.
    pub sessionless_expired: u64,
    /// Successful reads from sockets: one system call each.
    pub reads: u64,
    /// Successful writes to sockets: one system call each.
    pub writes: u64,
    /// Answers counted in the latencies.
    pub answered: u64,
    /// Shortest latency, microseconds; 0 before the first answer.
    pub latency_us_min: u64,
    /// Longest latency, microseconds.
    pub latency_us_max: u64,
    /// Sum of latencies, microseconds.
    pub latency_us_sum: u64,
    /// Bytes of the last reply; 0 before the first.
    pub response_bytes_last: u64,
    /// Bytes of the smallest reply; 0 before the first.
    pub response_bytes_min: u64,
    /// Bytes of the largest reply.
    pub response_bytes_max: u64,
    /// Replies that refused an authentication.
    pub auth_failed: u64,
}

impl Default for Traffic {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            received: zero(),
            sent: zero(),
            bytes_received: zero(),
            bytes_sent: zero(),
            outstanding: zero(),
            accepted: zero(),
            rejected: zero(),
            dropped: zero(),
            sessionless_expired: zero(),
            reads: zero(),
            writes: zero(),
            latency_us_min: AtomicU64::new(u64::MAX),
            latency_us_max: zero(),
            latency_us_sum: zero(),
            answered: zero(),
            response_bytes_last: zero(),
            response_bytes_min: AtomicU64::new(u64::MAX),
            response_bytes_max: zero(),
            auth_failed: zero(),
        }
    }
}

impl Traffic {
    /// Returns all counters.
    pub fn read(&self) -> TrafficReading {
        let answered = self.answered.load(Relaxed);
        TrafficReading {
            received: self.received.load(Relaxed),
            sent: self.sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            outstanding: self.outstanding.load(Relaxed),
            accepted: self.accepted.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            sessionless_expired: self.sessionless_expired.load(Relaxed),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            answered,
            latency_us_min: if answered == 0 { 0 } else { self.latency_us_min.load(Relaxed) },
            latency_us_max: self.latency_us_max.load(Relaxed),
            latency_us_sum: self.latency_us_sum.load(Relaxed),
            response_bytes_last: self.response_bytes_last.load(Relaxed),
            response_bytes_min: match self.response_bytes_min.load(Relaxed) {
                u64::MAX => 0,
                bytes => bytes,
            },
            response_bytes_max: self.response_bytes_max.load(Relaxed),
            auth_failed: self.auth_failed.load(Relaxed),
        }
    }

    /// Resets message counts and latencies (srst). ZooKeeper never resets the other counters.
    pub(super) fn reset(&self) {
        for counter in [&self.received, &self.sent, &self.answered, &self.latency_us_sum, &self.latency_us_max] {
            counter.store(0, Relaxed);
        }
        self.latency_us_min.store(u64::MAX, Relaxed);
    }

    pub(super) fn on_accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    pub(super) fn on_rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    pub(super) fn on_dropped(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    pub(super) fn on_sessionless_expired(&self) {
        self.sessionless_expired.fetch_add(1, Relaxed);
    }

    pub(super) fn on_read(&self, bytes: usize) {
        self.reads.fetch_add(1, Relaxed);
        self.bytes_received.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn on_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Relaxed);
        self.bytes_sent.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn on_received(&self, messages: u64) {
        self.received.fetch_add(messages, Relaxed);
    }

    pub(super) fn on_sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    pub(super) fn on_outstanding(&self, requests: u64) {
        self.outstanding.fetch_add(requests, Relaxed);
    }

    pub(super) fn on_released(&self, requests: u64) {
        self.outstanding.fetch_sub(requests, Relaxed);
    }

    pub(super) fn on_answered(&self, latency_us: u64) {
        self.answered.fetch_add(1, Relaxed);
        self.latency_us_sum.fetch_add(latency_us, Relaxed);
        self.latency_us_min.fetch_min(latency_us, Relaxed);
        self.latency_us_max.fetch_max(latency_us, Relaxed);
    }

    pub(super) fn on_response(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.response_bytes_last.store(bytes, Relaxed);
        // One thread writes these, and most replies change neither, so no atomic maximum is needed.
        if bytes < self.response_bytes_min.load(Relaxed) {
            self.response_bytes_min.store(bytes, Relaxed);
        }
        if bytes > self.response_bytes_max.load(Relaxed) {
            self.response_bytes_max.store(bytes, Relaxed);
        }
    }

    pub(super) fn on_auth_failed(&self) {
        self.auth_failed.fetch_add(1, Relaxed);
    }
}
