//! A persistent watch that goes on with the next session.

use super::Follow;
use crate::feed::Feed;
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Error};
use std::task::{Context, Poll, ready};
use zoolet_model::{AddWatchMode, Path, WatchItem};

/// A persistent watch that goes on with another session.
///
/// It reports [`WatchItem::Gap`] wherever changes may have been missed.
#[derive(Debug)]
#[must_use = "it watches only while it is polled"]
pub struct Watching<C: Coordinator> {
    /// `None` before the first session.
    session: Option<C>,
    feed: Feed<C>,
    must_tell_gap: bool,
}

impl<C: Coordinator> Watching<C> {
    pub(super) fn detached(path: &Path, mode: AddWatchMode) -> Self {
        Self { session: None, feed: Feed::new(path, mode), must_tell_gap: false }
    }
}

impl<C: Coordinator> Follow for Watching<C> {
    type Session = C;
    type Report = WatchItem;

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchItem, Error>> {
        let Some(session) = &self.session else { return Poll::Pending };
        ready!(self.feed.poll_registered(session, context))?;
        // Told once the watch is registered: a reader that reads now misses nothing later.
        if std::mem::take(&mut self.must_tell_gap) {
            return Poll::Ready(Ok(WatchItem::Gap));
        }
        self.feed.poll_item(session, context)
    }

    fn resume(&mut self, session: C) {
        self.must_tell_gap = self.session.replace(session).is_some() && !is_on(Mutation::SessionGapNotTold);
        self.feed.restart();
    }
}
