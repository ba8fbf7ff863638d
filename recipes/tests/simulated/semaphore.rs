//! Tests of the semaphore.

use crate::drawn::{drawn, drawn_of, promises_time, some_stay_away};
use crate::exclusion::{
    Noted, again_and_again, at_ease, beside, break_some, each_woke, judge_fences, note_leaks, unless_broken, until,
    within,
};
use std::collections::BTreeMap;
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Contention, Coordinator, Error, ErrorKind, Holding, Mode, Revoked, Semaphore};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PATH: &str = "/downloads";
const LEASES: &str = "/downloads/leases";
const LOCKS: &str = "/downloads/locks";
const SIZE: u32 = 2;

fn semaphore(context: &ClientContext<Noted>) -> Semaphore<Session> {
    Semaphore::new(context.session.clone(), &Path::from_static(PATH))
}

async fn set_size(context: &ClientContext<Noted>, size: u32) -> Result<(), Error> {
    semaphore(context).set_size(size).await
}

pub(crate) async fn cycle(context: ClientContext<Noted>) -> Next {
    let semaphore = semaphore(&context);
    again_and_again(&context, 6, &[LEASES, LOCKS], async || {
        set_size(&context, SIZE).await?;
        let patience = Duration::from_millis(context.below(1500));
        let permit = match context.below(4) {
            0 => within(&context, patience, semaphore.acquire()).await.transpose(),
            1 => semaphore.try_acquire().await,
            2 => semaphore.acquire_within(patience).await,
            _ => semaphore.acquire().await.map(Some),
        };
        let Some(permit) = unless_broken(permit)? else { return Ok(false) };
        crate::exclusion::hold(&context, permit, Mode::Shared).await;
        Ok(true)
    })
    .await
}

/// Returns when each permit was granted and when its holder last acted, in microseconds.
fn permits(ran: &Ran<Noted>) -> Vec<(u64, u64)> {
    let mut permits: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    for fact in &ran.facts {
        match fact.what {
            Noted::Granted(token, _) => drop(permits.insert(token, (fact.at_us, fact.at_us))),
            Noted::Acted(token, _) => {
                permits.entry(token).and_modify(|(_, last_us)| *last_us = fact.at_us).or_default().1 = fact.at_us
            }
            _ => {}
        }
    }
    permits.into_values().collect()
}

/// Returns the largest number of permits that were out at one moment.
///
/// A permit counts from its grant to the last act of its holder.
fn most_out(ran: &Ran<Noted>) -> usize {
    let permits = permits(ran);
    let out_at = |at_us: u64| permits.iter().filter(|(from_us, to_us)| *from_us <= at_us && at_us <= *to_us).count();
    permits.iter().map(|(from_us, _)| out_at(*from_us)).max().unwrap_or(0)
}

fn never_more_than(ran: &Ran<Noted>, size: usize) -> Result<(), String> {
    for fact in &ran.facts {
        match &fact.what {
            Noted::Leaked(path) => return Err(format!("client {} left {path} behind", fact.client)),
            Noted::Wrong(what) => return Err(format!("client {} at {} us: {what}", fact.client, fact.at_us)),
            _ => {}
        }
    }
    // The permits that stand in the tree count, whatever their holders know.
    match beside(ran)?.into_iter().max() {
        Some(others) if others >= size => return Err(format!("{} permits of {size} stand", others + 1)),
        _ => {}
    }
    match most_out(ran) {
        out if out <= size || !promises_time(ran) => Ok(()),
        out => Err(format!("{out} permits of {size} are out")),
    }
}

pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    never_more_than(ran, SIZE as usize)?;
    judge_fences(ran)
}

#[test]
fn semaphore_never_exceeds_its_size_and_leaves_no_znode() {
    drawn_of(50, |seed| some_stay_away(seed, 5), cycle, judge);
}

/// Like `cycle`, while client 5 breaks and revokes permits and places of the others.
pub(crate) async fn broken(context: ClientContext<Noted>) -> Next {
    if context.number == 5 { break_some(&context, &[LEASES, LOCKS]).await } else { cycle(context).await }
}

/// Judges a run with broken permits.
///
/// The holder of a broken permit may go on; only its fenced writes are refused. So only permits in
/// the tree count.
pub(crate) fn judge_broken(ran: &Ran<Noted>) -> Result<(), String> {
    match beside(ran)?.into_iter().max() {
        Some(others) if others >= SIZE as usize => Err(format!("{} permits of {SIZE} stand", others + 1)),
        _ => judge_fences(ran),
    }
}

#[test]
fn broken_permit_writes_no_more() {
    drawn(20, 6, broken, judge_broken);
}

const CLIENTS: usize = 12;

/// Client 0 sets the size. Each client takes one permit, in the order of the client numbers.
async fn once(context: ClientContext<Noted>, size: u32) -> Next {
    if context.number == 0 {
        set_size(&context, size).await.unwrap();
    }
    // A second apart, because a disk may be slow.
    until(&context, 5.0 + context.number as f64).await;
    let permit = semaphore(&context).acquire().await.unwrap();
    context.record(Noted::Granted(permit.token().0, Mode::Shared));
    until(&context, 20.0 + context.number as f64).await;
    context.record(Noted::Acted(permit.token().0, Mode::Shared));
    permit.release().await.unwrap();
    Next::Done
}

