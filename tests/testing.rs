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

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
#[cfg(feature = "serde")]
use zoolet::recipes::Update;
use zoolet::recipes::{
    Contention, Coordinator, CoordinatorExt, Election, FencingToken, GrantChange, GrantStep, Hold, Holding, Lock,
    MemberEvent, Prepared, Queue, Recorded, Semaphore,
};
use zoolet::testing::{Fact, MemoryEnsemble, World, simulate};
use zoolet::{
    AclEntry, AddWatchMode, Client, CreateOptions, Error, ErrorCode, ErrorKind, GrantEnd, LostReason, Op, Perms,
    Session, SessionState, Version, WatchItem, path,
};

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
    let every = client.configuration(path!("/daemon/interval_ms"), Some(100)).recipe().watched();
    let (leading, staying) = (client.clone(), client.clone());
    ensemble.spawn(&first, async move { panic!("{:?}", daemon::lead(leading, "gw-a".to_owned(), every).await) });
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
    let every = client.configuration(path!("/daemon/interval_ms"), Some(100)).recipe().watched();
    ensemble.spawn(&session, async move { panic!("{:?}", daemon::lead(client, "gw-a".to_owned(), every).await) });
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

/// Work that fails with an error that passes begins again in the same term. It waits long only if the
/// connection is not the cause.
#[test]
fn work_begins_again_in_its_term_after_an_error_that_passes() {
    let connection = [
        ErrorKind::ConnectionLoss,
        ErrorKind::Suspended,
        ErrorKind::Doubtful,
        ErrorKind::Disconnected,
        ErrorKind::Refused(ErrorCode::NotReadOnly),
    ];
    // The last one is of another grant, which the work has lost.
    let no_room = ErrorKind::Refused(ErrorCode::SystemError);
    let others = [no_room, ErrorKind::Full, ErrorKind::GrantLost(GrantEnd::Broken)];
    for kind in connection.into_iter().chain(others) {
        let mut ensemble = MemoryEnsemble::in_memory(1);
        let client = ensemble.client();
        let begun = RefCell::new(Vec::new());
        let election = |session| Election::new(session, path!("/leader"));
        let leading = client.lead(election, |term| {
            let mut begun = begun.borrow_mut();
            begun.push((term.token(), term.session().now()));
            let ended = if begun.len() == 1 { Err(kind.into()) } else { Ok(term.session().session_timeout()) };
            async move { ended }
        });
        let timeout = ensemble.run(leading).unwrap();
        let [(first, failed), (second, again)] = begun.into_inner().try_into().unwrap();
        assert_eq!(first, second, "{kind:?}");
        let (pause, longest) = (again - failed, timeout / if connection.contains(&kind) { 128 } else { 7 });
        assert!(pause <= longest && !pause.is_zero(), "{kind:?}: {pause:?}, not {longest:?}");
    }
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let client = ensemble.client();
    let refused = client.lead(
        |session| Election::new(session, path!("/leader")),
        async |_| Err::<(), _>(ErrorKind::Refused(ErrorCode::NoAuth).into()),
    );
    assert_eq!(ensemble.run(refused).unwrap_err().code(), Some(ErrorCode::NoAuth));
}

/// An identity is that of each session, and work that must not pause begins again after a doubt.
#[test]
fn prepared_client_has_its_identity_in_each_session() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let identify = async |session: Session| session.add_auth("digest", "operator:secret").await;
    let client = Client::new(Prepared::new(ensemble.opener(), identify));
    let other = ensemble.session();
    let first = ensemble.run(client.session()).unwrap();
    let own = [AclEntry { perms: Perms::ALL, scheme: "auth".into(), id: "".into() }];
    ensemble.run(first.create_with(path!("/own"), None, &CreateOptions::persistent().acl(&own))).unwrap();
    assert!(ensemble.run(other.set(path!("/own"), "x", Version::Any)).unwrap_err().is_no_auth());
    ensemble.expire(&first);
    let next = ensemble.run(client.session()).unwrap();
    ensemble.run(next.set(path!("/own"), "y", Version::Any)).unwrap();
}

