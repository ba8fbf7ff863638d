//! The testing API for embedders: ensembles in memory, their faults, and seeded runs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../examples/daemon.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod daemon;
#[path = "../examples/hot_standby_modem.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod hot_standby_modem;
#[path = "../examples/testing/lost_reply.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod lost_reply;
#[path = "../examples/testing/simulated.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod simulated;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use zoolet::recipes::{Coordinator, Election};
use zoolet::testing::{Fact, MemoryEnsemble, World, simulate};
use zoolet::{CreateOptions, ErrorKind, LostReason, SessionState, path};

/// Returns the message of a panic.
fn told(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn example_daemon_with_a_lost_reply_finds_its_own_znode() {
    assert_eq!(lost_reply::run().unwrap(), "there after 2 attempts");
}

#[test]
fn example_valve_turns_never_overlap_in_20_simulated_runs() {
    assert_eq!(simulated::run(), 20);
}

/// Returns when modems transmit: client, start and end in microseconds of the run.
///
/// A modem transmits from the time it is told `Up` until the instant given with it, or until it is
/// told something else.
fn transmissions(facts: &[Fact<Told>]) -> Vec<(usize, u64, u64)> {
    let mut all = Vec::new();
    for (at, fact) in facts.iter().enumerate() {
        let Told::Up { until_us } = fact.what else { continue };
        let next = facts[at + 1..].iter().find(|later| later.client == fact.client);
        let to_us = next.map_or(until_us, |next| next.at_us.min(until_us));
        if fact.at_us < to_us {
            all.push((fact.client, fact.at_us, to_us));
        }
    }
    all
}

/// An instruction to a modem, in the time of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Up { until_us: u64 },
    Down,
}

/// The boxes are cut off, paused, killed and lose their sessions.
///
/// Without the deadline in `Up`, a modem would miss the command to stop while its box is paused,
/// and would transmit beside the other one.
#[test]
fn example_modems_never_transmit_together_in_20_simulated_runs() {
    use hot_standby_modem::{Link, standby};
    let (changes, silences) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in 0..20 {
        let (changes, silences) = (Rc::clone(&changes), Rc::clone(&silences));
        simulate(seed, move |world: &mut World<Told>| {
            for _ in 0..2 {
                world.client(|context| async move {
                    let told = |link| match link {
                        Link::Up(until) => Told::Up { until_us: context.true_us(until.instant()) },
                        Link::Down => Told::Down,
                    };
                    let _: Result<_, _> = standby(context.session.clone(), |link| context.record(told(link))).await;
                });
            }
            world.client(|context| async move {
                context.sleep(Duration::from_secs(60)).await;
                while !context.session.state().is_over() && context.session.ensure(path!("/modem/off")).await.is_err() {
                    context.sleep(Duration::from_millis(100)).await;
                }
            });
            let (changes, silences) = (Rc::clone(&changes), Rc::clone(&silences));
            world.judge(move |facts| {
                let all = transmissions(facts);
                for (at, &(client, from_us, _)) in all.iter().enumerate() {
                    let both = all[..at].iter().find(|(other, _, to_us)| *other != client && from_us < *to_us);
                    assert_eq!(both, None, "beside modem {client}, which transmits from {from_us} us");
                }
                changes.set(changes.get() + all.windows(2).filter(|two| two[0].0 != two[1].0).count());
                let is_silent = |two: &&[(usize, u64, u64)]| two[0].0 == two[1].0 && two[0].2 < two[1].1;
                silences.set(silences.get() + all.windows(2).filter(is_silent).count());
            });
        });
    }
    // A box keeps the channel through a short doubt, so few changes.
    assert!(changes.get() > 4 && silences.get() > 5, "{} changes, {} silences", changes.get(), silences.get());
}

#[test]
fn writes_and_remote_sessions_survive_a_restart_of_all_servers() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let session = ensemble.session();
    let inside = ensemble.session_in(ensemble.servers()[0]);
    ensemble.run(session.create(path!("/kept"), "1")).unwrap();
    ensemble.servers().into_iter().for_each(|server| ensemble.kill(server));
    ensemble.advance(Duration::from_secs(1));
    assert_eq!((ensemble.leader(), session.state()), (None, SessionState::Suspended));
    ensemble.servers().into_iter().for_each(|server| ensemble.restart(server));
    ensemble.advance(Duration::from_secs(3));
    assert_eq!(session.state(), SessionState::Connected);
    assert_eq!(ensemble.run(session.get(path!("/kept"))).unwrap().text(), Some("1"));
    assert!(catch_unwind(AssertUnwindSafe(|| ensemble.expire(&inside))).is_err(), "it ended with its process");
}

