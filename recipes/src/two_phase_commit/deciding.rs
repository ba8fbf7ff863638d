//! How a transaction is decided: votes are watched and counted, and the first decision stands.

use super::{HERE, OVER, Outcome, Transaction, VOTE, Vote, below, cast, parse_vote};
use crate::ask::{ask_watching, create, data, poll_any};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Error};
use bytes::Bytes;
use std::future::poll_fn;
use std::task::{Context, Poll};
use zoolet_model::{CreateKind, ErrorCode, Reply, Request, RequestError, Text, WatchedEvent};

impl<C: Coordinator> Transaction<C> {
    /// Waits for the decision; if `looks`, also tallies the votes and decides.
    pub(super) async fn outcome(&self, looks: bool) -> Result<Outcome, Error> {
        let c = &self.coordinator;
        let watching = |path: Text| Request::Exists { path, watch: true };
        let mut missing: Vec<_> =
            self.sites.iter().filter(|_| looks).map(|site| Missing { site, watches: Vec::new() }).collect();
        loop {
            let (_, decided) = ask_watching(c, &watching(self.decision())).await?;
            // Watch the id as well: a transaction that has ended gets no decision.
            let (_, ended) = ask_watching(c, &watching(self.id.clone())).await?;
            if let Some(outcome) = self.decided().await? {
                return Ok(outcome);
            }
            if looks && let Some(outcome) = self.tally(&mut missing).await? {
                return self.say(outcome).await;
            }
            let mut watches = [decided, ended];
            let lives = poll_fn(|context| {
                // Polls every watch, so that the next tally reads every vote that has changed.
                let mut changed = poll_any(&mut watches, context);
                for missing in &mut missing {
                    if let Poll::Ready(lives) = missing.poll(context) {
                        changed = Poll::Ready(lives);
                    }
                }
                changed
            });
            if !lives.await {
                return Err(RequestError::of(c.state()).into());
            }
        }
    }

    /// Reads the missing votes whose watches have fired, and counts.
    ///
    /// A vote is read again only after a change to it, not after each change to another site's
    /// vote. Returns `None` while votes are missing and nothing demands an abort.
    async fn tally(&self, missing: &mut Vec<Missing<'_, C::Watch>>) -> Result<Option<Outcome>, Error> {
        let mut at = 0;
        while let Some(Missing { site, watches }) = missing.get_mut(at) {
            if watches.is_empty() {
                match self.look_at(site).await? {
                    Seen::Vote(Vote::Commit) => {
                        missing.swap_remove(at);
                        continue;
                    }
                    Seen::Vote(Vote::Abort) | Seen::Gone => return Ok(Some(Outcome::Aborted)),
                    Seen::Nothing(armed) => *watches = armed,
                }
            }
            at += 1;
        }
        let is_unanimous = missing.len() <= usize::from(is_on(Mutation::CommitWithoutAll));
        Ok(is_unanimous.then_some(Outcome::Committed))
    }

    /// Reads a vote.
    ///
    /// If it is missing, watches for the vote and for the departure of the site.
    async fn look_at(&self, site: &str) -> Result<Seen<C::Watch>, Error> {
        let c = &self.coordinator;
        let path = below(&self.path, VOTE, site);
        let (found, voted) = ask_watching(c, &Request::GetData { path: path.clone(), watch: true }).await?;
        let Some(Reply::Data(content, stat)) = found else {
            return Err(found.map_or(OVER.into(), |_| Error::unexpected()));
        };
        if let Some(vote) = cast(content)? {
            return Ok(Seen::Vote(vote));
        }
        if stat.version == 0 {
            return Ok(Seen::Nothing(vec![voted]));
        }
        let here = Request::Exists { path: below(&self.path, HERE, site), watch: true };
        let (here, gone) = ask_watching(c, &here).await?;
        if here.is_some() {
            return Ok(Seen::Nothing(vec![voted, gone]));
        }
        // The site may have voted after the first read and left then. Such a vote counts, and the
        // departure is no reason to abort.
        let content = data(c, &path).await?.and_then(|(content, _)| content);
        Ok(cast(content)?.map_or(Seen::Gone, Seen::Vote))
    }

    /// Creates the decision; returns the existing outcome if another process decided first.
    pub(super) async fn say(&self, outcome: Outcome) -> Result<Outcome, Error> {
        let content = Some(Bytes::from_static(match outcome {
            Outcome::Committed => b"commit",
            Outcome::Aborted => b"abort",
        }));
        match self.write(create(self.decision(), content, CreateKind::Persistent, false)).await? {
            Ok(()) => Ok(outcome),
            Err(ErrorCode::NodeExists) => self.decided().await?.ok_or(OVER.into()),
            Err(code) => Err(Error::at(code, "decide the transaction", self.path.text())),
        }
    }

    async fn decided(&self) -> Result<Option<Outcome>, Error> {
        let found = data(&self.coordinator, &self.decision()).await?;
        self.still_is().await?;
        let outcome = |content: Option<Bytes>| match parse_vote(&content.unwrap_or_default())? {
            Vote::Commit => Ok(Outcome::Committed),
            Vote::Abort => Ok(Outcome::Aborted),
        };
        found.map(|(content, _)| outcome(content)).transpose()
    }
}

/// A site whose vote is missing.
struct Missing<'a, W> {
    site: &'a str,
    /// Fire when the vote may have come; empty: read it now.
    watches: Vec<W>,
}

impl<W: Future<Output = Option<WatchedEvent>> + Unpin> Missing<'_, W> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let changed = poll_any(&mut self.watches, context);
        if changed.is_ready() {
            self.watches.clear();
        }
        changed
    }
}

/// State of a site's vote.
enum Seen<W> {
    Vote(Vote),
    /// The site joined and left without a vote.
    Gone,
    /// The vote is missing; these watches fire when that may have changed.
    Nothing(Vec<W>),
}
