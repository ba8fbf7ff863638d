//! Tests of `try_*` calls without a connection: they fail at once, because they cannot know.

use crate::apart::left_behind;
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Error, ErrorKind, Gate, Lock, Preference, ReadWriteLock, Semaphore};
use zoolet_session::{Session, SessionState};
use zoolet_sim::ensemble::{ClientContext, Fate, Next, Ran, SECOND, Scenario, run_seeds_of};

const CUT_FROM_US: u64 = 6 * SECOND;
const CUT_TO_US: u64 = 19 * SECOND;

/// Returns a scenario that cuts off one client from 6 s to 19 s.
///
/// The client notices the cut at about 17 s, after two thirds of its timeout. Its session survives.
pub(crate) fn scenario(seed: u64) -> Scenario {
    let mut scenario = Scenario::peaceful(seed, 1);
    scenario.timeouts_ms = (16_000, 16_000);
    scenario.homes = vec![None];
    scenario.fates = vec![(CUT_FROM_US, Fate::Cut(CUT_TO_US - CUT_FROM_US))];
    scenario.plan.safety_us = 25 * SECOND;
    scenario
}

/// Every recipe with a `try_*` call.
struct Tries {
    lock: Lock<Session>,
    fair: ReadWriteLock<Session>,
    writers_first: ReadWriteLock<Session>,
    gate: Gate<Session>,
    semaphore: Semaphore<Session>,
}

impl Tries {
    fn new(session: &Session) -> Self {
        let at = |path| (session.clone(), Path::from_static(path));
        let read_write = |path| ReadWriteLock::new(session.clone(), &Path::from_static(path));
        let ((session, lock), (_, gate), (_, semaphore)) = (at("/try/lock"), at("/try/gate"), at("/try/semaphore"));
        Self {
            lock: Lock::new(session.clone(), &lock),
            fair: read_write("/try/fair"),
            writers_first: read_write("/try/writers-first").prefer(Preference::Writers),
            gate: Gate::new(session.clone(), &gate),
            semaphore: Semaphore::new(session, &semaphore),
        }
    }

    /// Makes each call, and returns whether it got what it tried to get.
    async fn all(&self) -> Vec<(&'static str, Result<bool, Error>)> {
        vec![
            ("lock", self.lock.try_acquire().await.map(|grant| grant.is_some())),
            ("reader", self.fair.try_read().await.map(|grant| grant.is_some())),
            ("writer", self.fair.try_write().await.map(|grant| grant.is_some())),
            ("preferred reader", self.writers_first.try_read().await.map(|grant| grant.is_some())),
            ("preferred writer", self.writers_first.try_write().await.map(|grant| grant.is_some())),
            ("gate", self.gate.try_pass().await.map(|passage| passage.is_some())),
            ("semaphore", self.semaphore.try_acquire().await.map(|grant| grant.is_some())),
        ]
    }
}

/// Regression: each call waited until the session was connected again.
#[test]
fn try_calls_without_a_connection_fail_at_once() {
    let body = async |context: ClientContext<String>| {
        let tries = Tries::new(&context.session);
        tries.semaphore.set_size(1).await.unwrap();
        for (what, tried) in tries.all().await {
            assert_eq!(tried, Ok(true), "{what}");
            context.sleep(Duration::from_millis(100)).await;
        }
        // One of these calls is in flight when the connection is cut. It fails once the session
        // notices.
        let noticed = loop {
            match tries.lock.try_acquire().await {
                Ok(Some(grant)) => drop(grant),
                Ok(None) => {}
                Err(error) => break error,
            }
            assert!(context.true_us(context.now()) < CUT_TO_US, "it waited for the connection");
        };
        assert_eq!((noticed.kind(), context.session.state()), (ErrorKind::Disconnected, SessionState::Suspended));
        let asked = context.now();
        for (what, tried) in tries.all().await {
            assert_eq!(tried.unwrap_err().kind(), ErrorKind::Disconnected, "{what}");
        }
        assert_eq!(context.now(), asked, "somebody waited");
        // Waiting works as before, and attempts that failed are in no participant's way.
        tries.lock.acquire().await.unwrap().release().await.unwrap();
        drop(tries.gate.pass().await.unwrap());
        if let Some(path) = left_behind(&context).await {
            context.record(path);
        }
        Next::Done
    };
    let nothing_left = |ran: &Ran<String>| if ran.facts.is_empty() { Ok(()) } else { Err(format!("{:?}", ran.facts)) };
    run_seeds_of(10, scenario, body, nothing_left);
}
