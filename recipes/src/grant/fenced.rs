//! Writes that are done only while a grant stands.

use crate::ask::UNEXPECTED;
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Error};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use zoolet_model::{ErrorCode, OpResult, Path, Reply, Request, SessionState, Stat, Text, WriteOp};

/// Writes that check the grant in the same transaction.
///
/// They are done only while the grant stands, however late they arrive and even if the holder is
/// mistaken.
#[derive(Clone, Copy, Debug)]
pub struct FencedWriter<'a, C> {
    coordinator: &'a C,
    fence: Fence<'a>,
    is_gone: &'a AtomicBool,
}

impl<'a, C> FencedWriter<'a, C> {
    pub(crate) fn new(coordinator: &'a C, fence: Fence<'a>, is_gone: &'a AtomicBool) -> Self {
        Self { coordinator, fence, is_gone }
    }
}

impl<C: Coordinator> FencedWriter<'_, C> {
    /// Does all operations, or none if one fails; returns their results.
    ///
    /// None is done if the grant is over.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the grant is over. Nothing was done.
    /// - [`Error::Doubtful`] if the session has no connection. Nothing was sent.
    /// - [`Error::Session`] with the server's answer to the first operation that failed. Nothing
    ///   was done.
    /// - [`Error::Session`] with `ConnectionLoss`, or because the session ended meanwhile: the
    ///   operations may or may not have been done.
    pub async fn multi(&self, ops: impl IntoIterator<Item = WriteOp>) -> Result<Vec<OpResult>, Error> {
        // A doubtful grant may write while connected: the check decides, and its answer removes the
        // doubt.
        match self.coordinator.state() {
            SessionState::Connected => {}
            SessionState::Suspended | SessionState::ReadOnly => return Err(Error::Doubtful),
            SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed => return Err(Error::Lost),
        }
        let checks: Vec<_> = self.fence.checks().filter(|_| !is_on(Mutation::FencedUnchecked)).collect();
        let count = checks.len();
        let request = Request::Multi(checks.into_iter().chain(ops).collect());
        let mut results = match self.coordinator.submit(request).await {
            Ok(Reply::Multi(results)) => results,
            Ok(_) => return Err(UNEXPECTED),
            Err(error) => return Err(not_sent_or(error)),
        };
        match zoolet_model::first_failure(&results) {
            Some((at, ErrorCode::NoNode | ErrorCode::BadVersion)) if at < count => {
                self.is_gone.store(true, Relaxed);
                Err(Error::Lost)
            }
            Some((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
            None => Ok(results.split_off(count)),
        }
    }

    /// Sets the data of a znode; version -1 matches any.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn set(&self, path: &Path, data: impl Into<Option<Bytes>>, version: i32) -> Result<Stat, Error> {
        let op = WriteOp::SetData { path: path.text().clone(), data: data.into(), version };
        match self.multi([op]).await?.pop() {
            Some(OpResult::SetData(stat)) => Ok(stat),
            _ => Err(UNEXPECTED),
        }
    }

    /// Creates a persistent znode.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn create(&self, path: &Path, data: impl Into<Option<Bytes>>) -> Result<Stat, Error> {
        let kind = zoolet_model::CreateKind::Persistent;
        let op = crate::ask::create(path.text().clone(), data.into(), kind, false);
        match self.multi([op]).await?.pop() {
            Some(OpResult::CreateStat(_, stat)) => Ok(stat),
            // Apache ZooKeeper returns no stat for a create in a multi, up to 3.8.0 at least.
            Some(OpResult::Create(path)) => crate::ask::stat(self.coordinator, &path)
                .await?
                .ok_or(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))),
            _ => Err(UNEXPECTED),
        }
    }

    /// Deletes a znode; version -1 matches any.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn delete(&self, path: &Path, version: i32) -> Result<(), Error> {
        self.multi([WriteOp::Delete { path: path.text().clone(), version }]).await.map(drop)
    }
}

/// Checks that a fenced writer adds to its transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'a> {
    /// The grant's znode, at any version.
    ///
    /// A request to release the grant changes its version.
    pub(crate) znode: &'a Text,
    /// Second znode and version to check, if others may recreate `znode`.
    ///
    /// Each creation of `znode` writes to the second znode in the same transaction.
    pub(crate) turn: Option<(&'a Text, i32)>,
}

impl Fence<'_> {
    fn checks(self) -> impl Iterator<Item = WriteOp> {
        let check = |(path, version): (&Text, i32)| WriteOp::Check { path: path.clone(), version };
        [(self.znode, -1)].into_iter().chain(self.turn).map(check)
    }
}

/// Maps the session's error to a writer's.
///
/// The connection may have ended after the state was read and before the request was submitted.
fn not_sent_or(error: zoolet_model::Error) -> Error {
    match error {
        zoolet_model::Error::Suspended => Error::Doubtful,
        // A request in flight when the session ends may or may not have been done.
        other => Error::Session(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::Error as SessionError;

    #[test]
    fn unsent_request_is_doubtful_and_other_session_errors_are_kept() {
        assert_eq!(not_sent_or(SessionError::Suspended), Error::Doubtful);
        for error in [SessionError::ConnectionLoss, SessionError::Closed] {
            assert_eq!(not_sent_or(error), Error::Session(error));
        }
    }
}
