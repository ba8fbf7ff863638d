//! Tests of the queue and the priority queue.
//!
//! Hazards, numbered as in `main.rs`:
//! - 1, believing in a claim: consumers that stand still with a claim. [`judge`] requires that an
//!   item ends together with the claim of the client that ends it, in one transaction.
//! - 2, reply lost after a create: all drawn tests lose replies. An item is there once and ends
//!   once.
//! - 3, a znode of the former session: lives after a crash, while the former claims still stand.
//! - 4 and 12, sessions and watches: expiries, cuts and reconnects of waiting consumers; all
//!   finish.
//! - 5, attempts given up: dropped takes and claims. `Left` records leftovers, and no item stays
//!   claimed.
//! - 6, herd: documented, and counted in `item_wakes_waiting_consumers_and_goes_to_one_of_them`.
//! - 7, lost items, no bound, stale lists of priorities: claims, and in `queue_order`
//!   `queue_exceeds_its_bound_by_at_most_the_concurrent_puts` and
//!   `urgent_item_overtakes_items_listed_before_its_put`.
//! - 8 to 11 and 13: nothing depends on a clock, a cache, or a size on which participants may
//!   disagree.

use crate::apart::{cut_at, finish, finished, heard, left_behind, persist, up_to, within};
use crate::drawn::drawn;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use zoolet_model::{EventKind, Path, SessionId, WriteOp};
use zoolet_recipes::{Claim, CreateOptions, Error, Lifetime, Op, Priority, PriorityQueue, Queue};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};
use zoolet_sim::oracle::Changed;

pub(crate) const PATH: Path = Path::from_static("/jobs");
const RESULTS: Path = Path::from_static("/results");
/// Number of producers, the first clients. The others consume.
const PRODUCERS: usize = 2;
pub(crate) const CLIENTS: usize = 5;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    Putting(String),
    Put(String),
    /// The queue refused the item because it was full.
    Full,
    /// The client begins to wait for an item.
    Taking,
    Took(String),
    /// The attempt ended without an item: it was stopped or failed.
    TookNothing,
    /// Item, number of attempts, and token of the claim.
    Claimed(String, u32, i64),
    Completing(String),
    Completed(String),
    Burying(String),
    Buried(String),
    /// The claim of this item was lost.
    Lost(String),
    Left(String),
}

/// How consumers get their items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    Take,
    Claim,
    Either,
}

/// The kind of queue.
enum Jobs {
    InOrder(Queue<Session>),
    ByPriority(PriorityQueue<Session>),
}

impl Jobs {
    fn new(context: &ClientContext<Noted>, lifetime: Lifetime, is_prioritized: bool) -> Self {
        if is_prioritized {
            Self::ByPriority(PriorityQueue::new(context.session.clone(), &PATH).lifetime(lifetime))
        } else {
            Self::InOrder(queue(context, lifetime))
        }
    }

    async fn put(&self, context: &ClientContext<Noted>, item: String) -> Result<(), Error> {
        match self {
            Self::InOrder(queue) => queue.put(item).await,
            Self::ByPriority(queue) => queue.put(Priority::new(context.below(100) as u8).unwrap(), item).await,
        }
    }

    async fn take(&self) -> Result<bytes::Bytes, Error> {
        match self {
            Self::InOrder(queue) => queue.take().await,
            Self::ByPriority(queue) => queue.take().await,
        }
    }

    async fn claim(&self) -> Result<Claim<Session>, Error> {
        match self {
            Self::InOrder(queue) => queue.claim().await,
            Self::ByPriority(queue) => queue.claim().await,
        }
    }

    async fn size(&self) -> Result<u32, Error> {
        match self {
            Self::InOrder(queue) => queue.size().await,
            Self::ByPriority(queue) => queue.size().await,
        }
    }
}

pub(crate) fn queue(context: &ClientContext<Noted>, lifetime: Lifetime) -> Queue<Session> {
    Queue::new(context.session.clone(), &PATH).lifetime(lifetime)
}

