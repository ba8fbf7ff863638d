//! Futures on virtual time.
//!
//! Their requests go through whole ensembles, and they share the fate of their clients.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use zoolet_coordinator::Coordinator;
use zoolet_machine::txn::{self, Txn};
use zoolet_model::{ErrorCode, Path, Request, SessionId, WriteOp};
use zoolet_session::{CreateOptions, Error, ErrorKind, Session, SessionState, Version};
use zoolet_sim::ensemble::{
    ClientContext, DiskModel, Fate, Kind, Next, Plan, Ran, SECOND, Scenario, Trace, World, conclude, run_seeds_of,
    run_with,
};
use zoolet_sim::oracle::{ClientId, Committed};
use zoolet_zab::ServerId;

const TIMEOUT_MS: u32 = 4000;

/// Returns a static path from a literal.
macro_rules! path {
    ($text:expr) => {{
        static PATH: Path = Path::from_static($text);
        &PATH
    }};
}

fn born(trace: Trace) -> World {
    let plan = Plan { clients: 0, ..Plan::steady(3, DiskModel::Emmc, 0) };
    let mut world = plan.build(7, trace);
    world.run_until(2 * SECOND);
    world
}

/// Opens a session and returns it once it is connected.
///
/// The client lives in the process of `home`, or outside any server.
fn served(world: &mut World, home: Option<u8>) -> (ClientId, Session) {
    let (client, session) = world.open(TIMEOUT_MS, home.and_then(ServerId::new));
    run_for(world, 2 * SECOND);
    assert_eq!(session.state(), SessionState::Connected);
    (client, session)
}

fn run_for(world: &mut World, for_us: u64) {
    let until_us = world.now_us() + for_us;
    world.run_until(until_us);
    assert_eq!(world.witness().violations(), [""; 0]);
}

/// The output of a future, once it has finished.
type Given<T> = Rc<RefCell<Option<T>>>;

fn spawn<T: 'static>(world: &mut World, client: ClientId, future: impl Future<Output = T> + 'static) -> Given<T> {
    let given = Given::default();
    let gives = Rc::clone(&given);
    world.spawn(client, async move { *gives.borrow_mut() = Some(future.await) });
    given
}

/// Returns whether a new client finds the path after a sync.
fn exists(world: &mut World, path: &'static Path) -> bool {
    let (client, session) = served(world, None);
    let given = spawn(world, client, async move {
        session.sync().await.unwrap();
        session.exists(path).await.unwrap().is_some()
    });
    run_for(world, SECOND);
    given.take().unwrap()
}

#[test]
fn remote_and_in_process_clients_read_their_own_write() {
    let mut world = born(Trace::off());
    for (home, path) in [(None, path!("/outside")), (Some(2), path!("/inside"))] {
        let (client, session) = served(&mut world, home);
        let given = spawn(&mut world, client, async move {
            session.create(path, Bytes::from_static(b"here")).await.unwrap();
            session.get(path).await.unwrap().data
        });
        run_for(&mut world, SECOND);
        assert_eq!(given.take().unwrap().unwrap(), "here");
        assert!(world.polls_of(client) >= 3 && !world.has_tasks_of(client));
        assert!(world.is_gone(client), "its last session was dropped, and so it is closed");
    }
    conclude(7, world).unwrap();
}

#[test]
fn lost_reply_yields_connection_loss_though_the_write_took_effect() {
    let mut world = born(Trace::off());
    let (client, session) = served(&mut world, None);
    world.strike_client(client, Fate::LostReply);
    let number = session.id();
    let mine = session.clone();
    let given = spawn(&mut world, client, async move {
        let before = mine.exists(path!("/")).await.is_ok();
        (before, mine.create_with(path!("/lost"), None, &CreateOptions::ephemeral()).await)
    });
    run_for(&mut world, SECOND);
    assert_eq!(
        given.take().unwrap(),
        (true, Err(Error::at(ErrorKind::ConnectionLoss, "create", path!("/lost").text())))
    );
    assert_eq!((session.state(), session.id()), (SessionState::Connected, number), "the session lives on");
    let mine = session.clone();
    let again = spawn(&mut world, client, async move { mine.create(path!("/lost"), None).await.map(drop) });
    run_for(&mut world, SECOND);
    assert_eq!(again.take().unwrap(), Err(Error::at(ErrorCode::NodeExists, "create", path!("/lost").text())));
    conclude(7, world).unwrap();
}

