//! Networks in which some servers hear each other one way only.
//!
//! - A leader that sends and hears nothing is replaced.
//! - A follower that misses its leader alone sends its waiting clients on to other servers.
//! - Links that fail again and again cause no storm of elections.
//!
//! `ENSEMBLE_MINUTES=60` simulates an hour of random cuts, best with `--release`. The default is as
//! much as a plain `cargo test` has time for.
#![allow(clippy::print_stderr, reason = "what the runs measured, for people")]

use std::time::Duration;
use zoolet_machine::ConnId;
use zoolet_session::{CreateOptions, Session};
use zoolet_sim::ensemble::{DATA_BYTES, DiskModel, Load, MS, Path, Plan, SECOND, Site, Trace, World, conclude};
use zoolet_sim::oracle::{ClientId, End, History, Operation};
use zoolet_sim::workload::Random;
use zoolet_zab::{Role, ServerId};

/// Simulated minutes of random cuts in a plain `cargo test`.
const MINUTES: u64 = 10;
/// Seeds of each case.
const SEEDS: u64 = 5;
/// Longest wait of a client whose server or leader is cut off.
const WAIT_US: u64 = 500 * MS;
/// When a test cuts the first path.
const CUT_US: u64 = 10 * SECOND;

/// Returns voters of one site whose clients send about 10 requests a second each.
///
/// The servers exchange heartbeats at the busy pace.
fn busy(voters: u8, seed: u64) -> World {
    let load =
        Load::Steady { think_us: 100 * MS, timeouts_ms: [10_000, 20_000], readers_one_in: 0, data_bytes: DATA_BYTES };
    let mut world = cables(Plan { clients: 10, load, ..Plan::steady(voters, DiskModel::Nvme, 0) }, seed);
    world.run_until(CUT_US);
    world
}

/// Builds an ensemble whose links are cables.
fn cables(plan: Plan, seed: u64) -> World {
    Plan { site: Site { path: Some(Path::lan()), ..plan.site }, ..plan }.build(seed, Trace::off())
}

/// Returns voters whose clients have sessions and send nothing but pings.
fn idle(voters: u8, seed: u64) -> (World, Vec<(ClientId, Session)>) {
    let mut world = cables(Plan { clients: 0, ..Plan::steady(voters, DiskModel::Nvme, 0) }, seed);
    world.run_until(2 * SECOND);
    let sessions = (0..8).map(|_| world.open(20_000, None)).collect();
    // The cut comes at different times after an idle heartbeat.
    world.run_until(CUT_US + seed * 77 * MS);
    (world, sessions)
}

/// Lets each session write.
fn write(world: &mut World, sessions: &[(ClientId, Session)]) {
    for (client, session) in sessions {
        let (session, clock) = (session.clone(), world.clock_of(*client));
        world.spawn(*client, async move {
            static PATH: zoolet_model::Path = zoolet_model::Path::from_static("/mine-");
            while session.create_with(&PATH, None, &CreateOptions::default().sequential()).await.is_err() {
                clock.timer(clock.now() + Duration::from_millis(20)).await;
            }
        });
    }
}

fn run_for(world: &mut World, for_us: u64) {
    let until_us = world.now_us() + for_us;
    world.run_until(until_us);
    assert_eq!(world.witness().violations(), [""; 0]);
}

fn others(world: &World, than: ServerId) -> Vec<ServerId> {
    world.servers().into_iter().filter(|&server| server != than).collect()
}

fn needs_leader(operation: &&Operation) -> bool {
    operation.request.class().needs_leader()
}

/// Returns how long after `from_us` the first request that needs a leader was answered.
///
/// Only requests sent since then count.
fn first_answer_us(history: &History, from_us: u64) -> Option<u64> {
    let since = history.operations.iter().filter(needs_leader).filter(|asked| asked.invoked.us >= from_us);
    since.filter_map(|asked| Some(asked.answer.as_ref()?.at.us - from_us)).min()
}

