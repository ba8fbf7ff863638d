//! Tests of two-phase commit.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, reply lost after a create: both drawn tests lose replies. There is one decision, and one
//!   vote for each site.
//! - 3, a znode of the former session: sites come back while their former presence still stands.
//! - 4 and 12, sessions and watches: coordinator and sites crash at every step there; all finish.
//! - 5, attempts given up: a coordinator runs out of patience. `Left` records leftovers.
//! - 6, herd: by choice, with [`zoolet_recipes::Notification::Everyone`].
//! - 8, staleness: votes and decisions are never taken back, so a lagging server only delays.
//! - 1, 7, 9 to 11 and 13: nothing is held. The end of patience is a decision, and the first
//!   decision counts.
//!
//! `two_phase_drawbacks` tests the drawbacks that the recipe documents.

use crate::apart::{heard, left_behind, persist, up_to};
use crate::drawn::drawn;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use zoolet_model::{ErrorCode, EventKind, Path, Request};
use zoolet_recipes::{Error, ErrorKind, Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Fate, MS, Next, Ran, SECOND, Scenario, run_seeds_of};

pub(crate) const SITES: [&str; 3] = ["a", "b", "c"];
const TRANSACTIONS: usize = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// The site's log has this record of the transaction.
    Logged(usize, Record),
    /// The client learned this outcome.
    Heard(usize, Outcome),
    /// The coordinator decides with limited patience.
    Impatient(usize),
    Finished(usize),
    Left(String),
}

pub(crate) fn path(number: usize) -> Path {
    Path::new(format!("/tx/{number}")).unwrap()
}

fn below(number: usize, name: &str) -> Path {
    Path::new(format!("{}/{name}", path(number))).unwrap()
}

/// Path of the marker that the transaction was decided, so that no coordinator begins it again.
fn mark(number: usize) -> Path {
    Path::new(format!("/decided-{number}")).unwrap()
}

async fn is_marked(context: &ClientContext<Noted>, number: usize) -> Result<bool, Next> {
    persist(context, || async { Ok(context.session.exists(&mark(number)).await?.is_some()) }).await
}

pub(crate) struct Log {
    pub(crate) context: ClientContext<Noted>,
    pub(crate) number: usize,
    /// Number of records that fail.
    pub(crate) fails: Rc<RefCell<u32>>,
}

impl ParticipantLog for Log {
    type Error = ();

    fn record(&mut self, transaction: &Path, record: Record) -> Result<(), ()> {
        assert_eq!(*transaction, path(self.number));
        if *self.fails.borrow() > 0 {
            *self.fails.borrow_mut() -= 1;
            return Err(());
        }
        self.context.record(Noted::Logged(self.number, record));
        Ok(())
    }
}

pub(crate) async fn live(context: ClientContext<Noted>, notification: Notification, is_patient: bool) -> Next {
    let done = match context.number.checked_sub(1) {
        None => coordinate(&context, is_patient).await,
        Some(site) => take_part(&context, SITES[site], notification).await,
    };
    if done.is_ok()
        && let Some(path) = left_behind(&context).await
    {
        context.record(Noted::Left(path));
    }
    done.map_or_else(|next| next, |()| Next::Done)
}

async fn coordinate(context: &ClientContext<Noted>, is_patient: bool) -> Result<(), Next> {
    for number in 0..TRANSACTIONS {
        let (path, c) = (path(number), || context.session.clone());
        if context.goes_on() {
            // Spreads the transactions over the time of the faults.
            context.sleep(up_to(context, 8000)).await;
        }
        if !is_marked(context, number).await? {
            let transaction = loop {
                // The payload fixes the vote of each site, so a crash does not change it.
                let votes: String = SITES.iter().map(|_| if context.below(6) == 0 { 'a' } else { 'c' }).collect();
                match Transaction::begin(c(), &path, votes, &SITES).await {
                    Err(error) if error.is_node_exists() => {
                        if let Some(Some(open)) = heard(context, Transaction::open(c(), &path).await)? {
                            break open;
                        }
                    }
                    begun => {
                        if let Some(begun) = heard(context, begun)? {
                            break begun;
                        }
                    }
                }
            };
            let patience = (!is_patient && context.below(2) == 0).then(|| up_to(context, 3000));
            if patience.is_some() {
                context.record(Noted::Impatient(number));
            }
            let outcome = persist(context, || transaction.decide(patience)).await?;
            context.record(Noted::Heard(number, outcome));
            persist(context, || async {
                match context.session.create(&mark(number), None).await {
                    Ok(_) => Ok(()),
                    Err(error) if error.is_node_exists() => Ok(()),
                    Err(error) => Err(error),
                }
            })
            .await?;
        }
        while let Some(open) = persist(context, || Transaction::open(c(), &path)).await? {
            heard(context, open.finish().await)?;
        }
        context.record(Noted::Finished(number));
    }
    Ok(())
}

