//! The calls that a program makes on a session.

use crate::create_options::requested;
use crate::error::Context;
use crate::{Coordinator, CreateOptions, Created, Done, Error, Op, Znode};
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use zoolet_model::{
    AclEntry, AddWatchMode, IntoData, Names, Path, Reply, Request, RequestError, SessionState, Stat, TimeToLive,
    Version, WriteOp,
};

/// The calls that a program makes on a session, for every [`Coordinator`].
///
/// A request is sent when its future is first polled. Dropping the future after that cancels only
/// the waiting. Without a connection each call fails at once; only
/// [`connected`](CoordinatorExt::connected) waits for one. No call repeats a request whose reply was
/// lost.
///
/// # Errors
/// Each call names what it could not do, and for which path:
/// - [`ErrorKind::Refused`](crate::ErrorKind::Refused) with the server's code. Nothing was done.
/// - [`ErrorKind::Suspended`](crate::ErrorKind::Suspended) without a connection. Nothing was sent.
/// - [`ErrorKind::ConnectionLoss`](crate::ErrorKind::ConnectionLoss) if the connection ended before the answer. A write may have been
///   done or not.
/// - Another kind if the session is over, or the request too large.
pub trait CoordinatorExt: Coordinator {
    /// Returns the data and stat of a znode.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn get(&self, path: &Path) -> impl Future<Output = Result<Znode, Error>> + Send {
        async move { znode(answer(self, get(path, false)).await?) }
    }

    /// Returns the stat of a znode, or `None` if it does not exist.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn exists(&self, path: &Path) -> impl Future<Output = Result<Option<Stat>, Error>> + Send {
        async move { existing(answer(self, exists(path, false)).await) }
    }

    /// Returns the names of the children, sorted.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn children(&self, path: &Path) -> impl Future<Output = Result<Names, Error>> + Send {
        async move { names(answer(self, children(path, false)).await?) }
    }

    /// Creates a persistent znode that every client may use.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn create(&self, path: &Path, data: impl IntoData) -> impl Future<Output = Result<Created, Error>> + Send {
        let op = WriteOp::from(Op::create(path, data));
        async move { created(answer(self, Request::Write(op)).await?) }
    }

    /// Creates a znode.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn create_with(
        &self,
        path: &Path,
        data: impl IntoData,
        options: &CreateOptions,
    ) -> impl Future<Output = Result<Created, Error>> + Send {
        let op = WriteOp::from(Op::create_with(path, data, options));
        async move { created(answer(self, Request::Write(op)).await?) }
    }

    /// Deletes a znode.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn delete(&self, path: &Path, version: impl Into<Version>) -> impl Future<Output = Result<(), Error>> + Send {
        let op = WriteOp::from(Op::delete(path, version));
        async move { answer(self, Request::Write(op)).await.map(drop) }
    }

    /// Sets the data of a znode.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn set(
        &self,
        path: &Path,
        data: impl IntoData,
        version: impl Into<Version>,
    ) -> impl Future<Output = Result<Stat, Error>> + Send {
        let op = WriteOp::from(Op::set(path, data, version));
        async move { stat(answer(self, Request::Write(op)).await?) }
    }

    /// Sets the data of a znode, and creates it and the znodes above it if they do not exist.
    ///
    /// After a lost connection it fails, and the data may have been written. The `put` of a fenced
    /// writer repeats itself instead: no other client writes meanwhile.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn put(&self, path: &Path, data: impl IntoData) -> impl Future<Output = Result<Stat, Error>> + Send {
        let data = data.into_data();
        async move {
            loop {
                match self.set(path, data.clone(), Version::Any).await {
                    Err(error) if error.is_no_node() => {}
                    other => return other,
                }
                if let Some(parent) = path.parent() {
                    self.ensure(&parent).await?;
                }
                match self.create(path, data.clone()).await {
                    Ok(created) => return Ok(created.stat),
                    // Another client created or deleted a znode meanwhile.
                    Err(error) if error.is_node_exists() || error.is_no_node() => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Creates a persistent znode, and the znodes above it, where they do not exist.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn ensure(&self, path: &Path) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            let mut missing = vec![path.clone()];
            while let Some(path) = missing.last() {
                match self.create(path, None).await {
                    Ok(_) => {}
                    Err(error) if error.is_node_exists() => {}
                    Err(error) if error.is_no_node() => {
                        if let Some(parent) = path.parent() {
                            missing.push(parent);
                            continue;
                        }
                        return Err(error);
                    }
                    // A session that may not create the znode need not, if it is there.
                    Err(error) if error.is_no_auth() && self.exists(path).await?.is_some() => {}
                    Err(error) => return Err(error),
                }
                missing.pop();
            }
            Ok(())
        }
    }

    /// Carries out all operations or none.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says. [`Error::index`] is the position of the operation that failed.
    fn multi(&self, ops: impl IntoIterator<Item = Op>) -> impl Future<Output = Result<Vec<Done>, Error>> + Send {
        let ops: Vec<WriteOp> = ops.into_iter().map(WriteOp::from).collect();
        async move {
            match answer(self, Request::Multi(ops.clone())).await? {
                Reply::Multi(results) => {
                    let results = Error::check_multi(&ops, results)?;
                    results.into_iter().map(|result| Done::of(result).ok_or(Error::unexpected())).collect()
                }
                _ => Err(Error::unexpected()),
            }
        }
    }

    /// Returns the ACL and stat of a znode.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn acl(&self, path: &Path) -> impl Future<Output = Result<(Vec<AclEntry>, Stat), Error>> + Send {
        async move {
            match answer(self, Request::GetAcl { path: path.text().clone() }).await? {
                Reply::Acl(acl, stat) => Ok((acl, stat)),
                _ => Err(Error::unexpected()),
            }
        }
    }

    /// Sets the ACL of a znode; `version` is that of its ACL, the `aversion` of its stat.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn set_acl(
        &self,
        path: &Path,
        acl: &[AclEntry],
        version: Version,
    ) -> impl Future<Output = Result<Stat, Error>> + Send {
        let (path, version) = (path.text().clone(), version.on_wire());
        let op = WriteOp::SetAcl { path, acl: requested(acl), version };
        async move { stat(answer(self, Request::Write(op)).await?) }
    }

    /// Returns how long a znode with a time to live still lives.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn time_to_live(&self, path: &Path) -> impl Future<Output = Result<TimeToLive, Error>> + Send {
        async move {
            match answer(self, Request::GetTtl { path: path.text().clone() }).await? {
                Reply::Ttl(left) => Ok(left),
                _ => Err(Error::unexpected()),
            }
        }
    }

    /// Waits until the session's server has applied every write acknowledged before the call.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    fn sync(&self) -> impl Future<Output = Result<(), Error>> + Send {
        async move { answer(self, Request::Sync { path: None }).await.map(drop) }
    }

    /// Reads like [`get`](CoordinatorExt::get) and watches for the znode's first change after it.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says. After an error nothing is watched.
    fn get_and_watch(&self, path: &Path) -> impl Future<Output = Result<(Znode, Self::Watch), Error>> + Send {
        async move {
            let (answer, watch) = answer_watching(self, get(path, true)).await;
            Ok((znode(answer?)?, watch))
        }
    }

    /// Reads like [`exists`](CoordinatorExt::exists) and watches for the first change after it.
    ///
    /// If the znode does not exist, the watch fires when it is created.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says. After an error nothing is watched.
    fn exists_and_watch(&self, path: &Path) -> impl Future<Output = Result<(Option<Stat>, Self::Watch), Error>> + Send {
        async move {
            let (answer, watch) = answer_watching(self, exists(path, true)).await;
            Ok((existing(answer)?, watch))
        }
    }

    /// Reads like [`children`](CoordinatorExt::children) and watches for the list's first change.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says. After an error nothing is watched.
    fn children_and_watch(&self, path: &Path) -> impl Future<Output = Result<(Names, Self::Watch), Error>> + Send {
        async move {
            let (answer, watch) = answer_watching(self, children(path, true)).await;
            Ok((names(answer?)?, watch))
        }
    }

    /// Watches every change of a znode or subtree until the stream is dropped.
    ///
    /// The znode need not exist.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says, with SystemError if the server has no room for another watch.
    /// After an error nothing is watched.
    fn watch(&self, path: &Path, mode: AddWatchMode) -> impl Future<Output = Result<Self::Events, Error>> + Send {
        async move {
            let (ticket, events) = self.add_watch(path, mode);
            match ticket.await {
                Ok(Reply::WatchAdded | Reply::Empty) => Ok(events),
                Ok(_) => Err(Error::unexpected()),
                Err(error) => Err(Error::at(error, "watch", path.text())),
            }
        }
    }

    /// Waits until the session is connected.
    ///
    /// # Errors
    /// One for which [`Error::is_session_over`] holds, if the session is over.
    fn connected(&self) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            let mut states = pin!(self.states());
            loop {
                match poll_fn(|context| states.as_mut().poll_next(context)).await {
                    Some(SessionState::Connected) => return Ok(()),
                    Some(SessionState::Suspended | SessionState::ReadOnly) => {}
                    Some(state @ (SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed)) => {
                        return Err(RequestError::of(state).into());
                    }
                    None => return Err(RequestError::of(self.state()).into()),
                }
            }
        }
    }

    /// Waits for `duration` of the session's clock, which also runs while the machine sleeps.
    ///
    /// It ends early once the session is over.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        self.timer(self.now().saturating_add(duration))
    }

    /// Waits for `work` at most for `limit` of the session's clock; `None` if that has passed.
    ///
    /// Then `work` is dropped.
    fn timeout<F: Future + Send>(&self, limit: Duration, work: F) -> impl Future<Output = Option<F::Output>> + Send {
        let mut timer = self.timer(self.now().saturating_add(limit));
        async move {
            let mut work = pin!(work);
            poll_fn(|context| match work.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => Pin::new(&mut timer).poll(context).map(|()| None),
            })
            .await
        }
    }
}

