//! Two-phase commit: all sites switch, or none.
//!
//! # Guarantees
//! - There is one outcome, whoever crashes and whoever decides: the decision is a znode that is created once, and to create it is to decide.
//! - It is to commit only if every site has voted to.
//! - A site's vote is in its [log](ParticipantLog) before the ensemble hears of it, and stands: it cannot be changed.
//! - One vote to abort decides at once. So does a site that was here and has gone without a vote, and the end of the coordinator's patience.
//! - Everything but the presence of sites outlives all processes: whoever [opens](Transaction::open) the transaction again goes on where it stands, until all sites have said that they have
//!   carried the outcome out.
//!
//! # Does not guarantee
//! The classical drawbacks of two-phase commit stay:
//! - A site that has voted to commit is blocked until it hears the outcome. With [`Notification::Coordinator`] nobody decides while no coordinator is there; with
//!   [`Notification::Everyone`] the sites decide by themselves once all have voted, and are blocked only while a vote is missing.
//! - It takes the slowest site's time.
//! - The sites carry the outcome out one after the other: for a while some have switched and others not. What must not be seen half done has to wait for [`Transaction::finish`].
//! - A site that votes to commit and then cannot do it breaks its promise; nothing here can mend that.
//!
//! # Znodes
//! The path, with the payload for its data. Below it for each site `s`: `vote-s`, without content until the site has voted; `here-s`, an ephemeral of the site with a GUID for its data; `done-s`, when it has carried
//! out what was decided. And `decision`. [`Transaction::finish`] deletes all of them. `path-receipts` has an ephemeral while it is begun.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the coordinator dies before the decision | sites wait; whoever opens the transaction decides |
//! | the coordinator dies after it | sites read the decision; whoever opens the transaction finishes it |
//! | a site dies before its vote | abort, as soon as its session ends |
//! | a site dies after its vote | the outcome does not depend on it; it reads it when it joins again |
//! | two coordinators decide at once | the first one decides; the other one is told so |
//! | a reply is lost | a vote and a decision are read back: what is there is what counts |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote};
//!
//! struct Journal;
//!
//! impl ParticipantLog for Journal {
//!     type Error = std::io::Error;
//!     fn record(&mut self, transaction: &Path, record: Record) -> std::io::Result<()> {
//!         println!("written and synced: {transaction} {record:?}");
//!         Ok(())
//!     }
//! }
//!
//! async fn switch<C: Coordinator>(session: C) -> Result<Outcome, Error> {
//!     let path = Path::from_static("/firmware/tx-17");
//!     let transaction = Transaction::begin(session, &path, "firmware 4.2", &["a", "b"]).await?;
//!     let outcome = transaction.decide(Some(std::time::Duration::from_secs(60))).await?;
//!     transaction.finish().await?;
//!     Ok(outcome)
//! }
//!
//! async fn site<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let path = Path::from_static("/firmware/tx-17");
//!     let joined = Participant::join(session, &path, "a", Notification::Coordinator, Journal).await?;
//!     let Some(mut site) = joined else { return Ok(()) };
//!     let Ok(_vote) = site.vote(Vote::Commit).await? else { return Ok(()) };
//!     let outcome = site.outcome().await?;
//!     // Carry it out here.
//!     let _ = site.acknowledge(outcome).await?;
//!     Ok(())
//! }
//! ```

use crate::ask::{First, UNEXPECTED, any_fired, ask, ask_existing, ask_watching, create, data, first};
use crate::barrier::make_parent;
use crate::once::Once;
use crate::{Coordinator, Errand, Error, Guid};
use bytes::Bytes;
use std::time::Duration;
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, Text, WriteOp};

const DECISION: &str = "decision";
const VOTE: &str = "vote-";
const HERE: &str = "here-";
const DONE: &str = "done-";

/// There is no such transaction any more.
const OVER: Error = Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode));

/// What a site says to the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vote {
    /// It can do it, and will if all can.
    Commit,
    /// It cannot.
    Abort,
}

