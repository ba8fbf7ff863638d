//! The lock.

use crate::apart::both;
use crate::drawn::{drawn_of, some_stay_away};
use crate::exclusion::{Noted, again_and_again, each_woke, hold, judge_drawn, within};
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Lock, Mode, Naming};
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat, run_seeds_of};

const PARENT: &str = "/locks/door";

fn lock(seat: &Seat<Noted>, naming: Naming) -> Lock<zoolet_session::Session> {
    Lock::new(seat.session.clone(), &Path::from_static(PARENT)).naming(naming)
}

/// Takes the lock again and again, in every way there is, and gives some attempts up.
pub(crate) async fn cycle(seat: Seat<Noted>) -> Next {
    // Mixed on one path: zoolet counts all of them.
    let naming = [Naming::Documented, Naming::Curator, Naming::Kazoo][seat.number % 3];
    let lock = lock(&seat, naming);
    again_and_again(&seat, 6, &[PARENT], async || {
        let patience = Duration::from_millis(seat.below(1500));
        let grant = match seat.below(4) {
            0 => lock.try_acquire().await,
            1 => lock.acquire_within(patience).await,
            // Two attempts of one lock at once: one of them is dropped at any point.
            2 => {
                let soon = Duration::from_micros(seat.below(60_000));
                let (first, second) = both(lock.acquire_within(patience), within(&seat, soon, lock.acquire())).await;
                drop(second);
                first
            }
            _ => lock.acquire().await.map(Some),
        };
        let Some(grant) = grant? else { return Ok(false) };
        hold(&seat, grant, Mode::Exclusive).await;
        Ok(true)
    })
    .await
}

#[test]
fn nobody_holds_a_lock_that_somebody_else_has_and_nothing_stays_behind() {
    drawn_of(50, |seed| some_stay_away(seed, 4), cycle, judge_drawn);
}

/// Once each, everybody at the same time.
pub(crate) async fn once(seat: Seat<Noted>) -> Next {
    let lock = lock(&seat, Naming::default());
    let grant = lock.acquire().await.unwrap();
    seat.record(Noted::Granted(grant.token().0, Mode::Exclusive));
    seat.sleep(Duration::from_millis(50)).await;
    grant.release().await.unwrap();
    Next::Done
}

pub(crate) const CLIENTS: usize = 12;

pub(crate) fn wakes_one(ran: &Ran<Noted>) -> Result<(), String> {
    // One event for the one before; one list at the beginning and one after each event; nobody looks again without one.
    each_woke(ran, CLIENTS, 1, 2)?;
    let mut order: Vec<i64> = Vec::new();
    for fact in &ran.facts {
        let Noted::Granted(token, _) = fact.what else { continue };
        order.push(token);
    }
    if order.len() == CLIENTS && order.is_sorted() { Ok(()) } else { Err(format!("granted in the order {order:?}")) }
}

#[test]
fn a_release_wakes_one_who_waits() {
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CLIENTS), once, wakes_one);
}