pub(crate) async fn live(context: ClientContext<Noted>, how: How, lifetime: Lifetime, is_prioritized: bool) -> Next {
    let jobs = Jobs::new(&context, lifetime, is_prioritized);
    let done = match context.number {
        number if number < PRODUCERS => produce(&context, &jobs, lifetime).await,
        number if number + 1 == CLIENTS && how != How::Take => break_claims(&context).await,
        _ => consume(&context, &jobs, how).await,
    };
    drop(jobs);
    match done {
        Err(next) => next,
        Ok(()) => {
            if let Some(path) = left_behind(&context).await {
                context.record(Noted::Left(path));
            }
            Next::Done
        }
    }
}

async fn produce(context: &ClientContext<Noted>, queue: &Jobs, lifetime: Lifetime) -> Result<(), Next> {
    if finished(context).await?.contains(&context.number) {
        return Ok(());
    }
    let mut number = 0;
    while number < 5 || context.goes_on() {
        number += 1;
        context.sleep(up_to(context, 800)).await;
        let item = format!("{}.{}.{number}", context.number, context.life);
        context.record(Noted::Putting(item.clone()));
        let result = match context.below(4) {
            0 => within(context, up_to(context, 60), queue.put(context, item.clone())).await,
            _ => Some(queue.put(context, item.clone()).await),
        };
        if let Some(Some(())) = result.map(|result| heard(context, result)).transpose()? {
            context.record(Noted::Put(item));
        }
    }
    while lifetime == Lifetime::Producer && heard(context, queue.size().await)? != Some(0) {
        context.sleep(Duration::from_millis(500)).await;
    }
    finish(context).await
}

/// Consumes until all producers are done and the queue is empty.
async fn consume(context: &ClientContext<Noted>, queue: &Jobs, how: How) -> Result<(), Next> {
    make_results(context).await?;
    loop {
        let takes = match how {
            How::Take => true,
            How::Claim => false,
            How::Either => context.below(2) == 0,
        };
        let patience = if context.below(3) == 0 { up_to(context, 100) } else { Duration::from_secs(3) };
        if takes {
            context.record(Noted::Taking);
            let result = within(context, patience, queue.take()).await;
            context.record(match &result {
                Some(Ok(item)) => Noted::Took(String::from_utf8(item.to_vec()).unwrap()),
                _ => Noted::TookNothing,
            });
            result.map(|result| heard(context, result)).transpose()?;
        } else {
            let result = within(context, patience, queue.claim()).await;
            if let Some(Some(claim)) = result.map(|result| heard(context, result)).transpose()? {
                work(context, claim).await?;
            }
        }
        if context.session.state().is_over() {
            return Err(Next::AnotherSession);
        }
        let done = finished(context).await?;
        if (0..PRODUCERS).all(|producer| done.contains(&producer)) && heard(context, queue.size().await)? == Some(0) {
            return finish(context).await;
        }
    }
}

async fn make_results(context: &ClientContext<Noted>) -> Result<(), Next> {
    persist(context, || async {
        match context.session.create(&RESULTS, None).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_node_exists() => Ok(()),
            Err(error) => Err(error),
        }
    })
    .await
}

async fn work(context: &ClientContext<Noted>, claim: Claim<Session>) -> Result<(), Next> {
    let item = String::from_utf8(claim.item().to_vec()).unwrap();
    context.record(Noted::Claimed(item.clone(), claim.attempts(), claim.token().0));
    context.sleep(up_to(context, 700)).await;
    let (result, note) = match context.below(6) {
        // The dropped claim leaves the item in the queue.
        0 => return Ok(()),
        1 => {
            context.record(Noted::Burying(item.clone()));
            (claim.bury().await, Noted::Buried(item.clone()))
        }
        2 => {
            context.record(Noted::Completing(item.clone()));
            let result = within(context, up_to(context, 50), claim.complete([result_of(&item)])).await;
            let Some(result) = result else { return Ok(()) };
            (result, Noted::Completed(item.clone()))
        }
        _ => {
            context.record(Noted::Completing(item.clone()));
            (claim.complete([result_of(&item)]).await, Noted::Completed(item.clone()))
        }
    };
    match result {
        Err(error) if error.is_grant_lost() => context.record(Noted::Lost(item)),
        result => {
            if heard(context, result)?.is_some() {
                context.record(note);
            }
        }
    }
    Ok(())
}

