//! Tests of the double barrier.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, reply lost after a create:
//!   [`double_barrier_meetings_begin_with_enough_parties_and_never_mix`] loses replies; a party
//!   counts once.
//! - 3 and 4, sessions: that test has crashes and expiries, in meetings and before them. A former
//!   session that outlives its client's belief: [`party_with_two_sessions_counts_once`].
//! - 5, attempts given up: attempts to enter and to leave are dropped. `Left` records leftovers.
//! - 6, herd: [`each_departure_wakes_one_party_and_the_last_wakes_all`].
//! - 8 and 12, staleness and missed events: lagging servers, and cuts while parties wait; all
//!   finish.
//! - 9, different numbers: [`parties_that_require_different_numbers_are_told`] and
//!   [`empty_room_does_not_bind_later_parties_to_its_number`].
//! - 1, 7, 10, 11 and 13: nothing is held, there is no clock, and the only lists are of parties.

use crate::apart::{heard, left_behind, up_to, within};
use crate::drawn::drawn;
use crate::intercepted::{Answer, Intercepted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;
use zoolet_model::{EventKind, Path, Reply, Request, SessionId, WriteOp};
use zoolet_recipes::{Coordinator, DoubleBarrier, ErrorKind, Guid};
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PATH: Path = Path::from_static("/calibration");
const PARTIES: usize = 3;
pub(crate) const CLIENTS: usize = 5;
const MEETINGS: u64 = 5;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// A party of this session is in a meeting that has begun.
    Entered(SessionId),
    /// The party has returned from leaving.
    Gone(SessionId),
    Left(String),
}

pub(crate) async fn live(context: ClientContext<Noted>) -> Next {
    let done = meet(&context).await;
    if done.is_ok()
        && let Some(path) = left_behind(&context).await
    {
        context.record(Noted::Left(path));
    }
    done.map_or_else(|next| next, |()| Next::Done)
}

/// Meets until there were [`MEETINGS`] meetings and the faults are over.
async fn meet(context: &ClientContext<Noted>) -> Result<(), Next> {
    let session = Coordinator::session(&context.session);
    let barrier = DoubleBarrier::new(context.session.clone(), &PATH, PARTIES);
    loop {
        let number = match context.session.get(&PATH).await {
            Ok(znode) => znode.text().unwrap().parse().unwrap_or(0),
            _ if context.session.state().is_over() => return Err(Next::AnotherSession),
            _ => 0,
        };
        if number >= MEETINGS && !context.goes_on() {
            return Ok(());
        }
        context.sleep(up_to(context, 400)).await;
        let patience = if context.below(3) == 0 { up_to(context, 100) } else { Duration::from_secs(4) };
        let entered = within(context, patience, barrier.enter()).await;
        let Some(Some(meeting)) = entered.map(|entered| heard(context, entered)).transpose()? else { continue };
        context.record(Noted::Entered(session));
        context.sleep(up_to(context, 500)).await;
        match context.below(4) {
            0 => drop(meeting),
            1 => drop(within(context, up_to(context, 100), meeting.leave()).await),
            _ => {
                if heard(context, meeting.leave().await)?.is_some() {
                    context.record(Noted::Gone(session));
                }
            }
        }
    }
}

/// A meeting, as the tree shows it.
#[derive(Default, Debug)]
struct Room {
    /// The session of each party that is present, by the party's name.
    there: BTreeMap<String, SessionId>,
    /// Every party that was ever present: session, name, from, until (microseconds).
    parties: Vec<(SessionId, String, u64, u64)>,
    began_us: Option<u64>,
    /// Largest number of parties present at once before the meeting began.
    most: usize,
    /// Whether `ready`, which marks the beginning, was deleted.
    is_tidy: bool,
}

