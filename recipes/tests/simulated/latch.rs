//! The latch.
//!
//! | hazard | where |
//! |---|---|
//! | 2 create done, reply lost | [`every_count_counts_once_and_nobody_goes_on_before_the_last`] |
//! | 4 a new session after the last | lives after an expiry there: they count and wait anew |
//! | 5 attempts given up | counts that are dropped under way there; `Left` |
//! | 6 herd | stated by the page, and counted: [`each_count_wakes_whoever_waits_once`] |
//! | 8, 12 missed and doubled events | cuts and reconnects while clients wait, there |
//! | 1, 3, 7, 9 to 11, 13 | nobody holds anything; the number to count is in the tree, and who says another is told so |

use crate::apart::{heard, left_behind, up_to, within};
use std::time::Duration;
use zoolet_model::{EventKind, Path};
use zoolet_recipes::{Error, Latch};
use zoolet_session::Session;
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat, run_seeds_of};

const PATH: &str = "/line/started";
const COUNT: u32 = 9;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Noted {
    Counting,
    /// So many were left.
    Counted(u32),
    Opened,
    Left(String),
}

fn latch(seat: &Seat<Noted>) -> Latch<Session> {
    Latch::new(seat.session.clone(), &Path::from_static(PATH))
}

async fn count(seat: Seat<Noted>) -> Next {
    let next = counts(&seat).await.unwrap_or_else(|next| next);
    if let (Next::Done, Some(path)) = (next, left_behind(&seat).await) {
        seat.record(Noted::Left(path));
    }
    next
}

async fn counts(seat: &Seat<Noted>) -> Result<Next, Next> {
    // Somebody waits beside, from before there is a latch.
    let waiting = seat.clone();
    seat.spawn(async move {
        if latch(&waiting).wait().await.is_ok() {
            waiting.record(Noted::Opened);
        }
    });
    let latch = latch(seat);
    while heard(seat, latch.set(COUNT).await)?.is_none() {}
    match latch.set(COUNT + 1).await {
        Err(Error::Disagreement) => {}
        other => {
            heard(seat, other)?;
        }
    }
    for _ in 0..4 {
        seat.sleep(up_to(seat, 800)).await;
        seat.record(Noted::Counting);
        let result = match seat.below(3) {
            0 => within(seat, up_to(seat, 60), latch.count_down()).await,
            _ => Some(latch.count_down().await),
        };
        if let Some(left) = result.map(|result| heard(seat, result)).transpose()?.flatten() {
            seat.record(Noted::Counted(left));
        }
    }
    // However many of these were dropped: everybody counts until it is open.
    while latch.count().await != Ok(Some(0)) {
        seat.record(Noted::Counting);
        if let Some(left) = heard(seat, latch.count_down().await)? {
            seat.record(Noted::Counted(left));
        }
    }
    heard(seat, latch.wait().await)?;
    Ok(Next::Done)
}

fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let (mut left, mut opened_us) = (None, u64::MAX);
    let mut steps = Vec::new();
    for change in ran.changed()?.into_iter().filter(|change| change.path == PATH) {
        let client = change.session.and_then(|session| ran.client_of(session)).ok_or("who was that?")?;
        let text = change.data.unwrap_or_default();
        let now: u32 = std::str::from_utf8(&text).unwrap().split_once('/').unwrap().0.parse().unwrap();
        match (change.kind, left) {
            (EventKind::NodeCreated, None) if now == COUNT => {}
            (EventKind::NodeDataChanged, Some(before)) if now + 1 == before => steps.push((client, now)),
            (kind, before) => return Err(format!("{kind:?} from {before:?} to {now} by client {client}")),
        }
        left = Some(now);
        if now == 0 {
            opened_us = change.at_us;
        }
    }
    let mut tried = std::collections::BTreeMap::new();
    for fact in &ran.facts {
        let of_this = |step: &(usize, u32), left: u32| *step == (fact.client, left);
        match &fact.what {
            Noted::Counting => *tried.entry(fact.client).or_insert(0) += 1,
            // At 0 it stays there, and nothing is written.
            Noted::Counted(0) if fact.at_us >= opened_us => {}
            Noted::Counted(left) if steps.iter().any(|step| of_this(step, *left)) => {}
            Noted::Counted(left) => return Err(format!("client {} did not count to {left}", fact.client)),
            Noted::Opened if fact.at_us >= opened_us => {}
            Noted::Opened => return Err(format!("client {} went on before it was open", fact.client)),
            Noted::Left(path) => return Err(format!("client {} left {path}", fact.client)),
        }
    }
    for (client, tried) in tried {
        let done = steps.iter().filter(|(by, _)| *by == client).count();
        if done > tried {
            return Err(format!("client {client} tried {tried} times, and counted {done} times"));
        }
    }
    Ok(())
}

#[test]
fn every_count_counts_once_and_nobody_goes_on_before_the_last() {
    run_seeds_of(60, |seed| Scenario::drawn(seed, 4), count, judge);
}

#[test]
fn each_count_wakes_whoever_waits_once() {
    const WAITING: usize = 5;
    let live = |seat: Seat<Noted>| async move {
        let latch = latch(&seat);
        if seat.number < WAITING {
            latch.wait().await.unwrap();
            return Next::Done;
        }
        // Everybody waits.
        seat.sleep(Duration::from_secs(5)).await;
        latch.set(4).await.unwrap();
        for _ in 0..4 {
            seat.sleep(Duration::from_secs(1)).await;
            latch.count_down().await.unwrap();
        }
        Next::Done
    };
    let once_each = |ran: &Ran<Noted>| {
        let events: Vec<_> = (0..WAITING).map(|client| ran.events_of(client)).collect();
        // It is made, and counted down four times.
        if events.iter().all(|events| *events == 5) { Ok(()) } else { Err(format!("{events:?}")) }
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, WAITING + 1), live, once_each);
}
