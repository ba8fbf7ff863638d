//! A session whose requests, replies and random bits a test controls.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use zoolet_model::{AddWatchMode, Error, Path, Reply, Request, SessionId, SessionState};
use zoolet_recipes::{Coordinator, Errand, Instant};
use zoolet_session::Session;

pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Reply, Error>>>>;

/// A session that submits its requests through a function of the test.
///
/// Reads that register a watch are submitted unchanged.
#[derive(Clone)]
pub(crate) struct Intercepted {
    session: Session,
    submit: Rc<dyn Fn(Session, Request) -> Answer>,
    bits: Option<Rc<dyn Fn() -> u128>>,
    errands: Rc<Cell<usize>>,
}

impl fmt::Debug for Intercepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercepted").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Intercepted {
    pub(crate) fn new(session: &Session, submit: impl Fn(Session, Request) -> Answer + 'static) -> Self {
        Self { session: session.clone(), submit: Rc::new(submit), bits: None, errands: Rc::default() }
    }

    /// Returns a session that submits every request unchanged, and draws these random bits.
    pub(crate) fn with_random_bits(session: &Session, bits: impl Fn() -> u128 + 'static) -> Self {
        let submit = |session: Session, request| -> Answer { Box::pin(Coordinator::submit(&session, request)) };
        Self { bits: Some(Rc::new(bits)), ..Self::new(session, submit) }
    }

    /// Returns the number of errands that the session was given.
    pub(crate) fn errands(&self) -> usize {
        self.errands.get()
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
        (Box::pin(ticket), watch)
    }

    fn watch(&self, path: &Path, mode: AddWatchMode) -> (Self::Ticket, Self::Events) {
        let (ticket, events) = Coordinator::watch(&self.session, path, mode);
        (Box::pin(ticket), events)
    }

    fn run_errand(&self, errand: Errand) {
        self.errands.set(self.errands.get() + 1);
        Coordinator::run_errand(&self.session, errand);
    }

    fn session(&self) -> SessionId {
        Coordinator::session(&self.session)
    }

    fn timeout(&self) -> Duration {
        Coordinator::timeout(&self.session)
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
