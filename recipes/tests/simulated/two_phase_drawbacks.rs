//! Tests of the drawbacks that two-phase commit documents:
//! - [`sites_stay_blocked_while_their_coordinator_is_absent`];
//! - [`sites_watching_the_votes_decide_without_a_coordinator`];
//! - [`transaction_takes_the_time_of_its_slowest_site`];
//! - [`sites_switch_at_different_times_before_the_finish`];
//! - [`unacknowledged_commit_stays_open_until_its_site_is_dismissed`].

use crate::two_phase_commit::{Log, Noted, SITES, Story, join, judge, path, stories};
use std::rc::Rc;
use std::time::Duration;
use zoolet_recipes::{Notification, Outcome, Participant, Transaction, Vote};
use zoolet_sim::ensemble::{ClientContext, Next, Ran, SECOND, Scenario, run_seeds_of};

/// A coordinator begins a transaction and abandons it.
///
/// The site of client n votes after 3 * n seconds. Client 4 opens the transaction after 30 s.
async fn abandoned(context: ClientContext<Noted>, notification: Notification) -> Next {
    let (c, tx) = (context.session.clone(), path(0));
    match context.number {
        0 => drop(Transaction::begin(c, &tx, "ccc", &SITES).await.unwrap()),
        4 => {
            context.sleep(Duration::from_secs(30)).await;
            let open = Transaction::open(c, &tx).await.unwrap().unwrap();
            context.record(Noted::Heard(0, open.decide(None).await.unwrap()));
            open.finish().await.unwrap();
            context.record(Noted::Finished(0));
        }
        number => {
            context.sleep(Duration::from_secs(3 * number as u64)).await;
            let log = Log { context: context.clone(), number: 0, fails: Rc::default() };
            let mut site = Participant::join(c, &tx, SITES[number - 1], notification, log).await.unwrap().unwrap();
            site.vote(Vote::Commit).await.unwrap().unwrap();
            let outcome = site.outcome().await.unwrap();
            context.record(Noted::Heard(0, outcome));
            context.sleep(Duration::from_secs(number as u64)).await;
            site.acknowledge(outcome).await.unwrap().unwrap();
        }
    }
    Next::Done
}

/// Returns when the sites learned the outcome, and when they voted, in microseconds.
fn times(ran: &Ran<Noted>) -> Result<(Vec<u64>, Vec<u64>), String> {
    let of_site = |fact: &&zoolet_sim::ensemble::Fact<Noted>| (1..=3).contains(&fact.client);
    let heard = ran.facts.iter().filter(of_site).filter(|fact| matches!(fact.what, Noted::Heard(..)));
    let heard = heard.map(|fact| fact.at_us).collect();
    Ok((heard, stories(ran)?[&0].votes.values().map(|(_, at_us)| *at_us).collect()))
}

const OPENED_US: u64 = 29_000_000;

#[test]
fn sites_stay_blocked_while_their_coordinator_is_absent() {
    let blocked = |ran: &Ran<Noted>| {
        judge_one(ran)?;
        let (heard, voted) = times(ran)?;
        let is_blocked = voted.iter().all(|us| *us < OPENED_US) && heard.iter().all(|us| *us > OPENED_US);
        if is_blocked && heard.len() == 3 { Ok(()) } else { Err(format!("voted {voted:?}, heard {heard:?}")) }
    };
    let live = |context| abandoned(context, Notification::Coordinator);
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 5), live, blocked);
}

#[test]
fn sites_watching_the_votes_decide_without_a_coordinator() {
    let go_on = |ran: &Ran<Noted>| {
        judge_one(ran)?;
        let (heard, voted) = times(ran)?;
        let is_free = heard.iter().all(|us| *us < OPENED_US);
        if is_free && heard.len() == 3 { Ok(()) } else { Err(format!("voted {voted:?}, heard {heard:?}")) }
    };
    let live = |context| abandoned(context, Notification::Everyone);
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 5), live, go_on);
}