async fn take_part(context: &ClientContext<Noted>, site: &str, notification: Notification) -> Result<(), Next> {
    for number in 0..TRANSACTIONS {
        loop {
            let was_decided = is_marked(context, number).await?;
            let fails = Rc::new(RefCell::new(u32::from(context.below(4) == 0)));
            let log = Log { context: context.clone(), number, fails };
            let joined = Participant::join(context.session.clone(), &path(number), site, notification, log).await;
            match heard(context, joined)? {
                Some(Some(participant)) => {
                    if switch(context, number, participant).await? {
                        break;
                    }
                }
                // The transaction was decided, and has ended since.
                Some(None) if was_decided => break,
                Some(None) | None => {}
            }
            context.sleep(up_to(context, 300)).await;
        }
    }
    Ok(())
}

/// Votes and carries out the outcome. Returns whether the site is done with the transaction.
async fn switch(
    context: &ClientContext<Noted>,
    number: usize,
    mut site: Participant<Session, Log>,
) -> Result<bool, Next> {
    let vote = match site.payload()[context.number - 1] {
        b'c' => Vote::Commit,
        _ => Vote::Abort,
    };
    context.sleep(up_to(context, 500)).await;
    loop {
        match site.vote(vote).await {
            Ok(Ok(stands)) => break assert_eq!(stands, vote),
            // The log failed. The next attempt succeeds.
            Ok(Err(())) => {}
            Err(error) if is_over(&error) => return Ok(false),
            Err(error) => {
                heard::<_, ()>(context, Err(error))?;
            }
        }
    }
    if context.below(4) == 0 {
        // The site leaves and joins again. Its vote stands.
        return Ok(false);
    }
    let outcome = loop {
        match site.outcome().await {
            Ok(outcome) => break outcome,
            Err(error) if is_over(&error) => return Ok(false),
            Err(error) => {
                heard::<_, ()>(context, Err(error))?;
            }
        }
    };
    context.record(Noted::Heard(number, outcome));
    context.sleep(up_to(context, 200)).await;
    Ok(matches!(heard(context, site.acknowledge(outcome).await)?, Some(Ok(()))))
}

fn is_over(error: &Error) -> bool {
    error.is_no_node()
}

/// A transaction, as the tree shows it. Times are in microseconds of the run.
#[derive(Default, Debug)]
pub(crate) struct Story {
    pub(crate) votes: BTreeMap<String, (Vote, u64)>,
    /// Sites that left before the decision, with or without a vote.
    pub(crate) went: Vec<String>,
    pub(crate) decision: Option<(Outcome, u64)>,
    pub(crate) done: BTreeMap<String, u64>,
    pub(crate) dismissed: BTreeMap<String, u64>,
    pub(crate) finished_us: Option<u64>,
}