#[test]
fn larger_side_of_a_partition_serves_and_all_servers_after_healing() {
    let mut ensemble = MemoryEnsemble::in_memory(5);
    let servers = ensemble.servers();
    let former = ensemble.leader().unwrap();
    let (few, many): (Vec<_>, Vec<_>) =
        servers.iter().partition(|server| **server == former || server.as_u8() == former.as_u8() % 5 + 1);
    let cut_off = ensemble.session_in(former);
    ensemble.partition(&few, &many);
    // The former leader notices that it has no quorum, and keeps its sessions for a while.
    ensemble.advance(Duration::from_secs(8));
    assert!(many.contains(&ensemble.leader().unwrap()));
    assert_eq!(cut_off.state(), SessionState::Suspended);
    let session = ensemble.session();
    ensemble.run(session.create(path!("/by-many"), None)).unwrap();
    ensemble.heal();
    ensemble.advance(Duration::from_secs(4));
    let seen = ensemble.session_in(former);
    assert!(ensemble.run(seen.exists(path!("/by-many"))).unwrap().is_some());
}

#[test]
fn only_an_expired_session_loses_its_ephemerals() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    for inside in [false, true] {
        let server = ensemble.servers()[2];
        let (daemon, other) =
            (if inside { ensemble.session_in(server) } else { ensemble.session() }, ensemble.session());
        ensemble.run(daemon.create_with(path!("/mine"), None, &CreateOptions::ephemeral())).unwrap();
        ensemble.advance(Duration::from_secs(60));
        assert!(ensemble.run(other.exists(path!("/mine"))).unwrap().is_some(), "it is alive");
        ensemble.expire(&daemon);
        assert_eq!(daemon.state(), SessionState::Lost(LostReason::Expired), "inside: {inside}");
        ensemble.run(other.sync()).unwrap();
        assert_eq!(ensemble.run(other.exists(path!("/mine"))).unwrap(), None);
        let ended = ensemble.run(daemon.exists(path!("/"))).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::SessionLost(LostReason::Expired));
    }
}

#[test]
fn paused_server_runs_no_client_code_and_keeps_its_session_after() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let server = ensemble.leader().unwrap();
    let inside = ensemble.session_in(server);
    ensemble.pause(server);
    let asked = Rc::new(Cell::new(0));
    let (counts, mine) = (Rc::clone(&asked), inside.clone());
    ensemble.spawn(&inside, async move {
        while mine.exists(path!("/")).await.is_ok() {
            counts.set(counts.get() + 1);
            mine.timer(mine.now() + Duration::from_millis(100)).await;
        }
    });
    ensemble.advance(Duration::from_secs(1));
    assert_eq!(asked.get(), 0);
    ensemble.resume(server);
    ensemble.advance(Duration::from_secs(1));
    assert_eq!(inside.state(), SessionState::Connected);
}

#[test]
fn simulated_disk_hang_delays_writes_by_the_given_time() {
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let (server, session) = (ensemble.servers()[0], ensemble.session());
    let began = ensemble.now();
    ensemble.disk_hang(server, Duration::from_secs(3));
    ensemble.disk_hang(server, Duration::from_secs(1));
    ensemble.run(session.create(path!("/late"), None)).unwrap();
    let took = ensemble.now() - began;
    assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&took), "{took:?}");
}

