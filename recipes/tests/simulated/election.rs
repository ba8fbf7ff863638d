//! Tests of the election.

use crate::apart::is_of_session;
use crate::drawn::{drawn, drawn_of, some_stay_away};
use crate::exclusion::{
    Noted, again_and_again, break_some, each_woke, judge, judge_drawn, note_holding, note_leaks, order, unless_broken,
    until, within, write,
};
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Contention, Election, ErrorKind, GrantEnd, Holding, Leadership, Mode, Naming, Revoked};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PARENT: &str = "/election";

fn election(context: &ClientContext<Noted>) -> Election<Session> {
    Election::new(context.session.clone(), &Path::from_static(PARENT)).described(format!("c{}", context.number))
}

/// Leads for a while, then resigns, hands over or drops the leadership.
async fn lead(context: &ClientContext<Noted>, election: &Election<Session>, leadership: Leadership<Session>) {
    let token = leadership.token().0;
    context.record(Noted::Granted(token, Mode::Exclusive));
    let is_bold = context.below(2) == 0;
    for _ in 0..1 + context.below(4) {
        let is_held = note_holding(context, token, Mode::Exclusive, leadership.holding());
        if is_held || is_bold {
            write(context, token, &leadership.fenced()).await;
        }
        note_wrong_office(context, election, &leadership).await;
        if context.below(3) == 0 {
            let _ = leadership.proclaim("ready").await;
        }
        context.sleep(Duration::from_millis(context.below(400))).await;
    }
    context.record(Noted::Released(token));
    match context.below(3) {
        0 => drop(leadership),
        1 => {
            let Ok(candidates) = election.candidates().await else { return };
            if let Some(successor) = candidates.get(context.below(candidates.len() as u64) as usize) {
                let _ = leadership.hand_over(successor).await;
            }
        }
        _ => {
            let _ = leadership.resign().await;
        }
    }
}

/// Records an error unless the leader sees itself, or a later leader, in office.
async fn note_wrong_office(
    context: &ClientContext<Noted>,
    election: &Election<Session>,
    leadership: &Leadership<Session>,
) {
    let office = election.office().await;
    match office {
        Ok(Some(office)) if office.token >= leadership.token() => {}
        Ok(None) if leadership.holding() != Holding::Held => {}
        Ok(None) => context.record(Noted::NotInOffice(leadership.token().0)),
        Err(error) if is_of_session(&error) => {}
        other => context.record(Noted::Wrong(format!("leads with {}, and in office is {other:?}", leadership.token()))),
    }
}

/// Records each office that an observer reports, until the session is over.
async fn observe(context: ClientContext<Noted>) {
    let mut observer = election(&context).observe();
    loop {
        match observer.next().await {
            Ok(office) => context.record(Noted::Saw(office.map(|office| office.token.0))),
            Err(error) if is_of_session(&error) => return,
            Err(error) => return context.record(Noted::Wrong(format!("observing: {error}"))),
        }
    }
}

/// Campaigns repeatedly, and gives up some campaigns.
pub(crate) async fn cycle(context: ClientContext<Noted>) -> Next {
    let naming = [Naming::Documented, Naming::Curator, Naming::Kazoo][context.number % 3];
    let election = election(&context).naming(naming).rank((context.number % 2) as u8);
    context.spawn(observe(context.clone()));
    again_and_again(&context, 4, &[PARENT], async || {
        let patience = Duration::from_millis(context.below(1500));
        let leadership = match context.below(3) {
            0 => within(&context, patience, election.campaign()).await.transpose(),
            _ => election.campaign().await.map(Some),
        };
        let Some(leadership) = unless_broken(leadership)? else { return Ok(false) };
        lead(&context, &election, leadership).await;
        Ok(true)
    })
    .await
}

#[test]
fn one_candidate_leads_and_observers_see_leaders_in_order() {
    drawn_of(50, |seed| some_stay_away(seed, 4), cycle, judge_drawn);
}

/// Like `cycle`, while client 4 breaks and revokes places of the others.
pub(crate) async fn broken(context: ClientContext<Noted>) -> Next {
    if context.number == 4 { break_some(&context, &[PARENT]).await } else { cycle(context).await }
}

#[test]
fn broken_leader_writes_no_more() {
    drawn(20, 5, broken, judge_drawn);
}

/// Leads once. Clients campaign in the order of their numbers.
pub(crate) async fn once(context: ClientContext<Noted>) -> Next {
    until(&context, 4.0 + context.number as f64 / 2.0).await;
    let leadership = election(&context).campaign().await.unwrap();
    context.record(Noted::Granted(leadership.token().0, Mode::Exclusive));
    until(&context, 14.0).await;
    context.sleep(Duration::from_millis(50)).await;
    leadership.resign().await.unwrap();
    Next::Done
}

pub(crate) const CANDIDATES: usize = 12;

