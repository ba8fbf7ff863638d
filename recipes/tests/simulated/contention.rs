//! Asking holders, and breaking what they have.

use crate::drawn::{drawn_of, some_stay_away};
use crate::exclusion::{
    Noted, REGISTER, act, again_and_again, at_ease, give_up, is_over, judge, judge_drawn, note_leaks, unless_broken,
    until, within, write,
};
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Contender, Contention, Error, Grant, Holding, Lock, Mode, ReadWriteLock, Revoked};
use zoolet_session::Session;
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat, run_seeds_of};

const PARENT: &str = "/locks/valve";
/// This client looks from outside; the others hold and wait.
const OPERATOR: usize = 3;

fn lock(seat: &Seat<Noted>) -> Lock<Session> {
    Lock::new(seat.session.clone(), &Path::from_static(PARENT))
}

fn line(seat: &Seat<Noted>) -> Contention<Session> {
    Contention::new(seat.session.clone(), &Path::from_static(PARENT))
}

/// Holds it until it is asked for, or for a while and whatever anybody says.
async fn hold(seat: &Seat<Noted>, grant: Grant<Session>) {
    let token = grant.token().0;
    act(seat, &grant, Mode::Exclusive).await;
    let patience = Duration::from_millis(seat.below(3000));
    if seat.below(2) == 0 {
        let _ = within(seat, patience, grant.asked_to_release()).await;
    } else {
        // It writes on after it was broken, as long as it does not know.
        for _ in 0..8 {
            write(seat, token, &grant.fenced()).await;
            seat.sleep(patience / 8).await;
        }
    }
    give_up(seat, grant).await;
}

async fn work(seat: Seat<Noted>) -> Next {
    let lock = lock(&seat);
    again_and_again(&seat, 6, &[PARENT], async || {
        // In the line somebody may be broken as well.
        let Some(grant) = unless_broken(lock.acquire().await.map(Some))? else { return Ok(false) };
        hold(&seat, grant).await;
        Ok(true)
    })
    .await
}

/// One holds, which is the first, and numbers only grow.
fn note_disorder(seat: &Seat<Noted>, contenders: &[Contender]) {
    let holders = contenders.iter().filter(|contender| contender.holds).count();
    let number = |contender: &Contender| contender.path[contender.path.len() - 10..].to_owned();
    let is_in_order = contenders.windows(2).all(|pair| number(&pair[0]) < number(&pair[1]));
    if !is_in_order || holders != contenders.len().min(1) || contenders.first().is_some_and(|first| !first.holds) {
        seat.record(Noted::Wrong(format!("{contenders:?}")));
    }
}

async fn operate(seat: Seat<Noted>) -> Next {
    let line = line(&seat);
    let mut round = 0;
    while round < 20 || seat.goes_on() {
        round += 1;
        seat.sleep(Duration::from_millis(seat.below(1000))).await;
        if let Some(next) = is_over(&seat) {
            return next;
        }
        let Ok(contenders) = line.contenders().await else { continue };
        note_disorder(&seat, &contenders);
        if contenders.is_empty() {
            continue;
        }
        let chosen = &contenders[if seat.below(2) == 0 { 0 } else { seat.below(contenders.len() as u64) as usize }];
        let why = format!("round {round}");
        let outcome = match seat.below(4) {
            0 => {
                seat.record(Noted::Breaking(chosen.path.to_string()));
                line.break_grant(chosen, &why).await
            }
            1 | 2 => {
                seat.record(Noted::Breaking(chosen.path.to_string()));
                line.revoke(chosen, Duration::from_millis(seat.below(1500)), &why).await
            }
            _ => line.ask_to_release(chosen).await.map(|()| Revoked::Released),
        };
        if outcome == Ok(Revoked::Broken) {
            note_missing_audit(&seat, chosen, &why).await;
        }
    }
    Next::Done
}

/// There is one operator, and nobody else writes there: its line is the last.
async fn note_missing_audit(seat: &Seat<Noted>, broken: &Contender, why: &str) {
    let name = broken.path.rsplit('/').next().unwrap();
    let line = format!("session {:#x} of {name}: {why}\n", broken.session.0);
    if let Ok((audit, _)) = seat.session.get(&Path::from_static(PARENT)).await {
        let audit = audit.map(|audit| String::from_utf8_lossy(&audit).into_owned()).unwrap_or_default();
        if !audit.ends_with(&line) {
            seat.record(Noted::Wrong(format!("the audit of {line:?} is {audit:?}")));
        }
    }
}

