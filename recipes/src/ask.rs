//! Requests of recipes, repeated when a connection ends before the answer.

use crate::{Coordinator, CoordinatorExt, Error, ErrorKind, GrantEnd};
use bytes::Bytes;
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use zoolet_model::{
    Create, CreateKind, CreateMode, ErrorCode, IntoData, Names, Path, Reply, Request, RequestError, RequestedAcl,
    SessionState, Stat, Text, WatchedEvent, WriteOp,
};

/// Why a grant is over whose znode is gone.
pub(crate) const BROKEN: ErrorKind = ErrorKind::GrantLost(GrantEnd::Broken);

/// Waits until the session is connected.
///
/// # Errors
/// Fails if the session is over.
pub(crate) async fn connected<C: Coordinator>(coordinator: &C) -> Result<(), Error> {
    coordinator.connected().await
}

/// Returns the pause after this many attempts in a row that failed for want of a connection.
///
/// It grows from a 256th of the session timeout, so that a leader goes on soon, to an eighth, so
/// that a connection that ends again and again costs little.
pub(crate) fn pause<C: Coordinator>(coordinator: &C, failed: u32) -> Duration {
    coordinator.session_timeout() / (256 >> failed.min(5))
}

/// Runs `work`, and drops it when the session is disconnected; for `try_*` calls.
///
/// # Errors
/// [`ErrorKind::Disconnected`] if there is no connection, or it ends before `work` is ready.
pub(crate) async fn at_once<C: Coordinator, T>(
    coordinator: &C,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match first(work, disconnected(coordinator)).await {
        First::Left(done) => done,
        First::Right(()) => Err(ErrorKind::Disconnected.into()),
    }
}

/// Waits until the session has no connection. If the session ends, this waits for ever: its
/// requests report the end.
async fn disconnected<C: Coordinator>(coordinator: &C) {
    let mut states = coordinator.states();
    while let Some(state) = next(&mut states).await {
        match state {
            SessionState::Suspended | SessionState::ReadOnly => return,
            SessionState::Connected => {}
            SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed => break,
        }
    }
    std::future::pending().await
}

/// Brings the session's server up to date with every write before this call.
///
/// It sends a write, not a `sync`: a leader of Apache ZooKeeper answers `sync` without asking a
/// quorum, and may have been replaced since.
///
/// # Errors
/// Fails if the session ends or a request is refused.
pub(crate) async fn write_through<C: Coordinator>(coordinator: &C) -> Result<(), Error> {
    let check = Request::Multi(vec![WriteOp::Check { path: Text::from("/"), version: -1 }]);
    match ask(coordinator, &check).await? {
        Reply::Multi(results) if zoolet_model::first_failure(&results).is_none() => Ok(()),
        // The session may not look at the root, and the refusal need not have been a write.
        Reply::Multi(_) => crate::catch_up(coordinator).await,
        _ => Err(Error::unexpected()),
    }
}

/// Whether the request got no answer, and the next server may give one.
pub(crate) const fn is_disconnection(error: RequestError) -> bool {
    use RequestError as E;
    match error {
        E::ConnectionLoss | E::Suspended | E::Busy => true,
        E::Refused(_) | E::TooLarge | E::Lost(_) | E::AuthFailed | E::Closed => false,
    }
}

/// Sends a request until a server answers. The request must be idempotent.
///
/// # Errors
/// Fails if the server refuses the request or the session is over.
pub(crate) async fn ask<C: Coordinator>(coordinator: &C, request: &Request) -> Result<Reply, Error> {
    loop {
        match coordinator.submit(request.clone()).await {
            Err(error) if is_disconnection(error) => connected(coordinator).await?,
            other => return other.map_err(|error| Error::of_request(request, error)),
        }
    }
}

