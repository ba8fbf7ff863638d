//! Dropped calls of recipes in which participants wait for each other.

use super::*;

#[test]
fn dropped_barrier_calls_leave_no_trace() {
    each(async |context| {
        let barrier = || Barrier::new(context.session.clone(), &Path::from_static("/stopped"));
        let (barrier, other) = (barrier(), barrier());
        at_every_poll("close", async |pending| {
            let attempt = cut(&context, pending, barrier.close()).await;
            other.close().await.unwrap();
            assert!(other.open().await.unwrap());
            other.wait().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("open", async |pending| {
            other.close().await.unwrap();
            let attempt = cut(&context, pending, barrier.open()).await;
            other.open().await.unwrap();
            assert!(other.close().await.unwrap());
            attempt.has_later()
        })
        .await;
        at_every_poll("wait", async |pending| {
            let attempt = cut(&context, pending, barrier.wait()).await;
            assert!(!matches!(attempt, Cut::Ready(_)), "it is closed");
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn dropped_double_barrier_calls_leave_no_trace() {
    each(async |context| {
        let path = Path::from_static("/meeting");
        let alone = DoubleBarrier::new(context.session.clone(), &path, 1);
        at_every_poll("enter", async |pending| {
            let attempt = cut(&context, pending, alone.enter()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            alone.enter().await.unwrap().leave().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("leave", async |pending| {
            let meeting = alone.enter().await.unwrap();
            let attempt = cut(&context, pending, meeting.leave()).await;
            alone.enter().await.unwrap().leave().await.unwrap();
            attempt.has_later()
        })
        .await;
        let both = DoubleBarrier::new(context.session.clone(), &path, 2);
        at_every_poll("enter before the other one", async |pending| {
            let attempt = cut(&context, pending, both.enter()).await;
            assert!(!matches!(attempt, Cut::Ready(_)), "one of two is there");
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn dropped_event_handle_calls_leave_no_trace() {
    each(async |context| {
        let handle = |reset| EventHandle::new(context.session.clone(), &Path::from_static("/delivery"), reset);
        let (manual, auto) = (handle(Reset::Manual), handle(Reset::Auto));
        at_every_poll("set", async |pending| {
            let attempt = cut(&context, pending, manual.set()).await;
            manual.set().await.unwrap();
            manual.wait().await.unwrap();
            manual.reset().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("reset", async |pending| {
            manual.set().await.unwrap();
            let attempt = cut(&context, pending, manual.reset()).await;
            manual.reset().await.unwrap();
            manual.wait_reset().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("wait", async |pending| {
            let attempt = cut(&context, pending, manual.wait()).await;
            assert!(!matches!(attempt, Cut::Ready(_)), "it is not signalled");
            attempt.has_later()
        })
        .await;
        at_every_poll("wait for a signal to use up", async |pending| {
            auto.set().await.unwrap();
            let attempt = cut(&context, pending, auto.wait()).await;
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
fn dropped_latch_calls_leave_no_trace() {
    each(async |context| {
        let latch = Latch::new(context.session.clone(), &Path::from_static("/started"));
        at_every_poll("set", async |pending| {
            let attempt = cut(&context, pending, latch.set(1000)).await;
            latch.set(1000).await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("count_down", async |pending| {
            let before = latch.count().await.unwrap().unwrap();
            let attempt = cut(&context, pending, latch.count_down()).await;
            let left = latch.count_down().await.unwrap();
            let most = if matches!(attempt, Cut::Ready(_)) { before - 2..=before - 2 } else { before - 2..=before - 1 };
            assert!(most.contains(&left), "{before} and then {left}");
            attempt.has_later()
        })
        .await;
        at_every_poll("wait", async |pending| {
            let attempt = cut(&context, pending, latch.wait()).await;
            assert!(!matches!(attempt, Cut::Ready(_)), "something is left");
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
    each(async |context| {
        let session = || context.session.clone();
        let path = |what: &str, pending| Path::new(format!("/tx/{what}-{pending}")).unwrap();
        let join = async |path: &Path, site: &str| {
            Participant::join(session(), path, site, Notification::Coordinator, Memory).await.unwrap().unwrap()
        };
        at_every_poll("begin", async |pending| {
            let path = path("begin", pending);
            let attempt = cut(&context, pending, Transaction::begin(session(), &path, "x", &["a"])).await;
            match Transaction::begin(session(), &path, "x", &["a"]).await {
                Ok(_) => assert!(!matches!(attempt, Cut::Ready(_))),
                Err(error) => assert!(error.is_node_exists(), "{error}"),
            }
            assert_eq!(Transaction::open(session(), &path).await.unwrap().unwrap().sites(), ["a"]);
            attempt.has_later()
        })
        .await;
        at_every_poll("join", async |pending| {
            let path = path("join", pending);
            Transaction::begin(session(), &path, "x", &["a"]).await.unwrap();
            let joining = Participant::join(session(), &path, "a", Notification::Coordinator, Memory);
            let attempt = cut(&context, pending, joining).await;
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
            let attempt = cut(&context, pending, site.vote(Vote::Commit)).await;
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
            let decides = cut(&context, pending, transaction.decide(None)).await.has_later();
            assert_eq!(transaction.decide(None).await, Ok(Outcome::Committed));
            assert_eq!(site.outcome().await, Ok(Outcome::Committed));
            let acknowledges = cut(&context, pending, site.acknowledge(Outcome::Committed)).await.has_later();
            join(&path, "a").await.acknowledge(Outcome::Committed).await.unwrap().unwrap();
            let finishes = cut(&context, pending, transaction.finish()).await.has_later();
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
            let finishes = cut(&context, pending, transaction.finish()).await.has_later();
            again.finish().await.unwrap();
            let acknowledges = cut(&context, pending, b.acknowledge(Outcome::Committed)).await.has_later();
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
