//! Tests of revocation: asking holders, and breaking grants.

use crate::drawn::{drawn_of, some_stay_away};
use crate::exclusion::{
    Noted, REGISTER, act, again_and_again, at_ease, give_up, is_over, judge, judge_drawn, note_leaks, unless_broken,
    until, within, write,
};
use crate::intercepted::{Answer, Fault, Intercepted, Script};
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use zoolet_model::{ErrorCode, EventKind, Path, Request, RequestError as SessionError, Version};
use zoolet_recipes::{
    Contender, Contention, Coordinator, Error, ErrorKind, Grant, GrantEnd, Holding, Lock, Mode, ReadWriteLock, Revoked,
};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Fate, MS, Next, Ran, SECOND, Scenario, run_seeds_of};
use zoolet_sim::oracle::Changed;
use zoolet_zab::ServerId;

const PARENT: &str = "/locks/valve";
/// The client that plays the operator. The others hold and wait.
const OPERATOR: usize = 3;

fn lock(context: &ClientContext<Noted>) -> Lock<Session> {
    Lock::new(context.session.clone(), &Path::from_static(PARENT))
}

fn line(context: &ClientContext<Noted>) -> Contention<Session> {
    Contention::new(context.session.clone(), &Path::from_static(PARENT))
}

/// Holds a grant until a release is requested, or for a while whatever is requested.
async fn hold(context: &ClientContext<Noted>, grant: Grant<Session>) {
    let token = grant.token().0;
    act(context, &grant, Mode::Exclusive).await;
    let patience = Duration::from_millis(context.below(3000));
    if context.below(2) == 0 {
        let _ = within(context, patience, grant.asked_to_release()).await;
    } else {
        // After a break it writes on until it learns of the break.
        for _ in 0..8 {
            write(context, token, &grant.fenced()).await;
            context.sleep(patience / 8).await;
        }
    }
    give_up(context, grant).await;
}

async fn work(context: ClientContext<Noted>) -> Next {
    let lock = lock(&context);
    again_and_again(&context, 6, &[PARENT], async || {
        // The operator may also break the place of a waiter.
        let Some(grant) = unless_broken(lock.acquire().await.map(Some))? else { return Ok(false) };
        hold(&context, grant).await;
        Ok(true)
    })
    .await
}

/// Records an error unless only the first contender holds and the numbers increase.
fn note_disorder(context: &ClientContext<Noted>, contenders: &[Contender]) {
    let holders = contenders.iter().filter(|contender| contender.holds).count();
    let number = |contender: &Contender| contender.path.as_str()[contender.path.as_str().len() - 10..].to_owned();
    let is_in_order = contenders.windows(2).all(|pair| number(&pair[0]) < number(&pair[1]));
    if !is_in_order || holders != contenders.len().min(1) || contenders.first().is_some_and(|first| !first.holds) {
        context.record(Noted::Wrong(format!("{contenders:?}")));
    }
}

async fn operate(context: ClientContext<Noted>) -> Next {
    let line = line(&context);
    let mut round = 0;
    while round < 20 || context.goes_on() {
        round += 1;
        context.sleep(Duration::from_millis(context.below(1000))).await;
        if let Some(next) = is_over(&context) {
            return next;
        }
        let Ok(contenders) = line.contenders().await else { continue };
        note_disorder(&context, &contenders);
        if contenders.is_empty() {
            continue;
        }
        let chosen =
            &contenders[if context.below(2) == 0 { 0 } else { context.below(contenders.len() as u64) as usize }];
        let why = format!("round {round}");
        let outcome = match context.below(4) {
            0 => {
                context.record(Noted::Breaking(chosen.path.to_string()));
                line.break_grant(chosen, &why).await
            }
            1 | 2 => {
                context.record(Noted::Breaking(chosen.path.to_string()));
                line.revoke(chosen, Duration::from_millis(context.below(1500)), &why).await
            }
            _ => {
                let _ = line.ask_to_release(chosen).await;
                continue;
            }
        };
        match outcome {
            Ok(Revoked::Broken) => note_missing_audit(&context, chosen, &why).await,
            Ok(Revoked::Released) => {
                let session = Coordinator::session(&context.session);
                context.record(Noted::ToldReleased(chosen.path.to_string(), session));
            }
            Err(_) => {}
        }
    }
    Next::Done
}

