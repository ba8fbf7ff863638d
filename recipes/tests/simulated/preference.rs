//! Tests of the read-write lock where one kind overtakes the other.

use crate::drawn::{drawn, drawn_of, some_stay_away};
use crate::exclusion::{
    Noted, act, again_and_again, at_ease, break_some, give_up, hold, judge, judge_drawn, order, unless_broken, until,
};
use crate::read_write_lock::hold_or_downgrade;
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Contention, ErrorKind, Holding, Mode, Preference, ReadWriteLock, Revoked};
use zoolet_sim::ensemble::{ClientContext, Next, run_seeds_of};

const PARENT: &str = "/locks/recipe";

pub(crate) async fn cycle(context: ClientContext<Noted>, preference: Preference) -> Next {
    let lock = ReadWriteLock::new(context.session.clone(), &Path::from_static(PARENT)).prefer(preference);
    again_and_again(&context, 5, &[PARENT], async || {
        let patience = Duration::from_millis(context.below(3000));
        let (mode, grant) = match context.below(6) {
            0 => (Mode::Shared, lock.try_read().await),
            1 => (Mode::Exclusive, lock.try_write().await),
            2 | 3 => (Mode::Shared, lock.read_within(patience).await),
            _ => (Mode::Exclusive, lock.write_within(patience).await),
        };
        let Some(grant) = unless_broken(grant)? else { return Ok(false) };
        let downgrades = context.below(3) == 0;
        hold_or_downgrade(&context, &lock, grant, mode, downgrades).await;
        Ok(true)
    })
    .await
}

/// Acquires the lock with one of three preferences, by client number.
///
/// A client that is refused has no grant, and tries again.
pub(crate) async fn mixed(context: ClientContext<Noted>) -> Next {
    let preference = [Preference::Fair, Preference::Readers, Preference::Writers][context.number % 3];
    let lock = ReadWriteLock::new(context.session.clone(), &Path::from_static(PARENT)).prefer(preference);
    again_and_again(&context, 1, &[PARENT], async || {
        let patience = Duration::from_millis(context.below(3000));
        let (mode, grant) = match context.below(4) {
            0 => (Mode::Shared, lock.try_read().await),
            1 => (Mode::Exclusive, lock.try_write().await),
            2 => (Mode::Shared, lock.read_within(patience).await),
            _ => (Mode::Exclusive, lock.write_within(patience).await),
        };
        let grant = match grant {
            Err(error) if error.kind() == ErrorKind::Disagreement => return Ok(false),
            other => unless_broken(other)?,
        };
        let Some(grant) = grant else { return Ok(false) };
        hold(&context, grant, mode).await;
        Ok(true)
    })
    .await
}

#[test]
fn participants_with_different_preferences_never_hold_the_lock_at_once() {
    drawn_of(30, |seed| some_stay_away(seed, 6), mixed, judge_drawn);
}

/// The later participant is refused, and the holder keeps the lock.
#[test]
fn participant_with_a_different_preference_is_refused() {
    let pairs = [
        (Preference::Fair, Preference::Readers),
        (Preference::Writers, Preference::Fair),
        (Preference::Readers, Preference::Writers),
    ];
    for (first, second) in pairs {
        let body = move |context: ClientContext<Noted>| async move {
            let preference = [first, second][context.number];
            let lock = ReadWriteLock::new(context.session.clone(), &Path::from_static(PARENT)).prefer(preference);
            until(&context, 5.0 + context.number as f64).await;
            if context.number == 1 {
                let (read, wrote) = (lock.read().await.unwrap_err(), lock.try_write().await.unwrap_err());
                let expected = [ErrorKind::Disagreement; 2];
                assert_eq!([read.kind(), wrote.kind()], expected, "{first:?} holds, {second:?} comes");
                until(&context, 12.0).await;
                let grant = lock.write().await.unwrap();
                hold(&context, grant, Mode::Exclusive).await;
            } else {
                let grant = lock.write().await.unwrap();
                act(&context, &grant, Mode::Exclusive).await;
                until(&context, 10.0).await;
                assert_eq!(grant.holding(), Holding::Held);
                give_up(&context, grant).await;
            }
            Next::Done
        };
        run_seeds_of(5, |seed| at_ease(seed, 2), body, judge);
    }
}

#[test]
fn preferred_readers_and_writers_never_hold_the_lock_together() {
    drawn_of(30, |seed| some_stay_away(seed, 5), |context| cycle(context, Preference::Readers), judge_drawn);
}