pub(crate) fn stories(ran: &Ran<Noted>) -> Result<BTreeMap<usize, Story>, String> {
    let mut stories: BTreeMap<usize, Story> = BTreeMap::new();
    for change in ran.changed()? {
        let Some(below) = change.path.strip_prefix("/tx/") else { continue };
        let (number, name) = below.split_once('/').unwrap_or((below, ""));
        let Ok(number) = number.parse() else { continue };
        let story = stories.entry(number).or_default();
        let is_commit = change.data.as_deref() == Some(b"commit");
        let kind = change.kind;
        match (name.split_once('-').unwrap_or((name, "")), kind) {
            // Without content, the change only shows that the site has joined.
            (("vote", site), EventKind::NodeDataChanged)
                if change.data.as_ref().is_some_and(|data| !data.is_empty()) =>
            {
                let vote = if is_commit { Vote::Commit } else { Vote::Abort };
                if story.votes.insert(site.to_owned(), (vote, change.at_us)).is_some() {
                    return Err(format!("{site} voted twice in {number}"));
                }
            }
            (("decision", _), EventKind::NodeCreated) => {
                let outcome = if is_commit { Outcome::Committed } else { Outcome::Aborted };
                let commits = story.votes.values().filter(|(vote, _)| *vote == Vote::Commit).count();
                if outcome == Outcome::Committed && commits != SITES.len() {
                    return Err(format!("{number} is committed with {:?}", story.votes));
                }
                let has_abort = story.votes.values().any(|(vote, _)| *vote == Vote::Abort);
                let is_impatient = ran.facts.iter().any(|fact| fact.what == Noted::Impatient(number));
                let has_reason =
                    has_abort || is_impatient || story.went.iter().any(|site| !story.votes.contains_key(site));
                if outcome == Outcome::Aborted && !has_reason {
                    return Err(format!("{number} is aborted with {:?}, gone: {:?}", story.votes, story.went));
                }
                if story.decision.replace((outcome, change.at_us)).is_some() {
                    return Err(format!("{number} is decided twice"));
                }
            }
            (("here", site), EventKind::NodeDeleted) if story.decision.is_none() => story.went.push(site.to_owned()),
            (("done", site), EventKind::NodeCreated) => {
                story.done.insert(site.to_owned(), change.at_us);
            }
            (("dismissed", site), EventKind::NodeCreated) => {
                story.dismissed.insert(site.to_owned(), change.at_us);
            }
            (("", _), EventKind::NodeDeleted) => {
                let is_over = |site: &&str| story.done.contains_key(*site) || story.dismissed.contains_key(*site);
                if !SITES.iter().all(is_over) {
                    return Err(format!("{number} is over with {:?} done", story.done));
                }
                story.finished_us = Some(change.at_us);
            }
            (_, EventKind::NodeCreated) if story.finished_us.is_some() => {
                return Err(format!("{} came late", change.path));
            }
            _ => {}
        }
    }
    Ok(stories)
}

/// Checks the rules of two-phase commit:
/// - There is one outcome, and no client learned another one.
/// - The outcome is commit only if all sites voted for it, and abort only for a reason.
/// - A site's log has its vote, and its completion, before the ensemble does.
pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let stories = stories(ran)?;
    let none = Story::default();
    for fact in &ran.facts {
        let is_wrong = match &fact.what {
            Noted::Heard(number, outcome) => {
                stories[number].decision.is_none_or(|(decided, at_us)| decided != *outcome || at_us > fact.at_us)
            }
            Noted::Finished(number) => stories[number].finished_us.is_none_or(|at_us| at_us > fact.at_us),
            Noted::Impatient(_) | Noted::Logged(..) => false,
            Noted::Left(_) => true,
        };
        if is_wrong {
            return Err(format!("client {} at {} us: {:?}", fact.client, fact.at_us, fact.what));
        }
    }
    for number in 0..TRANSACTIONS {
        let story = stories.get(&number).unwrap_or(&none);
        for (client, site) in SITES.iter().enumerate().map(|(at, site)| (at + 1, *site)) {
            let logged = |record: Record, at_us: u64| {
                ran.facts.iter().any(|fact| {
                    fact.client == client && fact.at_us <= at_us && fact.what == Noted::Logged(number, record)
                })
            };
            if let Some((vote, at_us)) = story.votes.get(site)
                && !logged(Record::Voting(*vote), *at_us)
            {
                return Err(format!("{site} voted in {number} before its log had it"));
            }
            let outcome = story.decision.map(|(outcome, _)| outcome);
            if let (Some(at_us), Some(outcome)) = (story.done.get(site), outcome)
                && !logged(Record::CarriedOut(outcome), *at_us)
            {
                return Err(format!("{site} acknowledged {number} before its log had it"));
            }
        }
    }
    Ok(())
}

