//! Tests of the barrier.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, lost replies: in `commands`, two clients close and open. The first test here judges the
//!   tree, not the returned values.
//! - 4, 8 and 12, reconnects, staleness, missed events:
//!   [`barrier_is_passed_only_if_it_was_open_during_the_wait`] has cuts, expiries and lagging
//!   servers.
//! - 5, attempts given up: that test drops waits.
//! - 6, herd: all are to go on. [`opening_a_barrier_wakes_each_waiter_once`] counts events.
//! - 1, 3, 7, 9 to 11 and 13: nothing is held, and the znode is persistent.

use crate::apart::{all_finished, finish, finished, heard, persist, up_to, within};
use crate::drawn::drawn;
use std::time::Duration;
use zoolet_model::{EventKind, Path};
use zoolet_recipes::Barrier;
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PATH: &str = "/line/stopped";
const WAITING: usize = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Noted {
    Waiting,
    Passed,
}

fn barrier(context: &ClientContext<Noted>) -> Barrier<Session> {
    Barrier::new(context.session.clone(), &Path::from_static(PATH))
}

async fn live(context: ClientContext<Noted>) -> Next {
    let done = if context.number == WAITING { command(&context).await } else { pass(&context).await };
    done.map_or_else(|next| next, |()| Next::Done)
}

/// Closes and opens the barrier until all waiters have passed often enough.
async fn command(context: &ClientContext<Noted>) -> Result<(), Next> {
    let barrier = barrier(context);
    while finished(context).await?.len() < WAITING {
        heard(context, barrier.close().await)?;
        context.sleep(up_to(context, 2000)).await;
        heard(context, barrier.open().await)?;
        context.sleep(up_to(context, 300)).await;
    }
    Ok(())
}

async fn pass(context: &ClientContext<Noted>) -> Result<(), Next> {
    let barrier = barrier(context);
    let mut round = 0;
    while round < 6 || context.goes_on() {
        round += 1;
        context.sleep(up_to(context, 400)).await;
        context.record(Noted::Waiting);
        let result = match context.below(3) {
            0 => within(context, up_to(context, 1000), barrier.wait()).await,
            _ => Some(barrier.wait().await),
        };
        if let Some(Some(())) = result.map(|result| heard(context, result)).transpose()? {
            context.record(Noted::Passed);
        }
    }
    finish(context).await
}

fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    // When the barrier was closed: begin and end, in microseconds.
    let mut closed: Vec<(u64, u64)> = Vec::new();
    for change in ran.changed()?.into_iter().filter(|change| change.path == PATH) {
        match change.kind {
            EventKind::NodeCreated => closed.push((change.at_us, u64::MAX)),
            EventKind::NodeDeleted => closed.last_mut().unwrap().1 = change.at_us,
            kind => return Err(format!("{kind:?}")),
        }
    }
    for (at, fact) in ran.facts.iter().enumerate().filter(|(_, fact)| fact.what == Noted::Passed) {
        let is_theirs = |other: &&zoolet_sim::ensemble::Fact<Noted>| other.client == fact.client;
        let began = ran.facts[..at].iter().rev().find(is_theirs).unwrap();
        let is_all = |(from, to): &&(u64, u64)| *from < began.at_us && fact.at_us < *to;
        if let Some((from, to)) = closed.iter().find(is_all) {
            return Err(format!(
                "client {} waited from {} to {} us, and it was closed from {from} to {to} us",
                fact.client, began.at_us, fact.at_us
            ));
        }
    }
    Ok(())
}

#[test]
fn barrier_is_passed_only_if_it_was_open_during_the_wait() {
    drawn(60, WAITING + 1, live, judge);
}

#[test]
fn opening_a_barrier_wakes_each_waiter_once() {
    let live = |context: ClientContext<Noted>| async move {
        let barrier = barrier(&context);
        if context.number == WAITING {
            barrier.close().await.unwrap();
            finish(&context).await.unwrap();
            context.sleep(Duration::from_secs(10)).await;
            assert!(barrier.open().await.unwrap());
        } else {
            all_finished(&context, 1).await.unwrap();
            persist(&context, || barrier.wait()).await.unwrap();
        }
        Next::Done
    };
    let once_each = |ran: &Ran<Noted>| {
        let events: Vec<_> = (0..WAITING).map(|client| ran.events_of(client)).collect();
        if events.iter().all(|events| *events == 1) { Ok(()) } else { Err(format!("{events:?}")) }
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, WAITING + 1), live, once_each);
}
