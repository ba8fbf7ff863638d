//! A stream that goes on with the next session.

use super::Client;
use crate::wakers::Slot;
use crate::{ChildrenCache, Configuration, Coordinator, Error, Observer, OpenSession, ZnodeCache};
use futures_core::Stream;
use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A recipe that follows something in the tree, and can go on with another session.
pub trait Follow: Send + 'static {
    /// The session over which it follows.
    type Session: Coordinator;
    /// One report.
    type Report;

    /// Polls the next report.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Result<Self::Report, Error>>;

    /// Goes on with a session, the first or another one, and reports what may have been missed.
    fn resume(&mut self, session: Self::Session);
}

macro_rules! follows {
    ($recipe:ident<C $(, $parameter:ident)?>, $report:ty, $poll:ident) => {
        impl<C: Coordinator $(, $parameter: Send + Sync + 'static)?> Follow for $recipe<C $(, $parameter)?> {
            type Session = C;
            type Report = $report;

            fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Result<Self::Report, Error>> {
                self.$poll(context)
            }

            fn resume(&mut self, session: C) {
                Self::resume(self, session);
            }
        }
    };
}

follows!(ZnodeCache<C>, crate::ZnodeChange, poll_change);
follows!(ChildrenCache<C>, crate::Change, poll_change);
follows!(Configuration<C, T>, crate::Update, poll_update);
follows!(Observer<C>, Option<crate::Office>, poll_office);

/// A stream that goes on with each session of its client.
///
/// It ends after an error that says that no session can be opened any more.
#[must_use = "it follows only while it is polled"]
pub struct Following<O: OpenSession, R> {
    client: Client<O>,
    slot: Slot,
    recipe: R,
    /// Number of the session over which it follows; 0 before the first.
    number: u64,
    /// The recipe's session; `None` once it was over when last polled.
    session: Option<O::Session>,
    /// The pause after a temporary error.
    pause: Option<<O::Session as Coordinator>::Timer>,
    is_over: bool,
}

impl<O: OpenSession, R> Debug for Following<O, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<O: OpenSession, R: Follow<Session = O::Session>> Following<O, R> {
    /// Follows with a recipe that has no session yet.
    pub(super) fn new(client: Client<O>, recipe: R) -> Self {
        Self { slot: client.slot(), client, recipe, number: 0, session: None, pause: None, is_over: false }
    }

    /// Returns the recipe, with what it knows.
    pub const fn recipe(&self) -> &R {
        &self.recipe
    }

    /// Returns the number of the client's session over which it follows, from 1; 0 before the first.
    pub const fn session_number(&self) -> u64 {
        self.number
    }

    /// Waits for the next report. Cancel-safe.
    ///
    /// # Errors
    /// Fails if a request is refused, or no session can be opened any more. While the server has no
    /// room, this asks again and again. After another refusal, the next call asks again.
    #[allow(clippy::should_implement_trait, reason = "a stream's next, as futures name it: it returns a future")]
    pub fn next(&mut self) -> impl Future<Output = Result<R::Report, Error>> + Send + '_ {
        poll_fn(|context| self.poll_report(context))
    }

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Result<R::Report, Error>> {
        loop {
            if let Some(session) = &self.session {
                if let Some(pause) = &mut self.pause {
                    ready!(Pin::new(pause).poll(context));
                    self.pause = None;
                }
                match ready!(self.recipe.poll_report(context)) {
                    Err(error) if error.is_session_over() => self.session = None,
                    Err(error) if error.is_temporary() => {
                        self.pause = Some(super::pausing(session, &error, u32::MAX));
                        continue;
                    }
                    report => return Poll::Ready(report),
                }
            }
            let opened = ready!(self.client.poll_session(&self.slot, context));
            self.is_over = opened.is_err();
            let (number, session) = opened?;
            (self.number, self.session, self.pause) = (number, Some(session.clone()), None);
            self.recipe.resume(session);
        }
    }
}

impl<O: OpenSession, R> Unpin for Following<O, R> {}

impl<O: OpenSession, R: Follow<Session = O::Session>> Stream for Following<O, R> {
    type Item = Result<R::Report, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.poll_report(context).map(Some)
    }
}
