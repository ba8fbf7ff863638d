//! The counter.
//!
//! | hazard | where |
//! |---|---|
//! | 2 create done, reply lost | lost replies, cuts and server deaths of [`every_addition_is_done_once_and_no_value_is_given_twice`] |
//! | 4 a new session after the last | lives after an expiry there |
//! | 5 attempts given up | a third of the additions there are dropped under way; `Left` |
//! | 1, 3, 6 to 13 | nobody holds anything, nothing is waited for, and the receipt of another session has another GUID |

use crate::apart::{both, heard, left_behind, up_to, within};
use std::collections::BTreeMap;
use std::time::Duration;
use zoolet_model::{EventKind, Path};
use zoolet_recipes::Counter;
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat, run_seeds_of};

const PATH: &str = "/line/counter";

#[derive(Clone, PartialEq, Eq, Debug)]
enum Noted {
    /// It begins to add 1.
    Adding,
    /// It was done, and there was this before.
    Added(i64),
    /// This znode of the own session should not be there any more.
    Left(String),
}

async fn add(seat: Seat<Noted>) -> Next {
    let next = additions(&seat).await.unwrap_or_else(|next| next);
    if let (Next::Done, Some(path)) = (next, left_behind(&seat).await) {
        seat.record(Noted::Left(path));
    }
    next
}

async fn additions(seat: &Seat<Noted>) -> Result<Next, Next> {
    let counter = Counter::new(seat.session.clone(), &Path::from_static(PATH));
    for _ in 0..6 {
        seat.sleep(up_to(seat, 500)).await;
        seat.record(Noted::Adding);
        let results = match seat.below(3) {
            0 => within(seat, up_to(seat, 60), counter.add(1)).await.into_iter().collect(),
            1 => {
                seat.record(Noted::Adding);
                let (one, other) = both(counter.add(1), counter.add(1)).await;
                vec![one, other]
            }
            _ => vec![counter.add(1).await],
        };
        for result in results {
            if let Some(before) = heard(seat, result)? {
                seat.record(Noted::Added(before));
            }
        }
        if seat.session.state().is_over() {
            return Err(Next::AnotherSession);
        }
    }
    Ok(Next::Done)
}

/// Nobody was given the same value; who was given one made that step and no other client; and no step is nobody's.
fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let mut steps: BTreeMap<i64, usize> = BTreeMap::new();
    let mut value = 0;
    for change in ran.changed()?.into_iter().filter(|change| change.path == PATH) {
        let client = change.session.and_then(|session| ran.client_of(session)).ok_or("who was that?")?;
        let now: i64 = std::str::from_utf8(&change.data.unwrap_or_default()).unwrap().parse().unwrap();
        match change.kind {
            EventKind::NodeCreated if now == 0 => {}
            EventKind::NodeDataChanged if now == value + 1 => {
                steps.insert(value, client);
            }
            kind => return Err(format!("{kind:?} from {value} to {now} by client {client}")),
        }
        value = now;
    }
    for client in 0.. {
        let theirs: Vec<_> = ran.facts.iter().filter(|fact| fact.client == client).collect();
        if theirs.is_empty() {
            break;
        }
        let tried = theirs.iter().filter(|fact| fact.what == Noted::Adding).count();
        let done = steps.values().filter(|by| **by == client).count();
        if done > tried {
            return Err(format!("client {client} tried {tried} additions, and {done} were done"));
        }
        for fact in theirs {
            match &fact.what {
                Noted::Adding => {}
                // Removed: a second one who was given it does not find it.
                Noted::Added(before) if steps.remove(before) == Some(client) => {}
                Noted::Added(before) => return Err(format!("client {client} was given {before} that is not its own")),
                Noted::Left(path) => return Err(format!("client {client} left {path}")),
            }
        }
    }
    Ok(())
}

#[test]
fn every_addition_is_done_once_and_no_value_is_given_twice() {
    run_seeds_of(60, |seed| Scenario::drawn(seed, 4), add, judge);
}

/// A transaction takes the receipt of the last one with it. One that was dropped and not done, because others were faster, forgot it.
#[test]
fn an_addition_that_is_dropped_leaves_neither_its_receipt_nor_the_one_before() {
    let drops = |seat: Seat<Noted>| async move {
        let counter = Counter::new(seat.session.clone(), &Path::from_static(PATH));
        for ms in 0..40 {
            let _ = within(&seat, Duration::from_millis(ms), counter.add(1)).await;
            if seat.number == 0 {
                counter.add(1).await.unwrap();
            }
        }
        drop(counter);
        if let Some(path) = left_behind(&seat).await {
            seat.record(Noted::Left(path));
        }
        Next::Done
    };
    let nothing_left = |ran: &Ran<Noted>| match ran.facts.first() {
        None => Ok(()),
        Some(fact) => Err(format!("{:?}", fact.what)),
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 4), drops, nothing_left);
}
