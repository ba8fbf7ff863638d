//! The end of two-phase commits with a dismissed site: lost replies, second coordinators, late
//! sites.
//!
//! Site a has acknowledged. Site b is dismissed, and each test decides when site b acknowledges.

use crate::apart::{both, within};
use crate::intercepted::{Answer, Intercepted};
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use zoolet_model::{Path, Request, RequestError as SessionError, WriteOp};
use zoolet_recipes::{Coordinator, Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Scenario, run_seeds_of};

const PATH: Path = Path::from_static("/tx");
const SITES: [&str; 2] = ["a", "b"];
/// A call that takes longer waits forever.
const PATIENCE: Duration = Duration::from_secs(60);

type Desk = ClientContext<()>;
type Site = Participant<Session, Memory>;

#[derive(Debug)]
struct Memory;

impl ParticipantLog for Memory {
    type Error = ();

    fn record(&mut self, _: &Path, _: Record) -> Result<(), ()> {
        Ok(())
    }
}

/// Runs `body` with one client, which plays the coordinators and the sites.
fn each<W: Future<Output = ()>>(body: impl Fn(Desk) -> W + Copy + Sync + 'static) {
    let live = move |context: Desk| async move {
        body(context).await;
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

async fn join(context: &Desk, site: &str) -> Site {
    let session = context.session.clone();
    Participant::join(session, &PATH, site, Notification::Coordinator, Memory).await.unwrap().unwrap()
}

/// Returns a transaction that can be finished, and its site b.
async fn begin<C: Coordinator>(context: &Desk, coordinator: C) -> (Transaction<C>, Site) {
    let begun = Transaction::begin(coordinator, &PATH, "x", &SITES).await.unwrap();
    let (mut a, mut b) = (join(context, "a").await, join(context, "b").await);
    for site in [&mut a, &mut b] {
        assert_eq!(site.vote(Vote::Commit).await, Ok(Ok(Vote::Commit)));
    }
    assert_eq!(begun.decide(None).await, Ok(Outcome::Committed));
    acknowledge(context, a).await;
    begun.dismiss("b").await.unwrap();
    (begun, b)
}

async fn acknowledge(context: &Desk, site: Site) {
    let acknowledged = within(context, PATIENCE, site.acknowledge(Outcome::Committed)).await;
    assert_eq!(acknowledged.expect("an acknowledgement waits for ever"), Ok(Ok(())));
}

async fn finish<C: Coordinator>(context: &Desk, transaction: Transaction<C>) {
    assert_eq!(within(context, PATIENCE, transaction.finish()).await.expect("finish waits for ever"), Ok(()));
}

async fn open(context: &Desk) -> Option<Transaction<Session>> {
    Transaction::open(context.session.clone(), &PATH).await.unwrap()
}

/// Asserts that the path has no znode, and begins the next transaction there.
async fn is_free(context: &Desk) {
    assert_eq!(context.session.exists(&PATH).await.unwrap(), None, "the transaction was not ended");
    Transaction::begin(context.session.clone(), &PATH, "next", &SITES).await.unwrap();
}

/// A session that hands the multi that creates `finished` to `finishing`.
fn finishing(context: &Desk, finishing: impl Fn(Session, Request) -> Answer + Send + Sync + 'static) -> Intercepted {
    Intercepted::new(&context.session, move |session, request| {
        let is_it = |op: &WriteOp| matches!(op, WriteOp::Create(create) if create.path.ends_with("/finished"));
        match &request {
            Request::Multi(ops) if ops.iter().any(is_it) => finishing(session, request),
            _ => Answer::of(&session, request),
        }
    })
}

/// Regression: the multi that was sent again found the znodes of site a gone, and finish waited for
/// site a to acknowledge.
#[test]
fn finish_with_a_lost_reply_does_not_wait_for_acknowledged_sites() {
    each(async |context| {
        let lost = AtomicU32::new(0);
        let loses_first = finishing(&context, move |session, request| {
            let answer = Coordinator::submit(&session, request);
            if lost.fetch_add(1, Relaxed) > 0 {
                return Answer::new(answer);
            }
            Answer::new(async move { answer.await.and(Err(SessionError::ConnectionLoss)) })
        });
        let (begun, b) = begin(&context, loses_first).await;
        finish(&context, begun).await;
        assert_eq!(open(&context).await.unwrap().sites(), ["b"]);
        acknowledge(&context, b).await;
        is_free(&context).await;
    });
}

/// Regression: the first call deleted the znodes of site a, and the other coordinators waited for
/// site a to acknowledge.
#[test]
fn coordinators_that_opened_before_the_end_finish_and_forget_at_once() {
    each(async |context| {
        let (begun, b) = begin(&context, context.session.clone()).await;
        let (second, third) = (open(&context).await.unwrap(), open(&context).await.unwrap());
        finish(&context, begun).await;
        finish(&context, second).await;
        assert_eq!(open(&context).await.unwrap().sites(), ["b"], "the outcome was deleted");
        assert_eq!(within(&context, PATIENCE, third.forget()).await.expect("forget waits for ever"), Ok(()));
        is_free(&context).await;
        drop(b);
    });
}

/// Regression: site b saw no `finished`, and the coordinator did not see that b had acknowledged.
/// Neither ended the transaction.
#[test]
fn acknowledgement_during_finish_still_ends_the_transaction() {
    each(async |context| {
        let late = finishing(&context, |session, request| {
            Answer::new(async move {
                session.sleep(Duration::from_secs(5)).await;
                Coordinator::submit(&session, request).await
            })
        });
        let (begun, b) = begin(&context, late).await;
        let acknowledges = async {
            context.sleep(Duration::from_secs(2)).await;
            acknowledge(&context, b).await;
            assert!(open(&context).await.is_some(), "the coordinator has finished too early for this test");
        };
        both(finish(&context, begun), acknowledges).await;
        is_free(&context).await;
    });
}

/// The coordinator's process dies in the same interleaving, before it lists the znodes again.
#[test]
fn next_coordinator_ends_a_half_finished_transaction() {
    each(async |context| {
        let dies = finishing(&context, |session, request| {
            Answer::new(async move {
                session.sleep(Duration::from_secs(5)).await;
                Coordinator::submit(&session, request).await?;
                std::future::pending().await
            })
        });
        let (begun, b) = begin(&context, dies).await;
        let finishes = within(&context, Duration::from_secs(20), begun.finish());
        let acknowledges = async {
            context.sleep(Duration::from_secs(2)).await;
            acknowledge(&context, b).await;
        };
        assert!(both(finishes, acknowledges).await.0.is_none());
        finish(&context, open(&context).await.unwrap()).await;
        is_free(&context).await;
    });
}

/// Regression: after a late dismissal, site a counted as a site that may come back.
#[test]
fn late_dismissal_of_an_acknowledged_site_keeps_no_transaction() {
    each(async |context| {
        let (begun, b) = begin(&context, context.session.clone()).await;
        let second = open(&context).await.unwrap();
        finish(&context, begun).await;
        second.dismiss("a").await.unwrap();
        finish(&context, second).await;
        assert_eq!(open(&context).await.unwrap().sites(), ["b"], "the outcome was deleted");
        acknowledge(&context, b).await;
        is_free(&context).await;
    });
}