fn rooms(ran: &Ran<Noted>) -> Result<BTreeMap<String, Room>, String> {
    let mut rooms: BTreeMap<String, Room> = BTreeMap::new();
    for change in ran.changed()? {
        let Some(below) = change.path.strip_prefix("/calibration/") else { continue };
        let Some((number, name)) = below.split_once('/') else { continue };
        let room = rooms.entry(number.to_owned()).or_default();
        match (change.kind, name) {
            (EventKind::NodeCreated, "ready") if room.began_us.is_some() => {
                return Err(format!("{number} began twice"));
            }
            (EventKind::NodeCreated, "ready") => {
                if room.most < PARTIES {
                    return Err(format!("{number} began with {} at most", room.most));
                }
                room.began_us = Some(change.at_us);
            }
            (EventKind::NodeCreated, _) if room.began_us.is_some() => {
                return Err(format!("{name} came into {number} after it had begun"));
            }
            (EventKind::NodeCreated, _) => {
                let session = change.session.ok_or("whose is it?")?;
                room.there.insert(name.to_owned(), session);
                room.parties.push((session, name.to_owned(), change.at_us, u64::MAX));
                room.most = room.most.max(room.there.len());
            }
            (EventKind::NodeDeleted, "ready") => {
                if !room.there.is_empty() {
                    return Err(format!("{number} was tidied up with {:?} in it", room.there));
                }
                room.is_tidy = true;
            }
            (EventKind::NodeDeleted, _) => {
                room.there.remove(name);
                room.parties.iter_mut().find(|party| party.1 == name).unwrap().3 = change.at_us;
            }
            (kind, _) => return Err(format!("{kind:?} of {name}")),
        }
    }
    Ok(rooms)
}

/// Checks that parties enter begun meetings, leave together, and that meetings do not mix.
pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let rooms = rooms(ran)?;
    for (number, room) in rooms.iter().filter(|(_, room)| room.began_us.is_some() && !room.is_tidy) {
        // The party that left last may have died before it deleted the meeting, and so may the
        // party that began the next meeting. Three meetings later it has to be gone.
        let empty_us = room.parties.iter().map(|party| party.3).max();
        if rooms.values().filter(|later| later.began_us > empty_us).count() >= 3 {
            return Err(format!("{number} is empty since {empty_us:?} us, and stands"));
        }
    }
    for fact in &ran.facts {
        // The latest meeting that this session has entered by then.
        let last = |session: SessionId| {
            let of_this = |room: &&Room| room.parties.iter().any(|party| party.0 == session && party.2 <= fact.at_us);
            rooms.values().rev().find(of_this).ok_or(format!("{session:?} is in no meeting"))
        };
        match &fact.what {
            Noted::Entered(session) => {
                let room = last(*session)?;
                if room.began_us.is_none_or(|began_us| began_us > fact.at_us) {
                    return Err(format!("client {} goes on before its meeting began", fact.client));
                }
            }
            Noted::Gone(session) => {
                let room = last(*session)?;
                if let Some(party) = room.parties.iter().find(|party| party.3 > fact.at_us) {
                    return Err(format!("client {} has left, and {party:?} is still there", fact.client));
                }
            }
            Noted::Left(path) => return Err(format!("client {} left {path}", fact.client)),
        }
    }
    Ok(())
}

#[test]
fn double_barrier_meetings_begin_with_enough_parties_and_never_mix() {
    drawn(50, CLIENTS, live, judge);
}

#[test]
fn each_departure_wakes_one_party_and_the_last_wakes_all() {
    const ALL: usize = 8;
    let live = |context: ClientContext<Noted>| async move {
        let barrier = DoubleBarrier::new(context.session.clone(), &PATH, ALL);
        let meeting = barrier.enter().await.unwrap();
        context.record(Noted::Entered(Coordinator::session(&context.session)));
        // One after the other, in an order that is independent of names.
        context.sleep(Duration::from_secs(1 + context.number as u64)).await;
        meeting.leave().await.unwrap();
        Next::Done
    };
    let few = |ran: &Ran<Noted>| {
        let mut events: Vec<_> = (0..ALL).map(|client| ran.events_of(client)).collect();
        events.sort_unstable();
        // One event for the beginning, and one for the last departure. The party with the smallest
        // name waits for the largest one instead, again each time that one goes.
        let most = events.pop().unwrap_or_default();
        let entered: BTreeSet<_> = ran.facts.iter().map(|fact| fact.client).collect();
        if events.iter().all(|events| *events <= 2) && most <= ALL && entered.len() == ALL {
            Ok(())
        } else {
            Err(format!("{events:?} and {most}"))
        }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, ALL), live, few);
}

