//! A grant, as the work that it protects sees it.

use super::{Fence, FencedWriter, Holding, SafeUntil, holding};
use crate::line::Fate;
use crate::{Coordinator, FencingToken};
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use zoolet_model::{Path, Text};

/// A grant, as the work that it protects sees it.
///
/// Clones are handles to the same grant and may move to another task. A handle does not keep the
/// grant: once its owner has given that up, the handle says that it is lost.
#[derive(Clone, Debug)]
pub struct Hold<C> {
    coordinator: C,
    znode: Text,
    token: FencingToken,
    fate: Arc<Fate>,
}

impl<C: Coordinator> Hold<C> {
    pub(super) const fn new(coordinator: C, znode: Text, token: FencingToken, fate: Arc<Fate>) -> Self {
        Self { coordinator, znode, token, fate }
    }

    /// Returns the session that holds the grant.
    pub const fn session(&self) -> &C {
        &self.coordinator
    }

    /// As [`Grant::path`](crate::Grant::path).
    pub fn path(&self) -> Path {
        Path::of_existing(self.znode.clone())
    }

    /// As [`Grant::token`](crate::Grant::token).
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// As [`Grant::holding`](crate::Grant::holding).
    pub fn holding(&self) -> Holding {
        let c = &self.coordinator;
        holding(c, c.state(), c.gaps(), Some(&self.fate))
    }

    /// As [`Grant::safe_until`](crate::Grant::safe_until).
    pub fn safe_until(&self) -> SafeUntil {
        SafeUntil::new(self.fate.safe_until())
    }

    /// Returns a stream of the instants until which hardware may act.
    ///
    /// It yields the newest instant every sixteenth of the session's timeout. In doubt it repeats the
    /// last instant. Once that has passed, it yields nothing until the grant is held again. So this
    /// loop keeps hardware running, and in doubt the hardware stops by itself. It may run in the work
    /// or in another task; the instant moves on only while the work is polled, or a stream of
    /// [`Holdings`](crate::Holdings):
    ///
    /// ```
    /// # use zoolet::recipes::{Hold, SafeUntil};
    /// # use zoolet::Coordinator;
    /// # async fn example<C: Coordinator>(hold: Hold<C>, mut transmit: impl FnMut(SafeUntil)) {
    /// let mut instants = hold.safe_instants();
    /// while let Some(safe_until) = instants.next().await {
    ///     transmit(safe_until);
    /// }
    /// # }
    /// ```
    pub fn safe_instants(&self) -> SafeInstants<C> {
        SafeInstants { hold: self.clone(), timer: None }
    }

    /// As [`Grant::fenced`](crate::Grant::fenced).
    pub fn fenced(&self) -> FencedWriter<C> {
        // No turn to check: no other grant gets the path before this one is dropped.
        let fence = Fence { znode: self.znode.clone(), turn: None };
        FencedWriter::new(self.coordinator.clone(), fence, Arc::clone(&self.fate))
    }
}

/// Stream of the instants until which hardware may act on a grant.
///
/// Ends once the grant is known to be lost, or was given up. It reports no instant that has passed.
#[derive(Debug)]
#[must_use = "it reports only while it is polled"]
pub struct SafeInstants<C: Coordinator> {
    hold: Hold<C>,
    /// `None` before the first instant.
    timer: Option<C::Timer>,
}

impl<C: Coordinator> SafeInstants<C> {
    /// Returns the next instant; `None` once the grant is lost. Cancel-safe.
    #[allow(clippy::should_implement_trait, reason = "a stream's next, as futures name it: it returns a future")]
    pub fn next(&mut self) -> impl Future<Output = Option<SafeUntil>> + Send + '_ {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context))
    }
}

impl<C: Coordinator> Unpin for SafeInstants<C> {}

impl<C: Coordinator> Stream for SafeInstants<C> {
    type Item = SafeUntil;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SafeUntil>> {
        let Self { hold, timer } = &mut *self;
        loop {
            if let Some(timer) = timer {
                ready!(Pin::new(timer).poll(context));
            }
            if hold.holding() == Holding::Lost {
                return Poll::Ready(None);
            }
            let (now, safe_until) = (hold.coordinator.now(), hold.safe_until());
            let is_safe = !safe_until.has_passed(now);
            // Soon after it was granted, or is held again, the instant moves on.
            let pause = hold.coordinator.session_timeout() / if is_safe { 16 } else { 256 };
            *timer = Some(hold.coordinator.timer(now.saturating_add(pause)));
            if is_safe {
                return Poll::Ready(Some(safe_until));
            }
        }
    }
}
