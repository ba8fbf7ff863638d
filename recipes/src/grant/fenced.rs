//! Writes that are done only while a grant stands.

use crate::line::Fate;
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, CoordinatorExt, CreateOptions, Created, Done, Error, ErrorKind, GrantEnd, Op};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use zoolet_model::{
    ErrorCode, IntoData, Path, Reply, Request, RequestError, SessionState, Stat, Text, Version, WriteOp,
};

/// Writes that check the grant in the same transaction.
///
/// They are done only while the grant stands, however late they arrive and even if the holder is
/// mistaken. Clones are handles to the same grant, and may move to another task. A writer does not
/// keep the grant: once that is dropped, writes fail.
#[derive(Clone, Debug)]
pub struct FencedWriter<C> {
    coordinator: C,
    fence: Fence,
    fate: Arc<Fate>,
}

impl<C> FencedWriter<C> {
    pub(crate) const fn new(coordinator: C, fence: Fence, fate: Arc<Fate>) -> Self {
        Self { coordinator, fence, fate }
    }
}

impl<C: Coordinator> FencedWriter<C> {
    /// Does all operations, or none if one fails; returns their results.
    ///
    /// None is done if the grant is over.
    ///
    /// # Errors
    /// - [`ErrorKind::GrantLost`] if the grant is over. Nothing was done.
    /// - [`ErrorKind::Doubtful`] if the session has no connection. Nothing was sent.
    /// - [`ErrorKind::Refused`] with the server's answer to the first operation that failed, whose
    ///   position is [`Error::index`]. Nothing was done.
    /// - [`ErrorKind::ConnectionLoss`], or [`ErrorKind::SessionLost`] because the session ended
    ///   meanwhile: the operations may or may not have been done.
    pub async fn multi(&self, ops: impl IntoIterator<Item = Op>) -> Result<Vec<Done>, Error> {
        let (mut all, first) = self.checks();
        all.extend(ops.into_iter().map(WriteOp::from));
        let results = self.send(Request::Multi(all.clone())).await.map_err(|error| self.error(error))?;
        match zoolet_model::first_failure(&results) {
            Some((at, code)) => {
                Err(self.refusal(first, at, code, || Error::of_multi(&all, at, code).counted_from(first)))
            }
            None => results.into_iter().skip(first).map(|result| Done::of(result).ok_or(Error::unexpected())).collect(),
        }
    }

    /// Does one operation.
    async fn one(&self, op: Op) -> Result<Done, Error> {
        let (mut all, first) = self.checks();
        let op = WriteOp::from(op);
        // An error needs only the operation's name and path.
        let named = WriteOp::Check { path: op.path().clone(), version: -1 };
        let operation = Error::operation_of(&op);
        all.push(op);
        let error = |kind: ErrorKind| Error::at(kind, operation, named.path());
        let mut results = self.send(Request::Multi(all)).await.map_err(&error)?;
        match zoolet_model::first_failure(&results) {
            Some((at, code)) => Err(self.refusal(first, at, code, || error(code.into()))),
            None => results.pop().and_then(Done::of).ok_or(Error::unexpected()),
        }
    }

    /// Returns the checks that precede the operations, and their number.
    fn checks(&self) -> (Vec<WriteOp>, usize) {
        let checks: Vec<_> = self.fence.checks().filter(|_| !is_on(Mutation::FencedUnchecked)).collect();
        let count = checks.len();
        (checks, count)
    }

    async fn send(&self, request: Request) -> Result<Vec<zoolet_model::OpResult>, ErrorKind> {
        // A doubtful grant may write while connected: the check decides, and its answer removes the
        // doubt.
        match self.coordinator.state() {
            SessionState::Connected => {}
            SessionState::Suspended | SessionState::ReadOnly => return Err(ErrorKind::Doubtful),
            SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed => {
                return Err(ErrorKind::GrantLost(GrantEnd::Session));
            }
        }
        let sent = self.fate.stamp(&self.coordinator);
        match self.coordinator.submit(request).await {
            Ok(Reply::Multi(results)) => {
                // The checks stood, as a write.
                if zoolet_model::first_failure(&results).is_none() {
                    self.fate.found(&self.coordinator, sent);
                }
                Ok(results)
            }
            Ok(_) => Err(Error::unexpected().kind()),
            Err(error) => Err(not_sent_or(error)),
        }
    }

    /// Returns the error of a multi whose operation `at` was refused.
    fn refusal(&self, first: usize, at: usize, code: ErrorCode, of_operation: impl FnOnce() -> Error) -> Error {
        if at < first && matches!(code, ErrorCode::NoNode | ErrorCode::BadVersion) {
            self.fate.is_gone.store(true, Relaxed);
            return self.error(ErrorKind::GrantLost(GrantEnd::Broken));
        }
        of_operation()
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::at(kind, "write under the grant", &self.fence.znode)
    }

