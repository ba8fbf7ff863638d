//! Two-phase commit: every site carries out the payload, or none does.
//!
//! # Guarantees
//! - There is one outcome, whichever processes crash. The decision is a znode that is created once,
//!   and creating it is the decision.
//! - The outcome is commit only if every site voted to commit.
//! - A site's vote is in its [log](ParticipantLog) before the ensemble hears of it. A vote cannot
//!   be changed.
//! - Each of these aborts the transaction without waiting for further votes:
//!   - one vote to abort;
//!   - a site that joined and left without a vote, even if no coordinator was running then;
//!   - the end of the coordinator's patience.
//! - All state except the presence of sites outlives all processes. A coordinator that
//!   [opens](Transaction::open) the transaction again continues it, until every site has
//!   acknowledged the outcome.
//! - A late request of one transaction has no effect on the next transaction at the same path.
//!
//! # Does not guarantee
//! The classical drawbacks of two-phase commit remain:
//! - A site that voted to commit blocks until it learns the outcome. With
//!   [`Notification::Coordinator`], only a coordinator decides. With [`Notification::Everyone`],
//!   the sites decide once all have voted or one has a reason to abort. They block only while a
//!   vote is missing.
//! - A transaction takes as long as its slowest site.
//! - A site that never joins delays the decision until the coordinator's patience ends.
//! - Sites carry out the outcome at different times, so for a while only some have switched. Work
//!   that must not see a half-finished switch has to wait for [`Transaction::finish`].
//! - A site that votes to commit and then cannot do it breaks its promise. The recipe cannot repair
//!   that. The transaction stays open until a coordinator [dismisses](Transaction::dismiss) the
//!   site.
//! - A dismissed site cannot learn the outcome after [`Transaction::forget`]. A kept decision never
//!   expires by age.
//! - A site's log identifies a transaction by its path alone. Use a new path for each transaction.
//!
//! # Znodes
//! For a transaction at `path` and each of its sites `s`:
//! - `path`: its data is the payload.
//! - `id-GUID`: unique to this transaction. Every write of the transaction checks it.
//! - `vote-s`: the vote of site `s`. Its version is 0 until the site joins, and it has no content
//!   until the site votes.
//! - `here-s`: site `s` takes part. Its data is a GUID.
//! - `done-s`: site `s` has carried out the outcome.
//! - `dismissed-s`: the transaction does not wait for site `s`.
//! - `decision`: `commit` or `abort`.
//! - `finished`: the transaction waits only for dismissed sites.
//! - `path-receipts`: a container that holds an ephemeral while [`Transaction::begin`] runs.
//!
//! All but `path-receipts` are children of `path`. All but `here-s`, an ephemeral of the site, are
//! persistent.
//!
//! [`Transaction::finish`] deletes all of them except `path-receipts`, which the ensemble reaps.
//! While a dismissed site has not acknowledged, `finish` creates `finished` and keeps the path,
//! `id-GUID`, `decision` and the znodes of each such site. Once `finished` exists, a missing
//! `vote-s` means that site `s` has acknowledged.
//!
//! # Failures
//! - **The coordinator dies before the decision**: the sites wait. The next coordinator to open the
//!   transaction decides. With [`Notification::Everyone`], the sites may decide themselves.
//! - **The coordinator dies after the decision**: the sites read it. The next coordinator to open
//!   the transaction finishes it.
//! - **A site dies before it joins**: the decision waits for it, until the coordinator's patience
//!   ends.
//! - **A site dies after it joined and before it votes**: the transaction aborts as soon as the
//!   site's session ends. A coordinator decides that, now or when it opens the transaction. With
//!   [`Notification::Everyone`], the sites do.
//! - **A site dies after its vote**: the outcome does not depend on the site. It has to join again
//!   and read the outcome, unless its log says that it has carried the outcome out.
//! - **A dismissed site comes back with its vote in its log**: it joins, reads the decision and
//!   acknowledges it, even after [`Transaction::finish`]. The last dismissed site to acknowledge
//!   ends the transaction.
//! - **The last dismissed site acknowledges while a coordinator finishes**: one of the two ends the
//!   transaction. If that process dies first, the next coordinator to open the transaction can
//!   finish it.
//! - **A dismissed site never comes back**: the decision stays until a coordinator calls
//!   [`Transaction::forget`].
//! - **Two coordinators decide at once**: the first one decides, and the other one returns that
//!   outcome.
//! - **A process is cut off while its transaction ends and another one begins at the path**: its
//!   late writes are not done. [`Transaction::decide`], [`Participant::vote`] and
//!   [`Participant::outcome`] fail with NoNode.
//! - **The session is suspended**: the next server gets the requests again, and the watches
//!   continue there.
//! - **The session ends**: calls return its error. Open or join again with another session.
//! - **A reply is lost**: a vote or a decision is read back, and the one in the ensemble counts.
//!
//! # Example
//! ```
//! use zoolet::recipes::{Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote};
//! use zoolet::{Coordinator, Error, Path};
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

mod deciding;
mod ending;
mod participant;

pub use participant::Participant;