#[test]
fn paused_client_resumes_its_timer_and_its_session() {
    let mut world = born(Trace::off());
    let (client, session) = served(&mut world, None);
    let clock = world.clock_of(client);
    let from = clock.now();
    let mine = session.clone();
    let timer = clock.timer(from + Duration::from_secs(1));
    let given = spawn(&mut world, client, async move {
        timer.await;
        let stat = mine.exists(path!("/")).await;
        (clock.now() - from, stat.is_ok())
    });
    run_for(&mut world, SECOND / 2);
    world.pause_client(client);
    let polls = world.polls_of(client);
    run_for(&mut world, 2 * SECOND);
    assert_eq!(world.polls_of(client), polls, "its time has come, and it stands still");
    assert!(given.borrow().is_none() && world.has_tasks_of(client));
    world.resume_client(client);
    run_for(&mut world, SECOND);
    let (passed, is_served) = given.take().unwrap();
    assert!(is_served && (Duration::from_millis(2490)..Duration::from_millis(3000)).contains(&passed), "{passed:?}");
    assert_eq!(session.state(), SessionState::Connected);
    conclude(7, world).unwrap();
}

/// Submits a delete of `/mine` when it is dropped.
struct Farewell(Session);

impl Drop for Farewell {
    fn drop(&mut self) {
        drop(self.0.submit(Request::Write(WriteOp::Delete { path: "/mine".into(), version: -1 })));
    }
}

#[test]
fn dead_client_sends_no_farewell_and_its_ephemerals_expire() {
    for fate in [Fate::Crash, Fate::PowerLoss] {
        let mut world = born(Trace::off());
        let (client, session) = served(&mut world, None);
        let farewell = Farewell(session);
        spawn(&mut world, client, async move {
            farewell.0.create_with(path!("/mine"), None, &CreateOptions::ephemeral()).await.unwrap();
            std::future::pending::<()>().await;
            drop(farewell);
        });
        run_for(&mut world, SECOND);
        let asked = world.witness().recorder.so_far().operations.len();
        assert!(world.strike_client(client, fate) && world.is_gone(client) && !world.has_tasks_of(client));
        run_for(&mut world, SECOND);
        assert_eq!(world.witness().recorder.so_far().operations.len(), asked, "neither the delete nor the close");
        assert!(exists(&mut world, path!("/mine")), "{fate:?} closes no session");
        run_for(&mut world, u64::from(TIMEOUT_MS) * 1000 + SECOND);
        assert!(!exists(&mut world, path!("/mine")), "{fate:?}");
        let session = world.reopen(client, TIMEOUT_MS);
        run_for(&mut world, SECOND);
        assert_eq!(session.state(), SessionState::Connected, "another life");
        conclude(7, world).unwrap();
    }
}

#[test]
fn in_process_client_crash_kills_its_server() {
    let mut world = born(Trace::off());
    let (client, session) = served(&mut world, Some(3));
    spawn(&mut world, client, async move {
        session.create_with(path!("/mine"), None, &CreateOptions::ephemeral()).await.unwrap();
        std::future::pending::<()>().await;
        drop(session);
    });
    run_for(&mut world, SECOND);
    assert!(world.strike_client(client, Fate::Crash));
    assert!(!world.has_tasks_of(client) && world.is_gone(client));
    assert!(!world.host(ServerId::new(3).unwrap()).unwrap().is_running());
    run_for(&mut world, 15 * SECOND);
    assert!(!exists(&mut world, path!("/mine")));
    conclude(7, world).unwrap();
}

