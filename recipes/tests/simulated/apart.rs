//! What clients do besides their recipe: time out, handle errors, wait for each other, find
//! leftovers.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use zoolet_model::{Path, SessionId};
use zoolet_recipes::{Coordinator, Error, ErrorKind};
use zoolet_sim::ensemble::{ClientContext, Next};

/// Path below which clients report that they are done.
const FINISHED: Path = Path::from_static("/finished");
/// Number of looks, one a second, after which a leftover counts as permanent.
const LOOKS: u32 = 60;

/// Whether the session failed, or its server refused a request. Otherwise the recipe has failed.
pub(crate) fn is_of_session(error: &Error) -> bool {
    use ErrorKind::{AuthFailed, Busy, Closed, ConnectionLoss, Refused, SessionLost, Suspended, TooLarge};
    matches!(
        error.kind(),
        Refused(_) | ConnectionLoss | Suspended | Busy | TooLarge | SessionLost(_) | AuthFailed | Closed
    )
}

/// Whether the session failed, or had no connection for a call that does not wait for one.
pub(crate) fn has_no_answer(error: &Error) -> bool {
    is_of_session(error) || error.kind() == ErrorKind::Disconnected
}

/// Returns `None` if the call failed and the session lives, and `Err` if the session is over.
pub(crate) fn heard<F, T>(context: &ClientContext<F>, result: Result<T, Error>) -> Result<Option<T>, Next> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_of_session(&error) && context.session.state().is_over() => Err(Next::AnotherSession),
        Err(error) if has_no_answer(&error) => Ok(None),
        Err(error) => panic!("{error}"),
    }
}

/// Drops a future that is not ready after `so_long`.
pub(crate) async fn within<F: std::fmt::Debug + 'static, W: Future>(
    context: &ClientContext<F>,
    so_long: Duration,
    work: W,
) -> Option<W::Output> {
    let (mut work, mut timer) = (pin!(work), pin!(context.sleep(so_long)));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Drops a future at its pending poll number `pending`, counted from 0.
///
/// `select!` does so when its other branch becomes ready at that poll.
pub(crate) async fn cut_at<W: Future>(pending: u64, work: W) -> Option<W::Output> {
    let (mut work, mut left) = (pin!(work), pending);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Runs two futures at once.
pub(crate) async fn both<A: Future, B: Future>(left: A, right: B) -> (A::Output, B::Output) {
    let (mut left, mut right) = (pin!(left), pin!(right));
    let (mut first, mut second) = (None, None);
    poll_fn(move |cx| {
        if first.is_none()
            && let Poll::Ready(output) = left.as_mut().poll(cx)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = right.as_mut().poll(cx)
        {
            second = Some(output);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// Returns a drawn duration below `ms` milliseconds.
pub(crate) fn up_to<F: std::fmt::Debug + 'static>(context: &ClientContext<F>, ms: u64) -> Duration {
    Duration::from_millis(context.below(ms))
}

/// Repeats a call until the server has carried it out.
pub(crate) async fn persist<F, T, W>(context: &ClientContext<F>, work: impl Fn() -> W) -> Result<T, Next>
where
    F: std::fmt::Debug + 'static,
    W: Future<Output = Result<T, Error>>,
{
    loop {
        if let Some(value) = heard(context, work().await)? {
            return Ok(value);
        }
        context.sleep(Duration::from_millis(200)).await;
    }
}

/// Reports in the tree that this client is done.
pub(crate) async fn finish<F: std::fmt::Debug + 'static>(context: &ClientContext<F>) -> Result<(), Next> {
    let own = Path::new(format!("{FINISHED}/{}", context.number)).unwrap();
    for path in [FINISHED, own] {
        persist(context, || async {
            match context.session.create(&path, None).await {
                Ok(_) => Ok(()),
                Err(error) if error.is_node_exists() => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await?;
    }
    Ok(())
}

/// Returns the clients that have reported that they are done.
pub(crate) async fn finished<F: std::fmt::Debug + 'static>(context: &ClientContext<F>) -> Result<Vec<usize>, Next> {
    if heard(context, context.session.exists(&FINISHED).await)?.flatten().is_none() {
        return Ok(Vec::new());
    }
    let names = heard(context, context.session.children(&FINISHED).await)?.unwrap_or_default();
    Ok(names.iter().map(|name| name.parse().unwrap()).collect())
}

/// Waits until `clients` clients are done.
pub(crate) async fn all_finished<F: std::fmt::Debug + 'static>(
    context: &ClientContext<F>,
    clients: usize,
) -> Result<(), Next> {
    while finished(context).await?.len() < clients {
        context.sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Returns an ephemeral of this session that nothing clears away, if any.
pub(crate) async fn left_behind<F: std::fmt::Debug + 'static>(context: &ClientContext<F>) -> Option<String> {
    let mut found = None;
    for _ in 0..LOOKS {
        found = match own_below(context, "/".to_owned()).await {
            Ok(None) => return None,
            Ok(path) => path,
            Err(_) if context.session.state().is_over() => return None,
            Err(_) => None,
        };
        context.sleep(Duration::from_secs(1)).await;
    }
    found
}

async fn own_below<F: 'static>(context: &ClientContext<F>, root: String) -> Result<Option<String>, Error> {
    let own: SessionId = Coordinator::session(&context.session);
    let mut paths = vec![root];
    while let Some(path) = paths.pop() {
        let here = Path::new(path.as_str()).unwrap();
        if context.session.exists(&here).await?.is_some_and(|stat| stat.ephemeral_owner == own.0) {
            return Ok(Some(path));
        }
        let names = match context.session.children(&here).await {
            Err(error) if error.is_no_node() => continue,
            names => names?,
        };
        let below = names.iter().filter(|name| *name != "zookeeper" && *name != "finished");
        paths.extend(below.map(|name| zoolet_model::path::child(&path, name).to_string()));
    }
    Ok(None)
}