/// The work of `lead_restarting` is dropped in doubt, and begins again under the same token.
#[test]
fn restarting_work_begins_again_in_its_term_after_a_doubt() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let client = ensemble.client();
    let session = ensemble.run(client.session()).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    ensemble.spawn(&session, async move {
        let election = |session| Election::new(session, path!("/leader"));
        let work = |term: Hold<Session>| {
            let (tell, token) = (Arc::clone(&tell), term.token());
            async move {
                let _dropped = Telling(Arc::clone(&tell), token);
                tell.lock().unwrap().push(("begun", token));
                std::future::pending::<Result<(), Error>>().await
            }
        };
        panic!("{:?}", client.lead_restarting(election, work).await);
    });
    ensemble.advance(Duration::from_secs(1));
    restart_all(&mut ensemble);
    let told = told.lock().unwrap().clone();
    let steps: Vec<_> = told.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, ["begun", "dropped", "begun"]);
    assert!(told.iter().all(|(_, token)| *token == told[0].1), "{told:?}");
}

/// Tells that the work under this token was dropped.
struct Telling(Arc<Mutex<Vec<(&'static str, FencingToken)>>>, FencingToken);

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(("dropped", self.1));
    }
}

/// A leader whose own box cannot do the work does not keep the office for ever.
#[test]
fn leader_whose_work_cannot_go_on_resigns() {
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let (client, other) = (ensemble.client(), ensemble.client());
    let session = ensemble.run(client.session()).unwrap();
    let election = |session| Election::new(session, path!("/leader"));
    ensemble.spawn(&session, async move {
        let no_room = async |_| Err::<(), _>(ErrorKind::Refused(ErrorCode::SystemError).into());
        panic!("{:?}", client.lead(election, no_room).await);
    });
    let led = other.lead(election, async |term| Ok(term.token()));
    ensemble.run(led).unwrap();
}

/// A session that ends for the program's own fault is not followed by another one.
#[test]
fn client_ends_with_the_error_of_a_refused_identity() {
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let client = ensemble.client();
    let ended = client.run(async |session: Session| session.add_auth("bogus", "x").await);
    assert_eq!(ensemble.run(ended).unwrap_err().kind(), ErrorKind::AuthFailed);
    assert_eq!(ensemble.run(client.session()).unwrap_err().kind(), ErrorKind::AuthFailed);
}

/// A member that is told when its session ends and when it is back, and a client's watch over both.
#[test]
fn membership_and_watch_tell_what_happens_over_sessions() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let client = ensemble.client();
    let first = ensemble.run(client.session()).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (keeping, telling) = (client.clone(), Arc::clone(&told));
    ensemble.spawn(&first, async move {
        let mut member = keeping.member(path!("/members"), "gw-a", "up");
        let _ = member.keep_telling(|event| telling.lock().unwrap().push(event)).await;
    });
    let mut watch = client.watch(path!("/members"), AddWatchMode::PersistentRecursive);
    let heard = ensemble.run(watch.next()).unwrap();
    assert!(matches!(heard, WatchItem::Event(_)), "{heard:?}");
    run_until(&mut ensemble, |_| told.lock().unwrap().len() == 1);
    ensemble.expire(&first);
    run_until(&mut ensemble, |_| told.lock().unwrap().len() == 3);
    let second = ensemble.run(client.session()).unwrap();
    let (first, second) = (first.id(), second.id());
    let expected = [MemberEvent::Joined(first), MemberEvent::Left(first), MemberEvent::Joined(second)];
    assert_eq!(*told.lock().unwrap(), expected);
    while ensemble.run(watch.next()).unwrap() != WatchItem::Gap {}
    assert_eq!(watch.session_number(), 2);
}

/// Collects what a recorded session is told: the step's name, and whether there was a token.
type Heard = Arc<Mutex<Vec<(&'static str, bool)>>>;

fn recorded(session: &Session, heard: &Heard) -> Recorded<Session> {
    let heard = Arc::clone(heard);
    Recorded::new(session.clone(), move |change: &GrantChange<'_>| {
        assert_eq!(change.path, path!("/locks/told"));
        assert!(change.znode.starts_with(change.path), "{change:?}");
        let name = match change.step {
            GrantStep::Waits => "waits",
            GrantStep::Left { .. } => "left",
            GrantStep::Granted { .. } => "granted",
            GrantStep::Doubted => "doubted",
            GrantStep::HeldAgain { .. } => "held again",
            GrantStep::Lost { end: GrantEnd::Broken, .. } => "broken",
            GrantStep::Lost { .. } => "lost",
            GrantStep::Released { .. } => "released",
            _ => "another step",
        };
        heard.lock().unwrap().push((name, change.token.is_some()));
    })
}

