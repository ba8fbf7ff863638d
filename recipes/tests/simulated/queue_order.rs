//! Tests of a queue step by step: its order, its bound, and the consumers that it wakes.

use crate::apart::{heard, up_to, within};
use crate::drawn::drawn;
use crate::queue::{CLIENTS, Noted, PATH, items, queue};
use std::collections::BTreeSet;
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{ErrorKind, Lifetime, Priority, PriorityQueue, Queue};
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

/// Regression: after the owner's look and before its deletion, an operator broke the claim and
/// another consumer claimed the item. The owner deleted the other consumer's claim.
#[test]
fn dropping_a_broken_claim_ends_no_other_consumers_claim() {
    let live = |context: ClientContext<Noted>| async move {
        let queue = queue(&context, Lifetime::Persistent);
        let claims = Path::from_static("/jobs-claims");
        for _ in 0..200 {
            match context.number {
                0 if heard(&context, queue.size().await).is_ok_and(|size| size == Some(0)) => {
                    _ = queue.put("one").await
                }
                number if number + 1 == CLIENTS => {
                    if let Ok(names) = context.session.children(&claims).await
                        && let Some(name) = names.iter().next()
                    {
                        let path = Path::new(zoolet_model::path::child(claims.as_str(), name)).unwrap();
                        let _ = context.session.delete(&path, zoolet_session::Version::Any).await;
                    }
                }
                _ => drop(within(&context, Duration::from_millis(50), queue.claim()).await),
            }
            context.sleep(Duration::from_micros(context.below(3000))).await;
            if context.session.state().is_over() {
                return Next::AnotherSession;
            }
        }
        Next::Done
    };
    run_seeds_of(10, |seed| Scenario::drawn(seed, CLIENTS), live, |ran| items(ran).map(drop));
}

#[test]
fn queue_exceeds_its_bound_by_at_most_the_concurrent_puts() {
    const BOUND: u32 = 4;
    let live = |context: ClientContext<Noted>| async move {
        let queue = Queue::new(context.session.clone(), &PATH).items_max(BOUND);
        let mut number = 0;
        while number < 6 || context.goes_on() {
            number += 1;
            context.sleep(up_to(&context, if number < 6 { 50 } else { 1000 })).await;
            match queue.put(format!("{}.{}.{number}", context.number, context.life)).await {
                Err(error) if error.kind() == ErrorKind::Full => context.record(Noted::Full),
                result => {
                    if let Err(next) = heard(&context, result) {
                        return next;
                    }
                }
            }
        }
        Next::Done
    };
    let bound = |ran: &Ran<Noted>| {
        let puts = ran.changed()?.iter().filter(|change| change.path.starts_with("/jobs/")).count();
        let refused = ran.facts.iter().any(|fact| fact.what == Noted::Full);
        let most = BOUND as usize + CLIENTS - 1;
        if puts <= most && refused { Ok(()) } else { Err(format!("{puts} items, refused: {refused}")) }
    };
    drawn(25, CLIENTS, live, bound);
}

#[test]
fn items_are_taken_in_the_order_of_their_puts() {
    let live = |context: ClientContext<Noted>| async move {
        let queue = queue(&context, Lifetime::Persistent);
        for number in 0..20 {
            if context.number == 0 {
                queue.put(format!("{number:02}")).await.unwrap();
            } else {
                // A claim that is given up returns its item to its place.
                drop(queue.claim().await.unwrap());
                context.sleep(Duration::from_secs(1)).await;
                let item = queue.take().await.unwrap();
                context.record(Noted::Took(String::from_utf8(item.to_vec()).unwrap()));
            }
        }
        Next::Done
    };
    let in_order = |ran: &Ran<Noted>| {
        let took: Vec<_> = ran.facts.iter().map(|fact| format!("{:?}", fact.what)).collect();
        if took.len() == 20 && took.is_sorted() { Ok(()) } else { Err(format!("{took:?}")) }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 2), live, in_order);
}