#[test]
fn preferred_writers_and_readers_never_hold_the_lock_together() {
    drawn_of(30, |seed| some_stay_away(seed, 5), |context| cycle(context, Preference::Writers), judge_drawn);
}

/// Like `cycle`, while client 4 breaks and revokes places of the others.
pub(crate) async fn broken(context: ClientContext<Noted>, preference: Preference) -> Next {
    if context.number == 4 { break_some(&context, &[PARENT]).await } else { cycle(context, preference).await }
}

#[test]
fn broken_holder_of_a_lock_with_preference_writes_no_more() {
    drawn(20, 5, |context| broken(context, Preference::Readers), judge_drawn);
    drawn(20, 5, |context| broken(context, Preference::Writers), judge_drawn);
}

/// Asserts the order in which three clients are granted the lock.
///
/// The first one holds it, the second is of the other kind, and the third of the preferred kind.
fn overtakes(preference: Preference, order_wanted: &[usize]) {
    let (first, last) = match preference {
        Preference::Readers => (Mode::Exclusive, Mode::Shared),
        Preference::Writers | Preference::Fair => (Mode::Shared, Mode::Exclusive),
    };
    let body = move |context: ClientContext<Noted>| async move {
        let lock = ReadWriteLock::new(context.session.clone(), &Path::from_static(PARENT)).prefer(preference);
        // A writer holds the lock, so both others wait.
        let mode = [Mode::Exclusive, first, last][context.number];
        until(&context, 5.0 + context.number as f64).await;
        let grant = if mode == Mode::Shared { lock.read().await } else { lock.write().await }.unwrap();
        act(&context, &grant, mode).await;
        if context.number == 0 {
            until(&context, 12.0).await;
        }
        context.record(Noted::Released(grant.token().0));
        grant.release().await.unwrap();
        Next::Done
    };
    run_seeds_of(
        5,
        |seed| at_ease(seed, 3),
        body,
        |ran| match order(ran) {
            order if order == order_wanted => judge(ran),
            order => Err(format!("{preference:?}: granted in the order {order:?}")),
        },
    );
}

#[test]
fn preferred_kind_overtakes_waiters_of_the_other_kind() {
    overtakes(Preference::Readers, &[0, 2, 1]);
    overtakes(Preference::Writers, &[0, 2, 1]);
    overtakes(Preference::Fair, &[0, 1, 2]);
}

/// Regression: audit lines displaced the holder's line, and the next reader took the lock that a
/// writer held.
#[test]
fn many_broken_waiters_do_not_displace_the_listed_holder() {
    const BREAKS: usize = 10;
    let body = async |context: ClientContext<Noted>| {
        let lock = ReadWriteLock::new(context.session.clone(), &Path::from_static(PARENT)).prefer(Preference::Readers);
        match context.number {
            0 => {
                until(&context, 4.0).await;
                let grant = lock.write().await.unwrap();
                context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
                context.record(Noted::Placed(grant.token().0, grant.path().to_string()));
                until(&context, 22.0).await;
                assert_eq!(grant.holding(), Holding::Held);
                context.record(Noted::Acted(grant.token().0, Mode::Exclusive));
                give_up(&context, grant).await;
            }
            1 => {
                until(&context, 6.0).await;
                while context.true_us(context.now()) < 18_000_000 {
                    match lock.write_within(Duration::from_millis(400)).await {
                        Ok(Some(grant)) => hold(&context, grant, Mode::Exclusive).await,
                        Ok(None) => {}
                        Err(error) if error.kind() == ErrorKind::Broken => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            2 => {
                until(&context, 6.0).await;
                let line = Contention::new(context.session.clone(), &Path::from_static(PARENT));
                let mut broken = 0;
                while broken < BREAKS {
                    context.sleep(Duration::from_millis(50)).await;
                    let contenders = line.contenders().await.unwrap();
                    assert!(contenders[0].holds, "{contenders:?}");
                    if let Some(waiting) = contenders.get(1)
                        && line.break_grant(waiting, &"long ".repeat(40)).await.unwrap() == Revoked::Broken
                    {
                        broken += 1;
                    }
                }
            }
            _ => {
                until(&context, 20.0).await;
                let grant = lock.read().await.unwrap();
                hold(&context, grant, Mode::Shared).await;
            }
        }
        Next::Done
    };
    run_seeds_of(10, |seed| at_ease(seed, 4), body, judge);
}