/// What was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All do it.
    Committed,
    /// Nobody does.
    Aborted,
}

/// Who looks at the votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Notification {
    /// The coordinator, who tells the sites: n watches for n sites. While no coordinator is there, nothing is decided.
    #[default]
    Coordinator,
    /// Every site, as in the published recipe: n times n watches, and no coordinator is needed once all have voted.
    Everyone,
}

/// The site's own record of a transaction, made durable before the ensemble hears of it: after a crash the site must know what it has promised.
pub trait ParticipantLog {
    /// Why it cannot be made durable.
    type Error;

    /// Returns when the record is durable.
    ///
    /// # Errors
    /// Nothing is said to the ensemble then.
    fn record(&mut self, transaction: &Path, record: Record) -> Result<(), Self::Error>;
}

/// What a site must remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// It is about to vote so. After a vote to commit it may do nothing else until it knows the outcome.
    Voting(Vote),
    /// It has heard the outcome, and is about to say that it has carried it out.
    CarriedOut(Outcome),
}

/// A transaction, as its coordinator sees it, or whoever takes over from it.
#[derive(Debug)]
pub struct Transaction<C: Coordinator> {
    coordinator: C,
    path: Path,
    sites: Vec<String>,
}

impl<C: Coordinator> Transaction<C> {
    /// Begins a transaction: `path` names it, and must be new.
    ///
    /// # Errors
    /// NodeExists when there is such a transaction already: [open](Transaction::open) it. BadArguments for a site that no znode can be named for; the
    /// session's.
    pub async fn begin(coordinator: C, path: &Path, payload: impl Into<Bytes>, sites: &[&str]) -> Result<Self, Error> {
        let mut ops = vec![create(path.text().clone(), Some(payload.into()), CreateKind::Persistent, false)];
        for site in sites {
            let vote = Path::new(below(path, VOTE, site)).map_err(zoolet_model::Error::Refused)?;
            ops.push(create(vote.text().clone(), None, CreateKind::Persistent, false));
        }
        let once = Once::new(coordinator.clone(), path);
        loop {
            match once.transact(&ops).await? {
                Ok(()) => break,
                Err((0, ErrorCode::NoNode)) => make_parent(&coordinator, path).await?,
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
        let sites = sites.iter().map(|&site| site.to_owned()).collect();
        Ok(Self { coordinator, path: path.clone(), sites })
    }

    /// Takes a transaction over that somebody began; `None` when there is none, because it is over or never was.
    ///
    /// # Errors
    /// The session's.
    pub async fn open(coordinator: C, path: &Path) -> Result<Option<Self>, Error> {
        let sites = sites(&coordinator, path).await?;
        Ok(sites.map(|sites| Self { coordinator, path: path.clone(), sites }))
    }

    /// The sites, by name.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// Waits for the votes and decides: to commit when all want to, to abort as soon as one does not, or one was here and has gone without a vote,
    /// or not all have voted within `patience`. If it was decided before, that is the outcome.
    ///
    /// # Errors
    /// The session's; the transaction is then as it was, and can be opened again.
    pub async fn decide(&self, patience: Option<Duration>) -> Result<Outcome, Error> {
        let Some(patience) = patience else { return self.count().await };
        let timer = self.coordinator.timer(self.coordinator.now().saturating_add(patience));
        match first(self.count(), timer).await {
            First::Left(outcome) => outcome,
            First::Right(()) => decide(&self.coordinator, &self.path, Outcome::Aborted).await,
        }
    }

    async fn count(&self) -> Result<Outcome, Error> {
        let mut seen = vec![false; self.sites.len()];
        'votes: loop {
            if let Some(outcome) = decided(&self.coordinator, &self.path).await? {
                return Ok(outcome);
            }
            let (tally, mut watches) = tally(&self.coordinator, &self.path, &self.sites).await?;
            if let Some(outcome) = tally.outcome() {
                return decide(&self.coordinator, &self.path, outcome).await;
            }
            // Of sites that have not voted: whether they are there, and whether they were.
            for (site, seen) in self.sites.iter().zip(&mut seen).filter(|(site, _)| !tally.voted.contains(site)) {
                let here = below(&self.path, HERE, site);
                let (there, watch) =
                    ask_watching(&self.coordinator, &Request::Exists { path: here, watch: true }).await?;
                let was_seen = std::mem::replace(seen, there.is_some());
                if there.is_none() && was_seen {
                    // It may have voted since the votes were read, and gone then: that is no reason.
                    let vote = data(&self.coordinator, &below(&self.path, VOTE, site)).await?;
                    if vote.is_some_and(|(vote, _)| vote.is_some()) {
                        continue 'votes;
                    }
                    return decide(&self.coordinator, &self.path, Outcome::Aborted).await;
                }
                watches.push(watch);
            }
            any_fired(&self.coordinator, &mut watches).await?;
        }
    }

    /// Waits until every site has carried out what was decided, and ends the transaction: nothing of it is left.
    ///
    /// A site that never comes back keeps it open for ever; whoever takes a site out of service says [`Transaction::dismiss`].
    ///
    /// # Errors
    /// The session's.
    pub async fn finish(self) -> Result<(), Error> {
        let c = &self.coordinator;
        let list = Request::GetChildren { path: self.path.text().clone(), watch: true, with_stat: false };
        loop {
            let (listed, watch) = ask_watching(c, &list).await?;
            let names = match listed {
                Some(Reply::Names(names)) => names,
                Some(_) => return Err(UNEXPECTED),
                None => return Ok(()),
            };
            let is_done = |site: &String| names.iter().any(|name| name.strip_prefix(DONE) == Some(site));
            if !self.sites.iter().all(is_done) {
                crate::ask::fired(c, watch).await?;
                continue;
            }
            let delete = |path: Text| WriteOp::Delete { path, version: -1 };
            let below = names.iter().map(|name| delete(zoolet_model::path::child(self.path.as_str(), name)));
            let all: Vec<_> = below.chain([delete(self.path.text().clone())]).collect();
            match ask(c, &Request::Multi(all)).await? {
                // Another one ended it, or a site has just gone: as it is now.
                Reply::Multi(results) if zoolet_model::first_failure(&results).is_some() => {}
                Reply::Multi(_) => return Ok(()),
                _ => return Err(UNEXPECTED),
            }
        }
    }

    /// Takes the outcome for carried out by a site that will never come back.
    ///
    /// # Errors
    /// The session's.
    pub async fn dismiss(&self, site: &str) -> Result<(), Error> {
        acknowledge(&self.coordinator, &self.path, site).await
    }
}

/// A site's part in a transaction. Dropped, it is not here any more; if it has not voted, the coordinator aborts.
#[derive(Debug)]
pub struct Participant<C: Coordinator, L> {
    coordinator: C,
    path: Path,
    site: String,
    payload: Bytes,
    notification: Notification,
    log: L,
    /// The data of the znode that says that it is here: another participant of the same session and site makes one of its own.
    guid: Guid,
}

impl<C: Coordinator, L: ParticipantLog> Participant<C, L> {
    /// Takes part, for the first time or again; `None` when there is no such transaction, or not for this site.
    ///
    /// # Errors
    /// The session's.
    pub async fn join(
        coordinator: C,
        path: &Path,
        site: &str,
        notification: Notification,
        log: L,
    ) -> Result<Option<Self>, Error> {
        let Some((payload, _)) = data(&coordinator, path.text()).await? else { return Ok(None) };
        if crate::ask::stat(&coordinator, &below(path, VOTE, site)).await?.is_none() {
            return Ok(None);
        }
        let (payload, site) = (payload.unwrap_or_default(), site.to_owned());
        let guid = Guid::from_random_bits(coordinator.random_bits());
        let participant = Self { coordinator, path: path.clone(), site, payload, notification, log, guid };
        let (here, own) = (below(path, HERE, &participant.site), Bytes::from(guid.to_string()));
        let request = Request::Write(create(here.clone(), Some(own.clone()), CreateKind::Ephemeral, false));
        loop {
            match ask(&participant.coordinator, &request).await {
                Ok(_) => return Ok(Some(participant)),
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NodeExists))) => {
                    match data(&participant.coordinator, &here).await? {
                        Some((Some(there), _)) if there == own => return Ok(Some(participant)),
                        // The site's former session's, and it goes with that; or one that was dropped.
                        Some(_) => crate::line::wait_gone(&participant.coordinator, &here).await?,
                        None => {}
                    }
                }
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// What is to be done.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Votes, after the log has it. A vote stands: if there is one already, that is given back.
    ///
    /// # Errors
    /// The log's, inside; the session's.
    pub async fn vote(&mut self, vote: Vote) -> Result<Result<Vote, L::Error>, Error> {
        let path = below(&self.path, VOTE, &self.site);
        loop {
            let Some((content, stat)) = data(&self.coordinator, &path).await? else {
                return Err(zoolet_model::Error::Refused(ErrorCode::NoNode).into());
            };
            if let Some(content) = content.filter(|content| !content.is_empty()) {
                return Ok(Ok(parse_vote(&content)?));
            }
            if let Err(error) = self.log.record(&self.path, Record::Voting(vote)) {
                return Ok(Err(error));
            }
            let data = Some(Bytes::from_static(match vote {
                Vote::Commit => b"commit",
                Vote::Abort => b"abort",
            }));
            let op = WriteOp::SetData { path: path.clone(), data, version: stat.version };
            match ask(&self.coordinator, &Request::Write(op)).await {
                // What is there now is the vote: of an attempt whose reply was lost, too.
                Ok(_) | Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::BadVersion))) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the outcome. Until it is known, a site that voted to commit can do nothing but wait: if the coordinator is gone, somebody has to open
    /// the transaction again.
    ///
    /// # Errors
    /// NoNode when the transaction is over; the session's.
    pub async fn outcome(&self) -> Result<Outcome, Error> {
        let c = &self.coordinator;
        let decision = zoolet_model::path::child(self.path.as_str(), DECISION);
        let sites = match self.notification {
            Notification::Coordinator => Vec::new(),
            Notification::Everyone => sites(c, &self.path).await?.ok_or(OVER)?,
        };
        loop {
            // Without the transaction there will be no decision: it was over before this asked, or is now.
            let (transaction, ended) =
                ask_watching(c, &Request::Exists { path: self.path.text().clone(), watch: true }).await?;
            if transaction.is_none() {
                return Err(OVER);
            }
            let (_, watch) = ask_watching(c, &Request::Exists { path: decision.clone(), watch: true }).await?;
            if let Some(outcome) = decided(c, &self.path).await? {
                return Ok(outcome);
            }
            let mut watches = vec![ended, watch];
            if self.notification == Notification::Everyone {
                let (tally, votes) = tally(c, &self.path, &sites).await?;
                if let Some(outcome) = tally.outcome() {
                    return decide(c, &self.path, outcome).await;
                }
                watches.extend(votes);
            }
            any_fired(c, &mut watches).await?;
        }
    }

