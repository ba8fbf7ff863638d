//! A counter that many participants add to.
//!
//! # Guarantees
//! - Each addition is done once, even if its reply is lost, and returns the value before it. If all
//!   amounts are positive, no two additions return the same value.
//! - [`Counter::compare_and_set`] compares with the latest value, even if its server lags behind.
//!
//! # Does not guarantee
//! - Speed under contention: an addition that meets another one is retried. Where many participants
//!   add all the time, a [lock](crate::lock) around the counter is faster.
//! - Exactly-once additions of other libraries, which do not know whether theirs were done.
//!
//! # Znodes
//! The path, whose data is decimal text, as in kazoo's `Counter`. `path-receipts` has an ephemeral
//! for each participant, which resolves lost replies.
//!
//! # Failures
//! - **The reply is lost**: the call finds out whether the addition was done.
//! - **The session is suspended**: the addition is done once there is a server again.
//! - **The session ends**: its error. The addition was done or not.
//! - **The future of an addition is dropped**: the addition may have been done.
//! - **The sum does not fit 64 bits**: [`ErrorKind::Overflow`], and nothing was changed.
//! - **The znode has other data**: [`ErrorKind::Malformed`], and nothing was changed.
//!
//! # Example
//! ```
//! use zoolet::recipes::Counter;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn serial_number<C: Coordinator>(session: C) -> Result<i64, Error> {
//!     Counter::new(session, &Path::from_static("/serial")).add(1).await
//! }
//! ```

use crate::ask::{ask, create, data};
use crate::barrier::make_parent;
use crate::once::Once;
use crate::{Coordinator, Error, ErrorKind};
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, WriteOp, first_failure};

/// A counter at a path, kept as decimal text.
///
/// kazoo's `Counter` reads and writes the same text. Each addition is done once, even if its reply
/// is lost.
#[derive(Debug)]
pub struct Counter<C: Coordinator> {
    coordinator: C,
    path: Path,
    once: Once<C>,
}

impl<C: Coordinator> Counter<C> {
    /// Returns the counter at `path`. It is 0 until it is added to.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { once: Once::new(coordinator.clone(), path), coordinator, path: path.clone() }
    }

    /// Returns the value, as this server knows it.
    ///
    /// # Errors
    /// - [`ErrorKind::Malformed`] if the znode has other data.
    /// - Fails if the session ends or a request is refused.
    pub async fn value(&self) -> Result<i64, Error> {
        self.read().await.map(|(value, _)| value)
    }

    /// Adds `amount`; returns the value before.
    ///
    /// The call retries when another participant changes the value at the same moment. Where that
    /// happens all the time, a [`Lock`](crate::Lock) around the counter is faster.
    ///
    /// # Errors
    /// - [`ErrorKind::Overflow`] if the sum does not fit 64 bits.
    /// - [`ErrorKind::Malformed`] if the znode has other data.
    /// - Fails if the session ends or a request is refused.
    pub async fn add(&self, amount: i64) -> Result<i64, Error> {
        loop {
            let (value, version) = self.read().await?;
            let overflow = || Error::at(ErrorKind::Overflow, "add to", self.path.text());
            let sum = value.checked_add(amount).ok_or_else(overflow)?;
            if self.set(sum, version).await? {
                return Ok(value);
            }
        }
    }

    /// Sets the value if it is `expected`; returns whether it was.
    ///
    /// # Errors
    /// - [`ErrorKind::Malformed`] if the znode has other data.
    /// - Fails if the session ends or a request is refused.
    pub async fn compare_and_set(&self, expected: i64, value: i64) -> Result<bool, Error> {
        loop {
            let (now, version) = self.read().await?;
            if now != expected {
                if self.is_at(version).await? {
                    return Ok(false);
                }
                continue;
            }
            if self.set(value, version).await? {
                return Ok(true);
            }
        }
    }

    /// Whether the znode has this version.
    ///
    /// It sends a write: a lagging server would answer a read with an earlier value.
    async fn is_at(&self, version: i32) -> Result<bool, Error> {
        let check = Request::Multi(vec![WriteOp::Check { path: self.path.text().clone(), version }]);
        match ask(&self.coordinator, &check).await? {
            Reply::Multi(results) => match first_failure(&results) {
                None => Ok(true),
                Some((_, ErrorCode::BadVersion | ErrorCode::NoNode)) => Ok(false),
                Some((_, code)) => Err(Error::at(code, "change the counter", self.path.text())),
            },
            _ => Err(Error::unexpected()),
        }
    }

    /// Sets the value; false if another participant changed it first.
    async fn set(&self, value: i64, version: i32) -> Result<bool, Error> {
        let data = Some(Bytes::from(value.to_string()));
        let op = WriteOp::SetData { path: self.path.text().clone(), data, version };
        match self.once.transact(&[op]).await? {
            Ok(()) => Ok(true),
            Err((_, ErrorCode::BadVersion)) => Ok(false),
            Err((_, code)) => Err(Error::at(code, "change the counter", self.path.text())),
        }
    }

    /// Returns the value and its version. Creates the znode if it does not exist.
    async fn read(&self) -> Result<(i64, i32), Error> {
        loop {
            if let Some((data, stat)) = data(&self.coordinator, self.path.text()).await? {
                return Ok((parse(data.as_deref().unwrap_or_default())?, stat.version));
            }
            let zero = create(self.path.text().clone(), Some(Bytes::from_static(b"0")), CreateKind::Persistent, false);
            match ask(&self.coordinator, &Request::Write(zero)).await {
                Ok(_) => {}
                Err(error) if error.is_node_exists() => {}
                Err(error) if error.is_no_node() => {
                    make_parent(&self.coordinator, &self.path).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Parses the value. Empty text is 0, as for kazoo.
fn parse(text: &[u8]) -> Result<i64, Error> {
    if text.is_empty() {
        return Ok(0);
    }
    std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).ok_or(ErrorKind::Malformed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_decimal_text_and_empty_data_is_0() {
        assert_eq!(parse(b""), Ok(0));
        assert_eq!(parse(b"-12\n"), Ok(-12));
        assert_eq!(parse(b"1.5"), Err(ErrorKind::Malformed.into()));
        assert_eq!(parse(b"\xff"), Err(ErrorKind::Malformed.into()));
    }
}