pub(crate) fn wakes_one(ran: &Ran<Noted>) -> Result<(), String> {
    let order = order(ran);
    if order.len() != CANDIDATES || !order.is_sorted() {
        return Err(format!("led in the order {order:?}"));
    }
    // One list on arrival, one after the event, and one to see whether another candidate is to lead
    // first.
    each_woke(ran, CANDIDATES, 1, 3)
}

#[test]
fn leaving_leader_wakes_one_candidate() {
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CANDIDATES), once, wakes_one);
}

/// Candidates 1, 3, .. 11 leave while all wait. Each departure wakes only the candidate behind it.
#[test]
fn leaving_candidate_wakes_only_the_candidate_behind_it() {
    let body = async |context: ClientContext<Noted>| {
        if context.number.is_multiple_of(2) {
            return once(context).await;
        }
        until(&context, 4.0 + context.number as f64 / 2.0).await;
        let patience = Duration::from_millis(8000 - context.number as u64 * 500);
        assert!(within(&context, patience, election(&context).campaign()).await.is_none());
        note_leaks(&context, PARENT).await;
        Next::Done
    };
    let wakes = |ran: &Ran<Noted>| {
        let (order, evens) = (order(ran), (0..CANDIDATES).step_by(2));
        if !order.iter().copied().eq(evens) {
            return Err(format!("led in the order {order:?}"));
        }
        // One event for the odd candidate before it, and one for the even candidate before that.
        let woke = |client| (ran.events_of(client), ran.lists_of(client));
        match (0..CANDIDATES).step_by(2).find(|&client| woke(client).0 > 2 || woke(client).1 > 4) {
            Some(client) => Err(format!("client {client} woke and listed {:?}", woke(client))),
            None => Ok(()),
        }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, CANDIDATES), body, wakes);
}

#[test]
fn candidate_with_the_lowest_rank_leads_next_without_preemption() {
    let body = async |context: ClientContext<Noted>| {
        until(&context, 4.0 + context.number as f64).await;
        let leadership = election(&context).rank([2, 2, 1, 0][context.number]).campaign().await.unwrap();
        context.record(Noted::Granted(leadership.token().0, Mode::Exclusive));
        until(&context, 10.0).await;
        // A candidate that lets this one go first has moved behind it by then. No list shows it
        // while it moves.
        context.sleep(Duration::from_secs(1)).await;
        leadership.resign().await.unwrap();
        Next::Done
    };
    let ranked = |ran: &Ran<Noted>| {
        let order = order(ran);
        if order == [0, 3, 2, 1] { judge(ran) } else { Err(format!("led in the order {order:?}")) }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 4), body, ranked);
}

#[test]
fn candidate_named_in_a_hand_over_leads_next() {
    let body = async |context: ClientContext<Noted>| {
        until(&context, 4.0 + context.number as f64).await;
        let election = election(&context);
        let leadership = election.campaign().await.unwrap();
        context.record(Noted::Granted(leadership.token().0, Mode::Exclusive));
        until(&context, 10.0).await;
        if context.number == 0 {
            let candidates = election.candidates().await.unwrap();
            leadership.hand_over(&candidates[2]).await.unwrap();
        } else {
            leadership.resign().await.unwrap();
        }
        Next::Done
    };
    let named = |ran: &Ran<Noted>| {
        let order = order(ran);
        if order.starts_with(&[0, 2]) && order.len() == 4 {
            judge(ran)
        } else {
            Err(format!("led in the order {order:?}"))
        }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 4), body, named);
}

/// Regression: the office of a broken leader stood until another candidate took it or its session
/// ended. Without another candidate, observers saw the broken leader in office as long as its
/// session lived.
#[test]
fn broken_leader_leaves_office_at_once_and_the_next_leads() {
    let body = async |context: ClientContext<Noted>| {
        let election = election(&context);
        match context.number {
            0 => {
                until(&context, 4.0).await;
                let leadership = election.campaign().await.unwrap();
                context.record(Noted::Granted(leadership.token().0, Mode::Exclusive));
                leadership.ended().await;
                let proclaimed = leadership.proclaim("still").await;
                assert_eq!(proclaimed.unwrap_err().kind(), ErrorKind::GrantLost(GrantEnd::Broken));
                until(&context, 9.0).await;
                drop(leadership);
                note_leaks(&context, PARENT).await;
            }
            1 => {
                until(&context, 10.0).await;
                let leadership = election.campaign().await.unwrap();
                context.record(Noted::Granted(leadership.token().0, Mode::Exclusive));
                until(&context, 20.0).await;
                leadership.resign().await.unwrap();
            }
            2 => {
                until(&context, 6.0).await;
                let line = Contention::new(context.session.clone(), &Path::from_static(PARENT));
                let leader = election.candidates().await.unwrap().remove(0);
                assert_eq!(line.break_grant(&leader, "stuck").await, Ok(Revoked::Broken));
                until(&context, 12.0).await;
                let leader = election.candidates().await.unwrap().remove(0);
                assert_eq!(line.break_grant(&leader, "stuck again").await, Ok(Revoked::Broken));
                until(&context, 13.0).await;
                let leadership = election.campaign().await.unwrap();
                context.record(Noted::Granted(leadership.token().0, Mode::Exclusive));
                until(&context, 15.0).await;
                leadership.resign().await.unwrap();
            }
            _ => {
                let mut observer = election.observe();
                for is_in_office in [false, true, false, true, false, true, false] {
                    let office = observer.next().await.unwrap();
                    context.record(Noted::Saw(office.as_ref().map(|office| office.token.0)));
                    assert_eq!(office.is_some(), is_in_office, "{office:?}");
                }
            }
        }
        Next::Done
    };
    let judge = |ran: &Ran<Noted>| {
        if order(ran) == [0, 1, 2] { judge(ran) } else { Err(format!("led in the order {:?}", order(ran))) }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 4), body, judge);
}