/// Returns the write that records an item's result. It has to happen once for each item.
fn result_of(item: &str) -> Op {
    let path = Path::new(format!("{RESULTS}/{item}-")).unwrap();
    Op::create_with(&path, None, &CreateOptions::persistent().sequential())
}

/// Plays an operator that breaks claims, as of consumers that hang.
async fn break_claims(context: &ClientContext<Noted>) -> Result<(), Next> {
    let claims = Path::from_static("/jobs-claims");
    loop {
        context.sleep(up_to(context, 2000)).await;
        if let Ok(names) = context.session.children(&claims).await
            && let Some(name) = names.iter().next()
        {
            let path = Path::new(zoolet_model::path::child(claims.as_str(), name)).unwrap();
            let _ = context.session.delete(&path, zoolet_session::Version::Any).await;
        }
        if context.session.state().is_over() {
            return Err(Next::AnotherSession);
        }
        let done = finished(context).await?;
        if (0..CLIENTS - 1).all(|client| done.contains(&client)) {
            return Ok(());
        }
    }
}

/// An item, as the tree shows it.
#[derive(Default)]
pub(crate) struct Item {
    name: String,
    claims: u32,
    /// Zxid of each claim, and the number of claims up to it.
    tokens: Vec<(i64, u32)>,
    /// Client that removed it, together with the client's own claim.
    ended_by: Option<usize>,
    /// Zxid of the removal.
    ended: i64,
    /// Whether it ended with its producer's session.
    is_gone: bool,
    puts: u32,
    results: u32,
    graves: u32,
}

/// Collects the items by content, and checks the rules that the tree itself shows.
pub(crate) fn items(ran: &Ran<Noted>) -> Result<BTreeMap<String, Item>, String> {
    let mut items: BTreeMap<String, Item> = BTreeMap::new();
    let mut contents: BTreeMap<String, String> = BTreeMap::new();
    let mut claims: BTreeMap<String, SessionId> = BTreeMap::new();
    let changes = ran.changed()?;
    for change in &changes {
        let who = change.session.and_then(|session| ran.client_of(session));
        if let Some(name) = change.path.strip_prefix("/jobs/") {
            match change.kind {
                EventKind::NodeCreated => {
                    let content = String::from_utf8(change.data.clone().unwrap_or_default().to_vec()).unwrap();
                    let item = items.entry(content.clone()).or_default();
                    item.puts += 1;
                    item.name = name.to_owned();
                    contents.insert(name.to_owned(), content);
                }
                EventKind::NodeDeleted => {
                    let item = items.get_mut(&contents[name]).unwrap();
                    if change.is_end {
                        item.is_gone = true;
                        continue;
                    }
                    // The client that removes an item deletes its own claim in the same
                    // transaction.
                    let with = changes.iter().filter(|other| other.zxid == change.zxid && !other.is_end);
                    let mut claim = with.filter(|other| other.path.strip_prefix("/jobs-claims/") == Some(name));
                    if claim.next().is_none()
                        && let Some(session) = claims.get(name)
                    {
                        return Err(format!("{who:?} took {name} out, which {session:?} worked on"));
                    }
                    (item.ended_by, item.ended) = (who, change.zxid);
                }
                EventKind::NodeDataChanged => {}
                kind => return Err(format!("{kind:?}")),
            }
        } else if let Some(name) = change.path.strip_prefix("/jobs-claims/") {
            let Some(session) = change.session else { return Err("a claim was reaped".to_owned()) };
            match change.kind {
                EventKind::NodeCreated => {
                    claims.insert(name.to_owned(), session);
                    let item = items.get_mut(&contents[name]).unwrap();
                    // A take creates and deletes its claim in one transaction.
                    if !changes.iter().any(|other| {
                        other.zxid == change.zxid && other.kind == EventKind::NodeDeleted && other.path == change.path
                    }) {
                        item.claims += 1;
                        item.tokens.push((change.zxid, item.claims));
                    }
                }
                EventKind::NodeDeleted => {
                    let of = claims.remove(name);
                    let ends_item = changes.iter().any(|other| {
                        other.zxid == change.zxid
                            && other.kind == EventKind::NodeDeleted
                            && other.path.strip_prefix("/jobs/") == Some(name)
                            && !other.is_end
                    });
                    let is_operator = who == Some(CLIENTS - 1);
                    if of != Some(session) && !is_operator || ends_item && of != Some(session) {
                        return Err(format!("{who:?} ended the claim of {of:?} on {name}, zxid {}", change.zxid));
                    }
                }
                _ => {}
            }
        } else if let Some(result) = change.path.strip_prefix("/results/") {
            items.entry(result[..result.len() - 11].to_owned()).or_default().results += 1;
        } else if let Some(name) = change.path.strip_prefix("/jobs-dead/") {
            items.entry(contents[name].clone()).or_default().graves += 1;
        }
    }
    Ok(items)
}

