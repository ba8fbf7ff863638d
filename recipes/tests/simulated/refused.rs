//! Recipes on a server that refuses repeatedly, as with a full disk.
//!
//! A refused create leaves no znode, so nothing is left to be cleared away.

use crate::intercepted::{Answer, Intercepted};
use std::future::ready;
use zoolet_model::{Error as SessionError, ErrorCode, Path, Request, WriteOp};
use zoolet_recipes::{Coordinator, Error, Gate, Group};
use zoolet_session::Session;
use zoolet_sim::ensemble::{Next, Scenario, Seat, run_seeds_of};

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

fn each<W: Future<Output = ()>>(body: impl Fn(Seat<()>) -> W + Copy + Sync + 'static) {
    let live = move |seat: Seat<()>| async move {
        body(seat).await;
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, |_| Ok(()));
}

/// Regression: each attempt left an errand, which the session runs again after each reconnect.
#[test]
fn a_member_whose_group_cannot_be_made_leaves_no_errand() {
    each(async |seat| {
        let session = without_parent(&seat.session);
        let group = Group::new(session.clone(), &Path::from_static(PARENT));
        for _ in 0..10 {
            let mut member = group.member("child", "").unwrap();
            assert_eq!(member.put().await.unwrap_err(), Error::Session(REFUSED));
        }
        assert_eq!(session.errands(), 0);
    });
}

#[test]
fn a_passage_whose_gate_cannot_be_made_leaves_no_errand() {
    each(async |seat| {
        let session = without_parent(&seat.session);
        let gate = Gate::new(session.clone(), &CHILD);
        for _ in 0..10 {
            assert_eq!(gate.pass().await.map(drop).unwrap_err(), Error::Session(REFUSED));
        }
        assert_eq!(session.errands(), 0);
    });
}
