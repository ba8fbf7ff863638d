//! The lock that its owner may take again.

use crate::drawn::{drawn_of, some_stay_away};
use crate::exclusion::{Noted, REGISTER, act, at_ease, is_over, judge, judge_drawn, note_leaks, until};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Contention, Error, Holding, Lock, Mode, ReentrantLock, Revoked};
use zoolet_session::Session;
use zoolet_sim::ensemble::{Next, Seat, run_seeds_of};

const PARENT: &str = "/locks/hatch";

/// Takes it, and again while it is held.
async fn work(seat: &Seat<Noted>, lock: &ReentrantLock<Session>) {
    let mut cycles = 0;
    while (cycles < 3 || seat.goes_on()) && !seat.session.state().is_over() {
        cycles += 1;
        seat.sleep(Duration::from_millis(seat.below(500))).await;
        let patience = Duration::from_millis(seat.below(1500));
        let outer = match seat.below(3) {
            0 => lock.try_acquire().await,
            1 => lock.acquire_within(patience).await,
            _ => lock.acquire().await.map(Some),
        };
        let outer = match outer {
            Ok(Some(outer)) => outer,
            Ok(None) | Err(Error::Session(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        act(seat, &outer, Mode::Exclusive).await;
        if outer.holding() != Holding::Lost {
            match lock.try_acquire().await {
                Ok(Some(inner)) if Arc::ptr_eq(&outer, &inner) => act(seat, &inner, Mode::Exclusive).await,
                other => seat.record(Noted::Wrong(format!("its owner does not get it again: {other:?}"))),
            }
        }
        if outer.holding() == Holding::Held {
            // The inner one was dropped, and the outer one still stands.
            seat.record(Noted::Acted(outer.token().0, Mode::Exclusive));
        }
        seat.record(Noted::Released(outer.token().0));
    }
}

/// Two tasks that share one owner.
async fn cycle(seat: Seat<Noted>) -> Next {
    let lock = Rc::new(Lock::new(seat.session.clone(), &Path::from_static(PARENT)).reentrant());
    let left = Rc::new(Cell::new(2));
    for _ in 0..2 {
        let (seat, lock, left) = (seat.clone(), Rc::clone(&lock), Rc::clone(&left));
        seat.clone().spawn(async move {
            work(&seat, &lock).await;
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        seat.sleep(Duration::from_millis(100)).await;
    }
    if let Some(next) = is_over(&seat) {
        return next;
    }
    note_leaks(&seat, PARENT).await;
    Next::Done
}

#[test]
fn its_owner_gets_it_again_and_nobody_else_does() {
    drawn_of(30, |seed| some_stay_away(seed, 3), cycle, judge_drawn);
}

/// Its owner was given the same dead grant for as long as somebody had it.
#[test]
fn what_was_broken_is_not_given_to_its_owner_again() {
    let body = async |seat: Seat<Noted>| {
        if seat.number == 1 {
            until(&seat, 6.0).await;
            let line = Contention::new(seat.session.clone(), &Path::from_static(PARENT));
            let holder = line.contenders().await.unwrap().remove(0);
            assert_eq!(line.break_grant(&holder, "stuck").await, Ok(Revoked::Broken));
            return Next::Done;
        }
        until(&seat, 4.0).await;
        let lock = Lock::new(seat.session.clone(), &Path::from_static(PARENT)).reentrant();
        let broken = lock.acquire().await.unwrap();
        if seat.below(2) == 0 {
            broken.ended().await;
        } else {
            until(&seat, 8.0).await;
            assert_eq!(broken.fenced().create(&REGISTER, None).await, Err(Error::Lost));
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