#[test]
fn transaction_takes_the_time_of_its_slowest_site() {
    let slow = |ran: &Ran<Noted>| {
        let (heard, voted) = times(ran)?;
        let last_us = voted.iter().max().copied().unwrap_or_default();
        if heard.iter().all(|us| *us >= last_us) { Ok(()) } else { Err(format!("voted {voted:?}, heard {heard:?}")) }
    };
    let live = |context| abandoned(context, Notification::Everyone);
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 5), live, slow);
}

#[test]
fn sites_switch_at_different_times_before_the_finish() {
    let half = |ran: &Ran<Noted>| {
        let story = &stories(ran)?[&0];
        let (first, last) = (story.done.values().min(), story.done.values().max());
        let finished = ran.facts.iter().find(|fact| fact.what == Noted::Finished(0)).map(|fact| fact.at_us);
        match (first, last, finished) {
            (Some(first), Some(last), Some(finished)) if first + 1_000_000 < *last && *last <= finished => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    let live = |context| abandoned(context, Notification::Coordinator);
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 5), live, half);
}

fn judge_one(ran: &Ran<Noted>) -> Result<(), String> {
    match stories(ran)?[&0].decision {
        Some((Outcome::Committed, _)) => judge(ran),
        other => Err(format!("{other:?}")),
    }
}

/// Regression: it was not recorded that a site had joined, so the coordinator waited for it
/// forever.
#[test]
fn site_leaving_without_a_vote_aborts_and_can_be_dismissed() {
    let live = |context: ClientContext<Noted>| async move {
        let (c, tx) = (context.session.clone(), path(0));
        if context.number == 0 {
            let transaction = Transaction::begin(c, &tx, "ccc", &SITES).await.unwrap();
            let outcome = transaction.decide(None).await.unwrap();
            context.record(Noted::Heard(0, outcome));
            transaction.dismiss("a").await.unwrap();
            transaction.forget().await.unwrap();
            context.record(Noted::Finished(0));
            return Next::Done;
        }
        context.sleep(Duration::from_secs(3)).await;
        let log = Log { context: context.clone(), number: 0, fails: Rc::default() };
        let site = SITES[context.number - 1];
        let mut site = Participant::join(c, &tx, site, Notification::default(), log).await.unwrap().unwrap();
        if context.number == 1 {
            context.sleep(Duration::from_secs(3)).await;
            return Next::Done;
        }
        site.vote(Vote::Commit).await.unwrap().unwrap();
        let outcome = site.outcome().await.unwrap();
        context.record(Noted::Heard(0, outcome));
        site.acknowledge(outcome).await.unwrap().unwrap();
        Next::Done
    };
    let aborted = |ran: &Ran<Noted>| match &stories(ran)?[&0] {
        Story { decision: Some((Outcome::Aborted, _)), finished_us: Some(_), .. } => Ok(()),
        story => Err(format!("{story:?}")),
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 4), live, aborted);
}

const OPENS_S: u64 = 30;

/// The coordinator dies after the begin, and site a after it has joined.
///
/// The others vote. Client 4 opens the transaction after [`OPENS_S`] seconds.
async fn forsaken(context: ClientContext<Noted>, notification: Notification) -> Next {
    match context.number {
        0 => {
            let begun = Transaction::begin(context.session.clone(), &path(0), "ccc", &SITES).await.unwrap();
            crate::apart::within(&context, Duration::from_millis(100), begun.decide(None)).await;
            context.session.clone().close().await.unwrap();
        }
        1 => {
            std::mem::forget(join(&context, notification).await);
            context.sleep(Duration::from_secs(1)).await;
            context.session.clone().close().await.unwrap();
        }
        4 => {
            context.sleep(Duration::from_secs(OPENS_S)).await;
            let open = Transaction::open(context.session.clone(), &path(0)).await.unwrap().unwrap();
            context.record(Noted::Heard(0, open.decide(None).await.unwrap()));
        }
        _ => {
            let mut site = join(&context, notification).await;
            site.vote(Vote::Commit).await.unwrap().unwrap();
            context.record(Noted::Heard(0, site.outcome().await.unwrap()));
        }
    }
    Next::Done
}