use crate::ask::{First, ask, ask_existing, bytes, create, first, named};
use crate::barrier::make_parent;
use crate::mutation::{Mutation, is_on};
use crate::naming::name_of;
use crate::once::Once;
use crate::{Coordinator, Error, ErrorKind, Guid};
use bytes::Bytes;
use ending::Kept;
use std::time::Duration;
use zoolet_model::{CreateKind, ErrorCode, IntoData, Names, Path, Reply, Request, Text, WriteOp};

const DECISION: &str = "decision";
const VOTE: &str = "vote-";
const HERE: &str = "here-";
const DONE: &str = "done-";
const DISMISSED: &str = "dismissed-";
const FINISHED: &str = "finished";
const ID: &str = "id-";

/// Error of a transaction that has ended.
const OVER: ErrorKind = ErrorKind::Refused(ErrorCode::NoNode);

/// A site's vote on the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vote {
    /// The site can carry it out, and will if every site can.
    Commit,
    /// The site cannot carry it out.
    Abort,
}

/// The decision on a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every site carries out the payload.
    Committed,
    /// No site carries it out.
    Aborted,
}

/// Selects the processes that watch the votes and decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Notification {
    /// The coordinator, with n watches for n sites. The sites watch for its decision.
    ///
    /// Without a coordinator nothing is decided.
    #[default]
    Coordinator,
    /// Every site, with n times n watches, as in the published recipe.
    ///
    /// No coordinator is needed once all sites have voted.
    Everyone,
}

/// A site's durable log of its transactions.
///
/// A record is durable before the ensemble hears of it: after a crash the site must know its
/// promises.
pub trait ParticipantLog {
    /// Reason that a record cannot be made durable.
    type Error;

    /// Returns when the record is durable.
    ///
    /// # Errors
    /// If the record cannot be made durable. The site then sends nothing to the ensemble.
    fn record(&mut self, transaction: &Path, record: Record) -> Result<(), Self::Error>;
}

/// Entry of a site's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// The site is about to vote.
    ///
    /// After a vote to commit it may do nothing else until it knows the outcome.
    Voting(Vote),
    /// The site has carried out this outcome and will acknowledge it next.
    CarriedOut(Outcome),
}

/// A coordinator's handle to a transaction.
#[derive(Debug)]
pub struct Transaction<C: Coordinator> {
    coordinator: C,
    path: Path,
    /// Path of the `id-GUID` znode, which exists as long as this transaction.
    ///
    /// A later transaction at the same path has another one.
    id: Text,
    sites: Vec<String>,
}

impl<C: Coordinator> Transaction<C> {
    /// Begins a transaction at `path`, where no znode may exist yet.
    ///
    /// The logs of the sites identify a transaction by its path, so use each path once.
    ///
    /// # Errors
    /// [`Error`], among others with:
    /// - `NodeExists` if the transaction exists already: [open](Transaction::open) it;
    /// - `BadArguments` if a site is listed twice;
    /// - [`ErrorKind::InvalidName`] if a site's name cannot be part of a znode's name.
    pub async fn begin(coordinator: C, path: &Path, payload: impl IntoData, sites: &[&str]) -> Result<Self, Error> {
        let id = below(path, ID, &Guid::from_random_bits(coordinator.random_bits()).to_string());
        let persistent = |path: Text, data| create(path, data, CreateKind::Persistent, false);
        let mut ops = vec![persistent(path.text().clone(), Some(bytes(payload))), persistent(id.clone(), None)];
        for (place, site) in sites.iter().enumerate() {
            if sites[..place].contains(site) {
                return Err(Error::at(ErrorCode::BadArguments, "begin the transaction", path.text()));
            }
            ops.push(persistent(named(path, &format!("{VOTE}{site}"))?.text().clone(), None));
        }
        let once = Once::new(coordinator.clone(), path);
        loop {
            match once.transact(&ops).await? {
                Ok(()) => break,
                Err((0, ErrorCode::NoNode)) => make_parent(&coordinator, path).await?,
                Err((_, code)) => return Err(Error::at(code, "begin the transaction", path.text())),
            }
        }
        let sites = sites.iter().map(|&site| site.to_owned()).collect();
        Ok(Self { coordinator, path: path.clone(), id, sites })
    }

