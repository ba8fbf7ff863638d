//! Two-phase commit: all sites switch, or none.
//!
//! # Guarantees
//! - There is one outcome, whoever crashes and whoever decides: the decision is a znode that is created once, and to create it is to decide.
//! - It is to commit only if every site has voted to.
//! - A site's vote is in its [log](ParticipantLog) before the ensemble hears of it, and stands: it cannot be changed.
//! - One vote to abort decides at once. So does a site that was here and has gone without a vote, also while no coordinator was there, and the end of the coordinator's patience.
//! - Everything but the presence of sites outlives all processes: whoever [opens](Transaction::open) the transaction again goes on where it stands, until all sites have said that they have
//!   carried the outcome out.
//! - A transaction that follows at the same path is another one: what was asked for the one before, and comes late, is not done.
//!
//! # Does not guarantee
//! The classical drawbacks of two-phase commit stay:
//! - A site that has voted to commit is blocked until it hears the outcome. With [`Notification::Coordinator`] nobody decides while no coordinator is there; with
//!   [`Notification::Everyone`] the sites decide by themselves once all have voted or one of them has a reason to abort, and are blocked only while a vote is missing.
//! - It takes the slowest site's time.
//! - A site that never joins is waited for: only patience ends that.
//! - The sites carry the outcome out one after the other: for a while some have switched and others not. What must not be seen half done has to wait for [`Transaction::finish`].
//! - A site that votes to commit and then cannot do it breaks its promise; nothing here can mend that. The transaction stays open until somebody [dismisses](Transaction::dismiss) the site.
//! - That a dismissed site learns the outcome after [`Transaction::forget`]. Nothing forgets by itself: no age ends what is kept.
//! - That a site's log tells transactions of the same path apart: a new path for each is better.
//!
//! # Znodes
//! The path, with the payload for its data. Below it `id-GUID`, which every write of the transaction checks and no other transaction has; for each site `s`: `vote-s`, without content until the site
//! has voted, and of version 0 until it joins; `here-s`, an ephemeral of the site with a GUID for its data; `done-s`, when it has carried out what was decided; `dismissed-s`, when it is not awaited. And `decision`.
//! [`Transaction::finish`] deletes all of them. While a dismissed site has not acknowledged, it keeps the path, `id-GUID`, `decision` and the znodes of those sites, and creates `finished`. From then on, a site without `vote-s` has acknowledged.
//! `path-receipts` has an ephemeral while the transaction is begun. All but `here-s` and the receipt are persistent.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the coordinator dies before the decision | sites wait; whoever opens the transaction decides |
//! | the coordinator dies after it | sites read the decision; whoever opens the transaction finishes it |
//! | a site dies before it joins | everybody waits for it, or until the coordinator's patience ends |
//! | a site that has joined dies before its vote | abort, as soon as its session ends: by a coordinator, or whoever opens the transaction later, or by the sites with [`Notification::Everyone`] |
//! | a site dies after its vote | the outcome does not depend on it; it reads it when it joins again, which it has to as long as its log does not say that it has carried it out |
//! | a site that was dismissed comes back, its vote in its log | it joins, reads the decision and acknowledges it, also after [`Transaction::finish`]; the last dismissed site to acknowledge ends the transaction |
//! | the last dismissed site acknowledges while a coordinator finishes the transaction | one of the two ends it; if that one dies first, the next coordinator to open the transaction can finish it |
//! | a dismissed site never comes back | the decision stays until somebody says [`Transaction::forget`] |
//! | two coordinators decide at once | the first one decides; the other one is told so |
//! | a coordinator or a site is cut off, and the transaction ends and another one begins at the path | what it asked is not done, and it hears NoNode |
//! | the session is suspended | requests are asked again at the next server, and watches go on there |
//! | the session ends | its error; open or join again with another one |
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
    /// A znode that is there as long as this transaction, and in no other one: others may follow at the same path.
    id: Text,
    sites: Vec<String>,
}

impl<C: Coordinator> Transaction<C> {
    /// Begins a transaction: `path` names it, and there must be none of that name. Sites' logs know it by that name: better use each once.
    ///
    /// # Errors
    /// NodeExists when there is such a transaction already: [open](Transaction::open) it. BadArguments for a site that no znode can be named for, or
    /// that is named twice; the session's.
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

    /// Takes a transaction over that somebody began; `None` when there is none, because it is over or never was.
    ///
    /// # Errors
    /// The session's.
    pub async fn open(coordinator: C, path: &Path) -> Result<Option<Self>, Error> {
        let list = Request::GetChildren { path: path.text().clone(), watch: false, with_stat: false };
        let names = match ask_existing(&coordinator, &list).await? {
            None => return Ok(None),
            Some(Reply::Names(names)) => names,
            Some(_) => return Err(UNEXPECTED),
        };
        // From one list, so that both are of one transaction.
        let Some(id) = names.iter().find(|name| name.starts_with(ID)) else { return Ok(None) };
        let id = zoolet_model::path::child(path.as_str(), id);
        let sites = names.iter().filter_map(|name| name.strip_prefix(VOTE)).map(str::to_owned).collect();
        Ok(Some(Self { coordinator, path: path.clone(), id, sites }))
    }