impl<C: Coordinator> CoordinatorExt for C {}

async fn answer<C: Coordinator>(session: &C, request: Request) -> Result<Reply, Error> {
    let context = Context::of(&request);
    session.submit(request).await.map_err(|error| context.error(error))
}

async fn answer_watching<C: Coordinator>(session: &C, request: Request) -> (Result<Reply, Error>, C::Watch) {
    let context = Context::of(&request);
    let (ticket, watch) = session.submit_watching(request);
    (ticket.await.map_err(|error| context.error(error)), watch)
}

fn get(path: &Path, watch: bool) -> Request {
    Request::GetData { path: path.text().clone(), watch }
}

fn exists(path: &Path, watch: bool) -> Request {
    Request::Exists { path: path.text().clone(), watch }
}

fn children(path: &Path, watch: bool) -> Request {
    Request::GetChildren { path: path.text().clone(), watch, with_stat: false }
}

fn znode(reply: Reply) -> Result<Znode, Error> {
    match reply {
        Reply::Data(data, stat) => Ok(Znode { data, stat }),
        _ => Err(Error::unexpected()),
    }
}

fn stat(reply: Reply) -> Result<Stat, Error> {
    match reply {
        Reply::Stat(stat) => Ok(stat),
        _ => Err(Error::unexpected()),
    }
}

fn existing(answer: Result<Reply, Error>) -> Result<Option<Stat>, Error> {
    match answer {
        Ok(reply) => stat(reply).map(Some),
        Err(error) if error.is_no_node() => Ok(None),
        Err(error) => Err(error),
    }
}

fn names(reply: Reply) -> Result<Names, Error> {
    match reply {
        Reply::Names(names) => Ok(names),
        _ => Err(Error::unexpected()),
    }
}

fn created(reply: Reply) -> Result<Created, Error> {
    match reply {
        Reply::PathStat(path, stat) => Ok(Created::new(Path::new(path)?, stat)),
        _ => Err(Error::unexpected()),
    }
}