/// Does [`ask`]; `None` if there is no such znode.
pub(crate) async fn ask_existing<C: Coordinator>(coordinator: &C, request: &Request) -> Result<Option<Reply>, Error> {
    match ask(coordinator, request).await {
        Ok(reply) => Ok(Some(reply)),
        Err(error) if error.is_no_node() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the names of the children; empty if there is no such znode.
pub(crate) async fn children<C: Coordinator>(coordinator: &C, path: &Text) -> Result<Names, Error> {
    match ask_existing(coordinator, &Request::GetChildren { path: path.clone(), watch: false, with_stat: false })
        .await?
    {
        None => Ok(Names::default()),
        Some(Reply::Names(names)) => Ok(names),
        Some(_) => Err(Error::unexpected()),
    }
}

/// Returns the data and stat; `None` if there is no such znode.
pub(crate) async fn data<C: Coordinator>(coordinator: &C, path: &Text) -> Result<Option<(Option<Bytes>, Stat)>, Error> {
    match ask_existing(coordinator, &Request::GetData { path: path.clone(), watch: false }).await? {
        None => Ok(None),
        Some(Reply::Data(data, stat)) => Ok(Some((data, stat))),
        Some(_) => Err(Error::unexpected()),
    }
}

/// Returns the stat; `None` if there is no such znode.
pub(crate) async fn stat<C: Coordinator>(coordinator: &C, path: &Text) -> Result<Option<Stat>, Error> {
    match ask_existing(coordinator, &Request::Exists { path: path.clone(), watch: false }).await? {
        None => Ok(None),
        Some(Reply::Stat(stat)) => Ok(Some(stat)),
        Some(_) => Err(Error::unexpected()),
    }
}

/// Sends a watching read until a server answers.
///
/// The reply is `None` if there is no such znode. Then only an `Exists` has registered the watch.
///
/// # Errors
/// Fails if the server refuses the request or the session is over.
pub(crate) async fn ask_watching<C: Coordinator>(
    coordinator: &C,
    request: &Request,
) -> Result<(Option<Reply>, C::Watch), Error> {
    loop {
        let (ticket, watch) = coordinator.submit_watching(request.clone());
        match ticket.await {
            Ok(reply) => return Ok((Some(reply), watch)),
            Err(RequestError::Refused(ErrorCode::NoNode)) => return Ok((None, watch)),
            Err(error) if is_disconnection(error) => connected(coordinator).await?,
            Err(error) => return Err(Error::of_request(request, error)),
        }
    }
}

/// Waits for the event of a one-shot watch.
///
/// # Errors
/// Fails if the session is over.
pub(crate) async fn fired<C: Coordinator>(coordinator: &C, watch: C::Watch) -> Result<WatchedEvent, Error> {
    watch.await.ok_or_else(|| RequestError::of(coordinator.state()).into())
}

/// Waits until one of several watches has fired.
pub(crate) async fn any_fired<C: Coordinator>(coordinator: &C, watches: &mut [C::Watch]) -> Result<(), Error> {
    let has_fired = poll_fn(|context| poll_any(watches, context)).await;
    if has_fired { Ok(()) } else { Err(RequestError::of(coordinator.state()).into()) }
}

/// Ready when one of the watches is: true if it fired, false if the session is over.
pub(crate) fn poll_any<W: Future<Output = Option<WatchedEvent>> + Unpin>(
    watches: &mut [W],
    context: &mut Context<'_>,
) -> Poll<bool> {
    let mut ready = watches.iter_mut().filter_map(|watch| match Pin::new(watch).poll(context) {
        Poll::Ready(event) => Some(event.is_some()),
        Poll::Pending => None,
    });
    ready.next().map_or(Poll::Pending, Poll::Ready)
}

/// Returns a create that is answered with the stat.
pub(crate) fn create(path: Text, data: Option<Bytes>, kind: CreateKind, sequential: bool) -> WriteOp {
    WriteOp::Create(Create {
        path,
        data,
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind, sequential },
        with_stat: true,
    })
}

/// Returns the path of the child called `name`.
///
/// # Errors
/// [`ErrorKind::InvalidName`] if no child can have that name. A slash would lead to another znode's
/// child.
pub(crate) fn named(parent: &Path, name: &str) -> Result<Path, Error> {
    let path = if name.contains('/') { Text::default() } else { zoolet_model::path::child(parent.as_str(), name) };
    Path::new(path).map_err(|_| Error::at(ErrorKind::InvalidName, "use the name", &name.into()))
}

/// Returns data for a znode that has no null data.
pub(crate) fn bytes(data: impl IntoData) -> Bytes {
    data.into_data().unwrap_or_default()
}

/// Returns the path of a child with a name of this library.
pub(crate) fn below(parent: &Path, name: &'static str) -> Path {
    Path::of_existing(zoolet_model::path::child(parent.as_str(), name))
}

/// Returns the path of a recipe's second znode, which stands beside its first one: `path-suffix`.
pub(crate) fn beside(path: &Path, suffix: &'static str) -> Path {
    if path == &Path::ROOT {
        return below(path, suffix);
    }
    Path::of_existing(format!("{path}-{suffix}").into())
}

/// Makes sure that a container and its ancestors exist.
///
/// Ancestors are created persistent. The ensemble deletes a container some time after its last
/// child is gone.
///
/// # Errors
/// Fails if the server refuses a request or the session is over.
pub(crate) async fn make_container<C: Coordinator>(coordinator: &C, path: &Path) -> Result<(), Error> {
    make(coordinator, path, CreateKind::Container).await
}

/// Makes sure that a persistent znode and its ancestors exist.
pub(crate) async fn make_persistent<C: Coordinator>(coordinator: &C, path: &Path) -> Result<(), Error> {
    make(coordinator, path, CreateKind::Persistent).await
}

async fn make<C: Coordinator>(coordinator: &C, path: &Path, last: CreateKind) -> Result<(), Error> {
    let text = path.as_str();
    let ends = text.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
    for end in ends {
        ensure(coordinator, text[..end].into(), CreateKind::Persistent).await?;
    }
    if text != "/" {
        ensure(coordinator, path.text().clone(), last).await?;
    }
    Ok(())
}

async fn ensure<C: Coordinator>(coordinator: &C, path: Text, kind: CreateKind) -> Result<(), Error> {
    if stat(coordinator, &path).await?.is_some() {
        return Ok(());
    }
    match ask(coordinator, &Request::Write(create(path.clone(), None, kind, false))).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_node_exists() => Ok(()),
        // The server is too old for containers.
        Err(error) if error.code() == Some(ErrorCode::Unimplemented) && kind == CreateKind::Container => {
            let request = Request::Write(create(path, None, CreateKind::Persistent, false));
            match ask(coordinator, &request).await {
                Ok(_) => Ok(()),
                Err(error) if error.is_node_exists() => Ok(()),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Returns the stream's next item.
pub(crate) async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// The output of the future that was ready first.
pub(crate) enum First<A, B> {
    /// The first future's, which is preferred if both are ready.
    Left(A),
    /// The second future's.
    Right(B),
}

/// Waits for the first of two futures.
pub(crate) async fn first<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(output) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(output));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}