fn runs(notification: Notification, is_patient: bool) {
    drawn(40, 1 + SITES.len(), |context| live(context, notification, is_patient), judge);
}

#[test]
fn all_sites_switch_or_none_with_notification_by_coordinator() {
    runs(Notification::Coordinator, true);
}

#[test]
fn all_sites_switch_or_none_when_sites_watch_the_votes() {
    runs(Notification::Everyone, true);
}

#[test]
fn all_sites_switch_or_none_with_a_coordinator_timeout() {
    runs(Notification::Coordinator, false);
}

/// The sites may decide to commit while the coordinator decides to abort.
#[test]
fn all_sites_switch_or_none_with_a_timeout_and_deciding_sites() {
    runs(Notification::Everyone, false);
}

/// Joins as soon as the coordinator has begun the transaction.
pub(crate) async fn join(context: &ClientContext<Noted>, notification: Notification) -> Participant<Session, Log> {
    loop {
        let log = Log { context: context.clone(), number: 0, fails: Rc::default() };
        let (c, site) = (context.session.clone(), SITES[context.number - 1]);
        if let Some(joined) = Participant::join(c, &path(0), site, notification, log).await.unwrap() {
            return joined;
        }
        context.sleep(Duration::from_millis(50)).await;
    }
}

/// A coordinator dismisses two sites after the decision, and they come back one after the other.
///
/// A fifth client, if present, is a second coordinator. It opens the transaction at the beginning,
/// and finishes it after the first coordinator.
pub(crate) async fn dismissed(context: ClientContext<Noted>) -> Next {
    let c = context.session.clone();
    if context.number == 0 {
        let begun = Transaction::begin(c.clone(), &path(0), "ccc", &SITES).await.unwrap();
        context.record(Noted::Heard(0, begun.decide(None).await.unwrap()));
        for site in ["a", "b"] {
            begun.dismiss(site).await.unwrap();
        }
        // By then the second coordinator, if present, has opened the transaction.
        context.sleep(Duration::from_secs(3)).await;
        finish(&context, begun).await;
        // Finishing the kept transaction does not wait either.
        if let Some(kept) = Transaction::open(c, &path(0)).await.unwrap() {
            assert_eq!(kept.sites(), ["a", "b"]);
            finish(&context, kept).await;
        }
        return Next::Done;
    }
    if context.number == 4 {
        let second = loop {
            if let Some(open) = Transaction::open(c.clone(), &path(0)).await.unwrap() {
                break open;
            }
            context.sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(second.sites(), SITES, "it was finished before");
        while context.session.exists(&below(0, "finished")).await.unwrap().is_none() {
            context.sleep(Duration::from_millis(100)).await;
        }
        finish(&context, second).await;
        return Next::Done;
    }
    let mut site = join(&context, Notification::default()).await;
    site.vote(Vote::Commit).await.unwrap().unwrap();
    if context.number < 3 {
        drop(site);
        context.sleep(Duration::from_secs(10 * context.number as u64)).await;
        site = join(&context, Notification::default()).await;
    }
    let outcome = site.outcome().await.unwrap();
    context.record(Noted::Heard(0, outcome));
    site.acknowledge(outcome).await.unwrap().unwrap();
    if context.number == 2 {
        // The last dismissed site has acknowledged, so nothing is left.
        assert!(Transaction::open(c, &path(0)).await.unwrap().is_none());
        context.record(Noted::Finished(0));
    }
    Next::Done
}

/// Asserts that finish returns before the last dismissed site comes back.
///
/// The acknowledgement of that site ends the transaction, and would hide a finish that waits.
async fn finish(context: &ClientContext<Noted>, transaction: Transaction<Session>) {
    let finished = crate::apart::within(context, Duration::from_secs(10), transaction.finish()).await;
    finished.expect("finish waits for a site").unwrap();
}

pub(crate) fn judge_dismissed(ran: &Ran<Noted>) -> Result<(), String> {
    let story = &stories(ran)?[&0];
    let heard = ran.facts.iter().filter(|fact| fact.what == Noted::Heard(0, Outcome::Committed)).count();
    let is_kept =
        story.dismissed.iter().all(|(site, at_us)| story.done.get(site).is_some_and(|done_us| done_us > at_us));
    if heard == 4 && is_kept && story.finished_us.is_some() { Ok(()) } else { Err(format!("{heard} {story:?}")) }
}

/// Regression: the site's log had its vote to commit, and the decision was deleted with the
/// transaction. The site could never commit or abort.
#[test]
fn dismissed_site_learns_the_outcome_when_it_returns() {
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 4), dismissed, judge_dismissed);
}

