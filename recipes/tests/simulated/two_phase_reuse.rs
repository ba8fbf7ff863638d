//! Two-phase commits that follow each other at one path, with late writes of coordinators and
//! sites.
//!
//! Regression: a coordinator that was cut off between the votes and its decision decided the next
//! transaction of the path, without a vote. A late vote or acknowledgement could also reach the
//! next transaction.

use crate::apart::{finish, finished, heard, persist, up_to};
use crate::intercepted::{Answer, Intercepted};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use zoolet_model::{EventKind, Path, Request};
use zoolet_recipes::{
    Coordinator, Error, Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote,
};
use zoolet_sim::ensemble::{ClientContext, Fact, Next, Ran, SECOND, Scenario, run_seeds_of};

const PATH: Path = Path::from_static("/tx");
const COORDINATORS: usize = 2;
const SITES: [&str; 2] = ["a", "b"];
/// Number of transactions that each coordinator begins.
const TRANSACTIONS: usize = 3;

/// The string is the payload, which identifies the transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Noted {
    Logged(String, Record),
    Heard(String, Outcome),
}

/// Returns a session that holds back one write in eight for up to 6 s.
///
/// It stands for a process that stops between its decision to write and the write.
fn late(context: &ClientContext<Noted>) -> Intercepted {
    Intercepted::new(&context.session, |session, request| {
        let below = |end: u64| (Coordinator::random_bits(&session) % u128::from(end)) as u64;
        if !matches!(request, Request::Multi(_) | Request::Write(_)) || below(8) > 0 {
            return Answer::of(&session, request);
        }
        let late = Duration::from_millis(below(6000));
        Answer::new(async move {
            session.sleep(late).await;
            Coordinator::submit(&session, request).await
        })
    })
}

struct Log {
    context: ClientContext<Noted>,
    payload: Rc<RefCell<String>>,
}

impl ParticipantLog for Log {
    type Error = ();

    fn record(&mut self, _: &Path, record: Record) -> Result<(), ()> {
        self.context.record(Noted::Logged(self.payload.borrow().clone(), record));
        Ok(())
    }
}

fn is_over(error: &Error) -> bool {
    error.is_no_node()
}

async fn live(context: ClientContext<Noted>, notification: Notification) -> Next {
    let done = match context.number.checked_sub(COORDINATORS) {
        None => coordinate(&context).await,
        Some(site) => take_part(&context, SITES[site], notification).await,
    };
    done.map_or_else(|next| next, |()| Next::Done)
}

async fn coordinate(context: &ClientContext<Noted>) -> Result<(), Next> {
    let c = || late(context);
    // An earlier life has finished, so the sites may have gone.
    if finished(context).await?.contains(&context.number) {
        return Ok(());
    }
    let mut begun = 0;
    while begun < TRANSACTIONS {
        let votes: String = SITES.iter().map(|_| if context.below(3) == 0 { 'a' } else { 'c' }).collect();
        let payload = format!("{votes} {} {} {begun}", context.number, context.life);
        match Transaction::begin(c(), &PATH, payload.clone(), &SITES).await {
            Err(error) if error.is_node_exists() => {
                if let Some(Some(open)) = heard(context, Transaction::open(c(), &PATH).await)? {
                    drive(context, open, None).await?;
                }
            }
            began => {
                if let Some(transaction) = heard(context, began)? {
                    begun += 1;
                    drive(context, transaction, Some(payload)).await?;
                }
            }
        }
    }
    while let Some(open) = persist(context, || async { Transaction::open(c(), &PATH).await }).await? {
        drive(context, open, None).await?;
    }
    finish(context).await
}

async fn drive(
    context: &ClientContext<Noted>,
    transaction: Transaction<Intercepted>,
    payload: Option<String>,
) -> Result<(), Next> {
    let decided = transaction.decide(None).await;
    if decided.as_ref().is_err_and(is_over) {
        return Ok(());
    }
    if let Some((outcome, payload)) = heard(context, decided)?.zip(payload) {
        context.record(Noted::Heard(payload, outcome));
    }
    heard(context, transaction.finish().await).map(drop)
}

async fn take_part(context: &ClientContext<Noted>, site: &str, notification: Notification) -> Result<(), Next> {
    while finished(context).await?.len() < COORDINATORS {
        let payload = Rc::new(RefCell::new(String::new()));
        let log = Log { context: context.clone(), payload: Rc::clone(&payload) };
        if let Some(Some(joined)) =
            heard(context, Participant::join(late(context), &PATH, site, notification, log).await)?
        {
            *payload.borrow_mut() = String::from_utf8(joined.payload().to_vec()).unwrap();
            let payload = payload.borrow().clone();
            match switch(context, joined, &payload).await {
                Err(error) if is_over(&error) => {}
                result => drop(heard(context, result)?),
            }
        }
        context.sleep(up_to(context, 300)).await;
    }
    Ok(())
}