/// Regression: a participant that had not waited left a watch on the permits behind, and woke for
/// the next permit although it wanted none.
#[test]
fn returned_permit_wakes_one_waiter() {
    let wakes = |ran: &Ran<Noted>| {
        let order = crate::exclusion::order(ran);
        if order.len() != CLIENTS || !order.is_sorted() || most_out(ran) != 3 {
            return Err(format!("granted in the order {order:?}, {} at once", most_out(ran)));
        }
        // The others wake at most twice: when the participant before them has a permit, and when a
        // permit returns.
        for client in 0..3 {
            if ran.events_of(client) > 0 {
                return Err(format!("client {client} did not wait, and woke {} times", ran.events_of(client)));
            }
        }
        each_woke(ran, CLIENTS, 2, 5)
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CLIENTS), |context| once(context, 3), wakes);
}

#[test]
fn growing_a_semaphore_admits_waiters_and_shrinking_blocks_them() {
    let body = async |context: ClientContext<Noted>| {
        let semaphore = semaphore(&context);
        match context.number {
            0 => {
                semaphore.set_size(1).await.unwrap();
                assert_eq!(semaphore.set_size(2).await.unwrap_err().kind(), ErrorKind::Disagreement);
                until(&context, 8.0).await;
                assert_eq!(semaphore.taken().await, Ok(2), "one is out, and one looks");
                semaphore.resize(3).await.unwrap();
                until(&context, 10.0).await;
                assert_eq!(semaphore.set_size(1).await.unwrap_err().kind(), ErrorKind::Disagreement);
                semaphore.resize(1).await.unwrap();
            }
            number => {
                until(&context, 4.0 + number as f64 / 4.0).await;
                let permit = semaphore.acquire().await.unwrap();
                context.record(Noted::Granted(permit.token().0, Mode::Shared));
                until(&context, 12.0 + number as f64 / 2.0).await;
                context.record(Noted::Acted(permit.token().0, Mode::Shared));
                permit.release().await.unwrap();
            }
        }
        Next::Done
    };
    let resized = |ran: &Ran<Noted>| {
        let granted: Vec<_> = permits(ran).into_iter().map(|(from_us, _)| (from_us + 100_000) / 1_000_000).collect();
        // The first at once, the next two when the size becomes 3. The others follow one by one
        // after all three permits have returned.
        match granted[..] {
            [4, 8, 8, 13, 14] => Ok(()),
            _ => Err(format!("granted at {granted:?}")),
        }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 6), body, resized);
}

/// Regression: an operator broke the place of the first waiter, so two participants waited for a
/// permit at once. Each counted the other, and neither ever got the returned permit.
#[test]
fn permit_waiter_does_not_count_later_waiters() {
    let body = async |context: ClientContext<Noted>| {
        let semaphore = semaphore(&context);
        match context.number {
            3 => {
                until(&context, 8.0).await;
                let line = Contention::new(context.session.clone(), &Path::from_static(LOCKS));
                let looks = line.contenders().await.unwrap().remove(0);
                assert_eq!(line.break_grant(&looks, "by mistake").await, Ok(Revoked::Broken));
            }
            number => {
                if number == 0 {
                    semaphore.set_size(1).await.unwrap();
                }
                until(&context, 4.0 + number as f64).await;
                let permit = semaphore.acquire().await.unwrap();
                context.record(Noted::Granted(permit.token().0, Mode::Shared));
                until(&context, 12.0 + number as f64).await;
                assert_eq!((permit.holding(), context.session.state().is_over()), (Holding::Held, false));
                assert!(Coordinator::now(&context.session) < context.session.safe_until());
                context.record(Noted::Acted(permit.token().0, Mode::Shared));
                permit.release().await.unwrap();
            }
        }
        Next::Done
    };
    run_seeds_of(10, |seed| at_ease(seed, 4), body, |ran| never_more_than(ran, 1));
}

#[test]
fn failed_try_acquire_of_a_permit_leaves_no_znode() {
    let body = async |context: ClientContext<Noted>| {
        set_size(&context, SIZE).await.unwrap();
        let semaphore = semaphore(&context);
        let first = semaphore.try_acquire().await.unwrap().unwrap();
        let second = semaphore.acquire_within(Duration::from_secs(1)).await.unwrap().unwrap();
        assert!(second.token() > first.token());
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        assert!(semaphore.acquire_within(Duration::from_secs(1)).await.unwrap().is_none());
        first.release().await.unwrap();
        let third = semaphore.try_acquire().await.unwrap().unwrap();
        drop((second, third));
        note_leaks(&context, LEASES).await;
        note_leaks(&context, LOCKS).await;
        Next::Done
    };
    let judge = |ran: &Ran<Noted>| match ran.facts.first() {
        None => Ok(()),
        Some(fact) => Err(format!("{:?}", fact.what)),
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 1), body, judge);
}
