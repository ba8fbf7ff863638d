//! What clients of every recipe do beside it: they stop waiting, hear of errors, wait for each other, and look for what they left behind.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use zoolet_model::{Path, SessionId, Text};
use zoolet_recipes::{Coordinator, Error};
use zoolet_sim::ensemble::{Next, Seat};

/// Where clients say that they have done their part.
const FINISHED: Path = Path::from_static("/finished");
/// After so many looks, one a second, what is left is left for good.
const LOOKS: u32 = 60;

/// `None` when it failed and the session lives; `Err` when that is over.
pub(crate) fn heard<F, T>(seat: &Seat<F>, result: Result<T, Error>) -> Result<Option<T>, Next> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Session(_)) if seat.session.state().is_over() => Err(Next::AnotherSession),
        Err(Error::Session(_) | Error::Disconnected) => Ok(None),
        Err(error) => panic!("{error}"),
    }
}

/// Drops the future when it is not ready after so long.
pub(crate) async fn within<F: std::fmt::Debug + 'static, W: Future>(
    seat: &Seat<F>,
    so_long: Duration,
    work: W,
) -> Option<W::Output> {
    let (mut work, mut timer) = (pin!(work), pin!(seat.sleep(so_long)));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timer.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Drops the future at its poll number `pending` of those that are not ready, 0 the first: as `select!` does when its other branch is ready then.
pub(crate) async fn cut_at<W: Future>(pending: u64, work: W) -> Option<W::Output> {
    let (mut work, mut left) = (pin!(work), pending);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Two at once.
pub(crate) async fn both<A: Future, B: Future>(left: A, right: B) -> (A::Output, B::Output) {
    let (mut left, mut right) = (pin!(left), pin!(right));
    let (mut first, mut second) = (None, None);
    poll_fn(move |context| {
        if first.is_none()
            && let Poll::Ready(output) = left.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = right.as_mut().poll(context)
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

/// Up to so many milliseconds.
pub(crate) fn up_to<F: std::fmt::Debug + 'static>(seat: &Seat<F>, ms: u64) -> Duration {
    Duration::from_millis(seat.below(ms))
}

/// Does something until the server has done it, or answers that it was done.
pub(crate) async fn persist<F, T, W>(seat: &Seat<F>, work: impl Fn() -> W) -> Result<T, Next>
where
    F: std::fmt::Debug + 'static,
    W: Future<Output = Result<T, Error>>,
{
    loop {
        if let Some(value) = heard(seat, work().await)? {
            return Ok(value);
        }
        seat.sleep(Duration::from_millis(200)).await;
    }
}

/// Says that this client has done its part.
pub(crate) async fn finish<F: std::fmt::Debug + 'static>(seat: &Seat<F>) -> Result<(), Next> {
    use zoolet_model::{Error as SessionError, ErrorCode::NodeExists};
    let own = Path::new(Text::from(format!("{FINISHED}/{}", seat.number))).unwrap();
    for path in [FINISHED, own] {
        persist(seat, || async {
            match seat.session.create(&path, None).await {
                Ok(_) | Err(SessionError::Refused(NodeExists)) => Ok(()),
                Err(error) => Err(Error::from(error)),
            }
        })
        .await?;
    }
    Ok(())
}

/// Which clients have said so.
pub(crate) async fn finished<F: std::fmt::Debug + 'static>(seat: &Seat<F>) -> Result<Vec<usize>, Next> {
    if heard(seat, seat.session.exists(&FINISHED).await.map_err(Error::from))?.flatten().is_none() {
        return Ok(Vec::new());
    }
    let names = heard(seat, seat.session.children(&FINISHED).await.map_err(Error::from))?.unwrap_or_default();
    Ok(names.iter().map(|name| name.parse().unwrap()).collect())
}

/// Waits until so many have.
pub(crate) async fn all_finished<F: std::fmt::Debug + 'static>(seat: &Seat<F>, clients: usize) -> Result<(), Next> {
    while finished(seat).await?.len() < clients {
        seat.sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// An ephemeral of this session that nobody clears away, although nobody uses it any more.
pub(crate) async fn left_behind<F: std::fmt::Debug + 'static>(seat: &Seat<F>) -> Option<String> {
    let mut found = None;
    for _ in 0..LOOKS {
        found = match own_below(seat, "/".to_owned()).await {
            Ok(None) => return None,
            Ok(path) => path,
            Err(_) if seat.session.state().is_over() => return None,
            Err(_) => None,
        };
        seat.sleep(Duration::from_secs(1)).await;
    }
    found
}

async fn own_below<F: 'static>(seat: &Seat<F>, root: String) -> Result<Option<String>, zoolet_model::Error> {
    use zoolet_model::{Error as SessionError, ErrorCode::NoNode};
    let own: SessionId = Coordinator::session(&seat.session);
    let mut paths = vec![root];
    while let Some(path) = paths.pop() {
        let here = Path::new(Text::from(path.as_str())).unwrap();
        if seat.session.exists(&here).await?.is_some_and(|stat| stat.ephemeral_owner == own.0) {
            return Ok(Some(path));
        }
        let names = match seat.session.children(&here).await {
            Err(SessionError::Refused(NoNode)) => continue,
            names => names?,
        };
        let below = names.iter().filter(|name| *name != "zookeeper" && *name != "finished");
        paths.extend(below.map(|name| zoolet_model::path::child(&path, name).to_string()));
    }
    Ok(None)
}
