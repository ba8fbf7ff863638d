//! Commands of several clients while replies are lost: each call changes the tree at most once.
//!
//! Regression: a deletion, or a write without a version, was sent again when its reply was lost.
//! The repetition undid what another client had done since:
//! - It opened a barrier that was closed again.
//! - It removed a new signal.
//! - It overwrote a new size.
//! - It took back a new permit to restart.

use std::future::Future;
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Barrier, Error, EventHandle, Reset, RollingRestart, Semaphore};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Fate, MS, Next, Ran, SECOND, Scenario, run_seeds_of};

const PATH: Path = Path::from_static("/commanded");
const COMMANDERS: usize = 2;
const CALLS: usize = 40;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Noted {
    Calls,
    /// Whether the call reported a change; `None` for calls that do not report it.
    Called(Option<bool>),
}

/// Returns a scenario that loses several replies a second.
fn scenario(seed: u64) -> Scenario {
    let mut scenario = Scenario::peaceful(seed, COMMANDERS);
    scenario.fates = (0..60).map(|at| (2 * SECOND + at * (150 + seed % 5 * 40) * MS, Fate::LostReply)).collect();
    scenario.homes.iter_mut().for_each(|home| *home = None);
    scenario.plan.safety_us = 30 * SECOND;
    scenario
}

async fn call<T>(
    context: &ClientContext<Noted>,
    call: impl Future<Output = Result<T, Error>>,
    told: fn(&T) -> Option<bool>,
) {
    context.record(Noted::Calls);
    // Sessions live as long as their clients in this scenario.
    let done = call.await.unwrap();
    context.record(Noted::Called(told(&done)));
    context.sleep(Duration::from_millis(context.below(60))).await;
}

/// Checks that each call changed the znode at most once, and as often as it reported.
fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    judge_of(ran, PATH.as_str())
}

fn judge_of(ran: &Ran<Noted>, path: &str) -> Result<(), String> {
    let changed = ran.changed()?;
    let theirs = |client| {
        let is_theirs = move |session| ran.client_of(session) == Some(client);
        changed.iter().filter(move |change| change.path == path && change.session.is_some_and(is_theirs))
    };
    for client in 0..COMMANDERS {
        let facts: Vec<_> = ran.facts.iter().filter(|fact| fact.client == client).collect();
        for call in facts.chunks(2) {
            let [calls, called] = call else { return Err(format!("client {client} does not finish: {call:?}")) };
            let changes = theirs(client).filter(|change| (calls.at_us..=called.at_us).contains(&change.at_us)).count();
            let is_right = match called.what {
                Noted::Called(Some(told)) => changes == usize::from(told),
                Noted::Called(None) => changes <= 1,
                Noted::Calls => false,
            };
            if !is_right {
                let (from, to) = (calls.at_us, called.at_us);
                return Err(format!(
                    "client {client}, from {from} to {to} us: {:?}, and changed it {changes} times",
                    called.what
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn barrier_call_takes_effect_at_most_once_beside_other_clients() {
    let live = |context: ClientContext<Noted>| async move {
        let barrier: Barrier<Session> = Barrier::new(context.session.clone(), &PATH);
        for _ in 0..CALLS {
            if context.below(2) == 0 {
                call(&context, barrier.close(), |changed| Some(*changed)).await;
            } else {
                call(&context, barrier.open(), |changed| Some(*changed)).await;
            }
        }
        Next::Done
    };
    run_seeds_of(20, scenario, live, judge);
}

#[test]
fn event_handle_call_takes_effect_at_most_once_beside_other_clients() {
    let live = |context: ClientContext<Noted>| async move {
        let handle: EventHandle<Session> = EventHandle::new(context.session.clone(), &PATH, Reset::Manual);
        for _ in 0..CALLS {
            if context.below(2) == 0 {
                call(&context, handle.set(), |changed| Some(*changed)).await;
            } else {
                call(&context, handle.reset(), |()| None).await;
            }
        }
        Next::Done
    };
    run_seeds_of(20, scenario, live, judge);
}

#[test]
fn semaphore_resize_takes_effect_at_most_once_beside_other_clients() {
    let live = |context: ClientContext<Noted>| async move {
        // Creating the znode is a change too, so the calls must find it.
        drop(context.session.create(&PATH, None).await);
        let semaphore: Semaphore<Session> = Semaphore::new(context.session.clone(), &PATH);
        for _ in 0..CALLS {
            call(&context, semaphore.resize(context.below(9) as u32), |()| None).await;
        }
        Next::Done
    };
    run_seeds_of(20, scenario, live, judge);
}

#[test]
fn restart_permit_call_takes_effect_at_most_once() {
    let live = |context: ClientContext<Noted>| async move {
        let gate: RollingRestart<Session> = RollingRestart::new(context.session.clone(), &PATH, 1);
        for _ in 0..CALLS {
            if context.below(2) == 0 {
                call(&context, gate.begin("gw-a"), |_| None).await;
            } else {
                call(&context, gate.done("gw-a"), |()| None).await;
            }
        }
        Next::Done
    };
    run_seeds_of(20, scenario, live, |ran| judge_of(ran, "/commanded/boxes/gw-a"));
}