pub(crate) fn judge(ran: &Ran<Noted>, lifetime: Lifetime) -> Result<(), String> {
    let items = items(ran)?;
    let mut took = BTreeSet::new();
    let mut fruitless = fruitless(ran);
    for fact in &ran.facts {
        let item = |item: &String| items.get(item).filter(|item| item.puts == 1);
        let is_wrong = match &fact.what {
            Noted::Putting(_) | Noted::Full | Noted::Completing(_) | Noted::Burying(_) | Noted::Lost(_) => false,
            Noted::Put(name) => item(name).is_none(),
            Noted::Taking | Noted::TookNothing => false,
            Noted::Took(name) => {
                !took.insert(name.clone()) || item(name).is_none_or(|item| item.ended_by != Some(fact.client))
            }
            Noted::Claimed(name, attempts, token) => {
                item(name).is_none_or(|item| !item.tokens.contains(&(*token, *attempts)))
            }
            Noted::Completed(name) => {
                item(name).is_none_or(|item| item.ended_by != Some(fact.client) || item.results != 1)
            }
            Noted::Buried(name) => item(name).is_none_or(|item| item.ended_by != Some(fact.client) || item.graves != 1),
            Noted::Left(_) => true,
        };
        if is_wrong {
            return Err(format!("client {}: {:?}", fact.client, fact.what));
        }
    }
    let ended = |name: &str, client: usize| {
        ran.facts.iter().any(|fact| {
            fact.client == client
                && matches!(&fact.what, Noted::Took(of) | Noted::Completing(of) | Noted::Burying(of) if of == name)
        })
    };
    for (name, item) in &items {
        if item.puts > 1 || item.results + item.graves > 1 {
            let Item { puts, results, graves, .. } = item;
            return Err(format!("{name} was put in {puts} times, done {results} times, buried {graves} times"));
        }
        match item.ended_by {
            None if item.is_gone && lifetime == Lifetime::Producer => {}
            None => return Err(format!("{name} is still there, or went by itself")),
            Some(client) if ended(name, client) => {}
            // The client died, stopped waiting or got an error before it learned that it took the
            // item. Each such attempt accounts for one item.
            Some(client) => {
                let asked_us = took_out(ran, client, item);
                let attempt = fruitless.iter().position(|(of, from_us, to_us)| {
                    *of == client && asked_us.iter().any(|asked_us| (*from_us..=*to_us).contains(asked_us))
                });
                let Some(attempt) = attempt else { return Err(format!("{name} was lost by client {client}")) };
                fruitless.swap_remove(attempt);
            }
        }
    }
    Ok(())
}

/// Returns the takes without an item: client, begin and end, in microseconds of the run.
fn fruitless(ran: &Ran<Noted>) -> Vec<(usize, u64, u64)> {
    let mut attempts = Vec::new();
    for (at, fact) in ran.facts.iter().enumerate().filter(|(_, fact)| fact.what == Noted::Taking) {
        let mut later = ran.facts[at + 1..].iter().filter(|other| other.client == fact.client);
        // If the client died, its next fact is in another life.
        let next = later.next();
        let has_taken = next.is_some_and(|next| next.life == fact.life && matches!(next.what, Noted::Took(_)));
        if !has_taken {
            attempts.push((fact.client, fact.at_us, next.map_or(u64::MAX, |next| next.at_us)));
        }
    }
    attempts
}