/// Restarts all servers: no session has a connection meanwhile.
fn restart_all(ensemble: &mut MemoryEnsemble) {
    ensemble.servers().into_iter().for_each(|server| ensemble.kill(server));
    ensemble.advance(Duration::from_secs(1));
    ensemble.servers().into_iter().for_each(|server| ensemble.restart(server));
    ensemble.advance(Duration::from_secs(3));
}

/// Every change of a lock's grants is told once, with its token, in order.
#[test]
fn recorded_session_hears_of_each_change_of_its_grants() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let (session, other) = (ensemble.session(), ensemble.session());
    let heard = Heard::default();
    let lock = Lock::new(recorded(&session, &heard), path!("/locks/told"));
    let told = |expected: &[&str]| {
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        assert_eq!(heard.iter().map(|(name, _)| *name).collect::<Vec<_>>(), expected);
        assert!(heard.iter().all(|(name, token)| *token != ["waits", "left"].contains(name)), "{heard:?}");
    };

    let grant = ensemble.run(lock.acquire()).unwrap();
    told(&["waits", "granted"]);
    ensemble.spawn(&session, async move {
        let ended = grant.hold_for(|_| std::future::pending::<()>()).await;
        assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::GrantLost(GrantEnd::Broken)));
    });
    restart_all(&mut ensemble);
    told(&["doubted", "held again"]);

    let contention = Contention::new(other.clone(), path!("/locks/told"));
    let holder = ensemble.run(contention.contenders()).unwrap().remove(0);
    ensemble.run(contention.break_grant(&holder, "a test")).unwrap();
    ensemble.advance(Duration::from_secs(1));
    told(&["broken"]);

    drop(ensemble.run(lock.acquire()).unwrap());
    told(&["waits", "granted", "released"]);
    let others = ensemble.run(Lock::new(other, path!("/locks/told")).acquire()).unwrap();
    assert!(ensemble.run(lock.acquire_within(Duration::from_secs(1))).unwrap().is_none());
    told(&["waits", "left"]);

    drop(others);
    let grant = ensemble.run(lock.acquire()).unwrap();
    ensemble.expire(&session);
    drop(grant);
    told(&["waits", "granted", "lost"]);
}

/// A write of the lost leader's time is done once, and nothing interrupts the session's owner.
#[test]
fn session_and_grant_in_a_surviving_member_do_not_notice_that_the_leader_changes() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    for round in 0..6 {
        let leader = ensemble.leader().unwrap();
        let others = ensemble.servers().into_iter().filter(|&server| server != leader);
        let server = others.collect::<Vec<_>>()[round % 2];
        let session = ensemble.session_in(server);
        let (heard, told) = (Heard::default(), Arc::new(Mutex::new(Vec::new())));
        let (mut states, states_told) = (session.states(), Arc::clone(&told));
        ensemble.spawn(&session, async move {
            while let Some(state) = states.next().await {
                states_told.lock().unwrap().push(state);
            }
        });
        let grant = ensemble.run(Lock::new(recorded(&session, &heard), path!("/locks/told")).acquire()).unwrap();
        ensemble.spawn(&session, async move { drop(grant.hold_for(|_| std::future::pending::<()>()).await) });
        ensemble.run(session.create(path!("/written"), None)).unwrap();
        let write = session.set(path!("/written"), "1", Version::Any);
        ensemble.kill(leader);
        assert_eq!(ensemble.run(write).unwrap().version, 1);
        ensemble.advance(Duration::from_secs(1));
        assert_eq!(*told.lock().unwrap(), [SessionState::Connected]);
        let steps: Vec<_> = heard.lock().unwrap().iter().map(|(name, _)| *name).collect();
        assert_eq!(steps, ["waits", "granted"]);
        ensemble.run(session.delete(path!("/written"), Version::Any)).unwrap();
        ensemble.run(session.close()).unwrap();
        ensemble.restart(leader);
        ensemble.advance(Duration::from_secs(3));
    }
}

