//! Recipes on a server that refuses repeatedly, as with a full disk.
//!
//! A refused create leaves no znode, so nothing is left to be cleared away.

use crate::apart::within;
use crate::intercepted::{Answer, Fault, Intercepted, Script};
use std::future::ready;
use std::sync::Mutex;
use std::time::Duration;
use zoolet_model::{ErrorCode, OpResult, Path, Reply, Request, RequestError as SessionError, WriteOp};
use zoolet_recipes::{Barrier, DoubleBarrier, Error, ErrorKind, Gate, Group, Queue};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Scenario, run_seeds_of};

const PARENT: &str = "/parent";
const CHILD: Path = Path::from_static("/parent/child");
const QUEUE: Path = Path::from_static("/jobs");
const RECEIPTS: Path = Path::from_static("/jobs-receipts");
const REFUSED: SessionError = SessionError::Refused(ErrorCode::SystemError);

/// Returns a session whose server refuses to create the parent.
fn without_parent(session: &Session) -> Intercepted {
    Intercepted::new(session, |session, request| match &request {
        Request::Write(WriteOp::Create(create)) if create.path.as_ref() == PARENT => Answer::new(ready(Err(REFUSED))),
        _ => Answer::of(&session, request),
    })
}

fn each<W: Future<Output = ()>>(body: impl Fn(ClientContext<()>) -> W + Copy + Sync + 'static) {
    let live = move |context: ClientContext<()>| async move {
        body(context).await;
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// Regression: each attempt left an errand, which the session runs again after each reconnect.
#[test]
fn member_of_a_refused_group_leaves_no_errand() {
    each(async |context| {
        let session = without_parent(&context.session);
        let group = Group::new(session.clone(), &Path::from_static(PARENT));
        for _ in 0..10 {
            let mut member = group.member("child", "").unwrap();
            assert_eq!(member.put().await.unwrap_err().kind(), REFUSED.into());
        }
        assert_eq!(session.errands(), 0);
    });
}

#[test]
fn passage_through_a_refused_gate_leaves_no_errand() {
    each(async |context| {
        let session = without_parent(&context.session);
        let gate = Gate::new(session.clone(), &CHILD);
        for _ in 0..10 {
            assert_eq!(gate.pass().await.unwrap_err().kind(), REFUSED.into());
        }
        assert_eq!(session.errands(), 0);
    });
}

/// Returns a session for which the first multi that creates `ready` fails, as with `results`.
fn with_a_beginning_that_fails(session: &Session, results: [OpResult; 2]) -> Intercepted {
    let left = Mutex::new(Some(Reply::Multi(results.to_vec())));
    Intercepted::new(session, move |session, request| {
        let begins = |op: &WriteOp| matches!(op, WriteOp::Create(create) if create.path.ends_with("/ready"));
        match &request {
            Request::Multi(ops)
                if ops.iter().any(begins)
                    && let Some(failed) = left.lock().unwrap().take() =>
            {
                Answer::new(ready(Ok(failed)))
            }
            _ => Answer::of(&session, request),
        }
    })
}

/// Regression: the party took every failure for a meeting that another party had begun, and waited
/// for it for ever.
#[test]
fn party_refused_to_begin_the_meeting_gets_the_error() {
    each(async |context| {
        for (results, code) in [
            (
                [OpResult::Failed(Some(ErrorCode::NoAuth)), OpResult::Failed(Some(ErrorCode::RuntimeInconsistency))],
                ErrorCode::NoAuth,
            ),
            ([OpResult::Failed(None), OpResult::Failed(Some(ErrorCode::NoAuth))], ErrorCode::NoAuth),
            ([OpResult::Failed(None), OpResult::Failed(Some(ErrorCode::QuotaExceeded))], ErrorCode::QuotaExceeded),
        ] {
            let barrier = DoubleBarrier::new(with_a_beginning_that_fails(&context.session, results), &CHILD, 1);
            let entered = within(&context, Duration::from_secs(1), barrier.enter()).await;
            let entered = entered.expect("it waits for a meeting that does not begin");
            assert_eq!(entered.unwrap_err().code(), Some(code));
        }
    });
}

/// Another client deleted the party's place, or wrote to the path. The party enters again.
#[test]
fn a_party_whose_place_is_gone_enters_again() {
    each(async |context| {
        for results in [
            [OpResult::Failed(Some(ErrorCode::NoNode)), OpResult::Failed(Some(ErrorCode::RuntimeInconsistency))],
            [OpResult::Failed(None), OpResult::Failed(Some(ErrorCode::BadVersion))],
        ] {
            let barrier = DoubleBarrier::new(with_a_beginning_that_fails(&context.session, results), &CHILD, 1);
            let entered = within(&context, Duration::from_secs(1), barrier.enter()).await;
            entered.expect("it waits for a meeting that does not begin").unwrap().leave().await.unwrap();
        }
    });
}

/// Regression: the refusal of the receipt was taken for that of the recipe's own operation. So the
/// call told that the barrier was closed already, and it was open.
#[test]
fn refused_receipt_is_not_reported_as_a_closed_barrier() {
    each(async |context| {
        // Two processes that draw the same random bits want the same receipt.
        let session = Intercepted::with_random_bits(&context.session, || 7);
        let (one, other) = (Barrier::new(session.clone(), &CHILD), Barrier::new(session, &CHILD));
        assert_eq!(one.close().await, Ok(true));
        context.session.delete(&CHILD, zoolet_session::Version::Any).await.unwrap();
        assert!(other.close().await.unwrap_err().is_node_exists());
        assert_eq!(context.session.exists(&CHILD).await.unwrap(), None);
    });
}

/// Puts a second item into a queue while these faults befall the transactions.
///
/// Returns the result of that call and the number of items. Asserts that no receipt is left once the
/// queue is dropped.
async fn second_put(context: &ClientContext<()>, faults: &[Fault]) -> (Result<(), Error>, usize) {
    let script = Script::default();
    let queue = Queue::new(Intercepted::scripted(&context.session, &script), &QUEUE);
    queue.put("weld 17").await.unwrap();
    script.lock().unwrap().extend(faults);
    let result = queue.put("weld 18").await;
    assert_eq!(*script.lock().unwrap(), [], "{result:?}");
    drop(queue);
    // The errands of the dropped queue and transaction run first.
    let names = context.session.children(&QUEUE).await.unwrap();
    for name in names.iter() {
        let item = QUEUE.join(name).unwrap();
        context.session.delete(&item, zoolet_session::Version::Any).await.unwrap();
    }
    let receipts = context.session.children(&RECEIPTS).await;
    assert!(receipts.as_ref().map_or_else(|error| error.is_no_node(), |names| names.is_empty()), "{receipts:?}");
    (result, names.len())
}

/// Regression: the call failed as if the item had not been put. The caller put it again.
#[test]
fn transaction_done_before_its_repeat_is_refused_succeeds() {
    each(async |context| {
        let done = second_put(&context, &[Fault::ReplyLost, Fault::Refused]).await;
        assert_eq!(done, (Ok(()), 2));
        // The look at the receipt loses its reply as well.
        let done = second_put(&context, &[Fault::ReplyLost, Fault::Refused, Fault::ReplyLost]).await;
        assert_eq!(done, (Ok(()), 2));
        let done = second_put(&context, &[Fault::ReplyLost, Fault::Refused, Fault::RequestLost]).await;
        assert_eq!(done, (Ok(()), 2));
    });
}

#[test]
fn transaction_lost_before_its_repeat_is_refused_was_not_done() {
    each(async |context| {
        let (result, items) = second_put(&context, &[Fault::RequestLost, Fault::Refused]).await;
        assert_eq!((result.unwrap_err().kind(), items), (REFUSED.into(), 1));
    });
}

/// Regression: the error said that nothing had been done.
#[test]
fn transaction_whose_receipt_cannot_be_looked_up_stays_in_doubt() {
    each(async |context| {
        for (first, items) in [(Fault::ReplyLost, 2), (Fault::RequestLost, 1)] {
            let (result, found) = second_put(&context, &[first, Fault::Refused, Fault::Refused]).await;
            assert_eq!((result.unwrap_err().kind(), found), (ErrorKind::ConnectionLoss, items));
        }
    });
}