/// Returns when this client sent requests that may have removed an item, in microseconds.
fn took_out(ran: &Ran<Noted>, client: usize, item: &Item) -> Vec<u64> {
    let path = format!("{PATH}/{}", item.name);
    let takes = |op: &WriteOp| matches!(op, WriteOp::Delete { path: of, .. } if **of == *path);
    let asked = ran.asked_by(client).filter(|asked| {
        matches!(&asked.request, zoolet_model::Request::Multi(ops) if ops.iter().any(takes))
            && asked.answer.as_ref().is_none_or(|answer| answer.zxid == item.ended)
    });
    asked.map(|asked| asked.invoked.us).collect()
}

fn runs(how: How, lifetime: Lifetime, is_prioritized: bool) {
    drawn(25, CLIENTS, |context| live(context, how, lifetime, is_prioritized), |ran| judge(ran, lifetime));
}

#[test]
fn priority_items_are_delivered_once_by_urgency_and_never_lost() {
    runs(How::Either, Lifetime::Persistent, true);
}

#[test]
fn taken_item_goes_to_one_consumer_and_no_other_item_is_lost() {
    runs(How::Take, Lifetime::Persistent, false);
}

#[test]
fn taken_item_of_a_mortal_producer_goes_to_one_consumer() {
    runs(How::Take, Lifetime::Producer, false);
}

#[test]
fn claimed_item_is_done_once_and_never_lost() {
    runs(How::Claim, Lifetime::Persistent, false);
}

#[test]
fn claimed_item_of_a_mortal_producer_is_done_once() {
    runs(How::Claim, Lifetime::Producer, false);
}

#[test]
fn claimed_item_is_not_taken_by_another_consumer() {
    runs(How::Either, Lifetime::Persistent, false);
}

/// Returns the first item in the tree.
async fn first_in_tree(context: &ClientContext<Noted>) -> String {
    let names = context.session.children(&PATH).await.unwrap();
    let first = names.iter().min_by_key(|name| name[name.len() - 10..].to_owned()).unwrap();
    let path = Path::new(zoolet_model::path::child(PATH.as_str(), first)).unwrap();
    context.session.get(&path).await.unwrap().text().unwrap().to_owned()
}

/// Regression: an attempt took the name off the list before the server answered. A dropped attempt
/// lost the name, and the next attempt got the item behind it.
#[test]
fn claim_or_take_dropped_at_any_poll_keeps_the_item_order() {
    let live = |context: ClientContext<Noted>| async move {
        let queue = queue(&context, Lifetime::Persistent);
        let text = |item: &bytes::Bytes| String::from_utf8(item.to_vec()).unwrap();
        for number in 0..40 {
            queue.put(format!("{number:02}")).await.unwrap();
        }
        for pending in 0.. {
            let first = first_in_tree(&context).await;
            let is_whole = match cut_at(pending, queue.claim()).await {
                Some(claim) => {
                    assert_eq!(text(claim.unwrap().item()), first, "whole after {pending}");
                    true
                }
                None => false,
            };
            // The next claim does not wait until the dropped claim is cleared away.
            let claim = queue.claim().await.unwrap();
            assert_eq!(text(claim.item()), first, "claimed after an attempt dropped at {pending}");
            drop(claim);
            assert_eq!(text(&queue.take().await.unwrap()), first, "taken after a claim dropped at {pending}");
            if is_whole {
                break;
            }
        }
        for pending in 0.. {
            let before = first_in_tree(&context).await;
            let is_whole = match cut_at(pending, queue.take()).await {
                Some(item) => {
                    assert_eq!(text(&item.unwrap()), before, "whole after {pending}");
                    true
                }
                None => false,
            };
            // The dropped attempt may have taken the first item, and no later item.
            let first = first_in_tree(&context).await;
            let lost = first.parse::<u32>().unwrap() - before.parse::<u32>().unwrap();
            assert!(lost <= 1, "{before} and those up to {first} are lost after {pending}");
            assert_eq!(text(&queue.take().await.unwrap()), first, "taken after an attempt dropped at {pending}");
            if is_whole {
                break;
            }
        }
        drop(queue);
        left_behind(&context).await.into_iter().for_each(|path| context.record(Noted::Left(path)));
        Next::Done
    };
    let nothing_left = |ran: &Ran<Noted>| match ran.facts.first() {
        None => Ok(()),
        Some(left) => Err(format!("{left:?}")),
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 1), live, nothing_left);
}