/// A withdrawn grant stays in doubt until its end, and its holder does not ask again and again.
#[test]
fn withdrawn_grant_is_told_in_doubt_once_and_costs_no_writes() {
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let (session, other) = (ensemble.session(), ensemble.session());
    let heard = Heard::default();
    let lock = Lock::new(recorded(&session, &heard), path!("/locks/told"));
    let grant = ensemble.run(lock.acquire()).unwrap();
    ensemble.spawn(&session, async move { drop(grant.hold_for(|_| std::future::pending::<()>()).await) });
    let contention = Contention::new(other.clone(), path!("/locks/told"));
    let holder = ensemble.run(contention.contenders()).unwrap().remove(0);
    let before = ensemble.run(other.create(path!("/before"), None)).unwrap().stat.czxid;
    let longest = Duration::from_secs(40);
    ensemble.run(contention.revoke_safely(&holder, Duration::from_secs(1), longest, "a test")).unwrap();
    ensemble.advance(Duration::from_secs(1));
    let after = ensemble.run(other.create(path!("/after"), None)).unwrap().stat.czxid;
    let steps: Vec<_> = heard.lock().unwrap().iter().map(|(name, _)| *name).collect();
    assert_eq!(steps, ["waits", "granted", "doubted", "broken"]);
    // Request, withdrawal, break with its audit, the next znode, and a check at the beginning.
    assert!(after - before <= 6, "{} writes", after - before);
}

/// A standby whose connection was renewed while it waited begins its grant without a doubt.
#[test]
fn grant_after_a_reconnect_while_waiting_begins_held() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let (session, other) = (ensemble.session(), ensemble.session());
    let heard = Heard::default();
    let waiter = recorded(&session, &heard);
    let first = ensemble.run(Lock::new(other.clone(), path!("/locks/told")).acquire()).unwrap();
    let leader = ensemble.run(Election::new(other, path!("/leader")).campaign()).unwrap();
    let (lock, election) = (Lock::new(waiter, path!("/locks/told")), Election::new(session.clone(), path!("/leader")));
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&states);
    ensemble.spawn(&session, async move {
        let grant = lock.acquire().await.unwrap();
        let leadership = election.campaign().await.unwrap();
        let (of_lock, of_office) = (grant.holdings().next().await, leadership.holdings().next().await);
        seen.lock().unwrap().extend([of_lock, of_office]);
    });
    ensemble.advance(Duration::from_secs(1));
    restart_all(&mut ensemble);
    drop((first, leader));
    ensemble.advance(Duration::from_secs(2));
    assert_eq!(*states.lock().unwrap(), [Some(Holding::Held), Some(Holding::Held)]);
    let steps: Vec<_> = heard.lock().unwrap().iter().map(|(name, _)| *name).collect();
    assert_eq!(steps, ["waits", "granted", "released"]);
}

/// A recorder that panics does not keep the lock from others.
#[test]
fn grant_is_given_up_even_if_the_recorder_panics() {
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let (session, other) = (ensemble.session(), ensemble.session());
    let broken = Recorded::new(session, |change: &GrantChange<'_>| {
        assert!(!matches!(change.step, GrantStep::Released { .. }), "a fault of the recorder");
    });
    let grant = ensemble.run(Lock::new(broken, path!("/lock")).acquire()).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(grant))).is_err());
    drop(ensemble.run(Lock::new(other, path!("/lock")).acquire_within(Duration::from_secs(1))).unwrap().unwrap());
}

