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

use crate::ask::{First, UNEXPECTED, ask, ask_existing, ask_watching, create, data, first, named, poll_any};
use crate::barrier::make_parent;
use crate::mutation::{Mutation, is_on};
use crate::naming::name_of;
use crate::once::Once;
use crate::{Coordinator, Errand, Error, Guid};
use bytes::Bytes;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use zoolet_model::{CreateKind, ErrorCode, Names, Path, Reply, Request, Text, Watched, WriteOp};

const DECISION: &str = "decision";
const VOTE: &str = "vote-";
const HERE: &str = "here-";
const DONE: &str = "done-";
const DISMISSED: &str = "dismissed-";
const FINISHED: &str = "finished";
const ID: &str = "id-";

/// Error of a transaction that has ended.
const OVER: Error = Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode));

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
    /// [`Error::Session`], among others with:
    /// - `NodeExists` if the transaction exists already: [open](Transaction::open) it;
    /// - `BadArguments` if a site's name cannot be part of a znode's name, or is listed twice.
    pub async fn begin(coordinator: C, path: &Path, payload: impl Into<Bytes>, sites: &[&str]) -> Result<Self, Error> {
        let id = below(path, ID, &Guid::from_random_bits(coordinator.random_bits()).to_string());
        let persistent = |path: Text, data| create(path, data, CreateKind::Persistent, false);
        let mut ops = vec![persistent(path.text().clone(), Some(payload.into())), persistent(id.clone(), None)];
        for (place, site) in sites.iter().enumerate() {
            if sites[..place].contains(site) {
                return Err(zoolet_model::Error::Refused(ErrorCode::BadArguments).into());
            }
            ops.push(persistent(named(path, &format!("{VOTE}{site}"))?.text().clone(), None));
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
        Ok(Self { coordinator, path: path.clone(), id, sites })
    }

    /// Takes over a transaction; `None` if it has ended or never began.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn open(coordinator: C, path: &Path) -> Result<Option<Self>, Error> {
        let list = Request::GetChildren { path: path.text().clone(), watch: false, with_stat: false };
        let names = match ask_existing(&coordinator, &list).await? {
            None => return Ok(None),
            Some(Reply::Names(names)) => names,
            Some(_) => return Err(UNEXPECTED),
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
    /// - [`Error::Session`] with `NoNode` if another process has ended the transaction.
    /// - [`Error::Session`] if the session ends or a request is refused. The transaction is
    ///   unchanged and can be opened again.
    /// - [`Error::Malformed`] if a vote or the decision is neither `commit` nor `abort`.
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
    /// [`Error::Session`], with `NotEmpty` if a foreign client has created znodes below the
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

    async fn end(self, kept: Kept) -> Result<(), Error> {
        let c = &self.coordinator;
        let list = Request::GetChildren { path: self.path.text().clone(), watch: true, with_stat: false };
        loop {
            let (listed, watch) = ask_watching(c, &list).await?;
            let names = match listed {
                Some(Reply::Names(names)) => names,
                Some(_) => return Err(UNEXPECTED),
                None => return Ok(()),
            };
            if !self.is_in(&names) {
                // Another process ended this transaction, and a later one uses the path.
                return Ok(());
            }
            let is_over = |site: &String| has(&names, DONE, site) || has(&names, DISMISSED, site);
            // The write that creates `finished` deletes the znodes of the sites that had
            // acknowledged. Do not wait for those znodes to appear again.
            if !is_finished(&names) && !self.sites.iter().all(is_over) {
                crate::ask::fired(c, watch).await?;
                continue;
            }
            if self.delete(&names, kept).await? {
                return Ok(());
            }
        }
    }

    /// Deletes the transaction, whose children are `names`, except for the `kept` znodes.
    ///
    /// Returns `false` if the caller must list the children and try again.
    async fn delete(&self, names: &Names, kept: Kept) -> Result<bool, Error> {
        // A dismissed site that may still come back for the outcome. A site without a vote is not
        // awaited: it had acknowledged when the transaction was finished, and a late call has
        // dismissed it since.
        let awaited = |site: &str| {
            kept == Kept::ForDismissed
                && has(names, VOTE, site)
                && has(names, DISMISSED, site)
                && !has(names, DONE, site)
        };
        let is_awaited = self.sites.iter().any(|site| awaited(site));
        let is_theirs =
            |name: &str| [VOTE, HERE, DISMISSED].iter().any(|kind| name.strip_prefix(kind).is_some_and(awaited));
        let stays = |name: &str| is_awaited && (name == DECISION || name.starts_with(ID) || is_theirs(name));
        // Znodes of foreign clients stay, and the path with them.
        let own = names.iter().filter(|name| {
            [ID, VOTE, HERE, DONE, DISMISSED].iter().any(|own| name.starts_with(own))
                || [DECISION, FINISHED].contains(name)
        });
        let own: Vec<_> = own.collect();
        let doomed = own.iter().filter(|name| !stays(name)).map(|name| self.below(name));
        let mut ops: Vec<_> = doomed.map(|path| WriteOp::Delete { path, version: -1 }).collect();
        if is_awaited {
            if is_finished(names) {
                return Ok(true);
            }
            ops.insert(0, WriteOp::Check { path: self.id.clone(), version: -1 });
            ops.push(create(self.below(FINISHED), None, CreateKind::Persistent, false));
        } else {
            // `ops` deletes the id as well, so the multi deletes this transaction or nothing.
            ops.push(WriteOp::Delete { path: self.path.text().clone(), version: -1 });
        }
        let (last, owned) = (ops.len() - 1, own.len());
        let Reply::Multi(results) = ask(&self.coordinator, &Request::Multi(ops)).await? else { return Err(UNEXPECTED) };
        match zoolet_model::first_failure(&results) {
            // The last awaited site may have acknowledged after `names` was listed and before
            // `finished` was created. That site has not seen `finished`, so only this coordinator
            // is left to end the transaction.
            None => Ok(!is_awaited),
            // Another process ended the transaction, or a site has just come or gone.
            Some((_, ErrorCode::NoNode | ErrorCode::NodeExists)) => Ok(false),
            Some((at, ErrorCode::NotEmpty)) if at == last && names.len() == owned => Ok(false),
            Some((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// Stops waiting for the acknowledgement of `site`.
    ///
    /// A dismissed site that has voted should still join again. Until it acknowledges the outcome,
    /// the decision [stays](Transaction::finish). Has no effect if the transaction has ended.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn dismiss(&self, site: &str) -> Result<(), Error> {
        self.note(DISMISSED, site).await
    }

    /// Waits for the decision; if `looks`, also tallies the votes and decides.
    async fn outcome(&self, looks: bool) -> Result<Outcome, Error> {
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
                return Err(zoolet_model::Error::of(c.state()).into());
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
        let Some(Reply::Data(content, stat)) = found else { return Err(found.map_or(OVER, |_| UNEXPECTED)) };
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
    async fn say(&self, outcome: Outcome) -> Result<Outcome, Error> {
        let content = Some(Bytes::from_static(match outcome {
            Outcome::Committed => b"commit",
            Outcome::Aborted => b"abort",
        }));
        match self.write(create(self.decision(), content, CreateKind::Persistent, false)).await? {
            Ok(()) => Ok(outcome),
            Err(ErrorCode::NodeExists) => self.decided().await?.ok_or(OVER),
            Err(code) => Err(zoolet_model::Error::Refused(code).into()),
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

    async fn acknowledge(&self, site: &str) -> Result<(), Error> {
        self.note(DONE, site).await?;
        // A finished transaction waits only for dismissed sites. The last one to acknowledge ends
        // it.
        loop {
            let names = crate::ask::children(&self.coordinator, self.path.text()).await?;
            let is_finished = self.is_in(&names) && is_finished(&names);
            if !is_finished || self.delete(&names, Kept::ForDismissed).await? {
                return Ok(());
            }
        }
    }

    /// Records that a site has acknowledged or is dismissed.
    async fn note(&self, what: &str, site: &str) -> Result<(), Error> {
        match self.write(create(below(&self.path, what, site), None, CreateKind::Persistent, false)).await {
            // `NodeExists`: an earlier attempt wrote it. `OVER`: an ended transaction needs no
            // record.
            Ok(Ok(()) | Err(ErrorCode::NodeExists)) | Err(OVER) => Ok(()),
            Ok(Err(code)) => Err(zoolet_model::Error::Refused(code).into()),
            Err(error) => Err(error),
        }
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
                Some((0, ErrorCode::NoNode)) => Err(OVER),
                Some((_, code)) => Ok(Err(code)),
            },
            _ => Err(UNEXPECTED),
        }
    }

    /// Confirms that earlier reads belong to this transaction; otherwise fails with [`OVER`].
    async fn still_is(&self) -> Result<(), Error> {
        crate::ask::stat(&self.coordinator, &self.id).await?.map(drop).ok_or(OVER)
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

/// Znodes that outlive the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Nothing,
    /// Znodes from which a dismissed site learns the outcome.
    ForDismissed,
}

/// Whether a coordinator has finished the transaction with these children.
///
/// Then only its dismissed sites may still need them.
fn is_finished(names: &Names) -> bool {
    names.iter().any(|name| name == FINISHED)
}

/// Whether a site has a znode of this kind.
fn has(names: &Names, kind: &str, site: &str) -> bool {
    names.iter().any(|name| name.strip_prefix(kind) == Some(site))
}

/// A site whose vote is missing.
struct Missing<'a, W> {
    site: &'a str,
    /// Fire when the vote may have come; empty: read it now.
    watches: Vec<W>,
}

impl<W: Future<Output = Option<Watched>> + Unpin> Missing<'_, W> {
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
    /// [`Error::Session`] if the session ends or a request is refused.
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
        let Reply::Multi(results) = ask(coordinator, &Request::Multi(ops)).await? else { return Err(UNEXPECTED) };
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
            Some((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
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
    /// - [`Error::Session`] with `NoNode` if the transaction has ended.
    /// - [`Error::Session`] if the session ends or a request is refused.
    /// - [`Error::Malformed`] if the existing vote is neither `commit` nor `abort`.
    pub async fn vote(&mut self, vote: Vote) -> Result<Result<Vote, L::Error>, Error> {
        let transaction = &self.transaction;
        let path = below(&transaction.path, VOTE, &self.site);
        let mut logged = None;
        loop {
            let Some((content, stat)) = data(&transaction.coordinator, &path).await? else { return Err(OVER) };
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
                Err(code) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Waits for the outcome.
    ///
    /// A site that voted to commit can only wait. If the coordinator is gone, another one has to
    /// open the transaction.
    ///
    /// # Errors
    /// - [`Error::Session`] with `NoNode` if the transaction has ended.
    /// - [`Error::Session`] if the session ends or a request is refused.
    /// - [`Error::Malformed`] if a vote or the decision is neither `commit` nor `abort`.
    pub async fn outcome(&self) -> Result<Outcome, Error> {
        self.transaction.outcome(self.notification == Notification::Everyone).await
    }

    /// Acknowledges the outcome, after logging that it was carried out.
    ///
    /// # Errors
    /// The inner error is the log's. [`Error::Session`] if the session ends or a request is
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
        _ => Err(Error::Malformed),
    }
}

fn below(path: &Path, prefix: &str, site: &str) -> Text {
    zoolet_model::path::child(path.as_str(), &format!("{prefix}{site}"))
}