fn vote_of(site: &str, payload: &str) -> Vote {
    let at = SITES.iter().position(|one| *one == site).unwrap();
    if payload.as_bytes()[at] == b'c' { Vote::Commit } else { Vote::Abort }
}

async fn switch(
    context: &ClientContext<Noted>,
    mut joined: Participant<Intercepted, Log>,
    payload: &str,
) -> Result<(), Error> {
    let vote = vote_of(SITES[context.number - COORDINATORS], payload);
    assert_eq!(joined.vote(vote).await?, Ok(vote));
    let outcome = joined.outcome().await?;
    context.record(Noted::Heard(payload.to_owned(), outcome));
    context.sleep(up_to(context, 300)).await;
    joined.acknowledge(outcome).await?.unwrap();
    Ok(())
}

/// One of the transactions at the path, as the tree shows it.
#[derive(Default, Debug)]
struct Story {
    payload: String,
    votes: BTreeMap<String, Vote>,
    went: bool,
    decision: Option<Outcome>,
    done: BTreeSet<String>,
}

impl Story {
    fn change(&mut self, name: &str, kind: EventKind, data: &str, is_logged: impl Fn(&str, Record) -> bool) {
        let vote = if data == "commit" { Vote::Commit } else { Vote::Abort };
        match (name.split_once('-').unwrap_or((name, "")), kind) {
            (("vote", site), EventKind::NodeDataChanged) if !data.is_empty() => {
                assert!(self.votes.insert(site.to_owned(), vote).is_none(), "{site} votes twice: {self:?}");
                assert_eq!(vote, vote_of(site, &self.payload), "the vote of {site} is not of {self:?}");
                assert!(is_logged(site, Record::Voting(vote)), "{site} voted before its log had it: {self:?}");
            }
            (("here", site), EventKind::NodeDeleted) if self.decision.is_none() => {
                self.went |= !self.votes.contains_key(site);
            }
            (("decision", _), EventKind::NodeCreated) => {
                let commits = self.votes.values().filter(|vote| **vote == Vote::Commit).count();
                let outcome = if data == "commit" { Outcome::Committed } else { Outcome::Aborted };
                let has_reason = match outcome {
                    Outcome::Committed => commits == SITES.len(),
                    Outcome::Aborted => commits < self.votes.len() || self.went,
                };
                assert!(has_reason && self.decision.is_none(), "{outcome:?}, with {self:?}");
                self.decision = Some(outcome);
            }
            (("done", site), EventKind::NodeCreated) => {
                let is_logged = self.decision.is_some_and(|outcome| is_logged(site, Record::CarriedOut(outcome)));
                assert!(is_logged, "{site} acknowledges what it has not carried out: {self:?}");
                self.done.insert(site.to_owned());
            }
            (("", _), EventKind::NodeDeleted) => assert_eq!(self.done.len(), SITES.len(), "it is over: {self:?}"),
            _ => {}
        }
    }
}

fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let mut stories: Vec<Story> = Vec::new();
    for change in ran.changed()? {
        let Some(name) = change.path.strip_prefix(PATH.as_str()) else { continue };
        let data = String::from_utf8_lossy(change.data.as_deref().unwrap_or_default()).into_owned();
        match (name.strip_prefix('/').unwrap_or(name), change.kind) {
            ("", EventKind::NodeCreated) => stories.push(Story { payload: data, ..Story::default() }),
            (name, kind) => {
                let Some(story) = stories.last_mut().filter(|_| !name.starts_with('-')) else { continue };
                let payload = story.payload.clone();
                let is_logged = |site: &str, record| {
                    let is_it = |fact: &Fact<Noted>| {
                        fact.at_us <= change.at_us
                            && SITES.get(fact.client.wrapping_sub(COORDINATORS)) == Some(&site)
                            && fact.what == Noted::Logged(payload.clone(), record)
                    };
                    ran.facts.iter().any(is_it)
                };
                story.change(name, kind, &data, is_logged);
            }
        }
    }
    for fact in &ran.facts {
        if let Noted::Heard(payload, outcome) = &fact.what {
            let story = stories.iter().find(|story| story.payload == *payload);
            if story.and_then(|story| story.decision) != Some(*outcome) {
                return Err(format!("client {} was told {:?} of {story:?}", fact.client, fact.what));
            }
        }
    }
    Ok(())
}

fn scenario(seed: u64) -> Scenario {
    Scenario { finishes_us: 400 * SECOND, ..Scenario::drawn(seed, COORDINATORS + SITES.len()) }
}

#[test]
fn late_requests_do_not_affect_the_next_transaction_at_the_path() {
    for notification in [Notification::Coordinator, Notification::Everyone] {
        run_seeds_of(30, scenario, |context| live(context, notification), judge);
    }
}