    /// The sites, by name.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// Waits for the votes and decides: to commit when all want to, to abort as soon as one does not, or one was here and has gone without a vote,
    /// or not all have voted within `patience`. If it was decided before, or somebody else decides, that is the outcome.
    ///
    /// # Errors
    /// NoNode when somebody else has ended the transaction; the session's, and the transaction is then as it was, and can be opened again.
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
    /// If every site has acknowledged the outcome, this call ends the transaction: it deletes every znode except an empty `path-receipts`, a
    /// container that the ensemble reaps.
    ///
    /// A dismissed site that has not acknowledged may come back with a vote to commit in its log, and must learn the outcome then. While there is such
    /// a site, this call keeps the decision and returns. The last dismissed site to acknowledge ends the transaction, or a coordinator that
    /// [forgets](Transaction::forget) it. Until then the path is taken: [`Transaction::begin`] fails there with NodeExists.
    ///
    /// This call does not wait if another coordinator has finished the transaction before. It waits for ever for a site that neither acknowledges nor is
    /// [dismissed](Transaction::dismiss).
    ///
    /// # Errors
    /// NotEmpty when somebody has put znodes of his own below the transaction's; the session's.
    pub async fn finish(self) -> Result<(), Error> {
        let kept = if is_on(Mutation::DismissedForgotten) { Kept::Nothing } else { Kept::ForDismissed };
        self.end(kept).await
    }

