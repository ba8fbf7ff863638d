//! Tests of futures that are dropped at any poll, as `select!` drops them.
//!
//! A dropped call leaves nothing behind and loses nothing of other participants, and the next call
//! works.
//!
//! The modules below drop each call at its first pending poll, then at its second, and so on. They
//! stop once the call is ready before that poll, or only waits for other participants. The test
//! here draws calls, polls, faults and fates.

mod holding;
mod meeting;
mod sharing;

use crate::apart::{cut_at, heard, left_behind, within};
use crate::drawn::drawn;
use bytes::Bytes;
use std::future::Future;
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{
    Barrier, Change, ChildrenCache, Configuration, Contention, Counter, DoubleBarrier, Election, EventHandle, Gate,
    Group, Holding, Latch, Lock, NameService, Notification, Outcome, Participant, ParticipantLog, Permit, Preference,
    Queue, ReadWriteLock, Record, Reset, RollingRestart, Semaphore, Transaction, Vote,
};
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

/// Bound on the pending polls of a call that does not wait for other participants.
const POLLS_MAX: u64 = 100;
/// A call that is still pending after this time waits for other participants.
const RESTS: Duration = Duration::from_secs(2);

type Desk = ClientContext<String>;

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

async fn cut<W: Future>(context: &Desk, pending: u64, call: W) -> Cut<W::Output> {
    match within(context, RESTS, cut_at(pending, call)).await {
        Some(Some(output)) => Cut::Ready(output),
        Some(None) => Cut::Dropped,
        None => Cut::Waited,
    }
}

/// Drops a call at this pending poll, whatever its outcome.
async fn drop_at<W: Future>(context: &Desk, pending: u64, call: W) {
    cut(context, pending, call).await.has_later();
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
    let live = move |context: Desk| async move {
        body(context.clone()).await;
        left_behind(&context).await.into_iter().for_each(|path| context.record(path));
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
async fn soon<T>(context: &Desk, attempt: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..100 {
        if let Some(value) = attempt().await {
            return value;
        }
        context.sleep(Duration::from_millis(50)).await;
    }
    panic!("a dropped attempt has it for ever");
}

pub(crate) const CLIENTS: usize = 4;

/// Makes call number `which`, drops it at a drawn poll, and then repeats it until it is done.
async fn call(context: &Desk, which: u64) -> Result<(), Next> {
    let path = |what: &str| Path::new(format!("/dropped/{what}")).unwrap();
    let session = || context.session.clone();
    let pending = context.below(12);
    // Names of this client alone: other clients would wait for calls that it drops.
    let own = format!("{}.{}", context.number, context.life);
    macro_rules! calls {
        ($call:expr) => {{
            drop_at(context, pending, $call).await;
            while heard(context, $call.await)?.is_none() {
                context.sleep(Duration::from_millis(200)).await;
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
            let semaphore = Semaphore::new(session(), &path("semaphore"));
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
            let queue = Queue::new(session(), &path("queue"));
            // Items of dropped puts stay. A client in its server's process makes so many puts that
            // the queue would become full.
            while heard(context, queue.size().await)?.is_some_and(|items| items > 100) {
                heard(context, queue.take().await)?;
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
            let gate = RollingRestart::new(session(), &path("restarts"), 2);
            let name = format!("box-{}", context.number);
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
            drop_at(context, pending, handle.wait()).await;
            calls!(handle.set());
            while heard(context, handle.wait().await)?.is_none() {
                context.sleep(Duration::from_millis(200)).await;
            }
        }
        12 => {
            let group = Group::new(session(), &path("group"));
            let mut member = group.member(&own, "here").unwrap();
            drop_at(context, pending, member.put()).await;
            while heard(context, member.put().await)?.is_none() {
                context.sleep(Duration::from_millis(200)).await;
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

pub(crate) async fn live(context: Desk) -> Next {
    let mut rounds = 0;
    while rounds < CALLS || context.goes_on() {
        // Each life makes every call, so it also returns the permit of a former life.
        if let Err(next) = call(&context, (rounds + 3 * context.number as u64) % CALLS).await {
            return next;
        }
        // A client in its server's process waits for no network. Without a pause it would make most
        // of all calls.
        context.sleep(Duration::from_millis(context.below(20))).await;
        rounds += 1;
    }
    left_behind(&context).await.into_iter().for_each(|path| context.record(path));
    Next::Done
}

/// A client that finishes has made every call, and the run fails if one does not finish.
pub(crate) fn judge(ran: &Ran<String>) -> Result<(), String> {
    nothing_left(ran)
}

#[test]
fn randomly_dropped_calls_under_faults_leave_no_trace() {
    drawn(40, CLIENTS, live, judge);
}
