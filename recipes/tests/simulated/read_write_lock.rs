//! Tests of the read-write lock.

use crate::drawn::{drawn, drawn_of, some_stay_away};
use crate::exclusion::{
    Noted, act, again_and_again, break_some, each_woke, give_up, hold, judge, judge_drawn, order, unless_broken, until,
    within,
};
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Error, Grant, Mode, Naming, ReadWriteLock};
use zoolet_session::Session;
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat, run_seeds_of};

const PARENT: &str = "/locks/recipe";

fn lock(seat: &Seat<Noted>, naming: Naming) -> ReadWriteLock<Session> {
    ReadWriteLock::new(seat.session.clone(), &Path::from_static(PARENT)).naming(naming)
}

/// Acquires the lock in every way. Some writers become readers, and some attempts are given up.
pub(crate) async fn cycle(seat: Seat<Noted>) -> Next {
    let lock = lock(&seat, [Naming::Documented, Naming::Curator, Naming::Kazoo][seat.number % 3]);
    again_and_again(&seat, 6, &[PARENT], async || {
        let patience = Duration::from_millis(seat.below(1500));
        let mode = if seat.below(5) < 2 { Mode::Exclusive } else { Mode::Shared };
        let grant = match (mode, seat.below(3)) {
            (Mode::Exclusive, 0) => lock.try_write().await,
            (Mode::Exclusive, 1) => lock.write_within(patience).await,
            (Mode::Exclusive, _) => lock.write().await.map(Some),
            (Mode::Shared, 0) => lock.try_read().await,
            (Mode::Shared, 1) => lock.read_within(patience).await,
            (Mode::Shared, _) => lock.read().await.map(Some),
        };
        let Some(grant) = unless_broken(grant)? else { return Ok(false) };
        let downgrades = seat.below(2) == 0;
        hold_or_downgrade(&seat, &lock, grant, mode, downgrades).await;
        Ok(true)
    })
    .await
}

