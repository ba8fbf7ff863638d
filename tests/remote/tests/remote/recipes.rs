//! The main path of every recipe over TCP, with two sessions.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use bytes::Bytes;
use std::convert::Infallible;
use std::time::Duration;
use zoolet::Wait;
use zoolet_model::Path;
use zoolet_recipes::{
    Barrier, Change, ChildrenCache, Configuration, Contention, Coordinator, Counter, Done, DoubleBarrier, Election,
    EventHandle, Gate, Group, Holding, Latch, Lock, NameService, Notification, Op, Outcome, Participant,
    ParticipantLog, Permit, PersistentZnode, Priority, PriorityQueue, Queue, ReadWriteLock, Record, Remote, Reset,
    Revoked, RollingRestart, Semaphore, Transaction, Update, Vote, ZnodeCache, ZnodeChange, catch_up,
};
use zoolet_remote_tests::{PATIENCE, Server, below, children, run, site, until, within};

/// Runs a test with two sessions at a server and a path for the recipe.
fn with_two(test: impl AsyncFnOnce(Remote, Remote, Path)) {
    let server = Server::start();
    run(async {
        let (one, two) = (server.session().await, server.session().await);
        let path = site(&one).await;
        test(one, two, path).await;
    });
}

#[test]
fn released_lock_passes_to_the_other_session() {
    with_two(async |one, two, path| {
        let (first, second) = (Lock::new(one, &path).described("one"), Lock::new(two.clone(), &path));
        let grant = within(first.acquire()).await.unwrap();
        assert_eq!(grant.holding(), Holding::Held);
        assert!(within(second.try_acquire()).await.unwrap().is_none());
        assert!(within(second.acquire_within(Duration::from_millis(50))).await.unwrap().is_none());
        until(async || children(&two, &path).await.len() == 1).await;
        let written = below(&path, "written");
        let created = within(grant.fenced().create(&written, "1")).await.unwrap();
        assert_eq!((&created.path, created.stat.version), (&written, 0));
        let set = within(grant.fenced().set(&written, "2", created.stat)).await.unwrap();
        assert_eq!(set.version, 1);
        let results = within(grant.fenced().multi([Op::delete(&written, set)])).await;
        assert_eq!(results.unwrap(), [Done::Deleted]);
        let token = grant.token();
        let (next, released) = tokio::join!(within(second.acquire()), within(grant.release()));
        released.unwrap();
        let next = next.unwrap();
        assert!(next.token() > token);
        let reentrant = second.reentrant();
        drop(next);
        let outer = within(reentrant.acquire()).await.unwrap();
        assert_eq!(within(reentrant.try_acquire()).await.unwrap().unwrap().token(), outer.token());
    });
}

