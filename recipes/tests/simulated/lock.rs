//! Tests of the lock.

use crate::apart::both;
use crate::drawn::{drawn_of, some_stay_away};
use crate::exclusion::{
    Noted, again_and_again, at_ease, each_woke, hold, judge, judge_drawn, unless_broken, until, within,
};
use std::time::Duration;
use zoolet_model::{Create, CreateKind, CreateMode, OpResult, Path, Reply, Request, RequestedAcl, Text, WriteOp};
use zoolet_recipes::{Coordinator, ErrorKind, Lock, Mode, Naming};
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PARENT: &str = "/locks/door";

fn lock(context: &ClientContext<Noted>, naming: Naming) -> Lock<zoolet_session::Session> {
    Lock::new(context.session.clone(), &Path::from_static(PARENT)).naming(naming)
}

/// Acquires the lock repeatedly, in every way, and gives some attempts up.
pub(crate) async fn cycle(context: ClientContext<Noted>) -> Next {
    // Mixed on one path: zoolet counts places of all three kinds.
    let naming = [Naming::Documented, Naming::Curator, Naming::Kazoo][context.number % 3];
    let lock = lock(&context, naming);
    again_and_again(&context, 6, &[PARENT], async || {
        let patience = Duration::from_millis(context.below(1500));
        let grant = match context.below(4) {
            0 => lock.try_acquire().await,
            1 => lock.acquire_within(patience).await,
            // Two attempts of one lock at once. The second one is dropped at any point.
            2 => {
                let soon = Duration::from_micros(context.below(60_000));
                let (first, second) = both(lock.acquire_within(patience), within(&context, soon, lock.acquire())).await;
                drop(second);
                first
            }
            _ => lock.acquire().await.map(Some),
        };
        let Some(grant) = grant? else { return Ok(false) };
        hold(&context, grant, Mode::Exclusive).await;
        Ok(true)
    })
    .await
}

#[test]
fn lock_has_one_holder_at_a_time_and_leaves_no_znode() {
    drawn_of(50, |seed| some_stay_away(seed, 4), cycle, judge_drawn);
}

/// Acquires the lock once, at the same time as all other clients.
pub(crate) async fn once(context: ClientContext<Noted>) -> Next {
    let lock = lock(&context, Naming::default());
    let grant = lock.acquire().await.unwrap();
    context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
    context.sleep(Duration::from_millis(50)).await;
    grant.release().await.unwrap();
    Next::Done
}

pub(crate) const CLIENTS: usize = 12;

pub(crate) fn wakes_one(ran: &Ran<Noted>) -> Result<(), String> {
    // One event, for the predecessor. One list at the beginning and one after the event; no client
    // lists again without an event.
    each_woke(ran, CLIENTS, 1, 2)?;
    let mut order: Vec<i64> = Vec::new();
    for fact in &ran.facts {
        let Noted::Granted(token, _) = fact.what else { continue };
        order.push(token);
    }
    if order.len() == CLIENTS && order.is_sorted() { Ok(()) } else { Err(format!("granted in the order {order:?}")) }
}

#[test]
fn lock_release_wakes_one_waiter() {
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CLIENTS), once, wakes_one);
}

/// Number of strangers in the line that [`begin_anew`] creates.
const STRANGERS: usize = 4;

/// Replaces the line by a new one with strangers in it, so that the server's numbers begin again.
///
/// It is one transaction, so no participant sees a state in between. Returns the strangers' paths,
/// or `None` if the transaction failed, as it does if a participant came or went meanwhile.
async fn begin_anew(context: &ClientContext<Noted>) -> Option<Vec<Text>> {
    let parent = Path::from_static(PARENT);
    let names = context.session.children(&parent).await.ok()?;
    let create = |path: Text, kind, sequential| {
        let mode = CreateMode::Valid { kind, sequential };
        WriteOp::Create(Create { path, data: None, acl: Some(RequestedAcl::open()), mode, with_stat: false })
    };
    let mut ops = Vec::new();
    for name in names.iter() {
        let path = zoolet_model::path::child(PARENT, name);
        context.record(Noted::Breaking(path.to_string()));
        ops.push(WriteOp::Delete { path, version: -1 });
    }
    ops.push(WriteOp::Delete { path: parent.text().clone(), version: -1 });
    ops.push(create(parent.text().clone(), CreateKind::Persistent, false));
    let stranger = zoolet_model::path::child(PARENT, "stranger-lock-");
    ops.extend((0..STRANGERS).map(|_| create(stranger.clone(), CreateKind::Ephemeral, true)));
    let Ok(Reply::Multi(results)) = Coordinator::submit(&context.session, Request::Multi(ops)).await else {
        return None;
    };
    let created = results.into_iter().filter_map(|result| match result {
        OpResult::Create(path) => Some(path),
        _ => None,
    });
    let strangers: Vec<Text> = created.skip(1).collect();
    (strangers.len() == STRANGERS).then_some(strangers)
}