/// Regression: only the dead coordinator knew that site a had joined. All others waited forever for
/// the vote of site a.
#[test]
fn dead_joined_site_is_noticed_by_sites_or_a_later_coordinator() {
    for notification in [Notification::Coordinator, Notification::Everyone] {
        let aborted = |ran: &Ran<Noted>| {
            judge(ran)?;
            match (stories(ran)?[&0].decision, notification) {
                (Some((Outcome::Aborted, at_us)), Notification::Everyone) if at_us < (OPENS_S - 1) * SECOND => Ok(()),
                (Some((Outcome::Aborted, at_us)), Notification::Coordinator) if at_us > (OPENS_S - 1) * SECOND => {
                    Ok(())
                }
                (other, _) => Err(format!("{other:?}")),
            }
        };
        run_seeds_of(5, |seed| Scenario::peaceful(seed, 5), |context| forsaken(context, notification), aborted);
    }
}

/// Site a votes to abort after 1 s. The others would vote after 20 s.
async fn early(context: ClientContext<Noted>, notification: Notification) -> Next {
    if context.number == 0 {
        let begun = Transaction::begin(context.session.clone(), &path(0), "acc", &SITES).await.unwrap();
        let outcome = begun.decide(None).await.unwrap();
        context.record(Noted::Heard(0, outcome));
        return Next::Done;
    }
    let mut site = join(&context, notification).await;
    if context.number == 1 {
        context.sleep(Duration::from_secs(1)).await;
        site.vote(Vote::Abort).await.unwrap().unwrap();
    } else if crate::apart::within(&context, Duration::from_secs(20), site.outcome()).await.is_none() {
        site.vote(Vote::Commit).await.unwrap().unwrap();
    }
    context.record(Noted::Heard(0, site.outcome().await.unwrap()));
    Next::Done
}

#[test]
fn single_abort_vote_decides_before_the_remaining_votes() {
    let at_once = |ran: &Ran<Noted>| {
        judge(ran)?;
        let story = &stories(ran)?[&0];
        let asked_us = story.votes.get("a").map(|(_, at_us)| *at_us).unwrap_or_default();
        let (heard, _) = times(ran)?;
        // One second for servers and messages.
        let is_soon = |at_us: u64| (asked_us..asked_us + SECOND).contains(&at_us);
        match story.decision {
            Some((Outcome::Aborted, at_us)) if is_soon(at_us) && heard.into_iter().all(is_soon) => Ok(()),
            _ => Err(format!("{story:?}")),
        }
    };
    for notification in [Notification::Coordinator, Notification::Everyone] {
        run_seeds_of(5, |seed| Scenario::peaceful(seed, 4), |context| early(context, notification), at_once);
    }
}

#[test]
fn unacknowledged_commit_stays_open_until_its_site_is_dismissed() {
    let live = |context: ClientContext<Noted>| async move {
        if context.number > 0 {
            let mut site = join(&context, Notification::default()).await;
            site.vote(Vote::Commit).await.unwrap().unwrap();
            let outcome = site.outcome().await.unwrap();
            context.record(Noted::Heard(0, outcome));
            if context.number > 1 {
                site.acknowledge(outcome).await.unwrap().unwrap();
            }
            return Next::Done;
        }
        let c = context.session.clone();
        let begun = Transaction::begin(c.clone(), &path(0), "ccc", &SITES).await.unwrap();
        context.record(Noted::Heard(0, begun.decide(None).await.unwrap()));
        assert!(crate::apart::within(&context, Duration::from_secs(60), begun.finish()).await.is_none());
        let open = Transaction::open(c, &path(0)).await.unwrap().unwrap();
        assert_eq!(open.decide(None).await, Ok(Outcome::Committed));
        open.dismiss("a").await.unwrap();
        open.forget().await.unwrap();
        context.record(Noted::Finished(0));
        Next::Done
    };
    let half_done = |ran: &Ran<Noted>| {
        let story = &stories(ran)?[&0];
        let done_us = |site: &str| story.done.get(site).copied().unwrap_or_default();
        let dismissed_us = story.dismissed.get("a").copied().unwrap_or_default();
        let has_kept_open = done_us("b").max(done_us("c")) + 50 * SECOND < dismissed_us;
        if has_kept_open && story.finished_us.is_some() { Ok(()) } else { Err(format!("{story:?}")) }
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 4), live, half_done);
}