pub(crate) async fn cycle(seat: Seat<Noted>) -> Next {
    if seat.number == OPERATOR { operate(seat).await } else { work(seat).await }
}

#[test]
fn what_was_broken_writes_nothing_more_and_is_written_down() {
    drawn_of(40, |seed| some_stay_away(seed, OPERATOR + 1), cycle, judge_drawn);
}

/// The longest timeout of a session in the tests of safe revocation, milliseconds.
const TIMEOUT_MAX_MS: u32 = 6000;

/// Tells its hardware until when it may run, as long as the grant is held. In doubt it gives the grant up, or keeps it and tells nothing more.
async fn drive(seat: &Seat<Noted>, grant: Grant<Session>) {
    let token = grant.token().0;
    seat.record(Noted::Granted(token, Mode::Exclusive));
    seat.record(Noted::Placed(token, grant.path().to_string()));
    let is_stubborn = seat.below(2) == 0;
    let telling = async {
        for _ in 0..20 + seat.below(40) {
            seat.record(Noted::Safe(token, seat.true_us(grant.safe_until())));
            seat.sleep(Duration::from_millis(20 + seat.below(200))).await;
        }
    };
    if grant.run(telling).await.is_err() && is_stubborn {
        let _ = within(seat, Duration::from_secs(10), async {
            let mut holdings = grant.holdings();
            while holdings.next().await.is_some_and(|holding| holding != Holding::Lost) {
                seat.record(Noted::Safe(token, seat.true_us(grant.safe_until())));
            }
        })
        .await;
    }
    // Its hardware may run on until the instant that it was told of last.
    let left = grant.safe_until().remaining(seat.now());
    if grant.holding() != Holding::Lost {
        seat.sleep(left).await;
    }
    give_up(seat, grant).await;
}

/// Client 3 revokes grants safely; the others drive hardware by the instants that they are told.
pub(crate) async fn safely(seat: Seat<Noted>) -> Next {
    let lock = lock(&seat);
    if seat.number != OPERATOR {
        return again_and_again(&seat, 2, &[PARENT], async || {
            let Some(grant) = unless_broken(lock.acquire().await.map(Some))? else { return Ok(false) };
            drive(&seat, grant).await;
            Ok(true)
        })
        .await;
    }
    let line = line(&seat);
    while seat.goes_on() {
        seat.sleep(Duration::from_millis(seat.below(1500))).await;
        if let Some(next) = is_over(&seat) {
            return next;
        }
        let Ok(contenders) = line.contenders().await else { continue };
        let Some(holder) = contenders.first() else { continue };
        seat.record(Noted::Withdrawing(holder.path.to_string()));
        let (patience, timeout_max) = (Duration::from_millis(seat.below(800)), TIMEOUT_MAX_MS.into());
        let _ = line.revoke_safely(holder, patience, Duration::from_millis(timeout_max), "drawn").await;
    }
    Next::Done
}

pub(crate) fn of_short_sessions(seed: u64) -> Scenario {
    Scenario { timeouts_ms: (2000, TIMEOUT_MAX_MS), ..some_stay_away(seed, OPERATOR + 1) }
}

#[test]
fn a_safe_revocation_waits_until_no_instant_that_the_holder_was_told_of_lies_ahead() {
    drawn_of(40, of_short_sessions, safely, judge_drawn);
}

/// The one who is first in the line, when there are so many.
async fn first_of(seat: &Seat<Noted>, count: usize) -> Contender {
    let contenders = line(seat).contenders().await.unwrap();
    note_disorder(seat, &contenders);
    assert_eq!(contenders.len(), count, "{contenders:?}");
    contenders[0].clone()
}

