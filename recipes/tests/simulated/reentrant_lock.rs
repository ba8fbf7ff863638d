//! Tests of the re-entrant lock.

use crate::apart::has_no_answer;
use crate::drawn::{drawn_of, some_stay_away};
use crate::exclusion::{
    Noted, REGISTER, act, at_ease, break_some, is_over, judge, judge_drawn, note_leaks, unless_broken, until,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::{EventKind, Path};
use zoolet_recipes::{Contention, ErrorKind, GrantEnd, Holding, Lock, Mode, ReentrantLock, Revoked};
use zoolet_session::{Session, SessionState};
use zoolet_sim::ensemble::{ClientContext, Next, Ran, run_seeds_of};

const PARENT: &str = "/locks/hatch";

/// Acquires the lock, and again while it is held.
async fn work(context: &ClientContext<Noted>, lock: &ReentrantLock<Session>) {
    let mut cycles = 0;
    while (cycles < 3 || context.goes_on()) && !context.session.state().is_over() {
        cycles += 1;
        context.sleep(Duration::from_millis(context.below(500))).await;
        let patience = Duration::from_millis(context.below(1500));
        let outer = match context.below(3) {
            0 => lock.try_acquire().await,
            1 => lock.acquire_within(patience).await,
            _ => lock.acquire().await.map(Some),
        };
        let outer = match outer {
            Ok(Some(outer)) => outer,
            Ok(None) => continue,
            Err(error) if has_no_answer(&error) => continue,
            Err(error) => panic!("{error}"),
        };
        act(context, &outer, Mode::Exclusive).await;
        if outer.holding() != Holding::Lost {
            match lock.try_acquire().await {
                Ok(Some(inner)) if Arc::ptr_eq(&outer, &inner) => act(context, &inner, Mode::Exclusive).await,
                // It is not known whether the grant stands.
                Err(error) if has_no_answer(&error) => {}
                other => context.record(Noted::Wrong(format!("its owner does not get it again: {other:?}"))),
            }
        }
        if outer.holding() == Holding::Held {
            // Dropping the inner grant has kept the outer one.
            context.record(Noted::Acted(outer.token().0, Mode::Exclusive));
        }
        context.record(Noted::Released(outer.token().0));
    }
}

/// Runs two tasks that share one owner.
async fn cycle(context: ClientContext<Noted>) -> Next {
    let lock = Rc::new(Lock::new(context.session.clone(), &Path::from_static(PARENT)).reentrant());
    let left = Rc::new(Cell::new(2));
    for _ in 0..2 {
        let (context, lock, left) = (context.clone(), Rc::clone(&lock), Rc::clone(&left));
        context.clone().spawn(async move {
            work(&context, &lock).await;
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        context.sleep(Duration::from_millis(100)).await;
    }
    if let Some(next) = is_over(&context) {
        return next;
    }
    note_leaks(&context, PARENT).await;
    Next::Done
}

#[test]
fn reentrant_lock_is_granted_again_only_to_its_owner() {
    drawn_of(30, |seed| some_stay_away(seed, 3), cycle, judge_drawn);
}

/// Breaks the holder's grant after 6 s.
async fn break_holder(context: &ClientContext<Noted>) -> Next {
    until(context, 6.0).await;
    let line = Contention::new(context.session.clone(), &Path::from_static(PARENT));
    let holder = line.contenders().await.unwrap().remove(0);
    assert_eq!(line.break_grant(&holder, "stuck").await, Ok(Revoked::Broken));
    Next::Done
}

/// Regression: the owner got the same dead grant again while any task kept it.
#[test]
fn reentrant_lock_gives_a_new_grant_after_a_break() {
    let body = async |context: ClientContext<Noted>| {
        if context.number == 1 {
            return break_holder(&context).await;
        }
        until(&context, 4.0).await;
        let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT)).reentrant();
        let broken = lock.acquire().await.unwrap();
        if context.below(2) == 0 {
            broken.ended().await;
        } else {
            until(&context, 8.0).await;
            let wrote = broken.fenced().create(&REGISTER, None).await;
            assert_eq!(wrote.unwrap_err().kind(), ErrorKind::GrantLost(GrantEnd::Broken));
        }
        assert_eq!(broken.holding(), Holding::Lost);
        let again = lock.acquire().await.unwrap();
        assert!(again.token() > broken.token(), "{} after {}", again.token(), broken.token());
        drop(broken);
        assert_eq!(again.holding(), Holding::Held);
        again.fenced().create(&REGISTER, None).await.unwrap();
        Next::Done
    };
    run_seeds_of(10, |seed| at_ease(seed, 2), body, judge);
}

/// Regression: the owner got a broken grant again, because it had not learned of the break yet.
#[test]
fn reentrant_lock_gives_a_new_grant_after_an_unnoticed_break() {
    let body = async |context: ClientContext<Noted>| {
        if context.number == 1 {
            return break_holder(&context).await;
        }
        until(&context, 4.0).await;
        let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT)).reentrant();
        let broken = lock.acquire().await.unwrap();
        until(&context, 8.0).await;
        let patience = Duration::from_secs(1);
        let again = match context.below(3) {
            0 => lock.try_acquire().await.unwrap(),
            1 => lock.acquire_within(patience).await.unwrap(),
            _ => Some(lock.acquire().await.unwrap()),
        };
        let again = again.unwrap();
        assert!(again.token() > broken.token(), "{} after {}", again.token(), broken.token());
        assert_eq!((broken.holding(), again.holding()), (Holding::Lost, Holding::Held));
        Next::Done
    };
    run_seeds_of(10, |seed| at_ease(seed, 2), body, judge);
}