#[test]
fn session_closed_by_the_ensemble_becomes_lost_at_its_client() {
    let mut world = born(Trace::off());
    for home in [None, Some(1)] {
        let (client, session) = served(&mut world, home);
        assert!(world.strike_client(client, Fate::Expiry));
        run_for(&mut world, SECOND);
        let is_unaware = !session.state().is_over();
        run_for(&mut world, 20 * SECOND);
        assert!(is_unaware && matches!(session.state(), SessionState::Lost(_)), "{home:?}: {:?}", session.state());
    }
    conclude(7, world).unwrap();
}

#[test]
fn client_cut_from_every_server_is_suspended_until_it_reconnects() {
    let mut world = born(Trace::off());
    let (client, session) = served(&mut world, None);
    world.cut_client(client);
    run_for(&mut world, u64::from(TIMEOUT_MS) * 1000 * 9 / 10);
    assert_eq!(session.state(), SessionState::Suspended);
    world.heal_client(client);
    run_for(&mut world, SECOND);
    assert_eq!(session.state(), SessionState::Connected);
    conclude(7, world).unwrap();
}

/// Raises a shared counter five times by compare-and-set, and records each value.
async fn raise(context: ClientContext<i32>) -> Next {
    let counter = path!("/counter");
    let mut raised = 0;
    while raised < 5 {
        context.sleep(Duration::from_millis(context.below(3000))).await;
        let outcome = match context.session.exists(counter).await {
            Ok(None) => context.session.create(counter, None).await.map(drop),
            Ok(Some(stat)) => context.session.set(counter, None, Version::Is(stat.version)).await.map(|stat| {
                raised += 1;
                context.record(stat.version);
            }),
            Err(error) => Err(error),
        };
        if outcome.is_err() && context.session.state().is_over() {
            return Next::AnotherSession;
        }
    }
    Next::Done
}

/// Checks that no value of the counter was set twice.
fn each_once(ran: &Ran<i32>) -> Result<(), String> {
    let mut versions: Vec<i32> = ran.facts.iter().map(|fact| fact.what).collect();
    let count = versions.len();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() < count { Err(format!("{} of {count} numbers", versions.len())) } else { Ok(()) }
}

#[test]
fn futures_finish_under_faults_and_the_oracles_accept_the_run() {
    let statistics = run_seeds_of(20, |seed| Scenario::drawn(seed, 4), raise, each_once);
    assert!(statistics.answered > 20 * statistics.runs);
}

#[test]
fn equal_seeds_give_byte_identical_runs() {
    let traced = |seed| {
        let trace = Trace::last(1_000_000);
        let ran = run_with(seed, &Scenario::drawn(seed, 3), trace.clone(), &raise).unwrap();
        (trace.to_string(), ran.facts, ran.polls, ran.struck)
    };
    let first = traced(3);
    assert!(first == traced(3) && first.0 != traced(4).0);
    assert!(first.0.lines().count() > 1000 && first.1.len() >= 15);
}

/// A client's statement about its session.
#[derive(Clone, Copy, Debug)]
enum Said {
    /// The session lives at least until then, in microseconds of the run.
    SafeUntil(SessionId, u64),
    /// The owner no longer needs the session.
    LetsGo(SessionId),
}

/// Sends some requests, and records until when its session is safe.
async fn counts_on_its_session(context: ClientContext<Said>) -> Next {
    let session = &context.session;
    let mut rounds = 0;
    while rounds < 40 || context.goes_on() {
        rounds += 1;
        context.sleep(Duration::from_millis(context.below(1500))).await;
        let _ = match context.below(8) {
            0 => session.create(path!("/made"), None).await.map(drop),
            1 | 2 => session.exists(path!("/made")).await.map(drop),
            _ => Ok(()),
        };
        if session.state().is_over() {
            return Next::AnotherSession;
        }
        context.record(Said::SafeUntil(session.id(), context.true_us(session.safe_until())));
    }
    context.record(Said::LetsGo(session.id()));
    Next::Done
}

