//! Tests of the double barrier.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, reply lost after a create: [`meetings_begin_with_enough_and_do_not_mix`] loses replies; a
//!   party counts once.
//! - 3 and 4, sessions: that test has crashes and expiries, in meetings and before them.
//! - 5, attempts given up: attempts to enter and to leave are dropped. `Left` records leftovers.
//! - 6, herd: [`each_departure_wakes_one_and_the_last_all`].
//! - 8 and 12, staleness and missed events: lagging servers, and cuts while parties wait; all
//!   finish.
//! - 1, 7, 9 to 11 and 13: nothing is held, there is no clock, and the only lists are of parties.

use crate::apart::{heard, left_behind, up_to, within};
use crate::drawn::drawn;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use zoolet_model::{EventKind, Path, SessionId};
use zoolet_recipes::{Coordinator, DoubleBarrier, Error};
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat, run_seeds_of};

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

pub(crate) async fn live(seat: Seat<Noted>) -> Next {
    let done = meet(&seat).await;
    if done.is_ok()
        && let Some(path) = left_behind(&seat).await
    {
        seat.record(Noted::Left(path));
    }
    done.map_or_else(|next| next, |()| Next::Done)
}

/// Meets until there were [`MEETINGS`] meetings and the faults are over.
async fn meet(seat: &Seat<Noted>) -> Result<(), Next> {
    let session = Coordinator::session(&seat.session);
    let barrier = DoubleBarrier::new(seat.session.clone(), &PATH, PARTIES);
    loop {
        let number = match seat.session.get(&PATH).await {
            Ok((Some(data), _)) => std::str::from_utf8(&data).unwrap().parse().unwrap_or(0),
            _ if seat.session.state().is_over() => return Err(Next::AnotherSession),
            _ => 0,
        };
        if number >= MEETINGS && !seat.goes_on() {
            return Ok(());
        }
        seat.sleep(up_to(seat, 400)).await;
        let patience = if seat.below(3) == 0 { up_to(seat, 100) } else { Duration::from_secs(4) };
        let entered = within(seat, patience, barrier.enter()).await;
        let Some(Some(meeting)) = entered.map(|entered| heard(seat, entered)).transpose()? else { continue };
        seat.record(Noted::Entered(session));
        seat.sleep(up_to(seat, 500)).await;
        match seat.below(4) {
            0 => drop(meeting),
            1 => drop(within(seat, up_to(seat, 100), meeting.leave()).await),
            _ => {
                if heard(seat, meeting.leave().await)?.is_some() {
                    seat.record(Noted::Gone(session));
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
fn meetings_begin_with_enough_and_do_not_mix() {
    drawn(50, CLIENTS, live, judge);
}

#[test]
fn each_departure_wakes_one_and_the_last_all() {
    const ALL: usize = 8;
    let live = |seat: Seat<Noted>| async move {
        let barrier = DoubleBarrier::new(seat.session.clone(), &PATH, ALL);
        let meeting = barrier.enter().await.unwrap();
        seat.record(Noted::Entered(Coordinator::session(&seat.session)));
        // One after the other, in an order that is independent of names.
        seat.sleep(Duration::from_secs(1 + seat.number as u64)).await;
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
fn a_number_after_which_there_is_none_is_malformed() {
    let live = |seat: Seat<Noted>| async move {
        seat.session.create(&PATH, bytes::Bytes::from(u64::MAX.to_string())).await.unwrap();
        let entered = DoubleBarrier::new(seat.session.clone(), &PATH, 1).enter().await;
        assert_eq!(entered.err(), Some(Error::Malformed));
        Next::Done
    };
    run_seeds_of(1, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}
