//! Dropped calls of recipes that a participant holds: locks, permits and offices.

use super::*;

#[test]
fn dropped_lock_calls_leave_no_trace() {
    each(async |context| {
        let path = Path::from_static("/lock");
        let (lock, other) = (Lock::new(context.session.clone(), &path), Lock::new(context.session.clone(), &path));
        at_every_poll("acquire", async |pending| {
            let attempt = cut(&context, pending, lock.acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            other.acquire().await.unwrap().release().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("acquire behind another one", async |pending| {
            let held = other.acquire().await.unwrap();
            let attempt = cut(&context, pending, lock.acquire()).await;
            assert!(!matches!(attempt, Cut::Ready(_)));
            assert_eq!(held.holding(), Holding::Held);
            drop(held);
            lock.acquire().await.unwrap().release().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("try_acquire", async |pending| {
            let attempt = cut(&context, pending, lock.try_acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            soon(&context, async || other.try_acquire().await.unwrap()).await.release().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("release", async |pending| {
            let held = lock.acquire().await.unwrap();
            let attempt = cut(&context, pending, held.release()).await;
            other.acquire().await.unwrap().release().await.unwrap();
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn dropped_reentrant_lock_calls_leave_no_trace() {
    each(async |context| {
        let lock = Lock::new(context.session.clone(), &Path::from_static("/lock")).reentrant();
        let outer = lock.acquire().await.unwrap();
        at_every_poll("acquire", async |pending| {
            let attempt = cut(&context, pending, lock.acquire()).await;
            assert_eq!((outer.holding(), lock.acquire().await.unwrap().token()), (Holding::Held, outer.token()));
            attempt.has_later()
        })
        .await;
        drop(outer);
        at_every_poll("acquire anew", async |pending| {
            let attempt = cut(&context, pending, lock.acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            drop(lock.acquire().await.unwrap());
            has_later
        })
        .await;
    });
}

#[test]
fn dropped_read_write_lock_calls_leave_no_trace() {
    each(async |context| {
        for (path, preference) in
            [("/fair", Preference::Fair), ("/readers", Preference::Readers), ("/writers", Preference::Writers)]
        {
            let lock = || ReadWriteLock::new(context.session.clone(), &Path::from_static(path)).prefer(preference);
            let (lock, other) = (lock(), lock());
            at_every_poll("read", async |pending| {
                let attempt = cut(&context, pending, lock.read()).await;
                let has_later = attempt.has_later();
                drop(attempt);
                other.write().await.unwrap().release().await.unwrap();
                has_later
            })
            .await;
            at_every_poll("write behind a reader", async |pending| {
                let held = other.read().await.unwrap();
                let attempt = cut(&context, pending, lock.write()).await;
                assert!(!matches!(attempt, Cut::Ready(_)));
                // A dropped writer no longer keeps readers out.
                soon(&context, async || lock.try_read().await.unwrap()).await.release().await.unwrap();
                held.release().await.unwrap();
                attempt.has_later()
            })
            .await;
            at_every_poll("try_write", async |pending| {
                let attempt = cut(&context, pending, lock.try_write()).await;
                let has_later = attempt.has_later();
                drop(attempt);
                soon(&context, async || other.try_write().await.unwrap()).await.release().await.unwrap();
                has_later
            })
            .await;
            at_every_poll("downgrade", async |pending| {
                let held = lock.write().await.unwrap();
                let attempt = cut(&context, pending, lock.downgrade(held)).await;
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
fn dropped_semaphore_calls_leave_no_trace() {
    each(async |context| {
        let semaphore = || Semaphore::new(context.session.clone(), &Path::from_static("/semaphore"));
        let (semaphore, other) = (semaphore(), semaphore());
        at_every_poll("set_size", async |pending| {
            let attempt = cut(&context, pending, semaphore.set_size(1)).await;
            other.set_size(1).await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("resize", async |pending| {
            let attempt = cut(&context, pending, semaphore.resize(2)).await;
            other.resize(1).await.unwrap();
            other.set_size(1).await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("acquire", async |pending| {
            let attempt = cut(&context, pending, semaphore.acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            other.acquire().await.unwrap().release().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("acquire behind another one", async |pending| {
            let held = other.acquire().await.unwrap();
            let attempt = cut(&context, pending, semaphore.acquire()).await;
            drop(held);
            other.acquire().await.unwrap().release().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("try_acquire", async |pending| {
            let attempt = cut(&context, pending, semaphore.try_acquire()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            soon(&context, async || other.try_acquire().await.unwrap()).await.release().await.unwrap();
            has_later
        })
        .await;
    });
}

#[test]
fn dropped_election_calls_leave_no_trace() {
    each(async |context| {
        let election = || Election::new(context.session.clone(), &Path::from_static("/election"));
        let (election, other) = (election(), election());
        at_every_poll("campaign", async |pending| {
            let attempt = cut(&context, pending, election.campaign()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            other.campaign().await.unwrap().resign().await.unwrap();
            has_later
        })
        .await;
        at_every_poll("campaign behind another one", async |pending| {
            let leads = other.campaign().await.unwrap();
            let attempt = cut(&context, pending, election.campaign()).await;
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
            let attempt = cut(&context, pending, leads.proclaim("a")).await;
            leads.proclaim("b").await.unwrap();
            assert_eq!(election.office().await.unwrap().unwrap().content.as_deref(), Some(&b"b"[..]));
            leads.resign().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("resign", async |pending| {
            let leads = other.campaign().await.unwrap();
            let attempt = cut(&context, pending, leads.resign()).await;
            election.campaign().await.unwrap().resign().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("hand_over", async |pending| {
            let leads = other.campaign().await.unwrap();
            let itself = other.candidates().await.unwrap().remove(0);
            let attempt = cut(&context, pending, leads.hand_over(&itself)).await;
            election.campaign().await.unwrap().resign().await.unwrap();
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn dropped_gate_calls_leave_no_trace() {
    each(async |context| {
        let gate = Gate::new(context.session.clone(), &Path::from_static("/yard"));
        at_every_poll("try_pass", async |pending| {
            let attempt = cut(&context, pending, gate.try_pass()).await;
            let has_later = attempt.has_later();
            drop(attempt);
            drop(soon(&context, async || gate.try_pass().await.unwrap()).await);
            has_later
        })
        .await;
        at_every_poll("pass behind another one", async |pending| {
            let behind = gate.pass().await.unwrap();
            let attempt = cut(&context, pending, gate.pass()).await;
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
fn dropped_rolling_restart_calls_leave_no_trace() {
    each(async |context| {
        let gate = RollingRestart::new(context.session.clone(), &Path::from_static("/restarts"), 1);
        at_every_poll("begin", async |pending| {
            let attempt = cut(&context, pending, gate.begin("gw-a")).await;
            let permit = gate.begin("gw-a").await.unwrap();
            assert!(permit == Permit::Kept || !matches!(attempt, Cut::Ready(_)));
            assert_eq!(gate.down().await.unwrap(), ["gw-a"]);
            gate.done("gw-a").await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("begin behind another box", async |pending| {
            gate.begin("gw-b").await.unwrap();
            let attempt = cut(&context, pending, gate.begin("gw-a")).await;
            assert_eq!(gate.down().await.unwrap(), ["gw-b"]);
            gate.done("gw-b").await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("done", async |pending| {
            gate.begin("gw-a").await.unwrap();
            let attempt = cut(&context, pending, gate.done("gw-a")).await;
            gate.done("gw-a").await.unwrap();
            assert_eq!(gate.begin("gw-c").await, Ok(Permit::Given));
            gate.done("gw-c").await.unwrap();
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn dropped_release_requests_and_breaks_leave_no_trace() {
    each(async |context| {
        let path = Path::from_static("/lock");
        let (lock, line) = (Lock::new(context.session.clone(), &path), Contention::new(context.session.clone(), &path));
        at_every_poll("ask_to_release", async |pending| {
            let held = lock.acquire().await.unwrap();
            let holder = line.contenders().await.unwrap().remove(0);
            let attempt = cut(&context, pending, line.ask_to_release(&holder)).await;
            line.ask_to_release(&holder).await.unwrap();
            held.asked_to_release().await.unwrap();
            held.release().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("break_grant", async |pending| {
            let held = lock.acquire().await.unwrap();
            let holder = line.contenders().await.unwrap().remove(0);
            let attempt = cut(&context, pending, line.break_grant(&holder, "stuck")).await;
            line.break_grant(&holder, "stuck").await.unwrap();
            held.ended().await;
            lock.acquire().await.unwrap().release().await.unwrap();
            attempt.has_later()
        })
        .await;
        at_every_poll("asked_to_release", async |pending| {
            let held = lock.acquire().await.unwrap();
            let attempt = cut(&context, pending, held.asked_to_release()).await;
            assert_eq!(held.holding(), Holding::Held);
            held.release().await.unwrap();
            attempt.has_later()
        })
        .await;
    });
}