    /// Says that the outcome was carried out, after the log has it.
    ///
    /// # Errors
    /// The log's, inside; the session's.
    pub async fn acknowledge(mut self, outcome: Outcome) -> Result<Result<(), L::Error>, Error> {
        if let Err(error) = self.log.record(&self.path, Record::CarriedOut(outcome)) {
            return Ok(Err(error));
        }
        acknowledge(&self.coordinator, &self.path, &self.site).await.map(Ok)
    }
}

impl<C: Coordinator, L> Drop for Participant<C, L> {
    fn drop(&mut self) {
        let here = below(&self.path, HERE, &self.site);
        self.coordinator.run_errand(Errand::delete_if_own(here, self.guid));
    }
}

/// The votes so far.
struct Tally<'a> {
    voted: Vec<&'a String>,
    has_abort: bool,
    sites: usize,
}

impl Tally<'_> {
    fn outcome(&self) -> Option<Outcome> {
        if self.has_abort {
            Some(Outcome::Aborted)
        } else {
            (self.voted.len() == self.sites).then_some(Outcome::Committed)
        }
    }
}

/// Reads the votes, and watches those that are missing.
async fn tally<'a, C: Coordinator>(
    coordinator: &C,
    path: &Path,
    sites: &'a [String],
) -> Result<(Tally<'a>, Vec<C::Watch>), Error> {
    let mut tally = Tally { voted: Vec::new(), has_abort: false, sites: sites.len() };
    let mut watches = Vec::new();
    for site in sites {
        let request = Request::GetData { path: below(path, VOTE, site), watch: true };
        match ask_watching(coordinator, &request).await? {
            (Some(Reply::Data(Some(vote), _)), _) if !vote.is_empty() => {
                tally.has_abort |= parse_vote(&vote)? == Vote::Abort;
                tally.voted.push(site);
            }
            // Empty: made by a client that cannot leave it undefined.
            (Some(Reply::Data(..)), watch) => watches.push(watch),
            (Some(_), _) => return Err(UNEXPECTED),
            (None, _) => return Err(zoolet_model::Error::Refused(ErrorCode::NoNode).into()),
        }
    }
    Ok((tally, watches))
}

