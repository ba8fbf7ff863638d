//! A number that everybody adds to.
//!
//! # Guarantees
//! - Each addition is done once, also when its reply is lost, and gives the value that was there before: no two get the same.
//! - [`Counter::compare_and_set`] compares with what the ensemble knows, also where its server is behind.
//!
//! # Does not guarantee
//! - Speed under contention: who meets others tries again. A [lock](crate::lock) around it is faster where many always add.
//! - Once for the additions of other libraries, which do not know whether theirs were done.
//!
//! # Znodes
//! The path, whose data is decimal text, as kazoo's `Counter` has it; `path-receipts` has an ephemeral for each participant by which a lost reply is resolved.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply is lost | it is found out whether it was done |
//! | the session is suspended | the addition is done when there is a server again |
//! | the session ends | its error: the addition was done or not |
//! | a future of an addition is dropped | it may have been done |
//! | the sum is none of 64 bits | [`Error::Full`], nothing was changed |
//! | the znode has other data | [`Error::Malformed`], nothing was changed |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Counter, Error};
//!
//! async fn serial_number<C: Coordinator>(session: C) -> Result<i64, Error> {
//!     Counter::new(session, &Path::from_static("/serial")).add(1).await
//! }
//! ```

use crate::ask::{UNEXPECTED, ask, create, data};
use crate::barrier::make_parent;
use crate::once::Once;
use crate::{Coordinator, Error};
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, WriteOp, first_failure};

/// A number at a path, as decimal text, which kazoo's `Counter` reads and writes too. Each addition is done once, also when its reply is lost.
#[derive(Debug)]
pub struct Counter<C: Coordinator> {
    coordinator: C,
    path: Path,
    once: Once<C>,
}

impl<C: Coordinator> Counter<C> {
    /// The counter at `path`, 0 until it is added to.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { once: Once::new(coordinator.clone(), path), coordinator, path: path.clone() }
    }

    /// Its value, as this server knows it.
    ///
    /// # Errors
    /// [`Error::Malformed`] when there is something else; the session's.
    pub async fn value(&self) -> Result<i64, Error> {
        self.read().await.map(|(value, _)| value)
    }

    /// Adds, and gives the value before. Others who add at the same moment make it try again; where many always do, a [`Lock`](crate::Lock) around
    /// it is faster.
    ///
    /// # Errors
    /// [`Error::Full`] when the sum is none of 64 bits; [`Error::Malformed`]; the session's.
    pub async fn add(&self, amount: i64) -> Result<i64, Error> {
        loop {
            let (value, version) = self.read().await?;
            let sum = value.checked_add(amount).ok_or(Error::Full)?;
            if self.set(sum, version).await? {
                return Ok(value);
            }
        }
    }

    /// Sets the value if it is `expected`; says whether it was.
    ///
    /// # Errors
    /// As [`Counter::add`].
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

    /// Whether the znode has this version: asked by a write, because a server that is behind knows a value that it had.
    async fn is_at(&self, version: i32) -> Result<bool, Error> {
        let check = Request::Multi(vec![WriteOp::Check { path: self.path.text().clone(), version }]);
        match ask(&self.coordinator, &check).await? {
            Reply::Multi(results) => match first_failure(&results) {
                None => Ok(true),
                Some((_, ErrorCode::BadVersion | ErrorCode::NoNode)) => Ok(false),
                Some((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
            },
            _ => Err(UNEXPECTED),
        }
    }

    /// Says whether nobody else was faster.
    async fn set(&self, value: i64, version: i32) -> Result<bool, Error> {
        let data = Some(Bytes::from(value.to_string()));
        let op = WriteOp::SetData { path: self.path.text().clone(), data, version };
        match self.once.transact(&[op]).await? {
            Ok(()) => Ok(true),
            Err((_, ErrorCode::BadVersion)) => Ok(false),
            Err((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// The value and its version. Makes the znode if it is not there.
    async fn read(&self) -> Result<(i64, i32), Error> {
        loop {
            if let Some((data, stat)) = data(&self.coordinator, self.path.text()).await? {
                return Ok((parse(data.as_deref().unwrap_or_default())?, stat.version));
            }
            let zero = create(self.path.text().clone(), Some(Bytes::from_static(b"0")), CreateKind::Persistent, false);
            match ask(&self.coordinator, &Request::Write(zero)).await {
                Ok(_) | Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NodeExists))) => {}
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) => {
                    make_parent(&self.coordinator, &self.path).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// No text at all is 0, as for kazoo.
fn parse(text: &[u8]) -> Result<i64, Error> {
    if text.is_empty() {
        return Ok(0);
    }
    std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).ok_or(Error::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_decimal_text_and_nothing_is_0() {
        assert_eq!(parse(b""), Ok(0));
        assert_eq!(parse(b"-12\n"), Ok(-12));
        assert_eq!(parse(b"1.5"), Err(Error::Malformed));
        assert_eq!(parse(b"\xff"), Err(Error::Malformed));
    }
}