/// An undisturbed owner that records how long its session is still safe.
///
/// Its only request creates a znode.
async fn is_at_ease(context: ClientContext<Duration>) -> Next {
    let session = &context.session;
    while session.create_with(path!("/here-"), None, &CreateOptions::default().sequential()).await.is_err() {}
    for _ in 0..600 {
        context.sleep(Duration::from_millis(50)).await;
        context.record(session.safe_until().remaining(Coordinator::now(session)));
    }
    Next::Done
}

/// Regression: an answered ping proved only that the session was alive 3.2 s before. So half of the
/// time the session was in doubt.
#[test]
fn undisturbed_4_s_session_always_has_2_s_of_safety_left() {
    let looks = AtomicU64::new(0);
    let three = |seed| {
        let peaceful = Scenario::peaceful(seed, 4);
        let plan = Plan { voters: 3, observers: 0, ..peaceful.plan };
        // One client outside every server, and one in each of the three processes, the leader's
        // included.
        let homes = (0..4).map(ServerId::new).collect();
        Scenario { plan, homes, timeouts_ms: (TIMEOUT_MS, TIMEOUT_MS), ..peaceful }
    };
    run_seeds_of(10, three, is_at_ease, |ran| {
        looks.fetch_add(ran.facts.len() as u64, Relaxed);
        match ran.facts.iter().find(|fact| fact.what < Duration::from_secs(2)) {
            Some(fact) => Err(format!("client {} at {} us: {:?} left", fact.client, fact.at_us, fact.what)),
            None => Ok(()),
        }
    });
    assert!(looks.load(Relaxed) >= 10 * 4 * 600);
}

/// Returns when each session's end was committed, in microseconds of the run.
fn ends(ran: &Ran<Said>) -> BTreeMap<SessionId, u64> {
    let end = |committed: &Committed| match txn::decode(&committed.payload) {
        Ok((_, Txn::CloseSession { session })) => Some((session, committed.at.us)),
        _ => None,
    };
    ran.history.committed.iter().rev().filter_map(end).collect()
}

#[test]
fn no_session_ends_before_its_reported_safe_until_time() {
    let (claims, met) = (AtomicU64::new(0), AtomicU64::new(0));
    let both_ways = |seed| {
        // Exclude learners that answer clients while their leader does not hear of these. One kind
        // hears its leader but is not heard. The other has a frozen clock, and does not know that a
        // report is due.
        Scenario::drawn(seed, 4).without(&[Kind::CutOneWay, Kind::ClockFreeze])
    };
    run_seeds_of(100, both_ways, counts_on_its_session, |ran| {
        let ends = ends(ran);
        let let_go: BTreeSet<_> = ran
            .facts
            .iter()
            .filter_map(|fact| match fact.what {
                Said::LetsGo(session) => Some(session),
                Said::SafeUntil(..) => None,
            })
            .collect();
        for fact in &ran.facts {
            let Said::SafeUntil(session, until_us) = fact.what else { continue };
            claims.fetch_add(u64::from(until_us > fact.at_us), Relaxed);
            let Some(&end_us) = ends.get(&session).filter(|_| !let_go.contains(&session)) else { continue };
            met.fetch_add(1, Relaxed);
            // A session in a server's process ends with that process, even if it was reported as
            // safe for longer. No owner is left that could rely on the report.
            let is_orphaned = ran.orphaned_us(session).is_some_and(|orphaned_us| orphaned_us <= end_us);
            if end_us < until_us && fact.at_us < until_us && !is_orphaned {
                return Err(format!("{session:?} ended at {end_us} us: {fact:?}"));
            }
        }
        Ok(())
    });
    assert!(claims.load(Relaxed) > 1000 && met.load(Relaxed) > 100, "{claims:?} {met:?}");
}