#[test]
fn second_coordinator_may_finish_again_and_keeps_the_outcome() {
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 5), dismissed, judge_dismissed);
}

/// Regression: the coordinator lost the reply to the write that finishes the transaction, and
/// waited forever.
#[test]
fn a_dismissed_site_learns_the_outcome_although_replies_are_lost() {
    let loses_replies = |seed| {
        let mut scenario = Scenario::peaceful(seed, 4 + (seed % 2) as usize);
        scenario.fates = (0..300).map(|at| (2 * SECOND + at * 50 * MS, Fate::LostReply)).collect();
        scenario.plan.safety_us = 30 * SECOND;
        scenario
    };
    run_seeds_of(20, loses_replies, dismissed, judge_dismissed);
}

#[test]
fn outcome_of_a_deleted_transaction_is_an_error() {
    for notification in [Notification::Coordinator, Notification::Everyone] {
        let live = |context: ClientContext<Noted>| async move {
            if context.number == 0 {
                let begun = Transaction::begin(context.session.clone(), &path(0), "ccc", &SITES).await.unwrap();
                context.record(Noted::Impatient(0));
                assert_eq!(begun.decide(Some(Duration::from_secs(3))).await, Ok(Outcome::Aborted));
                for site in SITES {
                    begun.dismiss(site).await.unwrap();
                }
                begun.forget().await.unwrap();
                return Next::Done;
            }
            let mut site = join(&context, notification).await;
            context.sleep(Duration::from_secs(20)).await;
            assert!(site.outcome().await.unwrap_err().is_no_node());
            assert!(site.vote(Vote::Commit).await.unwrap_err().is_no_node());
            // A dismissed site may come back and acknowledge.
            site.acknowledge(Outcome::Aborted).await.unwrap().unwrap();
            Next::Done
        };
        let nothing_left = |ran: &Ran<Noted>| stories(ran).map(drop);
        run_seeds_of(5, |seed| Scenario::peaceful(seed, 2), live, nothing_left);
    }
}

/// Regression: the ensemble had the site's vote to commit, and then another process of the site
/// logged a vote to abort. The log never got the vote that stands.
#[test]
fn site_given_an_earlier_vote_writes_that_vote_to_its_log() {
    let live = |context: ClientContext<Noted>| async move {
        let (c, tx) = (context.session.clone(), path(0));
        if context.number == 0 {
            drop(Transaction::begin(c, &tx, "ccc", &SITES).await.unwrap());
            return Next::Done;
        }
        let log = Log { context: context.clone(), number: 0, fails: Rc::default() };
        let mut former = join(&context, Notification::default()).await;
        assert_eq!(former.vote(Vote::Commit).await.unwrap(), Ok(Vote::Commit));
        drop(former);
        let mut site = Participant::join(c, &tx, "a", Notification::default(), log).await.unwrap().unwrap();
        log_says(&context, Vote::Abort);
        assert_eq!(site.vote(Vote::Abort).await.unwrap(), Ok(Vote::Commit));
        Next::Done
    };
    let last = |ran: &Ran<Noted>| {
        let mut logged = ran.facts.iter().filter(|fact| matches!(fact.what, Noted::Logged(..)));
        match logged.next_back().map(|fact| &fact.what) {
            Some(Noted::Logged(0, Record::Voting(Vote::Commit))) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 2), live, last);
}

/// Records a vote that an attempt has logged before the ensemble refused it.
fn log_says(context: &ClientContext<Noted>, vote: Vote) {
    context.record(Noted::Logged(0, Record::Voting(vote)));
}

