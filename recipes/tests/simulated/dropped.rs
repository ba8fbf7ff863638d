//! Tests of futures that are dropped at any poll, as `select!` drops them.
//!
//! A dropped call leaves nothing behind and loses nothing of other participants, and the next call
//! works.
//!
//! The first part drops each call at its first pending poll, then at its second, and so on. It
//! stops once the call is ready before that poll, or only waits for other participants. The second
//! part draws calls, polls, faults and fates.

use crate::apart::{cut_at, heard, left_behind, within};
use crate::drawn::drawn;
use bytes::Bytes;
use std::future::Future;
use std::time::Duration;
use zoolet_model::{Error as SessionError, ErrorCode, Path};
use zoolet_recipes::{
    Barrier, Change, ChildrenCache, Configuration, Contention, Counter, DoubleBarrier, Election, EventHandle, Gate,
    Group, Holding, Latch, Lock, Names, Notification, Outcome, Participant, ParticipantLog, Permit, Preference, Queue,
    ReadWriteLock, Record, Reset, RollingRestart, Semaphore, Transaction, Vote,
};
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat, run_seeds_of};

/// Bound on the pending polls of a call that does not wait for other participants.
const POLLS_MAX: u64 = 100;
/// A call that is still pending after this time waits for other participants.
const RESTS: Duration = Duration::from_secs(2);

type Desk = Seat<String>;

/// Outcome of a call that was to be dropped.
enum Cut<T> {
    Dropped,
    /// It was dropped while it waited for another participant.
    Waited,
    Ready(T),
}

impl<T> Cut<T> {
    /// Whether the call has later polls at which it could be dropped.
    fn has_later(&self) -> bool {
        matches!(self, Self::Dropped)
    }
}

async fn cut<W: Future>(seat: &Desk, pending: u64, call: W) -> Cut<W::Output> {
    match within(seat, RESTS, cut_at(pending, call)).await {
        Some(Some(output)) => Cut::Ready(output),
        Some(None) => Cut::Dropped,
        None => Cut::Waited,
    }
}

/// Drops a call at this pending poll, whatever its outcome.
async fn drop_at<W: Future>(seat: &Desk, pending: u64, call: W) {
    cut(seat, pending, call).await.has_later();
}

/// Calls `attempt` with each poll number from 0 on, while it reports later polls.
async fn at_every_poll(what: &str, mut attempt: impl AsyncFnMut(u64) -> bool) {
    for pending in 0..POLLS_MAX {
        if !attempt(pending).await {
            assert!(pending > 0, "{what} was never pending");
            return;
        }
    }
    panic!("{what} is pending after {POLLS_MAX} polls");
}

/// Runs `body` with one client, and checks that nothing is left behind.
fn each<W: Future<Output = ()>>(body: impl Fn(Desk) -> W + Copy + Sync + 'static) {
    let live = move |seat: Desk| async move {
        body(seat.clone()).await;
        left_behind(&seat).await.into_iter().for_each(|path| seat.record(path));
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, nothing_left);
}

fn nothing_left(ran: &Ran<String>) -> Result<(), String> {
    if ran.facts.is_empty() { Ok(()) } else { Err(format!("left: {:?}", ran.facts)) }
}

/// Repeats an attempt until the znodes of a dropped attempt are cleared away.
///
/// Panics after 5 s.
async fn soon<T>(seat: &Desk, attempt: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..100 {
        if let Some(value) = attempt().await {
            return value;
        }
        seat.sleep(Duration::from_millis(50)).await;
    }
    panic!("a dropped attempt has it for ever");
}