    /// Takes over a transaction; `None` if it has ended or never began.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn open(coordinator: C, path: &Path) -> Result<Option<Self>, Error> {
        let list = Request::GetChildren { path: path.text().clone(), watch: false, with_stat: false };
        let names = match ask_existing(&coordinator, &list).await? {
            None => return Ok(None),
            Some(Reply::Names(names)) => names,
            Some(_) => return Err(Error::unexpected()),
        };
        // One listing gives both the id and the sites, so they belong to the same transaction.
        let Some(id) = names.iter().find(|name| name.starts_with(ID)) else { return Ok(None) };
        let id = zoolet_model::path::child(path.as_str(), id);
        let sites = names.iter().filter_map(|name| name.strip_prefix(VOTE)).map(str::to_owned).collect();
        Ok(Some(Self { coordinator, path: path.clone(), id, sites }))
    }

    /// Returns the names of the sites.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// Waits for the votes, then decides.
    ///
    /// The outcome is commit if every site votes to commit. It is abort as soon as one of these
    /// happens:
    /// - a site votes to abort;
    /// - a site that joined leaves without a vote;
    /// - `patience` ends before all sites have voted. `None` waits without limit.
    ///
    /// If another process decides first, this call returns its outcome.
    ///
    /// # Errors
    /// - [`ErrorKind::Refused`] with `NoNode` if another process has ended the transaction.
    /// - Fails if the session ends or a request is refused. The transaction is
    ///   unchanged and can be opened again.
    /// - [`ErrorKind::Malformed`] if a vote or the decision is neither `commit` nor `abort`.
    pub async fn decide(&self, patience: Option<Duration>) -> Result<Outcome, Error> {
        let Some(patience) = patience else { return self.outcome(true).await };
        let timer = self.coordinator.timer(self.coordinator.now().saturating_add(patience));
        match first(self.outcome(true), timer).await {
            First::Left(outcome) => outcome,
            First::Right(()) => self.say(Outcome::Aborted).await,
        }
    }

    /// Finishes the transaction once every site has acknowledged or is dismissed.
    ///
    /// If every site has acknowledged the outcome, this call ends the transaction. It deletes every
    /// znode except an empty `path-receipts`, a container that the ensemble reaps.
    ///
    /// A dismissed site that has not acknowledged may come back with a vote to commit in its log.
    /// It must then learn the outcome, so this call keeps the decision and returns. The transaction
    /// ends when the last dismissed site acknowledges, or when a coordinator
    /// [forgets](Transaction::forget) it. Until then [`Transaction::begin`] fails at this path with
    /// NodeExists.
    ///
    /// This call does not wait if another coordinator has finished the transaction before. It waits
    /// without limit for a site that neither acknowledges nor is [dismissed](Transaction::dismiss).
    ///
    /// # Errors
    /// [`Error`], with `NotEmpty` if a foreign client has created znodes below the
    /// transaction's.
    pub async fn finish(self) -> Result<(), Error> {
        let kept = if is_on(Mutation::DismissedForgotten) { Kept::Nothing } else { Kept::ForDismissed };
        self.end(kept).await
    }

    /// Finishes the transaction without keeping the decision for dismissed sites.
    ///
    /// Use it when dismissed sites are scrapped: a site that comes back later cannot learn the
    /// outcome. Otherwise this call does the same as [`Transaction::finish`].
    ///
    /// # Errors
    /// As [`Transaction::finish`].
    pub async fn forget(self) -> Result<(), Error> {
        self.end(Kept::Nothing).await
    }

    /// Stops waiting for the acknowledgement of `site`.
    ///
    /// A dismissed site that has voted should still join again. Until it acknowledges the outcome,
    /// the decision [stays](Transaction::finish). Has no effect if the transaction has ended.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn dismiss(&self, site: &str) -> Result<(), Error> {
        self.note(DISMISSED, site).await
    }

    /// Applies `op` if this transaction still exists; the inner error refuses `op`.
    ///
    /// The check protects a later transaction at the same path. A writer may have been cut off
    /// since its read, and a write whose reply was lost is sent again.
    async fn write(&self, op: WriteOp) -> Result<Result<(), ErrorCode>, Error> {
        let check = WriteOp::Check { path: self.id.clone(), version: -1 };
        match ask(&self.coordinator, &Request::Multi(vec![check, op])).await? {
            Reply::Multi(results) => match zoolet_model::first_failure(&results) {
                None => Ok(Ok(())),
                Some((0, ErrorCode::NoNode)) => Err(OVER.into()),
                Some((_, code)) => Ok(Err(code)),
            },
            _ => Err(Error::unexpected()),
        }
    }

    /// Confirms that earlier reads belong to this transaction; otherwise fails with [`OVER`].
    async fn still_is(&self) -> Result<(), Error> {
        crate::ask::stat(&self.coordinator, &self.id).await?.map(drop).ok_or(OVER.into())
    }

    fn decision(&self) -> Text {
        self.below(DECISION)
    }

    fn below(&self, name: &str) -> Text {
        zoolet_model::path::child(self.path.as_str(), name)
    }

    /// Whether the path's children are this transaction's.
    fn is_in(&self, names: &Names) -> bool {
        names.iter().any(|name| name == name_of(&self.id))
    }
}

/// Parses a vote znode's data; `None` if the site has not voted.
///
/// Empty data counts as no vote, because some clients cannot write null data.
fn cast(content: Option<Bytes>) -> Result<Option<Vote>, Error> {
    content.filter(|content| !content.is_empty()).map(|content| parse_vote(&content)).transpose()
}

fn parse_vote(content: &[u8]) -> Result<Vote, Error> {
    match content {
        b"commit" => Ok(Vote::Commit),
        b"abort" => Ok(Vote::Abort),
        _ => Err(ErrorKind::Malformed.into()),
    }
}

fn below(path: &Path, prefix: &str, site: &str) -> Text {
    zoolet_model::path::child(path.as_str(), &format!("{prefix}{site}"))
}
