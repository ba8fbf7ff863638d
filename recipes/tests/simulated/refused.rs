//! Recipes on a server that refuses repeatedly, as with a full disk.
//!
//! A refused create leaves no znode, so nothing is left to be cleared away.

use crate::apart::within;
use crate::intercepted::{Answer, Intercepted};
use std::cell::Cell;
use std::future::ready;
use std::time::Duration;
use zoolet_model::{Error as SessionError, ErrorCode, OpResult, Path, Reply, Request, WriteOp};
use zoolet_recipes::{Barrier, Coordinator, DoubleBarrier, Error, Gate, Group};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Scenario, run_seeds_of};

const PARENT: &str = "/parent";
const CHILD: Path = Path::from_static("/parent/child");
const REFUSED: SessionError = SessionError::Refused(ErrorCode::SystemError);

/// Returns a session whose server refuses to create the parent.
fn without_parent(session: &Session) -> Intercepted {
    Intercepted::new(session, |session, request| -> Answer {
        match &request {
            Request::Write(WriteOp::Create(create)) if create.path.as_ref() == PARENT => Box::pin(ready(Err(REFUSED))),
            _ => Box::pin(Coordinator::submit(&session, request)),
        }
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
            assert_eq!(member.put().await.unwrap_err(), Error::Session(REFUSED));
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
            assert_eq!(gate.pass().await.map(drop).unwrap_err(), Error::Session(REFUSED));
        }
        assert_eq!(session.errands(), 0);
    });
}

/// Returns a session for which the first multi that creates `ready` fails, as with `results`.
fn with_a_beginning_that_fails(session: &Session, results: [OpResult; 2]) -> Intercepted {
    let left = Cell::new(Some(Reply::Multi(results.to_vec())));
    Intercepted::new(session, move |session, request| -> Answer {
        let begins = |op: &WriteOp| matches!(op, WriteOp::Create(create) if create.path.ends_with("/ready"));
        match &request {
            Request::Multi(ops)
                if ops.iter().any(begins)
                    && let Some(failed) = left.take() =>
            {
                Box::pin(ready(Ok(failed)))
            }
            _ => Box::pin(Coordinator::submit(&session, request)),
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
            assert_eq!(entered.map(drop), Err(Error::Session(SessionError::Refused(code))));
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
        let refused = Error::Session(SessionError::Refused(ErrorCode::NodeExists));
        assert_eq!(other.close().await, Err(refused));
        assert_eq!(context.session.exists(&CHILD).await.unwrap(), None);
    });
}