#[test]
fn a_holder_is_asked_first_and_broken_when_it_does_not_listen() {
    let body = async |seat: Seat<Noted>| {
        let patience = Duration::from_secs(2);
        match seat.number {
            0 => {
                // Not a container, which may go before its audit is read.
                for path in ["/locks", PARENT] {
                    seat.session.create(&Path::from_static(path), None).await.unwrap();
                }
                until(&seat, 4.0).await;
                let grant = lock(&seat).described("polite").acquire().await.unwrap();
                assert_eq!(grant.asked_to_release().await, Ok(()));
                grant.release().await.unwrap();
            }
            1 => {
                until(&seat, 5.0).await;
                let grant = lock(&seat).described("stubborn").acquire().await.unwrap();
                let mut holdings = grant.holdings();
                assert_eq!(holdings.next().await, Some(Holding::Held));
                assert_eq!(holdings.next().await, Some(Holding::Lost));
                assert_eq!(holdings.next().await, None);
                grant.ended().await;
                assert_eq!(grant.fenced().create(&REGISTER, None).await, Err(Error::Lost));
                assert_eq!(grant.asked_to_release().await, Err(Error::Lost));
                assert_eq!(grant.run(std::future::pending::<()>()).await, Err(Error::Doubtful));
                assert_eq!(grant.release().await, Ok(()));
            }
            2 => {
                until(&seat, 6.0).await;
                assert_eq!(lock(&seat).acquire().await.err(), Some(Error::Broken));
            }
            _ => {
                until(&seat, 8.0).await;
                let polite = first_of(&seat, 3).await;
                assert_eq!(polite.content.as_deref(), Some(&b"polite"[..]));
                assert_eq!(line(&seat).revoke(&polite, patience, "night").await, Ok(Revoked::Released));
                let stubborn = first_of(&seat, 2).await;
                assert_eq!(stubborn.content.as_deref(), Some(&b"stubborn"[..]));
                let waiting = line(&seat).contenders().await.unwrap().remove(1);
                assert_eq!(line(&seat).break_grant(&waiting, "strayed").await, Ok(Revoked::Broken));
                assert_eq!(line(&seat).revoke(&stubborn, patience, "day").await, Ok(Revoked::Broken));
                assert_eq!(line(&seat).break_grant(&stubborn, "again").await, Ok(Revoked::Released));
                let (audit, _) = seat.session.get(&Path::from_static(PARENT)).await.unwrap();
                let audit = String::from_utf8(audit.unwrap().to_vec()).unwrap();
                let whys: Vec<_> = audit.lines().filter_map(|line| line.rsplit(": ").next()).collect();
                assert_eq!(whys, ["strayed", "day"]);
            }
        }
        note_leaks(&seat, PARENT).await;
        Next::Done
    };
    run_seeds_of(10, |seed| at_ease(seed, 4), body, judge);
}

/// A request to give up wrote over what says that a writer only reads, and a downgrade over a request: readers waited for a reader, and the holder
/// never heard that it was asked.
#[test]
fn a_writer_that_became_a_reader_stays_one_when_it_is_asked_and_is_asked_when_it_becomes_one() {
    let body = async |seat: Seat<Noted>| {
        let lock = ReadWriteLock::new(seat.session.clone(), &Path::from_static(PARENT));
        match seat.number {
            0 => {
                until(&seat, 4.0).await;
                let grant = lock.downgrade(lock.write().await.unwrap()).await.unwrap();
                seat.record(Noted::Granted(grant.token().0, Mode::Shared));
                assert_eq!(grant.asked_to_release().await, Ok(()));
                until(&seat, 9.0).await;
                grant.release().await.unwrap();
            }
            1 => {
                until(&seat, 6.0).await;
                let shares = line(&seat).contenders().await.unwrap().remove(0);
                assert_eq!((shares.mode, shares.holds), (Mode::Shared, true));
                line(&seat).ask_to_release(&shares).await.unwrap();
                let shares = line(&seat).contenders().await.unwrap().remove(0);
                assert_eq!((shares.mode, shares.holds), (Mode::Shared, true), "it was asked");
                until(&seat, 12.0).await;
                let writes = line(&seat).contenders().await.unwrap().remove(0);
                line(&seat).ask_to_release(&writes).await.unwrap();
            }
            2 => {
                until(&seat, 7.0).await;
                let grant = lock.read().await.unwrap();
                seat.record(Noted::Granted(grant.token().0, Mode::Shared));
                until(&seat, 9.5).await;
                grant.release().await.unwrap();
            }
            _ => {
                until(&seat, 11.0).await;
                let grant = lock.write().await.unwrap();
                until(&seat, 13.0).await;
                let grant = lock.downgrade(grant).await.unwrap();
                assert_eq!(within(&seat, Duration::from_secs(2), grant.asked_to_release()).await, Some(Ok(())));
            }
        }
        Next::Done
    };
    let judge = |ran: &Ran<Noted>| {
        let is_late = ran.facts.iter().any(|fact| fact.at_us > 9_000_000);
        if is_late { Err(format!("a reader waits for one that was asked: {:?}", ran.facts)) } else { judge(ran) }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 4), body, judge);
}