#[test]
fn readers_share_the_lock_and_exclude_a_writer() {
    with_two(async |one, two, path| {
        let (first, second) = (ReadWriteLock::new(one, &path), ReadWriteLock::new(two, &path));
        let reads = (within(first.read()).await.unwrap(), within(second.read()).await.unwrap());
        assert!(within(second.try_write()).await.unwrap().is_none());
        drop(reads);
        let write = within(second.write()).await.unwrap();
        assert!(within(first.try_read()).await.unwrap().is_none());
        let shared = within(second.downgrade(write)).await.unwrap();
        let read = within(first.read()).await.unwrap();
        drop((shared, read));
        within(first.write()).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn contender_asks_a_holder_to_release_and_breaks_its_grant() {
    with_two(async |one, two, path| {
        let lock = Lock::new(one.clone(), &path).described("one");
        let grant = within(lock.acquire()).await.unwrap();
        let contention = Contention::new(two, &path);
        let contenders = within(contention.contenders()).await.unwrap();
        assert_eq!((contenders.len(), contenders[0].holds, contenders[0].session), (1, true, one.session()));
        assert_eq!(contenders[0].content, Some("one".into()));
        let (asked, heard) = tokio::join!(contention.ask_to_release(&contenders[0]), within(grant.asked_to_release()));
        assert_eq!((asked, heard), (Ok(()), Ok(())));
        let broken = within(contention.break_grant(&contenders[0], "for a test")).await.unwrap();
        assert_ne!(broken, Revoked::Released);
        within(grant.ended()).await;
    });
}

#[test]
fn semaphore_admits_as_many_holders_as_its_size() {
    with_two(async |one, two, path| {
        let (first, second) = (Semaphore::new(one, &path), Semaphore::new(two, &path));
        within(first.set_size(2)).await.unwrap();
        let both = (within(first.acquire()).await.unwrap(), within(second.acquire()).await.unwrap());
        assert_eq!(within(first.taken()).await.unwrap(), 2);
        let (third, ()) = tokio::join!(within(second.acquire()), async { drop(both.0) });
        third.unwrap().release().await.unwrap();
        within(first.resize(3)).await.unwrap();
    });
}

#[test]
fn resigning_leader_is_followed_by_the_next_candidate() {
    with_two(async |one, two, path| {
        let (first, second) = (Election::new(one, &path).described("a"), Election::new(two, &path).described("b"));
        let mut observer = second.observe();
        assert_eq!(within(observer.next()).await.unwrap(), None);
        let leader = within(first.campaign()).await.unwrap();
        assert_eq!(leader.holding(), Holding::Held);
        let office = within(observer.next()).await.unwrap().unwrap();
        assert_eq!((office.content, office.token), (Some("a".into()), leader.token()));
        within(leader.proclaim("says")).await.unwrap();
        assert_eq!(within(first.candidates()).await.unwrap().len(), 1);
        let (next, resigned) = tokio::join!(within(second.campaign()), within(leader.resign()));
        resigned.unwrap();
        assert_eq!(within(second.office()).await.unwrap().unwrap().token, next.unwrap().token());
    });
}

#[test]
fn barrier_gate_and_event_handle_wake_the_waiting_session() {
    with_two(async |one, two, path| {
        let barrier = (Barrier::new(one.clone(), &path), Barrier::new(two.clone(), &path));
        assert!(within(barrier.0.close()).await.unwrap());
        let (waited, opened) = tokio::join!(within(barrier.1.wait()), within(barrier.0.open()));
        assert_eq!((waited, opened), (Ok(()), Ok(true)));

        let gate = below(&path, "gate");
        let gates = (Gate::new(one.clone(), &gate), Gate::new(two.clone(), &gate));
        let passage = within(gates.0.pass()).await.unwrap();
        assert!(within(gates.1.try_pass()).await.unwrap().is_none());
        let (next, ()) = tokio::join!(within(gates.1.pass()), async { drop(passage) });
        drop(next.unwrap());

        let handle = below(&path, "event");
        let handles = (EventHandle::new(one, &handle, Reset::Auto), EventHandle::new(two, &handle, Reset::Auto));
        let (waited, set) = tokio::join!(within(handles.0.wait()), within(handles.1.set()));
        assert_eq!((waited, set), (Ok(()), Ok(true)));
        within(handles.1.wait_reset()).await.unwrap();
        assert!(!within(handles.0.is_set()).await.unwrap());
    });
}

#[test]
fn parties_enter_and_leave_a_double_barrier_together() {
    with_two(async |one, two, path| {
        let barriers = (DoubleBarrier::new(one, &path, 2), DoubleBarrier::new(two, &path, 2));
        for _ in 0..2 {
            let (a, b) = tokio::join!(within(barriers.0.enter()), within(barriers.1.enter()));
            let (a, b) = tokio::join!(within(a.unwrap().leave()), within(b.unwrap().leave()));
            assert_eq!((a, b), (Ok(()), Ok(())));
        }
    });
}

#[test]
fn latch_and_counter_sum_the_calls_of_both_sessions() {
    with_two(async |one, two, path| {
        let latches = (Latch::new(one.clone(), &path), Latch::new(two.clone(), &path));
        within(latches.0.set(2)).await.unwrap();
        let (waited, counted) = tokio::join!(within(latches.0.wait()), async {
            assert_eq!(within(latches.1.count_down()).await, Ok(1));
            within(latches.1.count_down()).await
        });
        assert_eq!((waited, counted), (Ok(()), Ok(0)));
        assert_eq!(within(latches.1.count()).await, Ok(Some(0)));

        let path = below(&path, "counter");
        let counters = (Counter::new(one, &path), Counter::new(two, &path));
        let (a, b) = tokio::join!(within(counters.0.add(2)), within(counters.1.add(3)));
        assert!(a.is_ok() && b.is_ok());
        assert_eq!(within(counters.0.value()).await, Ok(5));
        assert_eq!(within(counters.1.compare_and_set(5, -1)).await, Ok(true));
        assert_eq!(within(counters.1.compare_and_set(5, 0)).await, Ok(false));
    });
}

#[test]
fn queued_items_are_taken_in_order_by_the_other_session() {
    with_two(async |one, two, path| {
        let queues = (Queue::new(one.clone(), &path), Queue::new(two.clone(), &path));
        let (item, put) = tokio::join!(within(queues.1.take()), within(queues.0.put("a")));
        assert_eq!((item, put), (Ok("a".into()), Ok(())));
        within(queues.0.put("b")).await.unwrap();
        let claim = within(queues.1.claim()).await.unwrap();
        assert_eq!((claim.item(), claim.attempts()), (&Bytes::from_static(b"b"), 1));
        within(claim.complete([])).await.unwrap();
        within(queues.0.put("")).await.unwrap();
        within(within(queues.1.claim()).await.unwrap().bury()).await.unwrap();
        assert_eq!(within(queues.0.size()).await, Ok(0));

        let path = below(&path, "ranked");
        let queues = (PriorityQueue::new(one, &path), PriorityQueue::new(two, &path));
        let priority = |priority| Priority::new(priority).unwrap();
        within(queues.0.put(priority(9), "late")).await.unwrap();
        within(queues.0.put(priority(1), "soon")).await.unwrap();
        assert_eq!(within(queues.1.take()).await, Ok("soon".into()));
        assert_eq!(within(queues.1.take()).await, Ok("late".into()));
    });
}

/// A log that keeps nothing, because no process crashes here.
struct Forgetful;

impl ParticipantLog for Forgetful {
    type Error = Infallible;

    fn record(&mut self, _: &Path, _: Record) -> Result<(), Infallible> {
        Ok(())
    }
}

#[test]
fn transaction_commits_only_if_every_site_votes_commit() {
    with_two(async |one, two, path| {
        for (vote, outcome) in [(Vote::Commit, Outcome::Committed), (Vote::Abort, Outcome::Aborted)] {
            let transaction = within(Transaction::begin(one.clone(), &path, "4.2", &["a", "b"])).await.unwrap();
            let site = async |session: &Remote, name: &str, vote: Vote| {
                let joined =
                    Participant::join(session.clone(), &path, name, Notification::Coordinator, Forgetful).await;
                let mut site = joined.unwrap().unwrap();
                assert_eq!(site.payload(), "4.2");
                site.vote(vote).await.unwrap().unwrap();
                let outcome = site.outcome().await.unwrap();
                site.acknowledge(outcome).await.unwrap().unwrap();
                outcome
            };
            let (decided, a, b) = tokio::join!(
                within(transaction.decide(None)),
                within(site(&one, "a", Vote::Commit)),
                within(site(&two, "b", vote))
            );
            assert_eq!((decided, a, b), (Ok(outcome), outcome, outcome));
            within(transaction.finish()).await.unwrap();
        }
    });
}

#[test]
fn in_process_participant_votes_on_a_transaction_begun_over_tcp() {
    let server = Server::start();
    let Some(node) = server.node() else { return };
    let session = node.session().wait_timeout(PATIENCE).unwrap().unwrap();
    run(async {
        let remote = server.session().await;
        let path = site(&remote).await;
        let transaction = within(Transaction::begin(remote, &path, "4.2", &["a"])).await.unwrap();
        let joined = Participant::join(session, &path, "a", Notification::Everyone, Forgetful).await;
        let mut site = joined.unwrap().unwrap();
        let (decided, voted) = tokio::join!(within(transaction.decide(None)), within(site.vote(Vote::Commit)));
        assert_eq!((decided, voted), (Ok(Outcome::Committed), Ok(Ok(Vote::Commit))));
    });
}

#[test]
fn members_and_names_are_seen_by_the_other_session() {
    with_two(async |one, two, path| {
        let (group, other) = (Group::new(one.clone(), &path), Group::new(two.clone(), &path));
        let mut member = group.member("gw-a", "10.0.0.1").unwrap();
        within(member.put()).await.unwrap();
        let members = within(other.members()).await.unwrap();
        assert_eq!((members.len(), members[0].name.as_str()), (1, "gw-a"));
        let mut watch = other.watch();
        while within(watch.next()).await.unwrap() != Change::Complete {}
        drop(member);
        assert_eq!(within(watch.next()).await.unwrap(), Change::Gone { name: "gw-a".into() });

        let mut kept = PersistentZnode::new(one.clone(), &below(&path, "kept"), "1");
        within(kept.put()).await.unwrap();
        assert_eq!(within(kept.set("2")).await.unwrap().version, 1);

        let root = below(&path, "names");
        let (names, others) = (NameService::new(one, &root), NameService::new(two, &root));
        assert!(within(names.bind("door/3", "here")).await.unwrap());
        assert!(!within(others.bind("door/3", "there")).await.unwrap());
        assert_eq!(within(others.resolve("door/3")).await.unwrap(), Some("here".into()));
        let claim = within(names.claim("door/4", "")).await.unwrap().unwrap();
        assert!(within(others.claim("door/4", "")).await.unwrap().is_none());
        drop(claim);
        until(async || others.resolve("door/4").await.unwrap().is_none()).await;
        let unique = within(names.unique("door/", "x")).await.unwrap();
        assert_eq!(within(others.resolve(&unique)).await.unwrap(), Some("x".into()));
    });
}

#[test]
fn caches_and_configurations_show_changes_of_the_other_session() {
    with_two(async |one, two, path| {
        let mut node = ZnodeCache::new(one.clone(), &path);
        assert_eq!(within(node.next()).await.unwrap(), ZnodeChange::Now(None));
        let parse = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap_or_default().parse::<u32>();
        let mut value = Configuration::new(one.clone(), &path, Some(1), parse);
        assert_eq!(within(value.next()).await.unwrap(), Update::Absent);
        let mut writer = PersistentZnode::new(two.clone(), &path, "7").kind(zoolet_model::CreateKind::Persistent);
        within(writer.put()).await.unwrap();
        assert_eq!(within(value.next()).await.unwrap(), Update::Accepted("7".into()));
        assert_eq!(value.value(), Some(&7));
        assert!(matches!(within(node.next()).await.unwrap(), ZnodeChange::Now(Some(znode)) if znode.bytes() == b"7"));

        let mut below_it = ChildrenCache::new(one.clone(), &path);
        while within(below_it.next()).await.unwrap() != Change::Complete {}
        let mut child = PersistentZnode::new(two, &below(&path, "a"), "x");
        within(child.put()).await.unwrap();
        within(catch_up(&one)).await.unwrap();
        assert!(matches!(within(below_it.next()).await.unwrap(), Change::Put { name, .. } if name == "a"));
    });
}

#[test]
fn restart_permit_passes_on_once_its_box_is_done() {
    with_two(async |one, two, path| {
        let gates = (RollingRestart::new(one, &path, 1), RollingRestart::new(two, &path, 1));
        assert_eq!(within(gates.0.begin("a")).await, Ok(Permit::Given));
        assert_eq!(within(gates.1.begin("a")).await, Ok(Permit::Kept));
        let (next, done) = tokio::join!(within(gates.1.begin("b")), within(gates.0.done("a")));
        assert_eq!((next, done), (Ok(Permit::Given), Ok(())));
        assert_eq!(within(gates.0.down()).await, Ok(vec!["b".to_owned()]));
    });
}