    /// [`Transaction::finish`], also for dismissed sites: for those that are scrapped. A site that comes back all the same cannot learn the outcome.
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
                // Another one ended it, and this is the next of its name.
                return Ok(());
            }
            let is_over = |site: &String| has(&names, DONE, site) || has(&names, DISMISSED, site);
            // The write that creates `finished` deletes the znodes of the sites that had acknowledged: do not wait for them to appear again.
            if !is_finished(&names) && !self.sites.iter().all(is_over) {
                crate::ask::fired(c, watch).await?;
                continue;
            }
            if self.delete(&names, kept).await? {
                return Ok(());
            }
        }
    }

    /// Deletes the transaction with these children, but for what is kept. `false`: the children have changed, and the caller must list them again.
    async fn delete(&self, names: &Names, kept: Kept) -> Result<bool, Error> {
        // Dismissed sites that may still come back to ask for the outcome. A site without a vote is not one of them: it had acknowledged when
        // the transaction was finished, and a late call has dismissed it since.
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
        // What somebody else has put there stays, and with it the path.
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
            // The id among the others: what is deleted is this transaction, or nothing.
            ops.push(WriteOp::Delete { path: self.path.text().clone(), version: -1 });
        }
        let (last, owned) = (ops.len() - 1, own.len());
        let Reply::Multi(results) = ask(&self.coordinator, &Request::Multi(ops)).await? else { return Err(UNEXPECTED) };
        match zoolet_model::first_failure(&results) {
            // The last awaited site may have acknowledged after `names` was listed and before `finished` was created. That site has not seen
            // `finished`, so only this coordinator is left to end the transaction.
            None => Ok(!is_awaited),
            // Another one ended it, or a site has just come or gone: as it is now.
            Some((_, ErrorCode::NoNode | ErrorCode::NodeExists)) => Ok(false),
            Some((at, ErrorCode::NotEmpty)) if at == last && names.len() == owned => Ok(false),
            Some((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// Takes the outcome for carried out by a site that is not awaited any more. If it has voted it should come back all the same: until it has
    /// acknowledged the outcome, the decision [stays](Transaction::finish).
    ///
    /// # Errors
    /// The session's.
    pub async fn dismiss(&self, site: &str) -> Result<(), Error> {
        self.note(DISMISSED, site).await
    }

    /// Waits until it is decided. Whoever looks at the votes decides as soon as they allow it; others wait for whoever does.
    async fn outcome(&self, looks: bool) -> Result<Outcome, Error> {
        let c = &self.coordinator;
        let watching = |path: Text| Request::Exists { path, watch: true };
        let mut missing: Vec<_> =
            self.sites.iter().filter(|_| looks).map(|site| Missing { site, watches: Vec::new() }).collect();
        loop {
            let (_, decided) = ask_watching(c, &watching(self.decision())).await?;
            // Without the transaction there will be no decision.
            let (_, ended) = ask_watching(c, &watching(self.id.clone())).await?;
            if let Some(outcome) = self.decided().await? {
                return Ok(outcome);
            }
            if looks && let Some(outcome) = self.tally(&mut missing).await? {
                return self.say(outcome).await;
            }
            let mut watches = [decided, ended];
            let lives = poll_fn(|context| {
                // All of them: each one that has changed is looked at again.
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

    /// Looks at the votes that are missing and may not be any more: each vote is read as often as something happens to it, and not at each vote of another.
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

    /// Reads a vote, and if there is none, watches for it and for the end of the site that owes it.
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
        // It may have voted since, and gone then: that is no reason.
        let content = data(c, &path).await?.and_then(|(content, _)| content);
        Ok(cast(content)?.map_or(Seen::Gone, Seen::Vote))
    }

    /// Decides, if nobody has; the outcome is what was decided first.
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
        // A finished transaction waits only for dismissed sites. The last one to acknowledge ends it.
        loop {
            let names = crate::ask::children(&self.coordinator, self.path.text()).await?;
            let is_finished = self.is_in(&names) && is_finished(&names);
            if !is_finished || self.delete(&names, Kept::ForDismissed).await? {
                return Ok(());
            }
        }
    }

    /// Writes down that a site has done its part, or is not awaited.
    async fn note(&self, what: &str, site: &str) -> Result<(), Error> {
        match self.write(create(below(&self.path, what, site), None, CreateKind::Persistent, false)).await {
            // The transaction is over, so it was written down before.
            Ok(Ok(()) | Err(ErrorCode::NodeExists)) | Err(OVER) => Ok(()),
            Ok(Err(code)) => Err(zoolet_model::Error::Refused(code).into()),
            Err(error) => Err(error),
        }
    }

    /// Writes in this transaction and in no later one of its name, however late: a writer may have been cut off since it read, and a write whose answer was
    /// lost is sent again. Inside, why it was not done.
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

    /// That what was read before this was of this transaction.
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

/// What stays of a transaction that is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Nothing,
    /// What a dismissed site needs to learn the outcome.
    ForDismissed,
}

/// Whether a coordinator has finished the transaction with these children. Then only its dismissed sites may still need them.
fn is_finished(names: &Names) -> bool {
    names.iter().any(|name| name == FINISHED)
}

/// Whether there is a znode of this kind for a site.
fn has(names: &Names, kind: &str, site: &str) -> bool {
    names.iter().any(|name| name.strip_prefix(kind) == Some(site))
}

/// A site whose vote is missing.
struct Missing<'a, W> {
    site: &'a str,
    /// What tells that this may have changed; empty when it may have.
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

/// What there is of a site's vote.
enum Seen<W> {
    Vote(Vote),
    /// The site was here, and has gone without one.
    Gone,
    /// It is still to come: what tells that this may have changed.
    Nothing(Vec<W>),
}

/// A site's part in a transaction. Dropped, it is not here any more; if it has not voted, the transaction is aborted.
#[derive(Debug)]
pub struct Participant<C: Coordinator, L> {
    transaction: Transaction<C>,
    site: String,
    payload: Bytes,
    notification: Notification,
    log: L,
    /// The data of the znode that says that it is here: another participant of the same session and site makes one of its own.
    guid: Guid,
    /// Whether that znode is known to have been made.
    is_here: bool,
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
        let Some(transaction) = Transaction::open(coordinator.clone(), path).await? else { return Ok(None) };
        let (payload, site) = (Bytes::new(), site.to_owned());
        let guid = Guid::from_random_bits(coordinator.random_bits());
        // From here on, so that its presence goes also if the reply is lost.
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

    /// Says that it is here, and for ever that it was: who finds the first without the second need not wait for the vote. `false` when
    /// something came between: look again.
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
            // Still without content, and no longer untouched.
            ops.push(WriteOp::SetData { path: vote, data: None, version: 0 });
        }
        self.payload = payload.unwrap_or_default();
        let Reply::Multi(results) = ask(coordinator, &Request::Multi(ops)).await? else { return Err(UNEXPECTED) };
        match zoolet_model::first_failure(&results) {
            None => Ok(true),
            Some((1, ErrorCode::NodeExists)) => match data(coordinator, &here).await? {
                Some((Some(there), _)) if there == own => Ok(true),
                // The site's former session's, and it goes with that; or one that was dropped.
                Some(_) => crate::line::wait_gone(coordinator, &here).await.map(|()| false),
                None => Ok(false),
            },
            Some((0 | 1, ErrorCode::NoNode) | (_, ErrorCode::BadVersion)) => Ok(false),
            Some((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// What is to be done.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Votes, after the log has it. A vote stands: if there is one already, that is given back.
    ///
    /// # Errors
    /// The log's, inside; NoNode when the transaction is over; the session's.
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
            // Also the one that is there: an attempt of a former process may have cast it, and the log may say something else since.
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
                // What is there now is the vote: of an attempt whose reply was lost, too.
                Err(ErrorCode::BadVersion) => {}
                Err(code) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Waits for the outcome. Until it is known, a site that voted to commit can do nothing but wait: if the coordinator is gone, somebody has to open
    /// the transaction again.
    ///
    /// # Errors
    /// NoNode when the transaction is over; the session's.
    pub async fn outcome(&self) -> Result<Outcome, Error> {
        self.transaction.outcome(self.notification == Notification::Everyone).await
    }

    /// Says that the outcome was carried out, after the log has it.
    ///
    /// # Errors
    /// The log's, inside; the session's.
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

/// The vote in a vote's znode. Without content, or empty, there is none: some clients cannot leave it undefined.
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