/// One producer, and one consumer whose attempts are dropped at drawn polls.
pub(crate) async fn cut(context: ClientContext<Noted>) -> Next {
    let queue = queue(&context, Lifetime::Persistent);
    let work = async || -> Result<(), Next> {
        let mut number = 0;
        while number < 20 || context.goes_on() {
            number += 1;
            context.sleep(up_to(&context, 300)).await;
            if context.number == 0 {
                heard(&context, queue.put(format!("{}.{number}", context.life)).await)?;
                continue;
            }
            let pending = context.below(8);
            context.record(Noted::Taking);
            let noted = if context.below(2) == 0 {
                let taken = within(&context, Duration::from_secs(2), cut_at(pending, queue.take())).await.flatten();
                let item = taken.map(|taken| heard(&context, taken)).transpose()?.flatten();
                item.map(|item| Noted::Took(String::from_utf8(item.to_vec()).unwrap()))
            } else {
                let claimed = within(&context, Duration::from_secs(2), cut_at(pending, queue.claim())).await.flatten();
                let claim = claimed.map(|claimed| heard(&context, claimed)).transpose()?.flatten();
                claim.map(|claim| {
                    Noted::Claimed(String::from_utf8(claim.item().to_vec()).unwrap(), claim.attempts(), claim.token().0)
                })
            };
            context.record(noted.unwrap_or(Noted::TookNothing));
        }
        Ok(())
    };
    if let Err(next) = work().await {
        return next;
    }
    drop(queue);
    left_behind(&context).await.into_iter().for_each(|path| context.record(Noted::Left(path)));
    Next::Done
}

/// Checks that the one consumer always gets the first item that is there.
///
/// Items that a former session of this consumer has claimed are exempt.
pub(crate) fn judge_cut(ran: &Ran<Noted>) -> Result<(), String> {
    let changes = ran.changed()?;
    // By name, and so in the order of the queue.
    let mut items: BTreeMap<&str, Vec<&Changed>> = BTreeMap::new();
    for change in &changes {
        if let Some(name) = change.path.strip_prefix("/jobs/").or(change.path.strip_prefix("/jobs-claims/")) {
            items.entry(name).or_default().push(change);
        }
    }
    let mut began_us = 0;
    for fact in ran.facts.iter().filter(|fact| fact.client == 1) {
        let got = match &fact.what {
            Noted::Taking => {
                began_us = fact.at_us;
                continue;
            }
            Noted::Took(item) | Noted::Claimed(item, ..) => item,
            Noted::Left(path) => return Err(format!("client {} left {path}", fact.client)),
            _ => continue,
        };
        let content = |changes: &[&Changed]| changes.iter().find_map(|change| change.data.clone());
        let is_it = |changes: &Vec<&Changed>| content(changes).as_deref() == Some(got.as_bytes());
        let Some(winner) = items.values().find(|changes| is_it(changes)) else { return Err(format!("no {got}")) };
        let until_now = |change: &&&Changed| change.at_us <= fact.at_us;
        let session = winner.iter().rfind(until_now).and_then(|change| change.session);
        for changes in items.values().take_while(|changes| !is_it(changes)) {
            let was_there = changes.iter().any(|change| change.at_us < began_us && is_item(change));
            let is_gone = changes
                .iter()
                .filter(until_now)
                .any(|change| change.kind == EventKind::NodeDeleted && change.path.starts_with("/jobs/"));
            let was_anothers = changes
                .iter()
                .filter(until_now)
                .any(|change| change.path.starts_with("/jobs-claims/") && change.session != session);
            if was_there && !is_gone && !was_anothers {
                return Err(format!("at {} us {got} came before {:?}", fact.at_us, content(changes)));
            }
        }
    }
    Ok(())
}

fn is_item(change: &Changed) -> bool {
    change.kind == EventKind::NodeCreated && change.path.starts_with("/jobs/")
}

#[test]
fn single_consumer_reaches_the_first_item_despite_dropped_attempts() {
    drawn(30, 2, cut, judge_cut);
}