/// Regression: the operator looked for the office before the candidate took it, and deleted the
/// place afterwards. The office then stayed as long as the candidate's session, and every observer
/// saw it lead.
#[test]
fn candidate_broken_while_taking_office_is_not_seen_in_office() {
    let body = async |context: ClientContext<Noted>| {
        until(&context, 4.0).await;
        match context.number {
            0 => {
                context.sleep(Duration::from_micros(context.below(20_000))).await;
                let _leadership = election(&context).campaign().await;
                until(&context, 8.0).await;
            }
            1 => {
                let line = Contention::new(context.session.clone(), &Path::from_static(PARENT));
                loop {
                    let contenders = line.contenders().await.unwrap_or_default();
                    let Some(candidate) = contenders.first() else {
                        context.sleep(Duration::from_micros(100)).await;
                        continue;
                    };
                    context.sleep(Duration::from_micros(context.below(2000))).await;
                    let _ = line.break_grant(candidate, "strayed").await;
                    break;
                }
                until(&context, 7.0).await;
                let election = election(&context);
                let (standing, office) = (election.candidates().await, election.office().await);
                if standing.is_ok_and(|standing| standing.is_empty()) && !matches!(office, Ok(None) | Err(_)) {
                    context.record(Noted::Wrong(format!("in office without a place: {office:?}")));
                }
            }
            _ => {}
        }
        Next::Done
    };
    run_seeds_of(60, |seed| Scenario::peaceful(seed, 2), body, judge);
}

#[test]
fn leader_resigns_on_request_and_the_next_candidate_leads() {
    let body = async |context: ClientContext<Noted>| {
        match context.number {
            2 => {
                until(&context, 8.0).await;
                let line = Contention::new(context.session.clone(), &Path::from_static(PARENT));
                let leader = election(&context).candidates().await.unwrap().remove(0);
                assert_eq!(line.revoke(&leader, Duration::from_secs(5), "update").await, Ok(Revoked::Released));
            }
            number => {
                until(&context, 4.0 + number as f64).await;
                let leadership = election(&context).campaign().await.unwrap();
                context.record(Noted::Granted(leadership.token().0, Mode::Exclusive));
                if number == 0 {
                    assert_eq!(leadership.asked_to_release().await, Ok(()));
                }
                leadership.resign().await.unwrap();
            }
        }
        Next::Done
    };
    let judge = |ran: &Ran<Noted>| {
        if order(ran) == [0, 1] { judge(ran) } else { Err(format!("led in the order {:?}", order(ran))) }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 3), body, judge);
}

/// Regression: observers were told of an office without a leader, or failed. The leader could no
/// longer proclaim that it leads.
#[test]
fn foreign_office_znode_is_ignored_and_replaced_by_the_leader() {
    let body = async |context: ClientContext<Noted>| {
        let (election, c) = (election(&context), &context.session);
        let leadership = election.campaign().await.unwrap();
        let office = Path::new(format!("{PARENT}/leader")).unwrap();
        let seen = async || election.office().await.unwrap().and_then(|office| office.content);
        for (round, theirs) in [None, Some("garbage"), Some("1\nforged"), Some("")].into_iter().enumerate() {
            c.delete(&office, zoolet_session::Version::Any).await.unwrap();
            if let Some(theirs) = theirs {
                c.create(&office, bytes::Bytes::from_static(theirs.as_bytes())).await.unwrap();
            }
            assert_eq!(election.office().await, Ok(None), "{theirs:?}");
            let content = bytes::Bytes::from(format!("still here {round}"));
            leadership.proclaim(content.clone()).await.unwrap();
            assert_eq!(seen().await, Some(content));
            let stat = c.exists(&office).await.unwrap().unwrap();
            assert_eq!(stat.ephemeral_owner, c.id().0, "it goes with the leader's session");
        }
        leadership.resign().await.unwrap();
        assert_eq!(election.office().await, Ok(None));
        assert!(c.exists(&office).await.unwrap().is_none());
        Next::Done
    };
    run_seeds_of(1, |seed| Scenario::peaceful(seed, 1), body, |_| Ok(()));
}