/// The two lines of a semaphore are reported as one wait and one grant.
#[test]
fn semaphore_reports_one_participation() {
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let session = ensemble.session();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let recorded = Recorded::new(session, move |change: &GrantChange<'_>| {
        assert_eq!(change.path, path!("/permits"));
        hears.lock().unwrap().push((change.id, format!("{:?}", change.step).split(' ').next().unwrap().to_owned()));
    });
    let semaphore = Semaphore::new(recorded, path!("/permits"));
    ensemble.run(semaphore.set_size(1)).unwrap();
    let permit = ensemble.run(semaphore.acquire()).unwrap();
    assert!(ensemble.run(semaphore.acquire_within(Duration::from_secs(1))).unwrap().is_none());
    drop(permit);
    let heard = heard.lock().unwrap().clone();
    let steps: Vec<_> = heard.iter().map(|(_, step)| step.as_str()).collect();
    assert_eq!(steps, ["Waits", "Granted", "Waits", "Left", "Released"]);
    let ids: Vec<_> = heard.iter().map(|(id, _)| id - heard[0].0).collect();
    assert!(ids[0] == ids[1] && ids[2] == ids[3] && ids[0] == ids[4] && ids[0] != ids[2], "{ids:?}");
}

/// Under all faults, a participant is told of in the order that [`GrantStep`] promises.
#[test]
fn changes_of_grants_come_in_order_in_20_simulated_runs() {
    type Steps = Arc<Mutex<BTreeMap<u64, Vec<GrantStep>>>>;
    let (ends, lost, doubts) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in 0..20 {
        let (ends, lost, doubts) = (Rc::clone(&ends), Rc::clone(&lost), Rc::clone(&doubts));
        simulate(seed, move |world: &mut World<()>| {
            let steps = Steps::default();
            for _ in 0..3 {
                let steps = Arc::clone(&steps);
                world.client(move |context| {
                    let steps = Arc::clone(&steps);
                    let session = Recorded::new(context.session.clone(), move |change: &GrantChange<'_>| {
                        let mut steps = steps.lock().unwrap();
                        steps.entry(change.id).or_default().push(change.step);
                    });
                    async move {
                        let lock = Lock::new(session.clone(), path!("/locks/told"));
                        while context.goes_on() && !session.state().is_over() {
                            let Ok(Some(grant)) = lock.acquire_within(Duration::from_secs(5)).await else { continue };
                            let held = context.sleep(Duration::from_millis(context.below(4000)));
                            let _ = grant.hold_for(|_| held).await;
                        }
                    }
                });
            }
            let (ends, lost, doubts) = (Rc::clone(&ends), Rc::clone(&lost), Rc::clone(&doubts));
            world.judge(move |_| {
                for (id, steps) in &*steps.lock().unwrap() {
                    let count = |is_it: fn(&GrantStep) -> bool| steps.iter().filter(|step| is_it(step)).count();
                    let all_over = count(|step| matches!(step, GrantStep::Released { .. } | GrantStep::Lost { .. }));
                    let (granted, left) = (
                        count(|step| matches!(step, GrantStep::Granted { .. })),
                        count(|step| matches!(step, GrantStep::Left { .. })),
                    );
                    assert!(matches!(steps[0], GrantStep::Waits), "{id}: {steps:?}");
                    assert!(granted + left <= 1 && all_over <= granted, "{id}: {steps:?}");
                    let is_last = |step: &GrantStep| {
                        matches!(step, GrantStep::Released { .. } | GrantStep::Lost { .. } | GrantStep::Left { .. })
                    };
                    assert!(steps.iter().rev().skip(1).all(|step| !is_last(step)), "{id}: {steps:?}");
                    let mut is_doubted = false;
                    for step in steps {
                        match step {
                            GrantStep::Doubted => assert!(!std::mem::replace(&mut is_doubted, true), "{steps:?}"),
                            GrantStep::HeldAgain { .. } => {
                                assert!(std::mem::replace(&mut is_doubted, false), "{steps:?}");
                                doubts.set(doubts.get() + 1);
                            }
                            GrantStep::Lost { .. } => lost.set(lost.get() + 1),
                            _ => {}
                        }
                    }
                    ends.set(ends.get() + all_over + left);
                }
            });
        });
    }
    let counts = (ends.get(), lost.get(), doubts.get());
    assert!(counts.0 > 100 && counts.1 > 0 && counts.2 > 1, "too few ends, losses and doubts: {counts:?}");
}

