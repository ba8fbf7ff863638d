//! A session whose requests, replies and random bits a test controls.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use zoolet_model::{AddWatchMode, ErrorCode, Path, Reply, Request, RequestError, SessionId, SessionState};
use zoolet_recipes::{Coordinator, Errand, Instant};
use zoolet_session::Session;

/// The answer that a test gives to a request.
pub(crate) struct Answer(Pin<Box<dyn Future<Output = Result<Reply, RequestError>> + Send>>);

impl Answer {
    pub(crate) fn new(answer: impl Future<Output = Result<Reply, RequestError>> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// Returns the answer of the session to this request.
    pub(crate) fn of(session: &Session, request: Request) -> Self {
        Self::new(Coordinator::submit(session, request))
    }
}

impl Future for Answer {
    type Output = Result<Reply, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// A fault that befalls a transaction of a session with a [script](Intercepted::scripted).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The connection ends before a server has the request.
    RequestLost,
    /// The server answers the request, and the connection ends before the reply arrives.
    ReplyLost,
    /// The server has no room on its disk.
    Refused,
}

/// The faults that befall the next transactions, in order.
pub(crate) type Script = Arc<Mutex<VecDeque<Fault>>>;

/// A session that submits its requests through a function of the test.
///
/// Reads that register a watch are submitted unchanged.
#[derive(Clone)]
pub(crate) struct Intercepted {
    session: Session,
    submit: Arc<dyn Fn(Session, Request) -> Answer + Send + Sync>,
    bits: Option<Arc<dyn Fn() -> u128 + Send + Sync>>,
    errands: Arc<AtomicUsize>,
}

impl fmt::Debug for Intercepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercepted").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Intercepted {
    pub(crate) fn new(session: &Session, submit: impl Fn(Session, Request) -> Answer + Send + Sync + 'static) -> Self {
        Self { session: session.clone(), submit: Arc::new(submit), bits: None, errands: Arc::default() }
    }

    /// Returns a session whose transactions meet the faults of `script`.
    ///
    /// Once the script is empty, transactions are submitted unchanged, as other requests always are.
    pub(crate) fn scripted(session: &Session, script: &Script) -> Self {
        let script = Arc::clone(script);
        Self::new(session, move |session, request| {
            let fault = match request {
                Request::Multi(_) => script.lock().unwrap().pop_front(),
                _ => None,
            };
            match fault {
                None => Answer::of(&session, request),
                Some(Fault::RequestLost) => Answer::new(ready(Err(RequestError::ConnectionLoss))),
                Some(Fault::ReplyLost) => {
                    let answer = Answer::of(&session, request);
                    Answer::new(async move { answer.await.and(Err(RequestError::ConnectionLoss)) })
                }
                Some(Fault::Refused) => Answer::new(ready(Err(RequestError::Refused(ErrorCode::SystemError)))),
            }
        })
    }

    /// Returns a session that submits every request unchanged, and draws these random bits.
    pub(crate) fn with_random_bits(session: &Session, bits: impl Fn() -> u128 + Send + Sync + 'static) -> Self {
        let submit = |session: Session, request| Answer::of(&session, request);
        Self { bits: Some(Arc::new(bits)), ..Self::new(session, submit) }
    }

    /// Returns the number of errands that the session was given.
    pub(crate) fn errands(&self) -> usize {
        self.errands.load(Relaxed)
    }
}

impl Coordinator for Intercepted {
    type Ticket = Answer;
    type Watch = <Session as Coordinator>::Watch;
    type Events = <Session as Coordinator>::Events;
    type States = <Session as Coordinator>::States;
    type Timer = <Session as Coordinator>::Timer;

    fn submit(&self, request: Request) -> Self::Ticket {
        (self.submit)(self.session.clone(), request)
    }

    fn submit_watching(&self, request: Request) -> (Self::Ticket, Self::Watch) {
        let (ticket, watch) = Coordinator::submit_watching(&self.session, request);
        (Answer::new(ticket), watch)
    }

    fn add_watch(&self, path: &Path, mode: AddWatchMode) -> (Self::Ticket, Self::Events) {
        let (ticket, events) = Coordinator::add_watch(&self.session, path, mode);
        (Answer::new(ticket), events)
    }

    fn run_errand(&self, errand: Errand) {
        self.errands.fetch_add(1, Relaxed);
        Coordinator::run_errand(&self.session, errand);
    }

    fn session(&self) -> SessionId {
        Coordinator::session(&self.session)
    }

    fn session_timeout(&self) -> Duration {
        Coordinator::session_timeout(&self.session)
    }

    fn state(&self) -> SessionState {
        Coordinator::state(&self.session)
    }

    fn states(&self) -> Self::States {
        Coordinator::states(&self.session)
    }

    fn safe_until(&self) -> Instant {
        Coordinator::safe_until(&self.session)
    }

    fn gaps(&self) -> u64 {
        Coordinator::gaps(&self.session)
    }

    fn now(&self) -> Instant {
        Coordinator::now(&self.session)
    }

    fn timer(&self, at: Instant) -> Self::Timer {
        Coordinator::timer(&self.session, at)
    }

    fn random_bits(&self) -> u128 {
        self.bits.as_ref().map_or_else(|| Coordinator::random_bits(&self.session), |bits| bits())
    }
}