/// Holds a grant for a while. A writer may continue as a reader.
pub(crate) async fn hold_or_downgrade(
    seat: &Seat<Noted>,
    lock: &ReadWriteLock<Session>,
    grant: Grant<Session>,
    mode: Mode,
    downgrades: bool,
) {
    if mode == Mode::Shared || !downgrades {
        return hold(seat, grant, mode).await;
    }
    act(seat, &grant, Mode::Exclusive).await;
    let token = grant.token().0;
    match lock.downgrade(grant).await {
        Ok(grant) => hold(seat, grant, Mode::Shared).await,
        Err(Error::Session(_) | Error::Lost) => seat.record(Noted::Released(token)),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_writer_writes_beside_anybody_else_and_nothing_stays_behind() {
    drawn_of(40, |seed| some_stay_away(seed, 4), cycle, judge_drawn);
}

/// Like `cycle`, while client 4 breaks and revokes places of the others.
pub(crate) async fn broken(seat: Seat<Noted>) -> Next {
    if seat.number == 4 { break_some(&seat, &[PARENT]).await } else { cycle(seat).await }
}

#[test]
fn who_was_broken_writes_nothing_more_where_some_read_and_some_write() {
    drawn(20, 5, broken, judge_drawn);
}

/// Number of readers behind one writer. Two more writers are behind the readers.
const READERS: usize = 10;
const CLIENTS: usize = READERS + 3;

async fn behind_a_writer(seat: Seat<Noted>, downgrades: bool) -> Next {
    let lock = lock(&seat, Naming::default());
    match seat.number {
        0 => {
            until(&seat, 5.0).await;
            let grant = lock.write().await.unwrap();
            seat.record(Noted::Granted(grant.token().0, Mode::Exclusive));
            until(&seat, 10.0).await;
            let grant = if downgrades { lock.downgrade(grant).await.unwrap() } else { grant };
            if downgrades {
                until(&seat, 11.0).await;
            }
            give_up(&seat, grant).await;
        }
        1..=READERS => {
            until(&seat, 6.0).await;
            let grant = lock.read().await.unwrap();
            seat.record(Noted::Granted(grant.token().0, Mode::Shared));
            until(&seat, 13.0 + seat.below(100) as f64 / 100.0).await;
            give_up(&seat, grant).await;
        }
        _ => {
            until(&seat, 8.0).await;
            let grant = lock.write().await.unwrap();
            seat.record(Noted::Granted(grant.token().0, Mode::Exclusive));
            seat.sleep(Duration::from_millis(100)).await;
            give_up(&seat, grant).await;
        }
    }
    Next::Done
}

/// Checks that the readers are granted together, after the first writer and before the others.
fn readers_go_on_together(ran: &Ran<Noted>) -> Result<(), String> {
    let order = order(ran);
    let readers = |clients: &[usize]| clients.iter().all(|client| (1..=READERS).contains(client));
    if order.len() != CLIENTS || order[0] != 0 || !readers(&order[1..=READERS]) {
        return Err(format!("granted in the order {order:?}"));
    }
    let is_read = |fact: &&zoolet_sim::ensemble::Fact<Noted>| (1..=READERS).contains(&fact.client);
    let what: Vec<_> = ran.facts.iter().filter(is_read).map(|fact| &fact.what).collect();
    if what[..READERS].iter().all(|what| matches!(what, Noted::Granted(..))) {
        Ok(())
    } else {
        Err(format!("readers do not read together: {what:?}"))
    }
}

#[test]
fn readers_behind_a_writer_all_wake_once_and_writers_behind_them_one_by_one() {
    let wakes = |ran: &Ran<Noted>| {
        readers_go_on_together(ran)?;
        each_woke(ran, 1 + READERS, 1, 2)?;
        // The first writer behind the readers wakes each time its nearest reader goes. The second
        // writer wakes for the first one alone.
        let mut behind = [CLIENTS - 2, CLIENTS - 1].map(|client| (ran.events_of(client), ran.lists_of(client)));
        behind.sort_unstable();
        let [(one, lists), (several, more)] = behind;
        // A reader may have gone before the writer could watch it.
        if one == 1 && lists == 2 && several <= READERS && (several..=READERS).contains(&(more - 1)) {
            Ok(())
        } else {
            Err(format!("writers woke and listed {behind:?}"))
        }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CLIENTS), |seat| behind_a_writer(seat, false), wakes);
}

#[test]
fn a_writer_that_becomes_a_reader_lets_the_readers_behind_it_in() {
    let wakes = |ran: &Ran<Noted>| {
        readers_go_on_together(ran)?;
        let is_early = |fact: &&zoolet_sim::ensemble::Fact<Noted>| fact.at_us < 10_900_000;
        if ran.facts.iter().filter(is_early).count() != 1 + READERS {
            return Err("readers wait for a reader".to_owned());
        }
        // At most one event for the downgrade, and one for the release.
        each_woke(ran, 1 + READERS, 2, 2)
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CLIENTS), |seat| behind_a_writer(seat, true), wakes);
}

/// Regression: a writer with the description `downgraded` counted as a reader for later
/// participants, which read beside it.
#[test]
fn a_writer_is_one_whatever_it_says_of_itself() {
    let body = async |seat: Seat<Noted>| {
        until(&seat, 4.0 + seat.number as f64).await;
        if seat.number == 0 {
            for (at_s, says) in [(8.0, "downgraded"), (12.0, "downgraded unlock"), (16.0, "unlock")] {
                let grant = lock(&seat, Naming::default()).described(says).write().await.unwrap();
                seat.record(Noted::Granted(grant.token().0, Mode::Exclusive));
                assert_eq!(lock(&seat, Naming::default()).try_read().await.map(|read| read.is_some()), Ok(false));
                assert!(within(&seat, Duration::from_millis(500), grant.asked_to_release()).await.is_none(), "{says}");
                until(&seat, at_s).await;
                seat.record(Noted::Acted(grant.token().0, Mode::Exclusive));
                let shared = lock(&seat, Naming::default()).downgrade(grant).await.unwrap();
                seat.record(Noted::Granted(shared.token().0, Mode::Shared));
                until(&seat, at_s + 1.0).await;
                assert!(lock(&seat, Naming::default()).try_read().await.unwrap().is_some(), "{says}");
                shared.release().await.unwrap();
                until(&seat, at_s + 2.0).await;
            }
            return Next::Done;
        }
        for at_s in [6.0, 10.5, 14.5] {
            until(&seat, at_s).await;
            let grant = lock(&seat, Naming::default()).read().await.unwrap();
            seat.record(Noted::Granted(grant.token().0, Mode::Shared));
            grant.release().await.unwrap();
        }
        Next::Done
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 2), body, judge);
}