/// Regression: any child counted as the transaction's, and a child with children was tried again
/// forever.
#[test]
fn transaction_with_foreign_children_is_refused_as_not_empty() {
    let live = |context: ClientContext<Noted>| async move {
        let (c, tx) = (context.session.clone(), path(0));
        let transaction = Transaction::begin(c, &tx, "", &[]).await.unwrap();
        assert_eq!(transaction.decide(None).await.unwrap(), Outcome::Committed);
        for theirs in ["/tx/0/vote-x", "/tx/0/vote-x/y", "/tx/0/x"] {
            context.session.create(&Path::new(theirs).unwrap(), None).await.unwrap();
        }
        let refused = transaction.finish().await;
        assert!(refused.unwrap_err().is_not_empty());
        context.session.delete(&Path::from_static("/tx/0/vote-x/y"), zoolet_session::Version::Any).await.unwrap();
        let transaction = Transaction::open(context.session.clone(), &path(0)).await.unwrap().unwrap();
        let refused = transaction.dismiss("x").await.and(transaction.forget().await);
        assert!(refused.unwrap_err().is_not_empty());
        assert!(
            context.session.exists(&Path::from_static("/tx/0/x")).await.unwrap().is_some(),
            "it was not the transaction's"
        );
        Next::Done
    };
    run_seeds_of(1, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// Regression: any znode counted as a transaction without sites, which every client could finish.
#[test]
fn foreign_znode_is_no_transaction_and_bad_site_names_are_refused() {
    let live = |context: ClientContext<Noted>| async move {
        let (c, theirs) = (|| context.session.clone(), Path::from_static("/theirs"));
        context.session.create(&theirs, Bytes::from_static(b"precious")).await.unwrap();
        context.session.create(&Path::from_static("/theirs/interval"), Bytes::from_static(b"5")).await.unwrap();
        assert!(Transaction::open(c(), &theirs).await.unwrap().is_none());
        let twice = ErrorKind::Refused(ErrorCode::BadArguments);
        for (sites, kind) in
            [(&["a", "a"][..], twice), (&["a/b"], ErrorKind::InvalidName), (&["\u{0}"], ErrorKind::InvalidName)]
        {
            let refused = Transaction::begin(c(), &path(0), "", sites).await.map(drop);
            assert_eq!(refused.map_err(|error| error.kind()), Err(kind), "{sites:?}");
        }
        Next::Done
    };
    run_seeds_of(1, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// The coordinator reads a vote only after an event about it. So its reads grow with the number of
/// sites, and not with its square.
#[test]
fn coordinator_reads_each_vote_a_bounded_number_of_times() {
    const MANY: usize = 12;
    let names = || (1..MANY).map(|number| format!("s{number}")).collect::<Vec<_>>();
    let live = move |context: ClientContext<Noted>| async move {
        let (c, tx, names) = (context.session.clone(), path(0), names());
        if context.number == 0 {
            let sites: Vec<&str> = names.iter().map(String::as_str).collect();
            let transaction = Transaction::begin(c, &tx, "", &sites).await.unwrap();
            context.record(Noted::Heard(0, transaction.decide(None).await.unwrap()));
            return Next::Done;
        }
        context.sleep(Duration::from_secs(2 * context.number as u64)).await;
        let log = Log { context: context.clone(), number: 0, fails: Rc::default() };
        let site = &names[context.number - 1];
        let mut site = Participant::join(c, &tx, site, Notification::default(), log).await.unwrap().unwrap();
        site.vote(Vote::Commit).await.unwrap().unwrap();
        Next::Done
    };
    let reads = |ran: &Ran<Noted>| {
        let of_vote = |request: &Request| matches!(request, Request::GetData { path, .. } if path.contains("/vote-"));
        let (heard, reads) = (
            ran.facts.iter().map(|fact| &fact.what).filter(|what| matches!(what, Noted::Heard(..))).collect::<Vec<_>>(),
            ran.requests_of(0, of_vote),
        );
        // Each vote is read at the beginning, when its site joins, and when it votes.
        let few = MANY - 1..=3 * (MANY - 1);
        let is_right = heard == [&Noted::Heard(0, Outcome::Committed)] && few.contains(&reads);
        if is_right { Ok(()) } else { Err(format!("{reads} reads, {heard:?}")) }
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, MANY), live, reads);
}