/// Returns the connections of clients at a server, and the longest that one of their requests
/// waited.
///
/// Only requests that need a leader and were sent since `from_us` count.
fn longest_wait_us(history: &History, at: ServerId, from_us: u64, now_us: u64) -> (usize, u64) {
    let since = history.operations.iter().filter(needs_leader).filter(|asked| asked.invoked.us >= from_us);
    let mut waited: Vec<(ConnId, u64)> = since
        .filter_map(|asked| {
            let connection = history.connection_of(asked);
            let answered_us = asked.answer.as_ref().map(|answer| answer.at.us);
            let ended_us = connection.ended.map(|(at, _)| at.us);
            let over_us = answered_us.or(ended_us).unwrap_or(now_us);
            (connection.server == at && !connection.embedded).then_some((connection.id, over_us - asked.invoked.us))
        })
        .collect();
    let longest_us = waited.iter().map(|&(_, us)| us).max().unwrap_or(0);
    waited.sort_unstable();
    waited.dedup_by_key(|(conn, _)| *conn);
    (waited.len(), longest_us)
}

#[test]
fn deaf_leader_is_replaced_and_a_write_is_answered_within_500_ms() {
    let mut worst_us = 0;
    for (voters, seed) in [3, 5].into_iter().flat_map(|voters| (0..SEEDS).map(move |seed| (voters, seed))) {
        let mut world = busy(voters, seed);
        let deaf = world.leader().unwrap();
        let epochs = world.witness().epochs.established();
        let others = others(&world, deaf);
        others.iter().for_each(|&from| world.cut_way(from, deaf));
        run_for(&mut world, 5 * SECOND);
        assert_ne!(world.leader(), Some(deaf), "{voters} voters, seed {seed}");
        assert_eq!(world.witness().epochs.established(), epochs + 1, "{voters} voters, seed {seed}");
        let waited_us = first_answer_us(world.witness().recorder.so_far(), CUT_US).unwrap();
        eprintln!("{voters} voters, seed {seed}: deaf leader, {waited_us} us without an answer");
        worst_us = worst_us.max(waited_us);
        others.iter().for_each(|&from| world.mend_way(from, deaf));
        run_for(&mut world, 5 * SECOND);
        assert!(matches!(world.witness().said(deaf).unwrap().role, Role::Following(_)));
        conclude(seed, world).unwrap_or_else(|failure| panic!("{failure}"));
    }
    assert!(worst_us <= WAIT_US, "{worst_us} us");
}

/// An idle leader first misses the answer to a ping at the idle pace.
#[test]
fn idle_deaf_leader_is_replaced_and_a_write_is_answered_within_850_ms() {
    let mut worst_us = 0;
    for (voters, seed) in [3, 5].into_iter().flat_map(|voters| (0..SEEDS).map(move |seed| (voters, seed))) {
        let (mut world, sessions) = idle(voters, seed);
        let deaf = world.leader().unwrap();
        let from_us = world.now_us();
        others(&world, deaf).into_iter().for_each(|from| world.cut_way(from, deaf));
        write(&mut world, &sessions);
        run_for(&mut world, 5 * SECOND);
        let waited_us = first_answer_us(world.witness().recorder.so_far(), from_us).unwrap();
        eprintln!("{voters} voters, seed {seed}: idle deaf leader, {waited_us} us without an answer");
        worst_us = worst_us.max(waited_us);
    }
    assert!(worst_us <= WAIT_US + 350 * MS, "{worst_us} us");
}

/// Regression: each follower waited for three heartbeats of the idle pace.
#[test]
fn idle_mute_leader_is_replaced_and_a_write_is_answered_within_500_ms() {
    let mut worst_us = 0;
    for (voters, seed) in [3, 5].into_iter().flat_map(|voters| (0..SEEDS).map(move |seed| (voters, seed))) {
        let (mut world, sessions) = idle(voters, seed);
        let mute = world.leader().unwrap();
        let from_us = world.now_us();
        others(&world, mute).into_iter().for_each(|to| world.cut_way(mute, to));
        write(&mut world, &sessions);
        run_for(&mut world, 5 * SECOND);
        let waited_us = first_answer_us(world.witness().recorder.so_far(), from_us).unwrap();
        eprintln!("{voters} voters, seed {seed}: idle mute leader, {waited_us} us without an answer");
        worst_us = worst_us.max(waited_us);
    }
    assert!(worst_us <= WAIT_US, "{worst_us} us");
}