/// Prints the time until an ensemble serves:
/// `cargo test --features testing --test testing -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr, reason = "a measurement")]
fn time_for_an_ensemble_to_serve() {
    let mut took: Vec<Duration> = (0..21)
        .map(|_| {
            let began = std::time::Instant::now();
            drop(MemoryEnsemble::in_memory(3));
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    eprintln!("median {:?}, from {:?} to {:?}", took[10], took[0], took[20]);
    eprintln!("virtual: {:?}", MemoryEnsemble::in_memory(3).now());
}

#[test]
fn equal_calls_give_equal_simulated_runs() {
    let run = || {
        let mut ensemble = MemoryEnsemble::in_memory(3);
        let session = ensemble.session();
        ensemble.kill(ensemble.leader().unwrap());
        drop(ensemble.run(session.create(path!("/a"), None)));
        ensemble.advance(Duration::from_secs(2));
        (ensemble.now(), ensemble.leader(), session.id(), session.random_bits())
    };
    assert_eq!(run(), run());
}

#[test]
fn future_that_never_resolves_panics_with_the_ensemble_state() {
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let said = told(|| ensemble.run(std::future::pending::<()>()));
    assert_eq!(said, "the future is not ready after 300 s of virtual time: servers that run: [1], leader: Some(1)");
}

#[test]
fn failing_seed_panics_with_its_trace_and_repeats_exactly() {
    let failing = |seed| {
        told(move || {
            simulate(seed, |world: &mut World<u64>| {
                world.client(|context| async move { context.record(context.below(1000)) });
                world.judge(|facts| assert!(facts.is_empty(), "drawn: {}", facts[0].what));
            });
        })
    };
    let said = failing(7);
    assert!(said.contains("seed 7: panicked: drawn: ") && said.contains("notes"), "{said}");
    assert_eq!(said, failing(7));
    assert_ne!(said, failing(8));
}

#[test]
fn client_code_that_is_not_deterministic_is_detected() {
    let runs = Rc::new(Cell::new(0));
    let said = told(|| {
        simulate(9, |world: &mut World<u64>| {
            let runs = Rc::clone(&runs);
            world.client(move |context| {
                runs.set(runs.get() + 1);
                assert!(runs.get() > 1, "only the first time");
                async move { drop(context) }
            });
        });
    });
    assert!(said.contains("must take its time and its chance from its context"), "{said}");
}

#[test]
fn simulated_client_restarts_after_session_loss_or_process_death() {
    let lives = (0..12).map(|seed| {
        let most = Rc::new(Cell::new(0));
        let seen = Rc::clone(&most);
        simulate(seed, move |world: &mut World<u32>| {
            world.client(|context| async move {
                context.record(context.life);
                context.sleep(Duration::from_secs(30)).await;
            });
            let seen = Rc::clone(&seen);
            world.judge(move |facts| seen.set(facts.iter().map(|fact| fact.what).max().unwrap_or_default()));
        });
        most.get()
    });
    assert!(lives.max() > Some(0), "in none of these runs anything befell the client");
}

/// Runs until the condition holds, for which progress and no time is awaited.
fn run_until(ensemble: &mut MemoryEnsemble, mut is_so: impl FnMut(&mut MemoryEnsemble) -> bool) {
    while !is_so(ensemble) {
        ensemble.advance(Duration::from_millis(100));
        assert!(ensemble.now() < Duration::from_secs(200), "it never comes to that");
    }
}

/// Leader and member of `examples/daemon.rs`: the client goes on with both over the next session.
#[test]
fn example_daemon_leads_and_is_a_member_again_after_a_lost_session() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let (client, operator) = (ensemble.client(), ensemble.session());
    let first = ensemble.run(client.session()).unwrap();
    let (_interval, changed) = tokio::sync::watch::channel(100);
    let (leading, staying) = (client.clone(), client.clone());
    ensemble.spawn(&first, async move { panic!("{:?}", daemon::lead(leading, "gw-a".to_owned(), changed).await) });
    ensemble.spawn(&first, async move { panic!("{:?}", daemon::stay(staying, "gw-a".to_owned()).await) });

    let count = |ensemble: &mut MemoryEnsemble| {
        let read = ensemble.run(operator.get(path!("/daemon/count"))).ok();
        read.map_or(0, |znode| znode.text().unwrap().parse::<u64>().unwrap())
    };
    let owner = |ensemble: &mut MemoryEnsemble| {
        let read = ensemble.run(operator.exists(path!("/daemon/members/gw-a"))).unwrap();
        read.map(|stat| stat.ephemeral_owner)
    };
    let office = Election::new(operator.clone(), path!("/daemon/leader"));
    run_until(&mut ensemble, |ensemble| count(ensemble) >= 3 && owner(ensemble) == Some(first.id().0));
    let term = ensemble.run(office.office()).unwrap().unwrap();

    ensemble.expire(&first);
    let counted = count(&mut ensemble);
    run_until(&mut ensemble, |ensemble| count(ensemble) >= counted + 3 && owner(ensemble).is_some());
    let next = ensemble.run(client.session()).unwrap();
    assert_ne!(next.id(), first.id());
    assert_eq!(owner(&mut ensemble), Some(next.id().0));
    let later = ensemble.run(office.office()).unwrap().unwrap();
    assert!(later.session == next.id() && later.token > term.token, "{term:?}, then {later:?}");
    // Each number was written once, in order: no term began from an old number.
    let read = ensemble.run(operator.get(path!("/daemon/count"))).unwrap();
    assert_eq!(read.text().unwrap().parse(), Ok(read.stat.version + 1), "number 1 made version 0");
}

/// The daemon keeps its office while another server is elected to lead the ensemble.
#[test]
fn example_daemon_keeps_its_office_when_the_server_leader_dies() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let (client, operator) = (ensemble.client(), ensemble.session());
    let session = ensemble.run(client.session()).unwrap();
    let (_interval, changed) = tokio::sync::watch::channel(100);
    ensemble.spawn(&session, async move { panic!("{:?}", daemon::lead(client, "gw-a".to_owned(), changed).await) });
    let count = |ensemble: &mut MemoryEnsemble| {
        let read = ensemble.run(operator.get(path!("/daemon/count"))).ok();
        read.map_or(0, |znode| znode.text().unwrap().parse::<u64>().unwrap())
    };
    run_until(&mut ensemble, |ensemble| count(ensemble) >= 3);
    let office = Election::new(operator.clone(), path!("/daemon/leader"));
    let term = ensemble.run(office.office()).unwrap().unwrap();
    let counted = count(&mut ensemble);
    ensemble.kill(ensemble.leader().unwrap());
    run_until(&mut ensemble, |ensemble| count(ensemble) >= counted + 3);
    assert_eq!(ensemble.run(office.office()).unwrap().unwrap().token, term.token);
}
