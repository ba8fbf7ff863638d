//! A leader under load is paused for a minute, then continues.
//!
//! The others elect a new leader, and no session expires whose client keeps touching it. After the
//! pause, the former leader's answers are as fresh as a sync guarantees.
//!
//! Half of the clients have long sessions and wait at the former leader. Their requests, syncs
//! among them, are in its sockets when it continues, and it handles them first. Half of these
//! clients only read, and keep asking during the pause.
//!
//! The oracles judge every answer:
//! - `realtime`: a sync shows everything that was seen before it was requested.
//! - `timeliness`: a read shows nothing that was outdated long before it was requested.
#![allow(clippy::print_stderr, reason = "what the runs had in them, for people")]

use zoolet_machine::txn::{self, Txn};
use zoolet_model::{Request, SessionId};
use zoolet_sim::ensemble::{DATA_BYTES, DiskModel, Load, MS, Plan, SECOND, Trace, conclude};
use zoolet_sim::oracle::{History, Operation, Summary};
use zoolet_zab::{Role, ServerId};

/// Beginning and end of the leader's pause, in microseconds.
const STOPS_US: u64 = 20 * SECOND;
const GOES_ON_US: u64 = STOPS_US + 60 * SECOND;
/// From this time on, state from before the pause is too old to show.
///
/// This holds however slow the disks are.
const TOO_OLD_US: u64 = STOPS_US + 20 * SECOND;
/// End of the load, in microseconds.
const ENDS_US: u64 = GOES_ON_US + 30 * SECOND;

/// Session timeouts: short sessions expire during the pause, long ones do not.
///
/// The short ones expire only if no server hears their clients. The clients of the long ones do not
/// leave the leader.
const TIMEOUTS_MS: [i32; 2] = [6_000, 120_000];

fn plan(voters: u8) -> Plan {
    let load = Load::Steady { think_us: 100 * MS, timeouts_ms: TIMEOUTS_MS, readers_one_in: 4, data_bytes: DATA_BYTES };
    Plan { clients: 16, load, ..Plan::steady(voters, DiskModel::Emmc, ENDS_US) }
}

/// Returns how many matching requests waited at the former leader.
///
/// The second figure is how many of them got answers. Requests count from `from_us` until the end
/// of the pause.
fn left(history: &History, former: ServerId, from_us: u64, is_it: impl Fn(&Request) -> bool) -> (usize, usize) {
    let is_left = |operation: &&Operation| {
        let is_there = history.connection_of(operation).server == former;
        is_it(&operation.request) && is_there && (from_us..GOES_ON_US).contains(&operation.invoked.us)
    };
    let left = history.operations.iter().filter(is_left);
    let answered = left.clone().filter(|operation| operation.answer.is_some());
    (left.count(), answered.count())
}

/// Returns sessions that ended within their timeout after an answer.
///
/// One second is allowed for the travel time of the answer. Only answered requests count. A client
/// may by chance retry only the former leader, and is then silent for all other servers.
fn expired_while_touching(history: &History) -> Vec<SessionId> {
    let ends = history.committed.iter().filter_map(|entry| match txn::decode(&entry.payload) {
        Ok((_, Txn::CloseSession { session })) => Some((session, entry.at.us)),
        Ok(_) | Err(_) => None,
    });
    let is_early = |&(session, at_us): &(SessionId, u64)| {
        let theirs = history.operations.iter().filter(|asked| history.connection_of(asked).session() == Some(session));
        let heard =
            theirs.filter_map(|asked| asked.answer.as_ref()).map(|answer| answer.at.us).filter(|&us| us <= at_us);
        let timeout_us = u64::from(TIMEOUTS_MS[0].unsigned_abs()) * MS;
        heard.max().unwrap_or(0) + timeout_us > at_us + SECOND
    };
    ends.filter(is_early).map(|(session, _)| session).collect()
}

/// Pauses a leader once; returns the requests that waited for it.
///
/// Each pair is their number and the number of answers: the first pair for syncs, the second for
/// late reads.
fn a_leader_stands_still(voters: u8, seed: u64) -> [(usize, usize); 2] {
    let mut world = plan(voters).build(seed, Trace::off());
    world.run_until(STOPS_US);
    let former = world.leader().expect("an ensemble in peace has a leader");
    world.pause(former);
    world.run_until(GOES_ON_US);
    let next = world.leader().expect("the others have a quorum");
    assert_ne!(former, next, "seed {seed}: who stands still does not lead");
    world.resume(former);
    world.run_until(ENDS_US);
    assert_eq!(world.leader(), Some(next), "seed {seed}: who comes back disturbs nobody");
    let role = world.witness().said(former).map(|state| state.role);
    assert_eq!(role, Some(Role::Following(next)), "seed {seed}: the former leader follows");
    let (_, history, epochs) = conclude(seed, world).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(epochs.elected(), 2, "seed {seed}: {epochs}");
    assert_eq!(expired_while_touching(&history), [], "seed {seed}: who goes on touching does not expire");
    let summary = Summary::of(&history);
    assert!(summary.closed * 3 <= summary.sessions, "seed {seed}: most found another server in time: {summary:?}");
    let is_read = |request: &Request| {
        matches!(request, Request::GetData { .. } | Request::GetChildren { .. } | Request::Exists { .. })
    };
    let syncs = left(&history, former, STOPS_US, |request| matches!(request, Request::Sync { .. }));
    [syncs, left(&history, former, TOO_OLD_US, is_read)]
}

fn of_all_seeds(voters: u8) {
    let seeds: u64 = std::env::var("ENSEMBLE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let mut all = [(0, 0); 2];
    for seed in 0..seeds {
        let of_seed = a_leader_stands_still(voters, seed);
        all.iter_mut().zip(of_seed).for_each(|(all, one)| *all = (all.0 + one.0, all.1 + one.1));
    }
    for ((left, answered), what) in all.into_iter().zip(["syncs", "late reads"]) {
        eprintln!(
            "{voters} voters, {seeds} seeds: {left} {what} waited for the former leader, {answered} of them were answered"
        );
        assert!(left >= seeds as usize, "there was something to answer: {left} {what}");
    }
}

#[test]
fn paused_leader_of_3_expires_no_session_and_never_replies_stale() {
    of_all_seeds(3);
}

#[test]
fn paused_leader_of_5_expires_no_session_and_never_replies_stale() {
    of_all_seeds(5);
}