#[test]
fn largest_meeting_number_is_refused_as_malformed() {
    let live = |context: ClientContext<Noted>| async move {
        context.session.create(&PATH, bytes::Bytes::from(u64::MAX.to_string())).await.unwrap();
        let entered = DoubleBarrier::new(context.session.clone(), &PATH, 1).enter().await;
        assert_eq!(entered.unwrap_err().kind(), ErrorKind::Malformed);
        Next::Done
    };
    run_seeds_of(1, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// The room of the first meeting.
const FIRST: Path = Path::from_static("/calibration/0000000000");

/// Creates the first room as a foreign client may create it, with `data`.
async fn make_room(context: &ClientContext<Noted>, data: Option<&'static str>) {
    context.session.create(&PATH, None).await.unwrap();
    context.session.create(&FIRST, data.map(bytes::Bytes::from)).await.unwrap();
}

/// Regression: the second party began a meeting of two, and the first one, to which three were
/// promised, entered it.
#[test]
fn parties_that_require_different_numbers_are_told() {
    let live = |context: ClientContext<Noted>| async move {
        let required = |parties| DoubleBarrier::new(context.session.clone(), &PATH, parties);
        if context.number > 0 {
            context.sleep(Duration::from_secs(2)).await;
            // While the first party waits, and once it has gone.
            let entered = within(&context, Duration::from_secs(5), required(2).enter()).await;
            let entered = entered.expect("it waits for a meeting of two");
            assert_eq!(entered.unwrap_err().kind(), ErrorKind::Disagreement);
            assert_eq!(context.session.children(&FIRST).await.unwrap().len(), 1);
        } else {
            let entered = within(&context, Duration::from_secs(5), required(3).enter()).await;
            assert!(entered.is_none(), "it is in a meeting of two");
        }
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 2), live, |_| Ok(()));
}

/// All parties come at once, so that most of them read the room before another one creates it.
#[test]
fn parties_that_come_at_once_and_require_different_numbers_are_told() {
    let live = |context: ClientContext<Noted>| async move {
        let barrier = DoubleBarrier::new(context.session.clone(), &PATH, 2 + context.number);
        if let Some(entered) = within(&context, Duration::from_secs(5), barrier.enter()).await {
            assert_eq!(entered.unwrap_err().kind(), ErrorKind::Disagreement);
        }
        Next::Done
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 2), live, |_| Ok(()));
}