    /// Sets the data of a znode.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn set(&self, path: &Path, data: impl IntoData, version: impl Into<Version>) -> Result<Stat, Error> {
        self.one(Op::set(path, data, version)).await?.stat().ok_or(Error::unexpected())
    }

    /// Creates a persistent znode.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn create(&self, path: &Path, data: impl IntoData) -> Result<Created, Error> {
        self.create_with(path, data, &CreateOptions::persistent()).await
    }

    /// Creates a znode.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn create_with(
        &self,
        path: &Path,
        data: impl IntoData,
        options: &CreateOptions,
    ) -> Result<Created, Error> {
        let Done::Created { path, stat } = self.one(Op::create_with(path, data, options)).await? else {
            return Err(Error::unexpected());
        };
        let stat = match stat {
            Some(stat) => stat,
            None => crate::ask::stat(&self.coordinator, path.text())
                .await?
                .ok_or_else(|| Error::at(ErrorCode::NoNode, "look up", path.text()))?,
        };
        Ok(Created::new(path, stat))
    }

    /// Deletes a znode.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn delete(&self, path: &Path, version: impl Into<Version>) -> Result<(), Error> {
        self.one(Op::delete(path, version)).await.map(drop)
    }

    /// Sets the data of a znode, or creates it and the znodes above it.
    ///
    /// It goes on until it knows that the data was written. After a lost connection it waits for
    /// the next one and writes again, so the version may grow by more than one. Between
    /// the two writes, only this holder can write, or a client that writes without the fence.
    ///
    /// # Errors
    /// - [`ErrorKind::GrantLost`] if the grant is over. The data may have been written before.
    /// - [`ErrorKind::Refused`] with the server's answer.
    pub async fn put(&self, path: &Path, data: impl IntoData) -> Result<Stat, Error> {
        let data = data.into_data();
        let mut failed = 0;
        loop {
            match self.put_once(path, data.clone()).await {
                Err(error) if is_unknown(&error) => {
                    // Its end shows in the next write.
                    let _ = self.coordinator.connected().await;
                    // At once the first time: another server leads by now.
                    if failed > 0 || error.kind() == ErrorKind::Busy {
                        self.coordinator.sleep(crate::ask::pause(&self.coordinator, failed)).await;
                    }
                    failed += 1;
                }
                Err(error) if error.is_session_over() => {
                    return Err(self.error(ErrorKind::GrantLost(GrantEnd::Session)));
                }
                other => return other,
            }
        }
    }

    async fn put_once(&self, path: &Path, data: Option<bytes::Bytes>) -> Result<Stat, Error> {
        loop {
            match self.set(path, data.clone(), Version::Any).await {
                Err(error) if error.is_no_node() => {}
                other => return other,
            }
            let mut missing = vec![path.clone()];
            while let Some(next) = missing.last() {
                let content = if next == path { data.clone() } else { None };
                match self.create(next, content).await {
                    Ok(created) if next == path => return Ok(created.stat),
                    Ok(_) => drop(missing.pop()),
                    Err(error) if error.is_node_exists() => drop(missing.pop()),
                    Err(error) if error.is_no_node() => match next.parent() {
                        Some(parent) => missing.push(parent),
                        None => return Err(error),
                    },
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Whether a write may have been done or not, and may be sent again under the same grant.
fn is_unknown(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionLoss | ErrorKind::Doubtful | ErrorKind::Busy)
}

/// Checks that a fenced writer adds to its transactions.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    /// The grant's znode, at any version.
    ///
    /// A request to release the grant changes its version.
    pub(crate) znode: Text,
    /// Second znode and version to check, if others may recreate `znode`.
    ///
    /// Each creation of `znode` writes to the second znode in the same transaction.
    pub(crate) turn: Option<(Text, i32)>,
}

impl Fence {
    fn checks(&self) -> impl Iterator<Item = WriteOp> + '_ {
        let turn = self.turn.iter().map(|(path, version)| (path, *version));
        [(&self.znode, -1)]
            .into_iter()
            .chain(turn)
            .map(|(path, version)| WriteOp::Check { path: path.clone(), version })
    }
}

/// Maps the session's error to a writer's.
///
/// The connection may have ended after the state was read and before the request was submitted.
fn not_sent_or(error: RequestError) -> ErrorKind {
    match error {
        RequestError::Suspended => ErrorKind::Doubtful,
        // A request in flight when the session ends may or may not have been done.
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_request_is_doubtful_and_other_session_errors_are_kept() {
        assert_eq!(not_sent_or(RequestError::Suspended), ErrorKind::Doubtful);
        for error in [RequestError::ConnectionLoss, RequestError::Closed] {
            assert_eq!(not_sent_or(error), error.into());
        }
    }
}