/// Another task reads each good value, and hears of the end.
#[test]
fn watched_configuration_has_the_newest_good_value_for_another_task() {
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let (client, operator) = (ensemble.client(), ensemble.session());
    let mut setting = client.configuration::<u32>(path!("/setting"), Some(7));
    let mut watched = setting.recipe().watched();
    let late = watched.clone();
    assert_eq!(ensemble.run(watched.next()).as_deref(), Some(&7));
    for (data, value) in [("8", 8), ("many", 8), ("9", 9)] {
        ensemble.run(operator.put(path!("/setting"), data)).unwrap();
        ensemble.run(setting.next()).unwrap();
        assert_eq!((watched.value().as_deref(), setting.recipe().value()), (Some(&value), Some(&value)), "{data}");
    }
    assert_eq!(ensemble.run(watched.next()).as_deref(), Some(&9), "values between are skipped");
    drop(setting);
    assert_eq!(ensemble.run(watched.next()), None);
    let (mut late, ended) = (late, watched);
    assert_eq!(ensemble.run(late.next()).as_deref(), Some(&9));
    assert_eq!(ended.value().as_deref(), Some(&9), "the value outlives its configuration");
}

/// A setting of several fields, as JSON: text, a missing field or another type never replaces a good value.
#[cfg(feature = "serde")]
#[test]
fn json_configuration_keeps_its_last_good_value() {
    #[derive(serde::Deserialize, PartialEq, Debug)]
    struct Pump {
        name: String,
        litres: f64,
    }
    let good = |name: &str, litres| Pump { name: name.to_owned(), litres };
    let mut ensemble = MemoryEnsemble::in_memory(1);
    let (client, operator) = (ensemble.client(), ensemble.session());
    let mut pump = client.configuration_json::<Pump>(path!("/pump"), Some(good("kept", 0.5)));
    assert_eq!(pump.recipe().value(), Some(&good("kept", 0.5)));
    let mut set = |data: &str| {
        ensemble.run(operator.put(path!("/pump"), data)).unwrap();
        let update = ensemble.run(pump.next()).unwrap();
        (matches!(update, Update::Accepted(_)), pump.recipe().value().unwrap().name.clone())
    };
    assert_eq!(set(r#"{"name": "a", "litres": 2}"#), (true, "a".to_owned()));
    for bad in ["fast", r#"{"name": "b"}"#, r#"{"name": 7, "litres": 1}"#, ""] {
        assert_eq!(set(bad), (false, "a".to_owned()), "{bad}");
    }
    assert_eq!(set(r#"{"name": "c", "litres": 1.5}"#), (true, "c".to_owned()));
}

#[test]
fn job_put_in_a_session_that_is_over_is_not_put_again_by_the_next() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let client = ensemble.client();
    let first = ensemble.run(client.session()).unwrap();
    ensemble.run(CoordinatorExt::ensure(&first, path!("/jobs-put"))).unwrap();
    let name = || [Op::create(path!("/jobs-put/7"), "")];
    let queue = Queue::new(first.clone(), path!("/jobs"));
    ensemble.run(queue.put_with("job 7", name())).unwrap();
    ensemble.expire(&first);
    let next = ensemble.run(client.session()).unwrap();
    assert_ne!(next.id(), first.id());
    let queue = Queue::new(next, path!("/jobs"));
    let again = ensemble.run(queue.put_with("job 7", name())).unwrap_err();
    assert!(again.is_node_exists() && again.index() == Some(0), "{again}");
    assert_eq!(ensemble.run(queue.size()).unwrap(), 1);
}

/// The program fails in the moment in which its session ends: the error is not lost.
#[test]
fn error_of_the_program_ends_the_work_also_when_its_session_is_over() {
    let mut ensemble = MemoryEnsemble::in_memory(3);
    let client = ensemble.client();
    let session = ensemble.run(client.session()).unwrap();
    let ended = Arc::new(Mutex::new(None));
    let told = Arc::clone(&ended);
    ensemble.spawn(&session, async move {
        let fails = |session: Session| async move {
            let mut states = session.states();
            while states.next().await.is_some_and(|state| !state.is_over()) {}
            Err::<(), _>(Error::other("the valve is jammed"))
        };
        *told.lock().unwrap() = client.run(fails).await.err();
    });
    ensemble.expire(&session);
    run_until(&mut ensemble, |_| ended.lock().unwrap().is_some());
    let error = ended.lock().unwrap().take().unwrap();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Other, "the valve is jammed"));
}