/// Regression: the consumer continued with its list, which did not have the urgent item.
#[test]
fn urgent_item_overtakes_items_listed_before_its_put() {
    let live = |context: ClientContext<Noted>| async move {
        let queue = PriorityQueue::new(context.session.clone(), &PATH);
        let took = |item: bytes::Bytes| context.record(Noted::Took(String::from_utf8(item.to_vec()).unwrap()));
        for (priority, item) in [(50, "b"), (9, "a"), (50, "c"), (99, "z"), (50, "d")] {
            queue.put(Priority::new(priority).unwrap(), item).await.unwrap();
        }
        took(queue.take().await.unwrap());
        took(queue.take().await.unwrap());
        queue.put(Priority::new(10).unwrap(), "b1").await.unwrap();
        took(queue.take().await.unwrap());
        let claim = queue.claim().await.unwrap();
        took(claim.item().clone());
        queue.put(Priority::new(0).unwrap(), "c1").await.unwrap();
        let urgent = queue.claim().await.unwrap();
        took(urgent.item().clone());
        // `c` is claimed, so the take returns `d`.
        took(queue.take().await.unwrap());
        urgent.complete([]).await.unwrap();
        claim.complete([]).await.unwrap();
        took(queue.take().await.unwrap());
        Next::Done
    };
    let in_order = |ran: &Ran<Noted>| {
        let took: Vec<_> = ran.facts.iter().map(|fact| fact.what.clone()).collect();
        let wanted = ["a", "b", "b1", "c", "c1", "d", "z"].map(|item| Noted::Took(item.to_owned()));
        if took == wanted { Ok(()) } else { Err(format!("{took:?}")) }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 1), live, in_order);
}

#[test]
fn item_wakes_waiting_consumers_and_goes_to_one_of_them() {
    const WAITING: usize = 5;
    let live = |context: ClientContext<Noted>| async move {
        let queue = queue(&context, Lifetime::Persistent);
        if context.number < WAITING {
            let item = queue.take().await.unwrap();
            context.record(Noted::Took(String::from_utf8(item.to_vec()).unwrap()));
            return Next::Done;
        }
        context.sleep(Duration::from_secs(5)).await;
        for number in 0..WAITING {
            queue.put(format!("{number}")).await.unwrap();
            context.sleep(Duration::from_secs(1)).await;
        }
        Next::Done
    };
    let all = |ran: &Ran<Noted>| {
        // A consumer that wakes and finds nothing waits for the next change of the list, which may
        // be another consumer's take. So the n-th consumer to get an item wakes for n puts and the
        // n - 1 takes before.
        let events: Vec<_> = ran.facts.iter().map(|fact| ran.events_of(fact.client)).collect();
        let took: BTreeSet<_> = ran.facts.iter().map(|fact| format!("{:?}", fact.what)).collect();
        let are_few = events.iter().enumerate().all(|(at, events)| (1..=2 * at + 1).contains(events));
        if took.len() == WAITING && are_few { Ok(()) } else { Err(format!("{events:?} {took:?}")) }
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, WAITING + 1), live, all);
}

#[test]
fn queue_listing_is_used_until_it_is_exhausted() {
    const ITEMS: usize = 20;
    let live = |context: ClientContext<Noted>| async move {
        let queue = queue(&context, Lifetime::Persistent);
        for number in 0..ITEMS {
            queue.put(format!("{number}")).await.unwrap();
        }
        for _ in 0..ITEMS {
            let item = queue.take().await.unwrap();
            context.record(Noted::Took(String::from_utf8(item.to_vec()).unwrap()));
        }
        Next::Done
    };
    let one_list = |ran: &Ran<Noted>| match (ran.facts.len(), ran.lists_of(0), ran.events_of(0)) {
        (ITEMS, 1, ..=1) => Ok(()),
        other => Err(format!("items, lists and events: {other:?}")),
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 1), live, one_list);
}
