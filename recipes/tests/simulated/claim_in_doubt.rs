//! Claims of queue items whose session ends while their owner ends them.

use crate::intercepted::{Answer, Intercepted};
use zoolet_model::{ErrorCode, OpResult, Path, Reply, Request, RequestError as SessionError, WriteOp};
use zoolet_recipes::{Coordinator, ErrorKind, GrantEnd, Op, Queue};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Scenario, run_seeds_of};

const PATH: Path = Path::from_static("/jobs");
const RESULT: Path = Path::from_static("/result");

/// Returns whether the request ends a claim: it deletes the claim's znode.
fn ends_claim(request: &Request) -> bool {
    let deletes = |op: &WriteOp| matches!(op, WriteOp::Delete { path, .. } if path.starts_with("/jobs-claims/"));
    matches!(request, Request::Multi(ops) if ops.iter().any(deletes))
}

/// Returns a session that ends after the transaction was done and before its reply arrives.
fn ends_before_the_reply(session: &Session) -> Intercepted {
    Intercepted::new(session, |session, request| {
        if !ends_claim(&request) {
            return Answer::of(&session, request);
        }
        Answer::new(async move {
            let reply = Coordinator::submit(&session, request).await?;
            let Reply::Multi(results) = reply else { panic!("{reply:?}") };
            if results.iter().any(|result| *result == OpResult::Failed(Some(ErrorCode::NoNode))) {
                // The receipts have no parent yet: the recipe creates it and repeats.
                return Ok(Reply::Multi(results));
            }
            session.close().await.unwrap();
            Err(SessionError::ConnectionLoss)
        })
    })
}

fn each<W: Future<Output = ()>>(body: impl Fn(ClientContext<()>) -> W + Copy + Sync + 'static) {
    let live = move |context: ClientContext<()>| async move {
        body(context).await;
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// Regression: the transaction was done, and the call said `Lost`, which means that nothing was
/// done.
#[test]
fn a_claim_whose_session_ends_after_its_completion_is_not_called_lost() {
    each(async |context| {
        let queue = Queue::new(ends_before_the_reply(&context.session), &PATH);
        queue.put("weld 17").await.unwrap();
        let claim = queue.claim().await.unwrap();
        let completed = claim.complete([Op::create(&RESULT, None)]).await;
        assert_eq!(completed.unwrap_err().kind(), ErrorKind::Closed);
    });
    each(async |context| {
        let queue = Queue::new(ends_before_the_reply(&context.session), &PATH);
        queue.put("poison").await.unwrap();
        let buried = queue.claim().await.unwrap().bury().await;
        assert_eq!(buried.unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// The claim is an ephemeral of its session, and this call sends nothing.
#[test]
fn a_claim_whose_session_ended_before_the_call_is_lost() {
    each(async |context| {
        let queue = Queue::new(context.session.clone(), &PATH);
        for _ in 0..2 {
            queue.put("weld 17").await.unwrap();
        }
        let (completed, buried) = (queue.claim().await.unwrap(), queue.claim().await.unwrap());
        context.session.clone().close().await.unwrap();
        let lost = ErrorKind::GrantLost(GrantEnd::Session);
        assert_eq!(completed.complete([]).await.unwrap_err().kind(), lost);
        assert_eq!(buried.bury().await.unwrap_err().kind(), lost);
    });
}
