//! A site's part in a transaction.

use super::{HERE, Notification, OVER, Outcome, ParticipantLog, Record, Transaction, VOTE, Vote, below, cast};
use crate::ask::{ask, create, data};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Errand, Error, Guid};
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, WriteOp};

/// A site's part in a transaction.
///
/// Dropping it withdraws the site's presence. If the site has not voted, the transaction is then
/// aborted.
#[derive(Debug)]
pub struct Participant<C: Coordinator, L> {
    transaction: Transaction<C>,
    site: String,
    payload: Bytes,
    notification: Notification,
    log: L,
    /// Data of this site's `here-` znode.
    ///
    /// Another participant of the same session and site has a different one.
    guid: Guid,
    /// Whether the `here-` znode is known to have been created.
    is_here: bool,
}

impl<C: Coordinator, L: ParticipantLog> Participant<C, L> {
    /// Joins the transaction, for the first time or again.
    ///
    /// `None` if the transaction does not exist, or does not include `site`. Waits while another
    /// participant of the site is present, for example one of a former session that has not expired
    /// yet.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn join(
        coordinator: C,
        path: &Path,
        site: &str,
        notification: Notification,
        log: L,
    ) -> Result<Option<Self>, Error> {
        let Some(transaction) = Transaction::open(coordinator.clone(), path).await? else { return Ok(None) };
        let (payload, site) = (Bytes::new(), site.to_owned());
        let guid = Guid::from_random_bits(coordinator.random_bits());
        // Built before the first write: its drop deletes the `here-` znode even if the reply is
        // lost.
        let mut participant = Self { transaction, site, payload, notification, log, guid, is_here: false };
        while !participant.enter().await? {
            match Transaction::open(coordinator.clone(), path).await? {
                Some(transaction) => participant.transaction = transaction,
                None => return Ok(None),
            }
            if !participant.transaction.sites.contains(&participant.site) {
                return Ok(None);
            }
        }
        participant.is_here = true;
        Ok(Some(participant))
    }

    /// Creates `here-s`, and raises the version of `vote-s` for good.
    ///
    /// A raised version without `here-s` shows that the site has joined and left, so a missing vote
    /// need not be awaited. Returns `false` if the transaction changed meanwhile and the caller
    /// must try again.
    async fn enter(&mut self) -> Result<bool, Error> {
        let Transaction { coordinator, path, .. } = &self.transaction;
        let (here, own) = (below(path, HERE, &self.site), Bytes::from(self.guid.to_string()));
        let vote = below(path, VOTE, &self.site);
        let payload = data(coordinator, path.text()).await?;
        let Some(((payload, _), (_, stat))) = payload.zip(data(coordinator, &vote).await?) else { return Ok(false) };
        let mut ops = vec![
            WriteOp::Check { path: self.transaction.id.clone(), version: -1 },
            create(here.clone(), Some(own.clone()), CreateKind::Ephemeral, false),
        ];
        if stat.version == 0 {
            // Raises the version to 1: the site has joined. The content stays undefined until it
            // votes.
            ops.push(WriteOp::SetData { path: vote, data: None, version: 0 });
        }
        self.payload = payload.unwrap_or_default();
        let Reply::Multi(results) = ask(coordinator, &Request::Multi(ops)).await? else {
            return Err(Error::unexpected());
        };
        match zoolet_model::first_failure(&results) {
            None => Ok(true),
            Some((1, ErrorCode::NodeExists)) => match data(coordinator, &here).await? {
                Some((Some(there), _)) if there == own => Ok(true),
                // The znode belongs to the site's former session and goes with it, or to a dropped
                // participant.
                Some(_) => crate::line::wait_gone(coordinator, &here).await.map(|()| false),
                None => Ok(false),
            },
            Some((0 | 1, ErrorCode::NoNode) | (_, ErrorCode::BadVersion)) => Ok(false),
            Some((_, code)) => Err(Error::at(code, "take part in the transaction", self.transaction.path.text())),
        }
    }

    /// Returns the payload, which the sites are to carry out.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Logs the vote, then casts it; returns the vote that stands.
    ///
    /// A vote cannot be changed: if this site has voted before, that vote is returned.
    ///
    /// # Errors
    /// - The inner error is the log's.
    /// - [`ErrorKind::Refused`](crate::ErrorKind::Refused) with `NoNode` if the transaction has ended.
    /// - Fails if the session ends or a request is refused.
    /// - [`ErrorKind::Malformed`](crate::ErrorKind::Malformed) if the existing vote is neither `commit` nor `abort`.
    pub async fn vote(&mut self, vote: Vote) -> Result<Result<Vote, L::Error>, Error> {
        let transaction = &self.transaction;
        let path = below(&transaction.path, VOTE, &self.site);
        let mut logged = None;
        loop {
            let Some((content, stat)) = data(&transaction.coordinator, &path).await? else { return Err(OVER.into()) };
            let cast = cast(content)?;
            if cast.is_some() {
                transaction.still_is().await?;
            }
            // Log an existing vote as well. A former process of the site may have cast it, and the
            // log may hold a different vote since then.
            let stands = cast.unwrap_or(vote);
            if !is_on(Mutation::VoteBeforeLog)
                && logged != Some(stands)
                && let Err(error) = self.log.record(&transaction.path, Record::Voting(stands))
            {
                return Ok(Err(error));
            }
            logged = Some(stands);
            if cast.is_some() {
                return Ok(Ok(stands));
            }
            let data = Some(Bytes::from_static(match vote {
                Vote::Commit => b"commit",
                Vote::Abort => b"abort",
            }));
            let op = WriteOp::SetData { path: path.clone(), data, version: stat.version };
            match transaction.write(op).await? {
                Ok(()) => return Ok(Ok(vote)),
                // The znode has changed, perhaps by this very write if its reply was lost. Read the
                // vote.
                Err(ErrorCode::BadVersion) => {}
                Err(code) => return Err(Error::at(code, "take part in the transaction", self.transaction.path.text())),
            }
        }
    }

    /// Waits for the outcome.
    ///
    /// A site that voted to commit can only wait. If the coordinator is gone, another one has to
    /// open the transaction.
    ///
    /// # Errors
    /// - [`ErrorKind::Refused`](crate::ErrorKind::Refused) with `NoNode` if the transaction has ended.
    /// - Fails if the session ends or a request is refused.
    /// - [`ErrorKind::Malformed`](crate::ErrorKind::Malformed) if a vote or the decision is neither `commit` nor `abort`.
    pub async fn outcome(&self) -> Result<Outcome, Error> {
        self.transaction.outcome(self.notification == Notification::Everyone).await
    }

    /// Acknowledges the outcome, after logging that it was carried out.
    ///
    /// # Errors
    /// The inner error is the log's. Fails if the session ends or a request is
    /// refused.
    pub async fn acknowledge(mut self, outcome: Outcome) -> Result<Result<(), L::Error>, Error> {
        if let Err(error) = self.log.record(&self.transaction.path, Record::CarriedOut(outcome)) {
            return Ok(Err(error));
        }
        self.transaction.acknowledge(&self.site).await.map(Ok)
    }
}

impl<C: Coordinator, L> Drop for Participant<C, L> {
    fn drop(&mut self) {
        let here = below(&self.transaction.path, HERE, &self.site);
        self.transaction.coordinator.run_errand(match self.is_here {
            true => Errand::delete_saying(here, self.guid),
            false => Errand::find_and_delete_saying(here, self.guid),
        });
    }
}
