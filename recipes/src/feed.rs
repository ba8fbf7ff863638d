//! Requests and watches of streams, polled until a server answers.
//!
//! They are state machines instead of futures, because a stream keeps them between two polls.

use crate::ask::is_disconnection;
use crate::{Coordinator, Error};
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use zoolet_model::{AddWatchMode, Path, Reply, Request, RequestError, SessionState, WatchItem};

/// Waits until the session is connected, or reads, after a read that got no answer.
#[derive(Debug)]
struct Reconnecting<S>(S);

impl<S: Stream<Item = SessionState> + Unpin> Reconnecting<S> {
    fn poll<C: Coordinator<States = S>>(&mut self, session: &C, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            match Pin::new(&mut self.0).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(SessionState::Connected | SessionState::ReadOnly)) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(state)) if !state.is_over() => {}
                Poll::Ready(state) => {
                    return Poll::Ready(Err(RequestError::of(state.unwrap_or_else(|| session.state())).into()));
                }
            }
        }
    }
}

/// A request that is sent until a server answers. It must be idempotent.
#[derive(Debug)]
pub(crate) struct Asking<C: Coordinator> {
    request: Request,
    step: Step<C>,
}

#[derive(Debug)]
enum Step<C: Coordinator> {
    Asked(C::Ticket),
    Waiting(Reconnecting<C::States>),
}

impl<C: Coordinator> Asking<C> {
    pub(crate) fn new(session: &C, request: Request) -> Self {
        Self { step: Step::Asked(session.submit(request.clone())), request }
    }

    /// Polls the answer; `None` if there is no such znode. Not to be polled again after that.
    pub(crate) fn poll(&mut self, session: &C, context: &mut Context<'_>) -> Poll<Result<Option<Reply>, Error>> {
        loop {
            match &mut self.step {
                Step::Asked(ticket) => match std::task::ready!(Pin::new(ticket).poll(context)) {
                    Err(error) if is_disconnection(error) => {
                        self.step = Step::Waiting(Reconnecting(session.states()));
                    }
                    Err(RequestError::Refused(zoolet_model::ErrorCode::NoNode)) => return Poll::Ready(Ok(None)),
                    other => {
                        return Poll::Ready(other.map(Some).map_err(|error| Error::of_request(&self.request, error)));
                    }
                },
                Step::Waiting(reconnecting) => {
                    std::task::ready!(reconnecting.poll(session, context))?;
                    self.step = Step::Asked(session.submit(self.request.clone()));
                }
            }
        }
    }
}

/// The answer to a read, and its watch.
type Watched<C> = (Option<Reply>, <C as Coordinator>::Watch);

/// A read with a one-shot watch that is sent until a server answers.
#[derive(Debug)]
pub(crate) struct AskingOnce<C: Coordinator> {
    request: Request,
    step: OnceStep<C>,
}

#[derive(Debug)]
enum OnceStep<C: Coordinator> {
    Asked(C::Ticket, Option<C::Watch>),
    Waiting(Reconnecting<C::States>),
}

impl<C: Coordinator> OnceStep<C> {
    fn asked(session: &C, request: &Request) -> Self {
        let (ticket, watch) = session.submit_watching(request.clone());
        Self::Asked(ticket, Some(watch))
    }
}

impl<C: Coordinator> AskingOnce<C> {
    pub(crate) fn new(session: &C, request: Request) -> Self {
        Self { step: OnceStep::asked(session, &request), request }
    }