/// Regression: a party that was dropped left its room. Every party with another number got
/// [`ErrorKind::Disagreement`] until a person deleted the room.
#[test]
fn empty_room_does_not_bind_later_parties_to_its_number() {
    let live = |context: ClientContext<Noted>| async move {
        let required = |parties| DoubleBarrier::new(context.session.clone(), &PATH, parties);
        // The first round finds a room that never had a party.
        make_room(&context, Some("3")).await;
        for _ in 0..3 {
            required(1).enter().await.unwrap().leave().await.unwrap();
            let entered = within(&context, Duration::from_secs(1), required(3).enter()).await;
            assert!(entered.is_none(), "one of three is there");
            // The errand of the dropped party has deleted its place by then.
            context.sleep(Duration::from_secs(1)).await;
        }
        assert!(context.session.get(&FIRST).await.unwrap_err().is_no_node());
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// A container that never had a child stays for ever, and a party may be dropped at any moment.
#[test]
fn a_room_is_created_together_with_its_first_place() {
    let live = |context: ClientContext<Noted>| async move {
        let watched = Intercepted::new(&context.session, |session, request| {
            if let Request::Multi(ops) = &request {
                let path = |op: &WriteOp| match op {
                    WriteOp::Create(create) => Some(create.path.to_string()),
                    _ => None,
                };
                let created: Vec<_> = ops.iter().filter_map(path).collect();
                assert!(created.len() == 2 || !created.contains(&FIRST.to_string()), "{created:?}");
            }
            Answer::of(&session, request)
        });
        DoubleBarrier::new(watched, &PATH, 1).enter().await.unwrap().leave().await.unwrap();
        Next::Done
    };
    run_seeds_of(1, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// The number may change between two meetings, and a lagging server shows the earlier one.
#[test]
fn number_of_an_earlier_meeting_does_not_count() {
    let live = |context: ClientContext<Noted>| async move {
        context.session.create(&PATH, None).await.unwrap();
        let znode = context.session.get(&PATH).await.unwrap();
        let meeting = DoubleBarrier::new(context.session.clone(), &PATH, 1).enter().await.unwrap();
        let earlier = Mutex::new(Some(Reply::Data(znode.data, znode.stat)));
        let lagging = Intercepted::new(&context.session, move |session, request| {
            let is_path = matches!(&request, Request::GetData { path, .. } if **path == *PATH.as_str());
            match earlier.lock().unwrap().take().filter(|_| is_path) {
                Some(reply) => Answer::new(std::future::ready(Ok(reply))),
                None => Answer::of(&session, request),
            }
        });
        let next = DoubleBarrier::new(lagging, &PATH, 2);
        let entered = within(&context, Duration::from_secs(1), next.enter()).await;
        assert!(entered.is_none(), "{entered:?}, and it does not wait for the next meeting");
        meeting.leave().await.unwrap();
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// Regression: servers that came back after an outage kept the ephemeral of a session that its client
/// had given up. The client entered again with another session, and met itself.
#[test]
fn party_with_two_sessions_counts_once() {
    let live = |context: ClientContext<Noted>| async move {
        let barrier = DoubleBarrier::new(context.session.clone(), &PATH, 2);
        if context.number == 2 {
            context.sleep(Duration::from_secs(10)).await;
            barrier.enter().await.unwrap().leave().await.unwrap();
            return Next::Done;
        }
        let of_one = barrier.of_party(Guid::from_random_bits(7));
        // Clients 0 and 1 are the sessions of one party, and stand in the room at the same time.
        let entered = within(&context, Duration::from_secs(5), of_one.enter()).await;
        assert!(entered.is_none(), "one of two parties is there");
        if context.number == 1 {
            of_one.enter().await.unwrap().leave().await.unwrap();
        }
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 3), live, |_| Ok(()));
}

/// Regression: another party met the znode of the former session, and the party itself waited for a
/// meeting that never came.
#[test]
fn party_comes_back_to_the_meeting_that_began_with_its_former_session() {
    let live = |context: ClientContext<Noted>| async move {
        let barrier = DoubleBarrier::new(context.session.clone(), &PATH, 2);
        context.sleep(Duration::from_secs([0, 4, 8][context.number])).await;
        match context.number {
            // The former session, which the servers keep until then.
            0 => {
                let meeting = barrier.of_party(Guid::from_random_bits(7)).enter().await.unwrap();
                context.sleep(Duration::from_secs(20)).await;
                drop(meeting);
            }
            1 => barrier.enter().await.unwrap().leave().await.unwrap(),
            _ => {
                let of_party = barrier.of_party(Guid::from_random_bits(7));
                let meeting = within(&context, Duration::from_secs(5), of_party.enter()).await;
                meeting.expect("the meeting has begun with this party").unwrap().leave().await.unwrap();
            }
        }
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 3), live, |_| Ok(()));
}

#[test]
fn parties_enter_a_room_without_a_number() {
    let live = |context: ClientContext<Noted>| async move {
        if context.number == 0 {
            make_room(&context, None).await;
        }
        context.sleep(Duration::from_secs(2)).await;
        let barrier = DoubleBarrier::new(context.session.clone(), &PATH, PARTIES);
        barrier.enter().await.unwrap().leave().await.unwrap();
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, PARTIES), live, |_| Ok(()));
}
