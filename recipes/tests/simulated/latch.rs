//! Tests of the latch.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, reply lost after a create: [`every_count_down_counts_once_and_waiters_go_on_at_zero`].
//! - 4, a new session after the last: in that test, lives after an expiry count and wait anew.
//! - 5, attempts given up: that test drops counts. `Left` records leftovers.
//! - 6, herd: documented, and counted in [`each_count_down_wakes_each_waiter_once`].
//! - 8 and 12, missed and doubled events: cuts and reconnects while clients wait, in the drawn
//!   test.
//! - 1, 3, 7, 9 to 11 and 13: nothing is held. The initial count is in the tree, and a client with
//!   another count gets an error.

use crate::apart::{heard, left_behind, up_to, within};
use crate::drawn::{drawn_of, some_stay_away};
use std::collections::BTreeMap;
use std::time::Duration;
use zoolet_model::{EventKind, Path};
use zoolet_recipes::{ErrorKind, Latch};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PATH: &str = "/line/started";
const COUNT: u32 = 9;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// The client begins to count this latch down.
    Counting(u32),
    /// Number of the latch, and the count that was left.
    Counted(u32, u32),
    Opened(u32),
    Left(String),
}

fn latch(context: &ClientContext<Noted>) -> Latch<Session> {
    Latch::new(context.session.clone(), &Path::from_static(PATH))
}

/// Returns one of many latches, which follow each other.
fn latch_of(context: &ClientContext<Noted>, number: u32) -> Latch<Session> {
    Latch::new(context.session.clone(), &Path::new(format!("{PATH}-{number}")).unwrap())
}

pub(crate) async fn count(context: ClientContext<Noted>) -> Next {
    let next = counts(&context).await.unwrap_or_else(|next| next);
    if let (Next::Done, Some(path)) = (next, left_behind(&context).await) {
        context.record(Noted::Left(path));
    }
    next
}

/// Counts latches down. A late client finds them open, and goes on to the next one.
async fn counts(context: &ClientContext<Noted>) -> Result<Next, Next> {
    let mut number = 0;
    while number < 2 || context.goes_on() {
        count_one(context, number).await?;
        number += 1;
    }
    Ok(Next::Done)
}

async fn count_one(context: &ClientContext<Noted>, number: u32) -> Result<(), Next> {
    // One more waiter, from before the latch exists.
    let waiting = context.clone();
    context.spawn(async move {
        if latch_of(&waiting, number).wait().await.is_ok() {
            waiting.record(Noted::Opened(number));
        }
    });
    let latch = latch_of(context, number);
    while heard(context, latch.set(COUNT).await)?.is_none() {}
    match latch.set(COUNT + 1).await {
        Err(error) if error.kind() == ErrorKind::Disagreement => {}
        other => {
            heard(context, other)?;
        }
    }
    for _ in 0..4 {
        context.sleep(up_to(context, 800)).await;
        context.record(Noted::Counting(number));
        let result = match context.below(3) {
            0 => within(context, up_to(context, 60), latch.count_down()).await,
            _ => Some(latch.count_down().await),
        };
        if let Some(left) = result.map(|result| heard(context, result)).transpose()?.flatten() {
            context.record(Noted::Counted(number, left));
        }
    }
    // Counts until the latch is open, however many of the calls above were dropped.
    while latch.count().await != Ok(Some(0)) {
        context.record(Noted::Counting(number));
        if let Some(left) = heard(context, latch.count_down().await)? {
            context.record(Noted::Counted(number, left));
        }
    }
    heard(context, latch.wait().await)?;
    Ok(())
}

/// A latch, as the tree shows it.
#[derive(Default)]
struct Counts {
    left: Option<u32>,
    /// Each client that counted, with the count that it left.
    steps: Vec<(usize, u32)>,
    opened_us: Option<u64>,
}

fn latches(ran: &Ran<Noted>) -> Result<BTreeMap<u32, Counts>, String> {
    let mut latches: BTreeMap<u32, Counts> = BTreeMap::new();
    for change in ran.changed()? {
        let Some(number) = change.path.strip_prefix(PATH).and_then(|number| number.strip_prefix('-')) else { continue };
        let Ok(number) = number.parse() else { continue };
        let latch = latches.entry(number).or_default();
        let client = change.session.and_then(|session| ran.client_of(session)).ok_or("who was that?")?;
        let text = change.data.unwrap_or_default();
        let now: u32 = std::str::from_utf8(&text).unwrap().split_once('/').unwrap().0.parse().unwrap();
        match (change.kind, latch.left) {
            (EventKind::NodeCreated, None) if now == COUNT => {}
            (EventKind::NodeDataChanged, Some(before)) if now + 1 == before => latch.steps.push((client, now)),
            (kind, before) => return Err(format!("{kind:?} from {before:?} to {now} by client {client}")),
        }
        latch.left = Some(now);
        latch.opened_us = latch.opened_us.or((now == 0).then_some(change.at_us));
    }
    Ok(latches)
}

pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let latches = latches(ran)?;
    let is_open = |number: &u32, at_us: u64| {
        latches.get(number).and_then(|latch| latch.opened_us).is_some_and(|opened_us| opened_us <= at_us)
    };
    let mut tried = BTreeMap::new();
    let mut told = Vec::new();
    for fact in &ran.facts {
        match &fact.what {
            Noted::Counting(number) => *tried.entry((*number, fact.client)).or_insert(0) += 1,
            // At 0 the count stays, and nothing is written.
            Noted::Counted(number, 0) if is_open(number, fact.at_us) => {}
            Noted::Counted(number, left) => {
                let step = (*number, fact.client, *left);
                if told.contains(&step) || !latches[number].steps.contains(&(fact.client, *left)) {
                    return Err(format!("client {} did not count to {left}", fact.client));
                }
                told.push(step);
            }
            Noted::Opened(number) if is_open(number, fact.at_us) => {}
            Noted::Opened(_) => return Err(format!("client {} went on before it was open", fact.client)),
            Noted::Left(path) => return Err(format!("client {} left {path}", fact.client)),
        }
    }
    for ((number, client), tried) in tried {
        let steps = latches.get(&number).map(|latch| latch.steps.as_slice()).unwrap_or_default();
        let done = steps.iter().filter(|(by, _)| *by == client).count();
        if done > tried {
            return Err(format!("client {client} tried {tried} times, and counted {done} times"));
        }
    }
    Ok(())
}

#[test]
fn every_count_down_counts_once_and_waiters_go_on_at_zero() {
    drawn_of(50, |seed| some_stay_away(seed, 4), count, judge);
}

#[test]
fn each_count_down_wakes_each_waiter_once() {
    const WAITING: usize = 5;
    let live = |context: ClientContext<Noted>| async move {
        let latch = latch(&context);
        if context.number < WAITING {
            latch.wait().await.unwrap();
            return Next::Done;
        }
        // By then all clients wait.
        context.sleep(Duration::from_secs(5)).await;
        latch.set(4).await.unwrap();
        for _ in 0..4 {
            context.sleep(Duration::from_secs(1)).await;
            latch.count_down().await.unwrap();
        }
        Next::Done
    };
    let once_each = |ran: &Ran<Noted>| {
        let events: Vec<_> = (0..WAITING).map(|client| ran.events_of(client)).collect();
        // The latch is created, and counted down four times.
        if events.iter().all(|events| *events == 5) { Ok(()) } else { Err(format!("{events:?}")) }
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, WAITING + 1), live, once_each);
}