#[test]
fn idle_follower_that_misses_its_leader_sends_waiting_clients_on() {
    let (mut worst_us, mut clients) = (0, 0);
    for (voters, seed) in [3, 5].into_iter().flat_map(|voters| (0..SEEDS).map(move |seed| (voters, seed))) {
        let (mut world, sessions) = idle(voters, seed);
        let leader = world.leader().unwrap();
        let follower = others(&world, leader)[0];
        let from_us = world.now_us();
        world.part(leader, follower);
        write(&mut world, &sessions);
        run_for(&mut world, 4 * SECOND);
        let (count, longest_us) = longest_wait_us(world.witness().recorder.so_far(), follower, from_us, world.now_us());
        eprintln!("{voters} voters, seed {seed}: idle: {count} connections, {longest_us} us");
        (worst_us, clients) = (worst_us.max(longest_us), clients + count);
    }
    assert!(worst_us <= WAIT_US && clients > 10, "{clients} clients, {worst_us} us");
}

/// Cuts a follower from its leader alone, and asserts that its clients do not wait long.
fn waiting_clients_go_on(ways: &[(bool, bool)]) {
    let (mut worst_us, mut clients) = (0, 0);
    for &(hears, is_heard) in ways {
        for (voters, seed) in [3, 5].into_iter().flat_map(|voters| (0..SEEDS).map(move |seed| (voters, seed))) {
            let mut world = busy(voters, seed);
            let leader = world.leader().unwrap();
            let follower = others(&world, leader)[0];
            let epochs = world.witness().epochs.established();
            let cuts = [(leader, follower, hears), (follower, leader, is_heard)];
            let cuts = cuts.into_iter().filter(|(.., is_well)| !is_well);
            cuts.clone().for_each(|(from, to, _)| world.cut_way(from, to));
            run_for(&mut world, 4 * SECOND);
            let (count, longest_us) =
                longest_wait_us(world.witness().recorder.so_far(), follower, CUT_US, world.now_us());
            eprintln!(
                "{voters} voters, seed {seed}: hears {hears}, is heard {is_heard}: {count} connections, {longest_us} us"
            );
            (worst_us, clients) = (worst_us.max(longest_us), clients + count);
            assert_eq!(world.leader(), Some(leader), "{voters} voters, seed {seed}: one follower deposes no leader");
            cuts.for_each(|(from, to, _)| world.mend_way(from, to));
            run_for(&mut world, 6 * SECOND);
            assert_eq!(world.witness().epochs.established(), epochs, "{voters} voters, seed {seed}");
            assert_eq!(world.witness().said(follower).unwrap().role, Role::Following(leader));
            conclude(seed, world).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
    assert!(worst_us <= WAIT_US && clients > 10, "{clients} clients, {worst_us} us");
}

#[test]
fn follower_that_alone_does_not_hear_its_leader_sends_waiting_clients_on() {
    waiting_clients_go_on(&[(false, true), (false, false)]);
}

#[test]
fn follower_that_its_leader_alone_does_not_hear_sends_waiting_clients_on() {
    waiting_clients_go_on(&[(true, false)]);
}

fn minutes() -> u64 {
    std::env::var("ENSEMBLE_MINUTES").ok().and_then(|value| value.parse().ok()).unwrap_or(MINUTES)
}

/// Cuts a random path one way every 10 s, and counts the elections.
///
/// A cut lasts from 0.1 s to 30 s, so several can last at once.
#[test]
fn random_one_way_cuts_cause_at_most_one_election_each() {
    for voters in [3, 5] {
        let plan = Plan::steady(voters, DiskModel::Nvme, 0);
        let mut world = plan.build(9, Trace::off());
        world.run_until(CUT_US);
        let mut random = Random::new(u64::from(voters));
        let first = world.witness().epochs.begun();
        let (mut lasting, mut cuts) = (Vec::new(), 0);
        for at_us in (CUT_US..minutes() * 60 * SECOND).step_by(100 * MS as usize) {
            world.run_until(at_us);
            assert_eq!(world.witness().violations(), [""; 0]);
            for (from, to, _) in lasting.extract_if(.., |&mut (_, _, until_us)| until_us <= at_us) {
                world.mend_way(from, to);
            }
            if at_us % (10 * SECOND) == 0 {
                let from = *random.pick(&world.servers());
                let to = *random.pick(&others(&world, from));
                world.cut_way(from, to);
                lasting.push((from, to, at_us + random.logarithmic(100 * MS, 30 * SECOND)));
                cuts += 1;
            }
        }
        lasting.into_iter().for_each(|(from, to, _)| world.mend_way(from, to));
        run_for(&mut world, 10 * SECOND);
        let begun = world.witness().epochs.begun() - first;
        eprintln!("{voters} voters: {begun} new epochs, {cuts} cuts");
        assert!(begun <= cuts, "{voters} voters: {begun} new epochs, {cuts} cuts");
        conclude(9, world).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Lets paths fail and recover without end, and returns the epochs that began.
fn epochs_while_flapping(
    world: &mut World,
    down_us: u64,
    up_us: u64,
    paths: impl Fn(&World, ServerId) -> Vec<(ServerId, ServerId)>,
) -> u32 {
    let first = world.witness().epochs.begun();
    let until_us = world.now_us() + 60 * SECOND;
    while world.now_us() < until_us {
        let leader = world.leader();
        let cuts = leader.map(|leader| paths(world, leader)).unwrap_or_default();
        cuts.iter().for_each(|&(from, to)| world.cut_way(from, to));
        run_for(world, down_us);
        cuts.iter().for_each(|&(from, to)| world.mend_way(from, to));
        run_for(world, up_us);
    }
    world.witness().epochs.begun() - first
}

#[test]
fn flapping_link_of_a_leader_causes_no_election() {
    for (down_ms, up_ms) in [(100, 100), (300, 100), (400, 400), (2500, 300)] {
        for (voters, is_to_leader) in [(3, true), (3, false), (5, true), (5, false)] {
            let mut world = busy(voters, 3);
            let begun = epochs_while_flapping(&mut world, down_ms * MS, up_ms * MS, |world, leader| {
                let other = others(world, leader)[0];
                vec![if is_to_leader { (other, leader) } else { (leader, other) }]
            });
            assert_eq!(begun, 0, "{voters} voters, {down_ms} ms down, {up_ms} ms up, to leader {is_to_leader}");
        }
    }
}

/// The leader, whichever server that is, is deaf again and again.
#[test]
fn leaders_that_are_deaf_again_and_again_change_at_most_every_2_s() {
    for (down_ms, up_ms) in [(100, 100), (300, 100), (400, 400), (800, 200)] {
        for voters in [3, 5] {
            let mut world = busy(voters, 3);
            let begun = epochs_while_flapping(&mut world, down_ms * MS, up_ms * MS, |world, leader| {
                others(world, leader).into_iter().map(|other| (other, leader)).collect()
            });
            eprintln!("{voters} voters, {down_ms} ms deaf, {up_ms} ms not: {begun} epochs a minute");
            assert!(begun <= 30, "{voters} voters, {down_ms} ms deaf, {up_ms} ms not: {begun} epochs");
        }
    }
}

/// Cuts a follower off from all servers for a while.
///
/// Returns the number of connections with a request that needs a leader, the longest wait, and when
/// the server closed connections: in microseconds, since the cut.
fn cut_off_from_all(voters: u8, seed: u64, for_us: u64) -> (usize, u64, Vec<u64>) {
    let mut world = busy(voters, seed);
    let leader = world.leader().unwrap();
    let follower = others(&world, leader)[0];
    let epochs = world.witness().epochs.established();
    others(&world, follower).into_iter().for_each(|other| world.part(other, follower));
    run_for(&mut world, for_us);
    others(&world, follower).into_iter().for_each(|other| world.join(other, follower));
    run_for(&mut world, 6 * SECOND);
    assert_eq!(world.witness().epochs.established(), epochs, "{voters} voters, seed {seed}");
    assert_eq!(world.witness().said(follower).unwrap().role, Role::Following(leader));
    let history = world.witness().recorder.so_far();
    let there = history.connections.iter().filter(|one| one.server == follower && !one.embedded);
    let ended = there.filter_map(|one| one.ended.filter(|(at, _)| at.us >= CUT_US));
    let closed = ended.filter(|(_, end)| *end == End::ByServer).map(|(at, _)| at.us - CUT_US).collect();
    let (clients, longest_us) = longest_wait_us(history, follower, CUT_US, world.now_us());
    conclude(seed, world).unwrap_or_else(|failure| panic!("{failure}"));
    (clients, longest_us, closed)
}

/// Regression: the follower counted as cut off from its leader alone, and closed connections after
/// 0.3 s.
#[test]
fn follower_that_hears_no_server_for_a_second_keeps_its_clients() {
    let mut all = 0;
    for (voters, seed) in [3, 5].into_iter().flat_map(|voters| (0..SEEDS).map(move |seed| (voters, seed))) {
        let (clients, longest_us, closed) = cut_off_from_all(voters, seed, SECOND);
        eprintln!("{voters} voters, seed {seed}: {clients} clients wait for {longest_us} us");
        assert_eq!(closed, [0; 0], "{voters} voters, seed {seed}");
        all += clients;
    }
    assert!(all > 10, "{all} clients");
}

/// Regression: clients waited for 2 s from the end of the silent link, not from the suspicion.
#[test]
fn follower_that_hears_no_server_sends_its_clients_on_after_2_s() {
    let mut all = 0;
    for (voters, seed) in [3, 5].into_iter().flat_map(|voters| (0..SEEDS).map(move |seed| (voters, seed))) {
        let (clients, longest_us, closed) = cut_off_from_all(voters, seed, 5 * SECOND);
        eprintln!("{voters} voters, seed {seed}: {clients} clients wait for {longest_us} us, closed at {closed:?}");
        // The server suspects its leader after 0.15 s.
        assert!(closed.iter().all(|&us| us >= 2 * SECOND), "{voters} voters, seed {seed}");
        assert!(longest_us <= 2300 * MS, "{voters} voters, seed {seed}: {longest_us} us");
        all += clients;
    }
    assert!(all > 10, "{all} clients");
}

/// Regression: the server did not forget a suspicion that was over. The wait for the next leader
/// counted from there, so all clients lost their connections at once.
#[test]
fn follower_that_suspected_its_leader_for_a_moment_keeps_its_clients_at_the_next_loss() {
    let mut all = 0;
    for seed in 0..SEEDS {
        let (mut world, _sessions) = idle(3, seed);
        let leader = world.leader().unwrap();
        let follower = others(&world, leader)[0];
        others(&world, follower).into_iter().for_each(|other| world.part(other, follower));
        run_for(&mut world, 1300 * MS);
        others(&world, follower).into_iter().for_each(|other| world.join(other, follower));
        run_for(&mut world, 3 * SECOND);
        assert_eq!(world.leader(), Some(leader), "seed {seed}");
        let lost_us = world.now_us();
        world.kill_server(leader);
        run_for(&mut world, SECOND);
        let history = world.witness().recorder.so_far();
        let there = history.connections.iter().filter(|one| one.server == follower && !one.embedded);
        let open = there.filter(|one| one.ended.is_none_or(|(at, _)| at.us >= lost_us));
        for one in open {
            assert_eq!(one.ended, None, "seed {seed}");
            all += 1;
        }
    }
    assert!(all > 5, "{all} connections");
}