/// Only this operator writes the audit, so its line has to be the last.
async fn note_missing_audit(context: &ClientContext<Noted>, broken: &Contender, why: &str) {
    let name = broken.path.as_str().rsplit('/').next().unwrap();
    let line = format!("session {:#x} of {name}: {why}\n", broken.session.0);
    if let Ok(parent) = context.session.get(&Path::from_static(PARENT)).await {
        let audit = String::from_utf8_lossy(parent.bytes());
        if !audit.ends_with(&line) {
            context.record(Noted::Wrong(format!("the audit of {line:?} is {audit:?}")));
        }
    }
}

pub(crate) async fn cycle(context: ClientContext<Noted>) -> Next {
    if context.number == OPERATOR { operate(context).await } else { work(context).await }
}

/// Checks [`judge_drawn`]'s rules, and that no call which reported a release has broken the place.
///
/// Only that call counts. A break of an earlier session may come late, and a participant's place may
/// have the same path again after its parent was reaped.
pub(crate) fn judge_operated(ran: &Ran<Noted>) -> Result<(), String> {
    judge_drawn(ran)?;
    let changes = ran.changed()?;
    for (at, fact) in ran.facts.iter().enumerate() {
        let Noted::ToldReleased(path, session) = &fact.what else { continue };
        let began = Noted::Breaking(path.clone());
        let began_us = ran.facts[..at].iter().rfind(|before| before.what == began).map_or(0, |began| began.at_us);
        let is_broken = |change: &&Changed| {
            change.path == *path
                && change.kind == EventKind::NodeDeleted
                && change.session == Some(*session)
                && (began_us..=fact.at_us).contains(&change.at_us)
        };
        if let Some(broken) = changes.iter().find(is_broken) {
            return Err(format!("the operator was told that {path} was given up, and broke it: {broken:?}"));
        }
    }
    Ok(())
}

/// Returns a drawn scenario in which many replies are lost.
pub(crate) fn of_lost_replies(seed: u64) -> Scenario {
    let mut scenario = Scenario::drawn(seed, OPERATOR + 1);
    scenario.fates = (0..80).map(|at| (2 * SECOND + at * 200 * MS, Fate::LostReply)).collect();
    scenario
}

#[test]
fn operator_is_not_told_that_a_grant_it_broke_was_released() {
    run_seeds_of(20, of_lost_replies, cycle, judge_operated);
}

#[test]
fn broken_grant_writes_no_more_and_is_audited() {
    drawn_of(40, |seed| some_stay_away(seed, OPERATOR + 1), cycle, judge_operated);
}

