//! Dropped calls of recipes that share data.

use super::*;

#[test]
fn dropped_counter_calls_leave_no_trace() {
    each(async |context| {
        let counter = Counter::new(context.session.clone(), &Path::from_static("/count"));
        at_every_poll("add", async |pending| {
            let before = counter.value().await.unwrap();
            let attempt = cut(&context, pending, counter.add(1)).await;
            let value = counter.add(1).await.unwrap();
            let is_done = matches!(attempt, Cut::Ready(_));
            assert!(value == before + 1 || !is_done && value == before, "{before} and then {value}");
            attempt.has_later()
        })
        .await;
        at_every_poll("compare_and_set", async |pending| {
            let before = counter.value().await.unwrap();
            let attempt = cut(&context, pending, counter.compare_and_set(before, before + 5)).await;
            let value = counter.add(1).await.unwrap();
            assert!(value == before || value == before + 5, "{before} and then {value}");
            attempt.has_later()
        })
        .await;
    });
}

/// The order of items is tested by
/// `queue::claim_or_take_dropped_at_any_poll_keeps_the_item_order`.
#[test]
fn dropped_queue_calls_leave_no_trace() {
    each(async |context| {
        let queue = Queue::new(context.session.clone(), &Path::from_static("/jobs"));
        at_every_poll("put", async |pending| {
            let before = queue.size().await.unwrap();
            let attempt = cut(&context, pending, queue.put("item")).await;
            queue.put("item").await.unwrap();
            let there = queue.size().await.unwrap() - before;
            assert!(there == 2 || there == 1 && !matches!(attempt, Cut::Ready(_)), "{there}");
            attempt.has_later()
        })
        .await;
        for _ in 0..30 {
            queue.put("item").await.unwrap();
        }
        at_every_poll("complete", async |pending| {
            let before = queue.size().await.unwrap();
            let attempt = cut(&context, pending, queue.claim().await.unwrap().complete([])).await;
            queue.claim().await.unwrap().complete([]).await.unwrap();
            let gone = before - queue.size().await.unwrap();
            assert!(gone == 2 || gone == 1 && !matches!(attempt, Cut::Ready(_)), "{gone}");
            attempt.has_later()
        })
        .await;
        at_every_poll("bury", async |pending| {
            let before = queue.size().await.unwrap();
            let attempt = cut(&context, pending, queue.claim().await.unwrap().bury()).await;
            queue.claim().await.unwrap().bury().await.unwrap();
            let gone = before - queue.size().await.unwrap();
            assert!(gone == 2 || gone == 1 && !matches!(attempt, Cut::Ready(_)), "{gone}");
            attempt.has_later()
        })
        .await;
    });
}

#[test]
fn dropped_name_and_member_calls_leave_no_trace() {
    each(async |context| {
        let names = NameService::new(context.session.clone(), &Path::from_static("/names"));
        at_every_poll("claim", async |pending| {
            let attempt = cut(&context, pending, names.claim("a", "here")).await;
            let has_later = attempt.has_later();
            drop(attempt);
            drop(soon(&context, async || names.claim("a", "there").await.unwrap()).await);
            has_later
        })
        .await;
        at_every_poll("bind", async |pending| {
            let attempt = cut(&context, pending, names.bind(&format!("b-{pending}"), "here")).await;
            let is_new = names.bind(&format!("b-{pending}"), "here").await.unwrap();
            assert!(!(is_new && matches!(attempt, Cut::Ready(_))));
            attempt.has_later()
        })
        .await;
        let group = Group::new(context.session.clone(), &Path::from_static("/group"));
        at_every_poll("put", async |pending| {
            let mut member = group.member("m", "here").unwrap();
            let attempt = cut(&context, pending, member.put()).await;
            member.put().await.unwrap();
            assert_eq!(group.members().await.unwrap().len(), 1);
            attempt.has_later()
        })
        .await;
        at_every_poll("put and gone", async |pending| {
            let mut member = group.member("m", "here").unwrap();
            let has_later = cut(&context, pending, member.put()).await.has_later();
            drop(member);
            soon(&context, async || group.members().await.unwrap().is_empty().then_some(())).await;
            has_later
        })
        .await;
    });
}

#[test]
fn dropped_cache_and_configuration_calls_lose_no_change() {
    each(async |context| {
        let (session, root) = (&context.session, Path::from_static("/plan"));
        session.create(&root, None).await.unwrap();
        let mut number = 0;
        let mut cache = ChildrenCache::new(session.clone(), &root);
        let mut plan = Configuration::new(session.clone(), &root, None, |bytes: &[u8]| {
            std::str::from_utf8(bytes).map(str::to_owned)
        });
        at_every_poll("next", async |pending| {
            number += 1;
            let child = Path::new(format!("/plan/{number}")).unwrap();
            session.create(&child, Some(Bytes::from_static(b"x"))).await.unwrap();
            session.set(&root, Some(Bytes::from(format!("{number}"))), zoolet_session::Version::Any).await.unwrap();
            let attempt = cut(&context, pending, cache.next()).await;
            let has_later = attempt.has_later() | cut(&context, pending, plan.next()).await.has_later();
            // Later calls report what the dropped calls have not reported.
            while cache.child(&number.to_string()).is_none() {
                assert_ne!(cache.next().await.unwrap(), Change::Gap);
            }
            while plan.value() != Some(&number.to_string()) {
                plan.next().await.unwrap();
            }
            has_later
        })
        .await;
    });
}