#[test]
fn a_lock() {
    each(async |seat| {
        let path = Path::from_static("/lock");
        let (lock, other) = (Lock::new(seat.session.clone(), &path), Lock::new(seat.session.clone(), &path));
        at_every_poll("acquire", async |pending| {
            let attempt = cut(&seat, pending, lock.acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            other.acquire().await.unwrap().release().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("acquire behind another one", async |pending| {
            let held = other.acquire().await.unwrap();
            let attempt = cut(&seat, pending, lock.acquire()).await;
            assert!(!matches!(attempt, Cut::Ready(_)));
            assert_eq!(held.holding(), Holding::Held);
            drop(held);
            lock.acquire().await.unwrap().release().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("try_acquire", async |pending| {
            let attempt = cut(&seat, pending, lock.try_acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            soon(&seat, async || other.try_acquire().await.unwrap()).await.release().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("release", async |pending| {
            let held = lock.acquire().await.unwrap();
            let attempt = cut(&seat, pending, held.release()).await;
            other.acquire().await.unwrap().release().await.unwrap();
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn a_lock_that_is_taken_again() {
    each(async |seat| {
        let lock = Lock::new(seat.session.clone(), &Path::from_static("/lock")).reentrant();
        let outer = lock.acquire().await.unwrap();
        at_every_poll("acquire", async |pending| {
            let attempt = cut(&seat, pending, lock.acquire()).await;
            assert_eq!((outer.holding(), lock.acquire().await.unwrap().token()), (Holding::Held, outer.token()));
            attempt.has_later()
        })
        .await;
        drop(outer);
        at_every_poll("acquire anew", async |pending| {
            let attempt = cut(&seat, pending, lock.acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            drop(lock.acquire().await.unwrap());
            has_later
        })
        .await;
    });
}

#[test]
fn a_lock_for_readers_and_writers() {
    each(async |seat| {
        for (path, preference) in
            [("/fair", Preference::Fair), ("/readers", Preference::Readers), ("/writers", Preference::Writers)]
        {
            let lock = || ReadWriteLock::new(seat.session.clone(), &Path::from_static(path)).prefer(preference);
            let (lock, other) = (lock(), lock());
            at_every_poll("read", async |pending| {
                let attempt = cut(&seat, pending, lock.read()).await;
                let has_later = attempt.has_later();
                drop(attempt);
                other.write().await.unwrap().release().await.unwrap();
                has_later
            })
            .await;
            at_every_poll("write behind a reader", async |pending| {
                let held = other.read().await.unwrap();
                let attempt = cut(&seat, pending, lock.write()).await;
                assert!(!matches!(attempt, Cut::Ready(_)));
                // A dropped writer no longer keeps readers out.
                soon(&seat, async || lock.try_read().await.unwrap()).await.release().await.unwrap();
                held.release().await.unwrap();
                attempt.has_later()
            })
            .await;
            at_every_poll("try_write", async |pending| {
                let attempt = cut(&seat, pending, lock.try_write()).await;
                let has_later = attempt.has_later();
                drop(attempt);
                soon(&seat, async || other.try_write().await.unwrap()).await.release().await.unwrap();
                has_later
            })
            .await;
            at_every_poll("downgrade", async |pending| {
                let held = lock.write().await.unwrap();
                let attempt = cut(&seat, pending, lock.downgrade(held)).await;
                other.read().await.unwrap().release().await.unwrap();
                let has_later = attempt.has_later();
                drop(attempt);
                other.write().await.unwrap().release().await.unwrap();
                has_later
            })
            .await;
        }
    });
}

#[test]
fn a_semaphore() {
    each(async |seat| {
        let semaphore = || Semaphore::new(seat.session.clone(), &Path::from_static("/semaphore")).unwrap();
        let (semaphore, other) = (semaphore(), semaphore());
        at_every_poll("set_size", async |pending| {
            let attempt = cut(&seat, pending, semaphore.set_size(1)).await;
            other.set_size(1).await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("resize", async |pending| {
            let attempt = cut(&seat, pending, semaphore.resize(2)).await;
            other.resize(1).await.unwrap();
            other.set_size(1).await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("acquire", async |pending| {
            let attempt = cut(&seat, pending, semaphore.acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            other.acquire().await.unwrap().release().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("acquire behind another one", async |pending| {
            let held = other.acquire().await.unwrap();
            let attempt = cut(&seat, pending, semaphore.acquire()).await;
            drop(held);
            other.acquire().await.unwrap().release().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("try_acquire", async |pending| {
            let attempt = cut(&seat, pending, semaphore.try_acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            soon(&seat, async || other.try_acquire().await.unwrap()).await.release().await.unwrap();
            has_later
        })
        .await;
    });
}

#[test]
fn an_election() {
    each(async |seat| {
        let election = || Election::new(seat.session.clone(), &Path::from_static("/election"));
        let (election, other) = (election(), election());
        at_every_poll("campaign", async |pending| {
            let attempt = cut(&seat, pending, election.campaign()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            other.campaign().await.unwrap().resign().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("campaign behind another one", async |pending| {
            let leads = other.campaign().await.unwrap();
            let attempt = cut(&seat, pending, election.campaign()).await;
            assert_eq!(election.office().await.unwrap().unwrap().token, leads.token());
            leads.resign().await.unwrap();
            let has_later = attempt.has_later();
            drop(attempt);
            other.campaign().await.unwrap().resign().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("proclaim", async |pending| {
            let leads = other.campaign().await.unwrap();
            let attempt = cut(&seat, pending, leads.proclaim("a")).await;
            leads.proclaim("b").await.unwrap();
            assert_eq!(election.office().await.unwrap().unwrap().content.as_deref(), Some(&b"b"[..]));
            leads.resign().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("resign", async |pending| {
            let leads = other.campaign().await.unwrap();
            let attempt = cut(&seat, pending, leads.resign()).await;
            election.campaign().await.unwrap().resign().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("hand_over", async |pending| {
            let leads = other.campaign().await.unwrap();
            let itself = other.candidates().await.unwrap().remove(0);
            let attempt = cut(&seat, pending, leads.hand_over(&itself)).await;
            election.campaign().await.unwrap().resign().await.unwrap();
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn a_barrier() {
    each(async |seat| {
        let barrier = || Barrier::new(seat.session.clone(), &Path::from_static("/stopped"));
        let (barrier, other) = (barrier(), barrier());
        at_every_poll("close", async |pending| {
            let attempt = cut(&seat, pending, barrier.close()).await;
            other.close().await.unwrap();
            assert!(other.open().await.unwrap());
            other.wait().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("open", async |pending| {
            other.close().await.unwrap();
            let attempt = cut(&seat, pending, barrier.open()).await;
            other.open().await.unwrap();
            assert!(other.close().await.unwrap());
            attempt.has_later()
        })
        .await;
        at_every_poll("wait", async |pending| {
            let attempt = cut(&seat, pending, barrier.wait()).await;
            assert!(!matches!(attempt, Cut::Ready(_)), "it is closed");
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn a_double_barrier() {
    each(async |seat| {
        let path = Path::from_static("/meeting");
        let alone = DoubleBarrier::new(seat.session.clone(), &path, 1);
        at_every_poll("enter", async |pending| {
            let attempt = cut(&seat, pending, alone.enter()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            alone.enter().await.unwrap().leave().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("leave", async |pending| {
            let meeting = alone.enter().await.unwrap();
            let attempt = cut(&seat, pending, meeting.leave()).await;
            alone.enter().await.unwrap().leave().await.unwrap();
            attempt.has_later()
        })
        .await;
        let both = DoubleBarrier::new(seat.session.clone(), &path, 2);
        at_every_poll("enter before the other one", async |pending| {
            let attempt = cut(&seat, pending, both.enter()).await;
            assert!(!matches!(attempt, Cut::Ready(_)), "one of two is there");
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn an_event_handle() {
    each(async |seat| {
        let handle = |reset| EventHandle::new(seat.session.clone(), &Path::from_static("/delivery"), reset);
        let (manual, auto) = (handle(Reset::Manual), handle(Reset::Auto));
        at_every_poll("set", async |pending| {
            let attempt = cut(&seat, pending, manual.set()).await;
            manual.set().await.unwrap();
            manual.wait().await.unwrap();
            manual.reset().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("reset", async |pending| {
            manual.set().await.unwrap();
            let attempt = cut(&seat, pending, manual.reset()).await;
            manual.reset().await.unwrap();
            manual.wait_reset().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("wait", async |pending| {
            let attempt = cut(&seat, pending, manual.wait()).await;
            assert!(!matches!(attempt, Cut::Ready(_)), "it is not signalled");
            attempt.has_later()
        })
        .await;
        at_every_poll("wait for a signal to use up", async |pending| {
            auto.set().await.unwrap();
            let attempt = cut(&seat, pending, auto.wait()).await;
            // The dropped call may have used the signal up.
            auto.set().await.unwrap();
            auto.wait().await.unwrap();
            assert!(!auto.is_set().await.unwrap());
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn a_latch() {
    each(async |seat| {
        let latch = Latch::new(seat.session.clone(), &Path::from_static("/started"));
        at_every_poll("set", async |pending| {
            let attempt = cut(&seat, pending, latch.set(1000)).await;
            latch.set(1000).await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("count_down", async |pending| {
            let before = latch.count().await.unwrap().unwrap();
            let attempt = cut(&seat, pending, latch.count_down()).await;
            let left = latch.count_down().await.unwrap();
            let most = if matches!(attempt, Cut::Ready(_)) { before - 2..=before - 2 } else { before - 2..=before - 1 };
            assert!(most.contains(&left), "{before} and then {left}");
            attempt.has_later()
        })
        .await;
        at_every_poll("wait", async |pending| {
            let attempt = cut(&seat, pending, latch.wait()).await;
            assert!(!matches!(attempt, Cut::Ready(_)), "something is left");
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn a_counter() {
    each(async |seat| {
        let counter = Counter::new(seat.session.clone(), &Path::from_static("/count"));
        at_every_poll("add", async |pending| {
            let before = counter.value().await.unwrap();
            let attempt = cut(&seat, pending, counter.add(1)).await;
            let value = counter.add(1).await.unwrap();
            let is_done = matches!(attempt, Cut::Ready(_));
            assert!(value == before + 1 || !is_done && value == before, "{before} and then {value}");
            attempt.has_later()
        })
        .await;
        at_every_poll("compare_and_set", async |pending| {
            let before = counter.value().await.unwrap();
            let attempt = cut(&seat, pending, counter.compare_and_set(before, before + 5)).await;
            let value = counter.add(1).await.unwrap();
            assert!(value == before || value == before + 5, "{before} and then {value}");
            attempt.has_later()
        })
        .await;
    });
}

/// The order of items is tested by
/// `queue::an_attempt_that_is_dropped_at_any_poll_leaves_its_item_in_the_order`.
#[test]
fn a_queue() {
    each(async |seat| {
        let queue = Queue::new(seat.session.clone(), &Path::from_static("/jobs")).unwrap();
        at_every_poll("put", async |pending| {
            let before = queue.size().await.unwrap();
            let attempt = cut(&seat, pending, queue.put("item")).await;
            queue.put("item").await.unwrap();
            let there = queue.size().await.unwrap() - before;
            assert!(there == 2 || there == 1 && !matches!(attempt, Cut::Ready(_)), "{there}");
            attempt.has_later()
        })
        .await;
        for _ in 0..30 {
            queue.put("item").await.unwrap();
        }
        at_every_poll("complete", async |pending| {
            let before = queue.size().await.unwrap();
            let attempt = cut(&seat, pending, queue.claim().await.unwrap().complete([])).await;
            queue.claim().await.unwrap().complete([]).await.unwrap();
            let gone = before - queue.size().await.unwrap();
            assert!(gone == 2 || gone == 1 && !matches!(attempt, Cut::Ready(_)), "{gone}");
            attempt.has_later()
        })
        .await;
        at_every_poll("bury", async |pending| {
            let before = queue.size().await.unwrap();
            let attempt = cut(&seat, pending, queue.claim().await.unwrap().bury()).await;
            queue.claim().await.unwrap().bury().await.unwrap();
            let gone = before - queue.size().await.unwrap();
            assert!(gone == 2 || gone == 1 && !matches!(attempt, Cut::Ready(_)), "{gone}");
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn a_gate() {
    each(async |seat| {
        let gate = Gate::new(seat.session.clone(), &Path::from_static("/yard"));
        at_every_poll("try_pass", async |pending| {
            let attempt = cut(&seat, pending, gate.try_pass()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            drop(soon(&seat, async || gate.try_pass().await.unwrap()).await);
            has_later
        })
        .await;
        at_every_poll("pass behind another one", async |pending| {
            let behind = gate.pass().await.unwrap();
            let attempt = cut(&seat, pending, gate.pass()).await;
            assert!(!matches!(attempt, Cut::Ready(_)));
            assert!(gate.try_pass().await.unwrap().is_none());
            drop(behind);
            drop(gate.pass().await.unwrap());
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn a_rolling_restart() {
    each(async |seat| {
        let gate = RollingRestart::new(seat.session.clone(), &Path::from_static("/restarts"), 1).unwrap();
        at_every_poll("begin", async |pending| {
            let attempt = cut(&seat, pending, gate.begin("gw-a")).await;
            let permit = gate.begin("gw-a").await.unwrap();
            assert!(permit == Permit::Kept || !matches!(attempt, Cut::Ready(_)));
            assert_eq!(gate.down().await.unwrap(), ["gw-a"]);
            gate.done("gw-a").await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("begin behind another box", async |pending| {
            gate.begin("gw-b").await.unwrap();
            let attempt = cut(&seat, pending, gate.begin("gw-a")).await;
            assert_eq!(gate.down().await.unwrap(), ["gw-b"]);
            gate.done("gw-b").await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("done", async |pending| {
            gate.begin("gw-a").await.unwrap();
            let attempt = cut(&seat, pending, gate.done("gw-a")).await;
            gate.done("gw-a").await.unwrap();
            assert_eq!(gate.begin("gw-c").await, Ok(Permit::Given));
            gate.done("gw-c").await.unwrap();
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn names_and_members() {
    each(async |seat| {
        let names = Names::new(seat.session.clone(), &Path::from_static("/names"));
        at_every_poll("claim", async |pending| {
            let attempt = cut(&seat, pending, names.claim("a", "here")).await;
            let has_later = attempt.has_later();
            drop(attempt);
            drop(soon(&seat, async || names.claim("a", "there").await.unwrap()).await);
            has_later
        })
        .await;
        at_every_poll("bind", async |pending| {
            let attempt = cut(&seat, pending, names.bind(&format!("b-{pending}"), "here")).await;
            let is_new = names.bind(&format!("b-{pending}"), "here").await.unwrap();
            assert!(!(is_new && matches!(attempt, Cut::Ready(_))));
            attempt.has_later()
        })
        .await;
        let group = Group::new(seat.session.clone(), &Path::from_static("/group"));
        at_every_poll("put", async |pending| {
            let mut member = group.member("m", "here").unwrap();
            let attempt = cut(&seat, pending, member.put()).await;
            member.put().await.unwrap();
            assert_eq!(group.members().await.unwrap().len(), 1);
            attempt.has_later()
        })
        .await;
        at_every_poll("put and gone", async |pending| {
            let mut member = group.member("m", "here").unwrap();
            let has_later = cut(&seat, pending, member.put()).await.has_later();
            drop(member);
            soon(&seat, async || group.members().await.unwrap().is_empty().then_some(())).await;
            has_later
        })
        .await;
    });
}

#[test]
fn what_others_say() {
    each(async |seat| {
        let (session, root) = (&seat.session, Path::from_static("/plan"));
        session.create(&root, None).await.unwrap();
        let mut number = 0;
        let mut cache = ChildrenCache::new(session.clone(), &root).await.unwrap();
        let mut plan = Configuration::new(session.clone(), &root, None, |bytes: &[u8]| {
            std::str::from_utf8(bytes).map(str::to_owned)
        });
        at_every_poll("next", async |pending| {
            number += 1;
            let child = Path::new(format!("/plan/{number}").into()).unwrap();
            session.create(&child, Some(Bytes::from_static(b"x"))).await.unwrap();
            session.set(&root, Some(Bytes::from(format!("{number}"))), zoolet_session::Version::Any).await.unwrap();
            let attempt = cut(&seat, pending, cache.next()).await;
            let has_later = attempt.has_later() | cut(&seat, pending, plan.next()).await.has_later();
            // Later calls report what the dropped calls have not reported.
            while cache.child(&number.to_string()).is_none() {
                assert_ne!(cache.next().await.unwrap(), Change::Gap);
            }
            while plan.value() != Some(&number.to_string()) {
                plan.next().await.unwrap();
            }
            has_later
        })
        .await;
    });
}

#[test]
fn asking_and_breaking() {
    each(async |seat| {
        let path = Path::from_static("/lock");
        let (lock, line) = (Lock::new(seat.session.clone(), &path), Contention::new(seat.session.clone(), &path));
        at_every_poll("ask_to_release", async |pending| {
            let held = lock.acquire().await.unwrap();
            let holder = line.contenders().await.unwrap().remove(0);
            let attempt = cut(&seat, pending, line.ask_to_release(&holder)).await;
            line.ask_to_release(&holder).await.unwrap();
            held.asked_to_release().await.unwrap();
            held.release().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("break_grant", async |pending| {
            let held = lock.acquire().await.unwrap();
            let holder = line.contenders().await.unwrap().remove(0);
            let attempt = cut(&seat, pending, line.break_grant(&holder, "stuck")).await;
            line.break_grant(&holder, "stuck").await.unwrap();
            held.ended().await;
            lock.acquire().await.unwrap().release().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("asked_to_release", async |pending| {
            let held = lock.acquire().await.unwrap();
            let attempt = cut(&seat, pending, held.asked_to_release()).await;
            assert_eq!(held.holding(), Holding::Held);
            held.release().await.unwrap();
            attempt.has_later()
        })
        .await;
    });
}

struct Memory;

impl ParticipantLog for Memory {
    type Error = ();

    fn record(&mut self, _: &Path, _: Record) -> Result<(), ()> {
        Ok(())
    }
}

#[test]
fn two_phase_commit() {
    each(async |seat| {
        let session = || seat.session.clone();
        let path = |what: &str, pending| Path::new(format!("/tx/{what}-{pending}").into()).unwrap();
        let join = async |path: &Path, site: &str| {
            Participant::join(session(), path, site, Notification::Coordinator, Memory).await.unwrap().unwrap()
        };
        at_every_poll("begin", async |pending| {
            let path = path("begin", pending);
            let attempt = cut(&seat, pending, Transaction::begin(session(), &path, "x", &["a"])).await;
            match Transaction::begin(session(), &path, "x", &["a"]).await {
                Ok(_) => assert!(!matches!(attempt, Cut::Ready(_))),
                Err(error) => assert_eq!(error, SessionError::Refused(ErrorCode::NodeExists).into()),
            }
            assert_eq!(Transaction::open(session(), &path).await.unwrap().unwrap().sites(), ["a"]);
            attempt.has_later()
        })
        .await;
        at_every_poll("join", async |pending| {
            let path = path("join", pending);
            Transaction::begin(session(), &path, "x", &["a"]).await.unwrap();
            let joining = Participant::join(session(), &path, "a", Notification::Coordinator, Memory);
            let attempt = cut(&seat, pending, joining).await;
            let has_later = attempt.has_later();
            drop(attempt);
            assert_eq!(join(&path, "a").await.payload(), "x");
            has_later
        })
        .await;
        at_every_poll("vote", async |pending| {
            let path = path("vote", pending);
            let transaction = Transaction::begin(session(), &path, "x", &["a"]).await.unwrap();
            let mut site = join(&path, "a").await;
            let attempt = cut(&seat, pending, site.vote(Vote::Commit)).await;
            assert_eq!(site.vote(Vote::Commit).await, Ok(Ok(Vote::Commit)));
            assert_eq!(transaction.decide(None).await, Ok(Outcome::Committed));
            attempt.has_later()
        })
        .await;
        at_every_poll("decide, acknowledge, and finish", async |pending| {
            let path = path("decide", pending);
            let transaction = Transaction::begin(session(), &path, "x", &["a"]).await.unwrap();
            let mut site = join(&path, "a").await;
            site.vote(Vote::Commit).await.unwrap().unwrap();
            let decides = cut(&seat, pending, transaction.decide(None)).await.has_later();
            assert_eq!(transaction.decide(None).await, Ok(Outcome::Committed));
            assert_eq!(site.outcome().await, Ok(Outcome::Committed));
            let acknowledges = cut(&seat, pending, site.acknowledge(Outcome::Committed)).await.has_later();
            join(&path, "a").await.acknowledge(Outcome::Committed).await.unwrap().unwrap();
            let finishes = cut(&seat, pending, transaction.finish()).await.has_later();
            if let Some(left) = Transaction::open(session(), &path).await.unwrap() {
                left.finish().await.unwrap();
            }
            assert!(Transaction::open(session(), &path).await.unwrap().is_none());
            decides || acknowledges || finishes
        })
        .await;
        at_every_poll("finish and acknowledge with a dismissed site", async |pending| {
            let path = path("dismissed", pending);
            let transaction = Transaction::begin(session(), &path, "x", &["a", "b"]).await.unwrap();
            let (mut a, mut b) = (join(&path, "a").await, join(&path, "b").await);
            for site in [&mut a, &mut b] {
                site.vote(Vote::Commit).await.unwrap().unwrap();
            }
            assert_eq!(transaction.decide(None).await, Ok(Outcome::Committed));
            a.acknowledge(Outcome::Committed).await.unwrap().unwrap();
            transaction.dismiss("b").await.unwrap();
            let again = Transaction::open(session(), &path).await.unwrap().unwrap();
            let finishes = cut(&seat, pending, transaction.finish()).await.has_later();
            again.finish().await.unwrap();
            let acknowledges = cut(&seat, pending, b.acknowledge(Outcome::Committed)).await.has_later();
            if let Some(left) = Transaction::open(session(), &path).await.unwrap() {
                join(&path, "b").await.acknowledge(Outcome::Committed).await.unwrap().unwrap();
                left.finish().await.unwrap();
            }
            assert!(Transaction::open(session(), &path).await.unwrap().is_none());
            finishes || acknowledges
        })
        .await;
    });
}

pub(crate) const CLIENTS: usize = 4;

/// Makes call number `which`, drops it at a drawn poll, and then repeats it until it is done.
async fn call(seat: &Desk, which: u64) -> Result<(), Next> {
    let path = |what: &str| Path::new(format!("/dropped/{what}").into()).unwrap();
    let session = || seat.session.clone();
    let pending = seat.below(12);
    // Names of this client alone: other clients would wait for calls that it drops.
    let own = format!("{}.{}", seat.number, seat.life);
    macro_rules! calls {
        ($call:expr) => {{
            drop_at(seat, pending, $call).await;
            while heard(seat, $call.await)?.is_none() {
                seat.sleep(Duration::from_millis(200)).await;
            }
        }};
    }
    match which {
        0 => {
            let lock = Lock::new(session(), &path("lock"));
            calls!(lock.acquire());
        }
        1 => {
            let lock = ReadWriteLock::new(session(), &path("fair"));
            calls!(lock.write());
            calls!(lock.read());
        }
        2 => {
            let lock = ReadWriteLock::new(session(), &path("writers")).prefer(Preference::Writers);
            calls!(lock.read());
            calls!(lock.write());
        }
        3 => {
            let semaphore = Semaphore::new(session(), &path("semaphore")).unwrap();
            calls!(semaphore.set_size(2));
            calls!(semaphore.acquire());
        }
        4 => {
            let election = Election::new(session(), &path("election"));
            calls!(election.campaign());
        }
        5 => {
            let gate = Gate::new(session(), &path("gate"));
            calls!(gate.pass());
        }
        6 => {
            let queue = Queue::new(session(), &path("queue")).unwrap();
            // Items of dropped puts stay. A client in its server's process makes so many puts that
            // the queue would become full.
            while heard(seat, queue.size().await)?.is_some_and(|items| items > 100) {
                heard(seat, queue.take().await)?;
            }
            // The take below and its dropped attempt remove two items at most.
            calls!(queue.put("item"));
            calls!(queue.put("item"));
            calls!(queue.claim());
            calls!(queue.take());
        }
        7 => {
            let counter = Counter::new(session(), &path("counter"));
            calls!(counter.add(1));
        }
        8 => {
            let meeting = DoubleBarrier::new(session(), &path(&format!("meeting-{own}")), 1);
            calls!(meeting.enter());
        }
        9 => {
            let gate = RollingRestart::new(session(), &path("restarts"), 2).unwrap();
            let name = format!("box-{}", seat.number);
            calls!(gate.begin(&name));
            calls!(gate.done(&name));
        }
        10 => {
            let barrier = Barrier::new(session(), &path(&format!("barrier-{own}")));
            calls!(barrier.close());
            calls!(barrier.open());
            calls!(barrier.wait());
        }
        11 => {
            let handle = EventHandle::new(session(), &path(&format!("handle-{own}")), Reset::Auto);
            calls!(handle.set());
            // The dropped call may have used the signal up.
            drop_at(seat, pending, handle.wait()).await;
            calls!(handle.set());
            while heard(seat, handle.wait().await)?.is_none() {
                seat.sleep(Duration::from_millis(200)).await;
            }
        }
        12 => {
            let group = Group::new(session(), &path("group"));
            let mut member = group.member(&own, "here").unwrap();
            drop_at(seat, pending, member.put()).await;
            while heard(seat, member.put().await)?.is_none() {
                seat.sleep(Duration::from_millis(200)).await;
            }
        }
        _ => {
            let latch = Latch::new(session(), &path("latch"));
            calls!(latch.set(1_000_000));
            calls!(latch.count_down());
        }
    }
    Ok(())
}

const CALLS: u64 = 14;

pub(crate) async fn live(seat: Desk) -> Next {
    let mut rounds = 0;
    while rounds < CALLS || seat.goes_on() {
        // Each life makes every call, so it also returns the permit of a former life.
        if let Err(next) = call(&seat, (rounds + 3 * seat.number as u64) % CALLS).await {
            return next;
        }
        // A client in its server's process waits for no network. Without a pause it would make most
        // of all calls.
        seat.sleep(Duration::from_millis(seat.below(20))).await;
        rounds += 1;
    }
    left_behind(&seat).await.into_iter().for_each(|path| seat.record(path));
    Next::Done
}

/// A client that finishes has made every call, and the run fails if one does not finish.
pub(crate) fn judge(ran: &Ran<String>) -> Result<(), String> {
    nothing_left(ran)
}

#[test]
fn whatever_is_dropped_at_any_poll_leaves_nothing_and_stands_in_nobodys_way() {
    drawn(40, CLIENTS, live, judge);
}
