//! Rate-limited log lines about refused clients, so that bad clients cannot fill a disk.

use super::lock;
use std::fmt;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Instant;
use zoolet_machine::seam::log_rate_limit::LogRateLimit;

/// The rate-limited log.
#[derive(Debug)]
pub(super) struct Refusals {
    began: Instant,
    said: Mutex<LogRateLimit>,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, said: Mutex::default() }
    }

    /// Logs that `peer` was refused, unless it was logged lately for the same `cause`.
    ///
    /// `cause` is the reason without its figures.
    pub(super) fn log(&self, peer: IpAddr, cause: impl Hash, reason: impl fmt::Display) {
        match self.admit((peer, cause)) {
            None => {}
            Some(0) => tracing::warn!(client = %peer, "closed: {reason}"),
            Some(left_out) => tracing::warn!(client = %peer, left_out, "closed: {reason}"),
        }
    }

    /// Logs a failed accept.
    pub(super) fn log_accept(&self, error: &io::Error) {
        match self.admit(("accept", error.kind())) {
            None => {}
            Some(0) => tracing::warn!("cannot accept connections: {error}"),
            Some(left_out) => tracing::warn!(left_out, "cannot accept connections: {error}"),
        }
    }

    fn admit(&self, matter: impl Hash) -> Option<u64> {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        lock(&self.said).admit(matter, now_ms)
    }
}