/// Regression: the participant mistook a stranger's place with the same number for its own, and was
/// granted the lock at the stranger's turn.
#[test]
fn foreign_place_with_the_own_number_is_not_taken_as_own() {
    let body = async |context: ClientContext<Noted>| {
        match context.number {
            0 => {
                until(&context, 4.0).await;
                let grant = lock(&context, Naming::default()).acquire().await.unwrap();
                grant.ended().await;
            }
            1 => {
                until(&context, 5.0).await;
                let waited = lock(&context, Naming::default()).acquire().await;
                assert_eq!(waited.unwrap_err().kind(), ErrorKind::Broken);
            }
            _ => {
                until(&context, 7.0).await;
                let strangers = begin_anew(&context).await.unwrap();
                until(&context, 9.0).await;
                context
                    .session
                    .delete(&Path::new(strangers[0].clone()).unwrap(), zoolet_session::Version::Any)
                    .await
                    .unwrap();
            }
        }
        Next::Done
    };
    run_seeds_of(10, |seed| at_ease(seed, 3), body, judge);
}

/// The client that replaces the line. The others stand in it.
const RAZES: usize = 3;

/// Acquires the lock repeatedly, while client [`RAZES`] replaces the line.
pub(crate) async fn razed(context: ClientContext<Noted>) -> Next {
    if context.number != RAZES {
        let lock = lock(&context, Naming::default());
        return again_and_again(&context, 4, &[PARENT], async || {
            let Some(grant) = unless_broken(lock.acquire().await.map(Some))? else { return Ok(false) };
            hold(&context, grant, Mode::Exclusive).await;
            Ok(true)
        })
        .await;
    }
    while context.goes_on() {
        context.sleep(Duration::from_millis(context.below(1000))).await;
        let strangers = begin_anew(&context).await.unwrap_or_default();
        for stranger in strangers {
            context.sleep(Duration::from_millis(context.below(200))).await;
            let _ = context.session.delete(&Path::new(stranger).unwrap(), zoolet_session::Version::Any).await;
        }
        if context.session.state().is_over() {
            return Next::AnotherSession;
        }
    }
    Next::Done
}

/// Checks that each grant is based on a list with the participant's own place.
///
/// That is the last list that the participant read after it took its place and before the grant. A
/// grant without such a list is exempt.
pub(crate) fn judge_razed(ran: &Ran<Noted>) -> Result<(), String> {
    judge(ran)?;
    for (at, fact) in ran.facts.iter().enumerate() {
        let Noted::Granted(token, _) = fact.what else { continue };
        let placed = ran.facts[at..].iter().find_map(|fact| match &fact.what {
            Noted::Placed(of, path) if *of == token => Some(path),
            _ => None,
        });
        let Some(name) = placed.and_then(|path| path.rsplit('/').next()) else { continue };
        let lists = ran.asked_by(fact.client).filter_map(|asked| {
            let answer = asked.answer.as_ref().filter(|answer| answer.at.us <= fact.at_us && answer.zxid >= token)?;
            match (&asked.request, &answer.result) {
                (Request::GetChildren { .. }, Ok(Reply::Names(names))) => Some((answer.at.us, names)),
                _ => None,
            }
        });
        if let Some((_, names)) = lists.max_by_key(|(at_us, _)| *at_us)
            && !names.iter().any(|there| there == name)
        {
            return Err(format!("client {} is granted {token} by a list without {name}", fact.client));
        }
    }
    Ok(())
}

#[test]
fn lock_is_granted_only_through_a_place_in_the_current_line() {
    drawn_of(30, |seed| some_stay_away(seed, RAZES + 1), razed, judge_razed);
}