/// Regression: the owner got the grant again at once, even while it was in doubt.
#[test]
fn doubtful_reentrant_grant_is_given_again_only_once_confirmed() {
    let body = async |context: ClientContext<Noted>| {
        until(&context, 4.0).await;
        let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT)).reentrant();
        let outer = lock.acquire().await.unwrap();
        while context.session.state() != SessionState::Suspended {
            context.sleep(Duration::from_millis(50)).await;
        }
        let asked = context.now();
        assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Disconnected);
        assert_eq!(context.now(), asked, "it waited");
        assert!(lock.acquire_within(Duration::from_millis(10)).await.unwrap().is_none());
        let inner = lock.acquire().await.unwrap();
        assert!(Arc::ptr_eq(&outer, &inner));
        assert_eq!(inner.holding(), Holding::Held);
        Next::Done
    };
    run_seeds_of(10, crate::disconnected::scenario, body, judge);
}

/// The client that breaks grants. The others acquire them, and again while they hold them.
const BREAKS: usize = 2;

pub(crate) async fn broken(context: ClientContext<Noted>) -> Next {
    if context.number == BREAKS {
        return break_some(&context, &[PARENT]).await;
    }
    let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT)).reentrant();
    let mut cycles = 0;
    while cycles < 3 || context.goes_on() {
        cycles += 1;
        context.sleep(Duration::from_millis(context.below(300))).await;
        let outer = unless_broken(lock.acquire().await.map(Some));
        if let Ok(Some(outer)) = outer {
            context.record(Noted::Granted(outer.token().0, Mode::Exclusive));
            context.record(Noted::Placed(outer.token().0, outer.path().to_string()));
            context.sleep(Duration::from_millis(context.below(1500))).await;
            let asked_us = context.true_us(context.now());
            if let Ok(Some(inner)) = unless_broken(lock.acquire().await.map(Some)) {
                context.record(Noted::Regained(inner.token().0, asked_us));
                if !Arc::ptr_eq(&outer, &inner) {
                    context.record(Noted::Granted(inner.token().0, Mode::Exclusive));
                    context.record(Noted::Placed(inner.token().0, inner.path().to_string()));
                }
                context.record(Noted::Released(inner.token().0));
            }
            context.record(Noted::Released(outer.token().0));
        }
        if let Some(next) = is_over(&context) {
            return next;
        }
    }
    note_leaks(&context, PARENT).await;
    Next::Done
}

/// Checks that a grant that its owner got again had not ended before the owner asked.
pub(crate) fn judge_broken(ran: &Ran<Noted>) -> Result<(), String> {
    judge_drawn(ran)?;
    let changes = ran.changed()?;
    for fact in &ran.facts {
        let Noted::Regained(token, asked_us) = fact.what else { continue };
        let made = changes.iter().find(|change| change.zxid == token);
        let ended = made.and_then(|made| {
            changes
                .iter()
                .find(|change| change.zxid > token && change.path == made.path && change.kind == EventKind::NodeDeleted)
        });
        if let Some(ended) = ended.filter(|ended| ended.at_us < asked_us) {
            return Err(format!(
                "client {} asked at {asked_us} us and got {token}, which ended at {} us",
                fact.client, ended.at_us
            ));
        }
    }
    Ok(())
}

#[test]
fn regained_reentrant_grant_was_valid_at_the_request() {
    drawn_of(30, |seed| some_stay_away(seed, BREAKS + 1), broken, judge_broken);
}