fn each<W: Future<Output = ()>>(body: impl Fn(ClientContext<Noted>) -> W + Copy + Sync + 'static) {
    let live = move |context: ClientContext<Noted>| async move {
        body(context).await;
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// Breaks a grant while these faults befall the transactions.
async fn break_with(context: &ClientContext<Noted>, faults: &[Fault]) -> Result<Revoked, Error> {
    let grant = lock(context).acquire().await.unwrap();
    let holder = first_of(context, 1).await;
    let script = Script::default();
    let line = Contention::new(Intercepted::scripted(&context.session, &script), &Path::from_static(PARENT));
    script.lock().unwrap().extend(faults);
    let result = line.break_grant(&holder, "stuck").await;
    assert_eq!(*script.lock().unwrap(), [], "{result:?}");
    let stands = context.session.exists(&holder.path).await.unwrap().is_some();
    assert_eq!(stands, faults[0] == Fault::RequestLost && result.is_err(), "{result:?}");
    grant.release().await.unwrap();
    result
}

/// Regression: the retry found the place gone, and the operator was told that the holder had
/// released it. A holder that is broken may go on, and one that has released its grant does not.
#[test]
fn grant_broken_by_an_attempt_with_a_lost_reply_is_broken() {
    each(async |context| {
        assert_eq!(break_with(&context, &[Fault::ReplyLost]).await, Ok(Revoked::Broken));
        assert_eq!(break_with(&context, &[Fault::RequestLost]).await, Ok(Revoked::Broken));
    });
}

/// Regression: the call failed as if the grant stood.
#[test]
fn grant_broken_before_the_repeat_is_refused_is_broken() {
    each(async |context| {
        assert_eq!(break_with(&context, &[Fault::ReplyLost, Fault::Refused]).await, Ok(Revoked::Broken));
        let refused = break_with(&context, &[Fault::RequestLost, Fault::Refused]).await.unwrap_err();
        assert_eq!(refused.code(), Some(ErrorCode::SystemError));
        let in_doubt = break_with(&context, &[Fault::ReplyLost, Fault::Refused, Fault::Refused]).await.unwrap_err();
        assert_eq!(in_doubt.kind(), ErrorKind::ConnectionLoss);
    });
}

/// The holder releases its grant after the first attempt was lost, and before the second.
#[test]
fn grant_released_between_two_attempts_to_break_it_is_released() {
    each(async |context| {
        let grant = lock(&context).acquire().await.unwrap();
        let holder = first_of(&context, 1).await;
        let left = Mutex::new(Some(grant));
        let session = Intercepted::new(&context.session, move |session, request| {
            match left.lock().unwrap().take_if(|_| matches!(request, Request::Multi(_))) {
                None => Answer::of(&session, request),
                Some(grant) => Answer::new(async move {
                    grant.release().await.unwrap();
                    Err(SessionError::ConnectionLoss)
                }),
            }
        });
        let line = Contention::new(session, &Path::from_static(PARENT));
        assert_eq!(line.break_grant(&holder, "stuck").await, Ok(Revoked::Released));
    });
}

/// Longest session timeout in the tests of safe revocation, in milliseconds.
const TIMEOUT_MAX_MS: u32 = 6000;

/// Plays a holder whose hardware may run until the grant's `safe_until`.
///
/// It records each instant that it reads while the grant is held. When the grant comes into doubt,
/// one half of the holders give it up. The others keep it and record the instants that they still
/// read.
async fn drive(context: &ClientContext<Noted>, grant: Grant<Session>) {
    let token = grant.token().0;
    context.record(Noted::Granted(token, Mode::Exclusive));
    context.record(Noted::Placed(token, grant.path().to_string()));
    let is_stubborn = context.below(2) == 0;
    let telling = async {
        for _ in 0..20 + context.below(40) {
            context.record(Noted::Safe(token, context.true_us(grant.safe_until().instant())));
            context.sleep(Duration::from_millis(20 + context.below(200))).await;
        }
    };
    if grant.run(telling).await.is_err() && is_stubborn {
        let _ = within(context, Duration::from_secs(10), async {
            let mut holdings = grant.holdings();
            while holdings.next().await.is_some_and(|holding| holding != Holding::Lost) {
                context.record(Noted::Safe(token, context.true_us(grant.safe_until().instant())));
            }
        })
        .await;
    }
    // The hardware may run on until the last instant that it was told.
    let left = grant.safe_until().remaining(context.now());
    if grant.holding() != Holding::Lost {
        context.sleep(left).await;
    }
    give_up(context, grant).await;
}

/// Client 3 revokes grants safely; the others drive hardware by `safe_until`.
pub(crate) async fn safely(context: ClientContext<Noted>) -> Next {
    let lock = lock(&context);
    if context.number != OPERATOR {
        return again_and_again(&context, 2, &[PARENT], async || {
            let Some(grant) = unless_broken(lock.acquire().await.map(Some))? else { return Ok(false) };
            drive(&context, grant).await;
            Ok(true)
        })
        .await;
    }
    let line = line(&context);
    while context.goes_on() {
        context.sleep(Duration::from_millis(context.below(1500))).await;
        if let Some(next) = is_over(&context) {
            return next;
        }
        let Ok(contenders) = line.contenders().await else { continue };
        let Some(holder) = contenders.first() else { continue };
        context.record(Noted::Withdrawing(holder.path.to_string()));
        let (patience, timeout_max) = (Duration::from_millis(context.below(800)), TIMEOUT_MAX_MS.into());
        let _ = line.revoke_safely(holder, patience, Duration::from_millis(timeout_max), "drawn").await;
    }
    Next::Done
}

pub(crate) fn of_short_sessions(seed: u64) -> Scenario {
    Scenario { timeouts_ms: (2000, TIMEOUT_MAX_MS), ..some_stay_away(seed, OPERATOR + 1) }
}

#[test]
fn safe_revocation_waits_out_the_safe_time_given_to_the_holder() {
    drawn_of(40, of_short_sessions, safely, judge_drawn);
}

/// Second of the run at which client 2 begins to wait for the lock.
const WAITS_S: f64 = 5.0;
/// Second at which the holder is cut off.
const CUT_S: f64 = 8.0;
/// Second at which the revocation begins.
const REVOKES_S: f64 = 8.5;
/// Another revocation begins when the holder is back, and has checked its grant.
const REVOKES_LATER_S: f64 = 13.0;
/// Second at which client 1 takes all watches or overwrites the withdrawal. The withdrawal has fired
/// the watches of the holder by then.
const FULL_S: f64 = 9.5;

/// Holds the lock, and records every 100 ms until when its hardware may run.
///
/// It writes as often. The answers show that its session lives, so no check of its znode is due.
async fn tell_often(context: &ClientContext<Noted>) {
    let grant = lock(context).acquire().await.unwrap();
    let token = grant.token().0;
    context.record(Noted::Granted(token, Mode::Exclusive));
    context.record(Noted::Placed(token, grant.path().to_string()));
    let mut holdings = grant.holdings();
    for _ in 0..200 {
        write(context, token, &grant.fenced()).await;
        let lost = async { while holdings.next().await.is_some_and(|holding| holding != Holding::Lost) {} };
        let is_lost = within(context, Duration::from_millis(100), lost).await.is_some();
        if !grant.safe_until().has_passed(context.now()) {
            context.record(Noted::Safe(token, context.true_us(grant.safe_until().instant())));
        }
        if is_lost {
            break;
        }
    }
    context.record(Noted::Released(token));
}

/// Takes every watch that the server has room for, and keeps them.
async fn take_all_watches(context: &ClientContext<Noted>) {
    let mut watches = Vec::new();
    while let Some(watch) = watch_something(context, watches.len()).await {
        watches.push(watch);
    }
    until(context, 18.0).await;
}

/// A safe revocation while the holder's watch cannot be registered again: client 1 takes all
/// remaining watches of the server.
pub(crate) async fn unwatched(context: ClientContext<Noted>) -> Next {
    revoked_while_cut_off(context, async |context| take_all_watches(context).await).await
}

/// A safe revocation while client 1 revokes the same grant as Curator does: it overwrites any data.
pub(crate) async fn overwritten(context: ClientContext<Noted>) -> Next {
    revoked_while_cut_off(context, async |context| {
        let holder = first_of(context, 2).await;
        context.session.set(&holder.path, "__REVOKE__", Version::Any).await.unwrap();
    })
    .await
}

/// A safe revocation of a holder that is cut off:
/// - Client 0 holds the lock and is cut off.
/// - Client 1 does something before client 0 is back.
/// - Client 2 is next in the line.
/// - Client 3 revokes the grant safely while client 0 is cut off.
async fn revoked_while_cut_off(
    context: ClientContext<Noted>,
    meanwhile: impl AsyncFnOnce(&ClientContext<Noted>),
) -> Next {
    match context.number {
        0 => tell_often(&context).await,
        1 => {
            until(&context, FULL_S).await;
            meanwhile(&context).await;
        }
        2 => {
            until(&context, WAITS_S).await;
            let grant = lock(&context).acquire().await.unwrap();
            context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
            context.record(Noted::Placed(grant.token().0, grant.path().to_string()));
            context.record(Noted::Released(grant.token().0));
            grant.release().await.unwrap();
        }
        _ => {
            until(&context, REVOKES_S).await;
            let holder = first_of(&context, 2).await;
            context.record(Noted::Withdrawing(holder.path.to_string()));
            let (patience, timeout_max) = (Duration::from_millis(200), Duration::from_millis(TIMEOUT_MAX_MS.into()));
            assert_eq!(line(&context).revoke_safely(&holder, patience, timeout_max, "full").await, Ok(Revoked::Broken));
        }
    }
    Next::Done
}

/// Watches a znode that never exists; `None` if the server has no room for the watch.
async fn watch_something(context: &ClientContext<Noted>, number: usize) -> Option<<Session as Coordinator>::Watch> {
    let request = Request::Exists { path: format!("/watched-{number}").into(), watch: true };
    let (ticket, watch) = Coordinator::submit_watching(&context.session, request);
    match ticket.await {
        Err(SessionError::Refused(ErrorCode::SystemError)) => None,
        // The znode does not exist.
        _ => Some(watch),
    }
}

/// A safe revocation of a holder that came back to a server without room for its watch:
/// - Client 0 holds the lock, is cut off, and returns, often to another server.
/// - Clients 1 to 3 take all watches of their servers meanwhile.
/// - Client 4 is next in the line.
/// - Client 5 revokes the grant safely once the holder has checked it.
pub(crate) async fn unwatched_elsewhere(context: ClientContext<Noted>) -> Next {
    match context.number {
        0 => tell_often(&context).await,
        number @ 1..=3 => {
            until(&context, FULL_S).await;
            let mut watches = Vec::new();
            while let Some(watch) = watch_something(&context, watches.len()).await {
                watches.push(watch);
            }
            // The revoker's server has room again for what the revoker waits for.
            until(&context, if number == 2 { REVOKES_LATER_S - 0.1 } else { 25.0 }).await;
        }
        4 => {
            until(&context, WAITS_S).await;
            let grant = lock(&context).acquire().await.unwrap();
            context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
            context.record(Noted::Placed(grant.token().0, grant.path().to_string()));
            context.record(Noted::Released(grant.token().0));
            grant.release().await.unwrap();
        }
        _ => {
            until(&context, REVOKES_LATER_S).await;
            let holder = first_of(&context, 2).await;
            context.record(Noted::Withdrawing(holder.path.to_string()));
            let (patience, timeout_max) = (Duration::from_millis(200), Duration::from_millis(TIMEOUT_MAX_MS.into()));
            assert_eq!(line(&context).revoke_safely(&holder, patience, timeout_max, "full").await, Ok(Revoked::Broken));
        }
    }
    Next::Done
}

/// A holder without a watch learns of a withdrawal only by its checks, and by the missed events that
/// come with each refusal to register its watch.
#[test]
fn withdrawn_holder_back_at_a_full_server_gets_no_later_safe_time() {
    let refused = AtomicU64::new(0);
    let judge = |ran: &Ran<Noted>| {
        refused.fetch_add(was_refused(ran).into(), Relaxed);
        judge_drawn(ran)
    };
    run_seeds_of(20, of_three_small_servers, unwatched_elsewhere, judge);
    assert!(refused.load(Relaxed) > 0, "the holder always came back to a server with room");
}

pub(crate) fn of_three_small_servers(seed: u64) -> Scenario {
    of_few_watches(seed, 3, &[1, 2, 3, 1, 2])
}

/// Servers with room for few watches.
///
/// All clients but the holder live in server processes, where they cannot be cut off.
fn of_few_watches(seed: u64, voters: u8, homes: &[u8]) -> Scenario {
    let mut scenario = at_ease(seed, 1 + homes.len());
    (scenario.plan.voters, scenario.plan.observers) = (voters, 0);
    scenario.plan.limits.watches_max = 10;
    scenario.homes = [None].into_iter().chain(homes.iter().copied().map(ServerId::new)).collect();
    scenario.timeouts_ms = (TIMEOUT_MAX_MS, TIMEOUT_MAX_MS);
    // Each of the 40 fates strikes a drawn client, so some strike the holder. The cut outlasts the
    // wait for an answer, which is two thirds of the timeout, and ends before the session does.
    scenario.fates = vec![((CUT_S * 1e6) as u64, Fate::Cut(SECOND * 42 / 10)); 40];
    scenario.plan.safety_us = 25 * SECOND;
    scenario
}

pub(crate) fn of_one_small_server(seed: u64) -> Scenario {
    of_few_watches(seed, 1, &[1, 1, 1])
}

/// Whether the holder connected to a server that had no room for its watch.
fn was_refused(ran: &Ran<Noted>) -> bool {
    ran.asked_by(0).any(|asked| {
        matches!(asked.request, Request::SetWatches(_))
            && asked.answer.as_ref().is_some_and(|answer| answer.result == Err(ErrorCode::SystemError))
    })
}

pub(crate) fn judge_unwatched(ran: &Ran<Noted>) -> Result<(), String> {
    if was_refused(ran) { judge_drawn(ran) } else { Err("the watch of the holder was never refused".to_owned()) }
}

/// The server refuses to register the watch again. Only the missed events that come with each refusal,
/// and its own checks, tell the holder of the withdrawal.
#[test]
fn withdrawn_holder_without_a_watch_gets_no_later_safe_time() {
    run_seeds_of(10, of_one_small_server, unwatched, judge_unwatched);
}

/// Regression: a holder that was cut off while its grant was withdrawn came back, read Curator's
/// word, and reported later instants. The grant was broken all the same.
#[test]
fn overwritten_withdrawal_is_repeated_before_the_grant_is_broken() {
    run_seeds_of(10, of_one_small_server, overwritten, judge_drawn);
}

/// While the grant is not withdrawn, checks of its znode replace the watch.
#[test]
fn holder_with_a_refused_watch_extends_its_safe_time_by_checks() {
    let body = async |context: ClientContext<Noted>| {
        if context.number == 0 {
            tell_often(&context).await;
        } else {
            until(&context, WAITS_S).await;
            take_all_watches(&context).await;
        }
        Next::Done
    };
    let refused = AtomicU64::new(0);
    let judge = |ran: &Ran<Noted>| {
        refused.fetch_add(was_refused(ran).into(), Relaxed);
        let while_full = ran.facts.iter().filter(|fact| (13 * SECOND..17 * SECOND).contains(&fact.at_us));
        let left_us = while_full.filter_map(|fact| match fact.what {
            Noted::Safe(_, until_us) => Some(until_us.saturating_sub(fact.at_us)),
            _ => None,
        });
        match left_us.min() {
            Some(least_us) if least_us > SECOND => judge_drawn(ran),
            least_us => Err(format!("nobody withdrew the grant, and its time ran out: {least_us:?} us")),
        }
    };
    // The server that the holder was connected to before the cut still has room for its watch.
    run_seeds_of(20, |seed| of_few_watches(seed, 3, &[1, 2, 3]), body, judge);
    assert!(refused.load(Relaxed) > 0, "the holder always came back to a server with room");
}

/// A server without room for a watch refuses the read that comes with it. So the holder reads its
/// znode without a watch, to know the version that its checks need.
#[test]
fn holder_never_given_a_watch_extends_its_safe_time_by_checks() {
    let body = async |context: ClientContext<Noted>| {
        match context.number {
            0 => {
                until(&context, 3.0).await;
                tell_often(&context).await;
            }
            1 => {
                until(&context, 1.0).await;
                take_all_watches(&context).await;
            }
            _ => {}
        }
        Next::Done
    };
    let judge = |ran: &Ran<Noted>| {
        let while_full = ran.facts.iter().filter(|fact| (5 * SECOND..17 * SECOND).contains(&fact.at_us));
        let left_us: Vec<_> = while_full
            .filter_map(|fact| match fact.what {
                Noted::Safe(_, until_us) => Some(until_us.saturating_sub(fact.at_us)),
                _ => None,
            })
            .collect();
        match left_us.iter().min() {
            Some(&least_us) if least_us > SECOND && left_us.len() > 100 => judge_drawn(ran),
            least_us => Err(format!("told {} times, with {least_us:?} us left", left_us.len())),
        }
    };
    let scenario = |seed| Scenario { fates: Vec::new(), ..of_one_small_server(seed) };
    run_seeds_of(10, scenario, body, judge);
}

/// A watch and the session's pings keep the grant out of doubt.
#[test]
fn undisturbed_holder_reads_its_znode_once_and_makes_no_checks() {
    let body = async |context: ClientContext<Noted>| {
        let grant = lock(&context).acquire().await.unwrap();
        let before = context.now();
        assert_eq!(within(&context, Duration::from_secs(60), grant.doubted()).await, None);
        assert!(grant.safe_until().remaining(before) > Duration::from_secs(50));
        Next::Done
    };
    let judge = |ran: &Ran<Noted>| {
        let looks = ran.requests_of(0, |request| matches!(request, Request::GetData { .. }));
        let checks = ran.requests_of(0, |request| matches!(request, Request::Multi(_)));
        if (looks, checks) == (1, 0) { Ok(()) } else { Err(format!("{looks} looks and {checks} checks")) }
    };
    run_seeds_of(10, |seed| at_ease(seed, 1), body, judge);
}

/// Returns the first contender, and asserts that there are `count` of them.
async fn first_of(context: &ClientContext<Noted>, count: usize) -> Contender {
    let contenders = line(context).contenders().await.unwrap();
    note_disorder(context, &contenders);
    assert_eq!(contenders.len(), count, "{contenders:?}");
    contenders[0].clone()
}

#[test]
fn revocation_asks_the_holder_first_and_breaks_a_silent_holder() {
    let body = async |context: ClientContext<Noted>| {
        let patience = Duration::from_secs(2);
        match context.number {
            0 => {
                // Persistent, because a container might be reaped before the audit is read.
                for path in ["/locks", PARENT] {
                    context.session.create(&Path::from_static(path), None).await.unwrap();
                }
                until(&context, 4.0).await;
                let grant = lock(&context).described("polite").acquire().await.unwrap();
                assert_eq!(grant.asked_to_release().await, Ok(()));
                grant.release().await.unwrap();
            }
            1 => {
                until(&context, 5.0).await;
                let grant = lock(&context).described("stubborn").acquire().await.unwrap();
                let mut holdings = grant.holdings();
                assert_eq!(holdings.next().await, Some(Holding::Held));
                assert_eq!(holdings.next().await, Some(Holding::Lost));
                assert_eq!(holdings.next().await, None);
                grant.ended().await;
                let broken = ErrorKind::GrantLost(GrantEnd::Broken);
                assert_eq!(grant.fenced().create(&REGISTER, None).await.unwrap_err().kind(), broken);
                assert_eq!(grant.asked_to_release().await.unwrap_err().kind(), broken);
                let ran = grant.run(std::future::pending::<()>()).await;
                assert_eq!(ran.unwrap_err().kind(), broken);
                assert_eq!(grant.release().await, Ok(()));
            }
            2 => {
                until(&context, 6.0).await;
                assert_eq!(lock(&context).acquire().await.unwrap_err().kind(), ErrorKind::Broken);
            }
            _ => {
                until(&context, 8.0).await;
                let polite = first_of(&context, 3).await;
                assert_eq!(polite.content.as_deref(), Some(&b"polite"[..]));
                assert_eq!(line(&context).revoke(&polite, patience, "night").await, Ok(Revoked::Released));
                let stubborn = first_of(&context, 2).await;
                assert_eq!(stubborn.content.as_deref(), Some(&b"stubborn"[..]));
                let waiting = line(&context).contenders().await.unwrap().remove(1);
                assert_eq!(line(&context).break_grant(&waiting, "strayed").await, Ok(Revoked::Broken));
                assert_eq!(line(&context).revoke(&stubborn, patience, "day").await, Ok(Revoked::Broken));
                assert_eq!(line(&context).break_grant(&stubborn, "again").await, Ok(Revoked::Released));
                let parent = context.session.get(&Path::from_static(PARENT)).await.unwrap();
                let audit = parent.text().unwrap();
                let whys: Vec<_> = audit.lines().filter_map(|line| line.rsplit(": ").next()).collect();
                assert_eq!(whys, ["strayed", "day"]);
            }
        }
        note_leaks(&context, PARENT).await;
        Next::Done
    };
    run_seeds_of(10, |seed| at_ease(seed, 4), body, judge);
}

/// Regression: a release request overwrote the mark of a downgraded writer, and a downgrade
/// overwrote a request. Readers waited for a reader, and the holder never learned that it was
/// asked.
#[test]
fn downgrade_and_release_request_do_not_overwrite_each_other() {
    let body = async |context: ClientContext<Noted>| {
        let lock = ReadWriteLock::new(context.session.clone(), &Path::from_static(PARENT));
        match context.number {
            0 => {
                until(&context, 4.0).await;
                let grant = lock.downgrade(lock.write().await.unwrap()).await.unwrap();
                context.record(Noted::Granted(grant.token().0, Mode::Shared));
                assert_eq!(grant.asked_to_release().await, Ok(()));
                until(&context, 9.0).await;
                grant.release().await.unwrap();
            }
            1 => {
                until(&context, 6.0).await;
                let shares = line(&context).contenders().await.unwrap().remove(0);
                assert_eq!((shares.mode, shares.holds), (Mode::Shared, true));
                line(&context).ask_to_release(&shares).await.unwrap();
                let shares = line(&context).contenders().await.unwrap().remove(0);
                assert_eq!((shares.mode, shares.holds), (Mode::Shared, true), "it was asked");
                until(&context, 12.0).await;
                let writes = line(&context).contenders().await.unwrap().remove(0);
                line(&context).ask_to_release(&writes).await.unwrap();
            }
            2 => {
                until(&context, 7.0).await;
                let grant = lock.read().await.unwrap();
                context.record(Noted::Granted(grant.token().0, Mode::Shared));
                until(&context, 9.5).await;
                grant.release().await.unwrap();
            }
            _ => {
                until(&context, 11.0).await;
                let grant = lock.write().await.unwrap();
                until(&context, 13.0).await;
                let grant = lock.downgrade(grant).await.unwrap();
                assert_eq!(within(&context, Duration::from_secs(2), grant.asked_to_release()).await, Some(Ok(())));
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
