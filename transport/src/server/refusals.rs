//! A log line for whom is refused and why, and a bound on lines: a flood of bad clients must not fill a disk.

use super::lock;
use std::fmt;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Instant;
use zoolet_engine::notices::Notices;

/// Writes the lines.
#[derive(Debug)]
pub(super) struct Refusals {
    began: Instant,
    said: Mutex<Notices>,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, said: Mutex::default() }
    }

    /// Says who was refused and why, unless that was said of him lately: of this `cause`, which is the reason without its figures.
    pub(super) fn log(&self, peer: IpAddr, cause: impl Hash, reason: impl fmt::Display) {
        match self.admit((peer, cause)) {
            None => {}
            Some(0) => tracing::warn!(client = %peer, "closed: {reason}"),
            Some(left_out) => tracing::warn!(client = %peer, left_out, "closed: {reason}"),
        }
    }

    /// Says that nobody could be accepted.
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
