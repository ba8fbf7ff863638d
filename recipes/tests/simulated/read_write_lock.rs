//! Tests of the read-write lock.

use crate::apart::is_of_session;
use crate::drawn::{drawn, drawn_of, some_stay_away};
use crate::exclusion::{
    Noted, act, again_and_again, break_some, each_woke, give_up, hold, judge, judge_drawn, order, unless_broken, until,
    within,
};
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Grant, Mode, Naming, ReadWriteLock};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PARENT: &str = "/locks/recipe";

fn lock(context: &ClientContext<Noted>, naming: Naming) -> ReadWriteLock<Session> {
    ReadWriteLock::new(context.session.clone(), &Path::from_static(PARENT)).naming(naming)
}

/// Acquires the lock in every way. Some writers become readers, and some attempts are given up.
pub(crate) async fn cycle(context: ClientContext<Noted>) -> Next {
    let lock = lock(&context, [Naming::Documented, Naming::Curator, Naming::Kazoo][context.number % 3]);
    again_and_again(&context, 6, &[PARENT], async || {
        let patience = Duration::from_millis(context.below(1500));
        let mode = if context.below(5) < 2 { Mode::Exclusive } else { Mode::Shared };
        let grant = match (mode, context.below(3)) {
            (Mode::Exclusive, 0) => lock.try_write().await,
            (Mode::Exclusive, 1) => lock.write_within(patience).await,
            (Mode::Exclusive, _) => lock.write().await.map(Some),
            (Mode::Shared, 0) => lock.try_read().await,
            (Mode::Shared, 1) => lock.read_within(patience).await,
            (Mode::Shared, _) => lock.read().await.map(Some),
        };
        let Some(grant) = unless_broken(grant)? else { return Ok(false) };
        let downgrades = context.below(2) == 0;
        hold_or_downgrade(&context, &lock, grant, mode, downgrades).await;
        Ok(true)
    })
    .await
}

/// Holds a grant for a while. A writer may continue as a reader.
pub(crate) async fn hold_or_downgrade(
    context: &ClientContext<Noted>,
    lock: &ReadWriteLock<Session>,
    grant: Grant<Session>,
    mode: Mode,
    downgrades: bool,
) {
    if mode == Mode::Shared || !downgrades {
        return hold(context, grant, mode).await;
    }
    act(context, &grant, Mode::Exclusive).await;
    let token = grant.token().0;
    match lock.downgrade(grant).await {
        Ok(grant) => hold(context, grant, Mode::Shared).await,
        Err(error) if is_of_session(&error) || error.is_grant_lost() => context.record(Noted::Released(token)),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn writer_holds_the_lock_alone_and_leaves_no_znode() {
    drawn_of(40, |seed| some_stay_away(seed, 4), cycle, judge_drawn);
}

/// Like `cycle`, while client 4 breaks and revokes places of the others.
pub(crate) async fn broken(context: ClientContext<Noted>) -> Next {
    if context.number == 4 { break_some(&context, &[PARENT]).await } else { cycle(context).await }
}

#[test]
fn broken_holder_of_a_read_write_lock_writes_no_more() {
    drawn(20, 5, broken, judge_drawn);
}

/// Number of readers behind one writer. Two more writers are behind the readers.
const READERS: usize = 10;
const CLIENTS: usize = READERS + 3;

async fn behind_a_writer(context: ClientContext<Noted>, downgrades: bool) -> Next {
    let lock = lock(&context, Naming::default());
    match context.number {
        0 => {
            until(&context, 5.0).await;
            let grant = lock.write().await.unwrap();
            context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
            until(&context, 10.0).await;
            let grant = if downgrades { lock.downgrade(grant).await.unwrap() } else { grant };
            if downgrades {
                until(&context, 11.0).await;
            }
            give_up(&context, grant).await;
        }
        1..=READERS => {
            until(&context, 6.0).await;
            let grant = lock.read().await.unwrap();
            context.record(Noted::Granted(grant.token().0, Mode::Shared));
            until(&context, 13.0 + context.below(100) as f64 / 100.0).await;
            give_up(&context, grant).await;
        }
        _ => {
            until(&context, 8.0).await;
            let grant = lock.write().await.unwrap();
            context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
            context.sleep(Duration::from_millis(100)).await;
            give_up(&context, grant).await;
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
fn release_of_a_writer_wakes_all_readers_and_then_writers_singly() {
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
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CLIENTS), |context| behind_a_writer(context, false), wakes);
}

#[test]
fn downgrade_admits_the_readers_behind_the_writer() {
    let wakes = |ran: &Ran<Noted>| {
        readers_go_on_together(ran)?;
        let is_early = |fact: &&zoolet_sim::ensemble::Fact<Noted>| fact.at_us < 10_900_000;
        if ran.facts.iter().filter(is_early).count() != 1 + READERS {
            return Err("readers wait for a reader".to_owned());
        }
        // At most one event for the downgrade, and one for the release.
        each_woke(ran, 1 + READERS, 2, 2)
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CLIENTS), |context| behind_a_writer(context, true), wakes);
}

/// Regression: a writer with the description `downgraded` counted as a reader for later
/// participants, which read beside it.
#[test]
fn writer_described_as_downgraded_still_excludes_readers() {
    let body = async |context: ClientContext<Noted>| {
        until(&context, 4.0 + context.number as f64).await;
        if context.number == 0 {
            for (at_s, says) in [(8.0, "downgraded"), (12.0, "downgraded unlock"), (16.0, "unlock")] {
                let grant = lock(&context, Naming::default()).described(says).write().await.unwrap();
                context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
                assert_eq!(lock(&context, Naming::default()).try_read().await.map(|read| read.is_some()), Ok(false));
                assert!(
                    within(&context, Duration::from_millis(500), grant.asked_to_release()).await.is_none(),
                    "{says}"
                );
                until(&context, at_s).await;
                context.record(Noted::Acted(grant.token().0, Mode::Exclusive));
                let shared = lock(&context, Naming::default()).downgrade(grant).await.unwrap();
                context.record(Noted::Granted(shared.token().0, Mode::Shared));
                until(&context, at_s + 1.0).await;
                assert!(lock(&context, Naming::default()).try_read().await.unwrap().is_some(), "{says}");
                shared.release().await.unwrap();
                until(&context, at_s + 2.0).await;
            }
            return Next::Done;
        }
        for at_s in [6.0, 10.5, 14.5] {
            until(&context, at_s).await;
            let grant = lock(&context, Naming::default()).read().await.unwrap();
            context.record(Noted::Granted(grant.token().0, Mode::Shared));
            grant.release().await.unwrap();
        }
        Next::Done
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 2), body, judge);
}
