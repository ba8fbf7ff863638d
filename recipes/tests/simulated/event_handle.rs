//! Tests of the event handle.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, reply lost after a create: [`auto_reset_signal_releases_one_waiter`]. Each deletion of a
//!   signal is one waiter that went on.
//! - 4, a new session after the last: lives after an expiry, in both drawn tests.
//! - 5, attempts given up: both drop waits and signals. `Left` records leftovers.
//! - 6, herd: documented, and counted in [`auto_reset_signal_wakes_all_waiters_and_releases_one`].
//! - 8 and 12, staleness and missed events: [`waiter_goes_on_only_after_a_signal`] has lagging
//!   servers and cuts.
//! - 1, 3, 7, 9 to 11 and 13: nothing is held, and the znode is persistent.

use crate::apart::{finish, finished, heard, left_behind, persist, up_to, within};
use crate::drawn::drawn;
use std::collections::BTreeMap;
use std::time::Duration;
use zoolet_model::{EventKind, Path};
use zoolet_recipes::{EventHandle, Reset};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PATH: &str = "/line/delivery";
/// Number of waiters, the first clients. The others signal.
const WAITING: usize = 3;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Noted {
    Waiting,
    WentOn,
    Signalling,
    Signalled,
    Left(String),
}

fn handle(context: &ClientContext<Noted>, reset: Reset) -> EventHandle<Session> {
    EventHandle::new(context.session.clone(), &Path::from_static(PATH), reset)
}

async fn live(context: ClientContext<Noted>, reset: Reset) -> Next {
    let done = if context.number < WAITING { wait(&context, reset).await } else { signal(&context, reset).await };
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

async fn wait(context: &ClientContext<Noted>, reset: Reset) -> Result<(), Next> {
    // An earlier life has finished, so the signals may have ended.
    if finished(context).await?.contains(&context.number) {
        return Ok(());
    }
    let handle = handle(context, reset);
    let mut round = 0;
    while round < 5 || context.goes_on() {
        round += 1;
        context.sleep(up_to(context, 400)).await;
        context.record(Noted::Waiting);
        let result = match context.below(3) {
            0 => within(context, up_to(context, 800), handle.wait()).await,
            _ => Some(handle.wait().await),
        };
        if let Some(Some(())) = result.map(|result| heard(context, result)).transpose()? {
            context.record(Noted::WentOn);
        }
    }
    finish(context).await
}

async fn signal(context: &ClientContext<Noted>, reset: Reset) -> Result<(), Next> {
    let handle = handle(context, reset);
    while finished(context).await?.len() < WAITING {
        context.record(Noted::Signalling);
        let result = match context.below(3) {
            0 => within(context, up_to(context, 60), handle.set()).await,
            _ => Some(handle.set().await),
        };
        if let Some(Some(true)) = result.map(|result| heard(context, result)).transpose()? {
            context.record(Noted::Signalled);
        }
        context.sleep(up_to(context, 600)).await;
        if reset == Reset::Manual {
            persist(context, || handle.reset()).await?;
            heard(context, handle.wait_reset().await)?;
            context.sleep(up_to(context, 1000)).await;
        }
    }
    Ok(())
}

/// Returns when there was no signal: begin and end, in microseconds.
fn silences(ran: &Ran<Noted>) -> Result<Vec<(u64, u64)>, String> {
    let mut silent = vec![(0, u64::MAX)];
    for change in ran.changed()?.into_iter().filter(|change| change.path == PATH) {
        match change.kind {
            EventKind::NodeCreated => silent.last_mut().unwrap().1 = change.at_us,
            EventKind::NodeDeleted => silent.push((change.at_us, u64::MAX)),
            kind => return Err(format!("{kind:?}")),
        }
    }
    Ok(silent)
}

fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let silences = silences(ran)?;
    let mut waits = BTreeMap::new();
    for fact in &ran.facts {
        match &fact.what {
            Noted::Waiting => {
                waits.insert(fact.client, fact.at_us);
            }
            Noted::WentOn => {
                let began_us = waits[&fact.client];
                if let Some((from, to)) = silences.iter().find(|(from, to)| *from < began_us && fact.at_us < *to) {
                    return Err(format!(
                        "client {} waited from {began_us} to {} us, and there was no signal from {from} to {to} us",
                        fact.client, fact.at_us
                    ));
                }
            }
            Noted::Signalling | Noted::Signalled => {}
            Noted::Left(path) => return Err(format!("client {} left {path}", fact.client)),
        }
    }
    Ok(())
}

/// Checks [`judge`]'s rule, and accounts for every signal taken and given.
///
/// A client that took a signal went on, or died or stopped waiting at that moment. The same holds
/// for clients that gave one.
fn judge_auto(ran: &Ran<Noted>) -> Result<(), String> {
    judge(ran)?;
    let mut done: BTreeMap<(usize, bool), (usize, usize, usize)> = BTreeMap::new();
    for fact in &ran.facts {
        let is_signal = matches!(fact.what, Noted::Signalling | Noted::Signalled);
        let (tried, noted, _) = done.entry((fact.client, is_signal)).or_default();
        match fact.what {
            Noted::Waiting | Noted::Signalling => *tried += 1,
            Noted::WentOn | Noted::Signalled => *noted += 1,
            Noted::Left(_) => {}
        }
    }
    for change in ran.changed()?.into_iter().filter(|change| change.path == PATH) {
        let client = change.session.and_then(|session| ran.client_of(session)).ok_or("who was that?")?;
        done.entry((client, change.kind == EventKind::NodeCreated)).or_default().2 += 1;
    }
    for ((client, is_signal), (tried, noted, changes)) in done {
        if !(noted..=tried).contains(&changes) {
            let what = if is_signal { "signalled" } else { "took" };
            return Err(format!(
                "client {client} tried {tried} times, was told of {noted}, and {what} {changes} times"
            ));
        }
    }
    Ok(())
}

#[test]
fn waiter_goes_on_only_after_a_signal() {
    drawn(60, WAITING + 1, |context| live(context, Reset::Manual), judge);
}

#[test]
fn auto_reset_signal_releases_one_waiter() {
    drawn(60, WAITING + 2, |context| live(context, Reset::Auto), judge_auto);
}

#[test]
fn auto_reset_signal_wakes_all_waiters_and_releases_one() {
    const SIGNALS: usize = 6;
    let live = |context: ClientContext<Noted>| async move {
        let handle = handle(&context, Reset::Auto);
        if context.number < SIGNALS {
            handle.wait().await.unwrap();
            context.record(Noted::WentOn);
            return Next::Done;
        }
        context.sleep(Duration::from_secs(5)).await;
        for _ in 0..SIGNALS {
            assert!(handle.set().await.unwrap());
            context.sleep(Duration::from_secs(1)).await;
        }
        Next::Done
    };
    let all = |ran: &Ran<Noted>| {
        let mut events: Vec<_> = (0..SIGNALS).map(|client| ran.events_of(client)).collect();
        events.sort_unstable();
        // The first to go on woke once, and the last one for each signal.
        if events == [1, 2, 3, 4, 5, 6] { Ok(()) } else { Err(format!("{events:?}")) }
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, SIGNALS + 1), live, all);
}