/// Decides, if nobody has; the outcome is what was decided first.
async fn decide<C: Coordinator>(coordinator: &C, path: &Path, outcome: Outcome) -> Result<Outcome, Error> {
    let content = Some(Bytes::from_static(match outcome {
        Outcome::Committed => b"commit",
        Outcome::Aborted => b"abort",
    }));
    let op = create(zoolet_model::path::child(path.as_str(), DECISION), content, CreateKind::Persistent, false);
    match ask(coordinator, &Request::Write(op)).await {
        Ok(_) | Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NodeExists))) => {}
        Err(error) => return Err(error),
    }
    decided(coordinator, path).await?.ok_or(OVER)
}

async fn decided<C: Coordinator>(coordinator: &C, path: &Path) -> Result<Option<Outcome>, Error> {
    let found = data(coordinator, &zoolet_model::path::child(path.as_str(), DECISION)).await?;
    let outcome = |content: Option<Bytes>| match parse_vote(&content.unwrap_or_default())? {
        Vote::Commit => Ok(Outcome::Committed),
        Vote::Abort => Ok(Outcome::Aborted),
    };
    found.map(|(content, _)| outcome(content)).transpose()
}

async fn acknowledge<C: Coordinator>(coordinator: &C, path: &Path, site: &str) -> Result<(), Error> {
    let op = create(below(path, DONE, site), None, CreateKind::Persistent, false);
    match ask(coordinator, &Request::Write(op)).await {
        // NoNode: the transaction is over, so it was acknowledged before.
        Ok(_) | Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NodeExists | ErrorCode::NoNode))) => Ok(()),
        Err(error) => Err(error),
    }
}

/// `None` when there is no such transaction.
async fn sites<C: Coordinator>(coordinator: &C, path: &Path) -> Result<Option<Vec<String>>, Error> {
    let list = Request::GetChildren { path: path.text().clone(), watch: false, with_stat: false };
    match ask_existing(coordinator, &list).await? {
        None => Ok(None),
        Some(Reply::Names(names)) => {
            Ok(Some(names.iter().filter_map(|name| name.strip_prefix(VOTE)).map(str::to_owned).collect()))
        }
        Some(_) => Err(UNEXPECTED),
    }
}

fn parse_vote(content: &[u8]) -> Result<Vote, Error> {
    match content {
        b"commit" => Ok(Vote::Commit),
        b"abort" => Ok(Vote::Abort),
        _ => Err(Error::Malformed),
    }
}

fn below(path: &Path, prefix: &str, site: &str) -> Text {
    zoolet_model::path::child(path.as_str(), &format!("{prefix}{site}"))
}