    /// Polls the answer and the watch. Not to be polled again after that.
    ///
    /// The reply is `None` if there is no such znode. Then only an `Exists` has registered the
    /// watch.
    pub(crate) fn poll(&mut self, session: &C, context: &mut Context<'_>) -> Poll<Result<Watched<C>, Error>> {
        loop {
            match &mut self.step {
                OnceStep::Asked(ticket, watch) => {
                    let reply = match std::task::ready!(Pin::new(ticket).poll(context)) {
                        Err(error) if is_disconnection(error) => {
                            self.step = OnceStep::Waiting(Reconnecting(session.states()));
                            continue;
                        }
                        Err(RequestError::Refused(zoolet_model::ErrorCode::NoNode)) => None,
                        Err(error) => return Poll::Ready(Err(Error::of_request(&self.request, error))),
                        Ok(reply) => Some(reply),
                    };
                    let watch = watch.take().ok_or(Error::unexpected())?;
                    return Poll::Ready(Ok((reply, watch)));
                }
                OnceStep::Waiting(reconnecting) => {
                    std::task::ready!(reconnecting.poll(session, context))?;
                    self.step = OnceStep::asked(session, &self.request);
                }
            }
        }
    }
}

/// The events of a persistent watch, which is registered at the first poll.
#[derive(Debug)]
pub(crate) struct Feed<C: Coordinator> {
    path: Path,
    mode: AddWatchMode,
    registration: Registration<C>,
    /// Whether changes may have been missed, which is told once the watch is registered: a reader
    /// that reads then misses nothing later.
    owes_gap: bool,
}

#[derive(Debug)]
enum Registration<C: Coordinator> {
    None,
    Asked(C::Ticket, C::Events),
    Waiting(Reconnecting<C::States>),
    Registered(C::Events),
}

impl<C: Coordinator> Feed<C> {
    pub(crate) fn new(path: &Path, mode: AddWatchMode) -> Self {
        Self { path: path.clone(), mode, registration: Registration::None, owes_gap: false }
    }

    /// Ends the watch. The next poll registers another one.
    pub(crate) fn restart(&mut self) {
        (self.registration, self.owes_gap) = (Registration::None, false);
    }

    /// Ready once the watch is registered.
    pub(crate) fn poll_registered(&mut self, session: &C, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            match &mut self.registration {
                Registration::Registered(_) => return Poll::Ready(Ok(())),
                Registration::None => {
                    let (ticket, events) = session.add_watch(&self.path, self.mode);
                    self.registration = Registration::Asked(ticket, events);
                }
                Registration::Asked(ticket, _) => {
                    let answer = std::task::ready!(Pin::new(ticket).poll(context));
                    let Registration::Asked(_, events) = std::mem::replace(&mut self.registration, Registration::None)
                    else {
                        continue;
                    };
                    match answer {
                        Ok(Reply::WatchAdded | Reply::Empty) => {
                            self.registration = Registration::Registered(events);
                        }
                        Ok(_) => return Poll::Ready(Err(Error::unexpected())),
                        Err(error) if is_disconnection(error) => {
                            self.registration = Registration::Waiting(Reconnecting(session.states()));
                        }
                        Err(error) => return Poll::Ready(Err(Error::at(error, "watch", self.path.text()))),
                    }
                }
                Registration::Waiting(reconnecting) => {
                    let connected = std::task::ready!(reconnecting.poll(session, context));
                    self.registration = Registration::None;
                    connected?;
                }
            }
        }
    }

    /// Polls the next item of a registered watch.
    pub(crate) fn poll_item(&mut self, session: &C, context: &mut Context<'_>) -> Poll<Result<WatchItem, Error>> {
        loop {
            std::task::ready!(self.poll_registered(session, context))?;
            if std::mem::take(&mut self.owes_gap) {
                return Poll::Ready(Ok(WatchItem::Gap));
            }
            let Registration::Registered(events) = &mut self.registration else { return Poll::Pending };
            match std::task::ready!(Pin::new(events).poll_next(context)) {
                Some(item) => return Poll::Ready(Ok(item)),
                None if session.state().is_over() => {
                    let ended = RequestError::of(session.state());
                    return Poll::Ready(Err(Error::at(ended, "watch", self.path.text())));
                }
                // A server has refused to register it again: ask once more.
                None => (self.registration, self.owes_gap) = (Registration::None, true),
            }
        }
    }
}
