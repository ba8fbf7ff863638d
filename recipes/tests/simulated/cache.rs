//! Tests of caches, [`zoolet_recipes::catch_up`] and configuration.
//!
//! Hazards, numbered as in `main.rs`:
//! - 4, 8 and 12, sessions, staleness, missed and doubled events:
//!   [`caches_equal_the_tree_in_the_end`] has cuts, expiries and lagging servers. Each reconnect
//!   is reported as a gap, and nothing older follows what is newer.
//! - 5, attempts given up: that test drops `next` at any moment.
//! - 1 to 3, 6, 7, 9 to 11 and 13: caches write nothing.

use crate::apart::{finish, finished, heard, persist, up_to, within};
use crate::drawn::drawn;
use std::collections::BTreeMap;
use std::time::Duration;
use zoolet_model::{Path, SessionId};
use zoolet_recipes::{Change, ChildrenCache, Configuration, Coordinator, ZnodeCache, ZnodeChange, catch_up};
use zoolet_session::Version;
use zoolet_sim::ensemble::{ClientContext, Fate, Next, Plan, Ran, Scenario, run_seeds_of};

const PATH: Path = Path::from_static("/conf");
const CHILDREN: u64 = 3;
pub(crate) const CLIENTS: usize = 4;
/// Number of writers, the first clients. The others follow.
const WRITERS: usize = 2;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// A violation.
    Wrong(String),
    /// The client begins to follow, in this session.
    Follows(SessionId),
    /// The cache reported that it may have missed changes.
    Gap,
    /// No more changes came.
    Quiet,
    /// The caches equal the tree.
    Same,
}

fn child(number: u64) -> Path {
    Path::new(format!("{PATH}/{number}")).unwrap()
}

pub(crate) async fn live(context: ClientContext<Noted>) -> Next {
    let done = if context.number < WRITERS { write(&context).await } else { follow(&context).await };
    done.map_or_else(|next| next, |()| Next::Done)
}

async fn write(context: &ClientContext<Noted>) -> Result<(), Next> {
    let session = &context.session;
    let mut number = 0;
    while number < 25 || context.goes_on() {
        number += 1;
        let data = match context.below(4) {
            0 => "nonsense".to_owned(),
            _ => format!("{}", 1000 * context.number + number),
        };
        let path = if context.below(8) == 0 { PATH } else { child(context.below(CHILDREN)) };
        let result = match context.below(3) {
            0 => session.create(&path, data).await.map(drop),
            1 => session.delete(&path, Version::Any).await,
            _ => session.set(&path, data, Version::Any).await.map(drop),
        };
        heard(context, result)?;
        let _ = session.create(&PATH, None).await;
        context.sleep(up_to(context, 300)).await;
    }
    finish(context).await
}

async fn follow(context: &ClientContext<Noted>) -> Result<(), Next> {
    let c = || context.session.clone();
    let (all, one) = (PATH, child(0));
    let mut children = ChildrenCache::new(c(), &all);
    let mut node = ZnodeCache::new(c(), &one);
    let parse = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap_or_default().parse::<u32>();
    let mut configuration = Configuration::new(c(), &one, None, parse);
    let mut newest: BTreeMap<String, i64> = BTreeMap::new();
    let (mut told, mut last_good) = (None, None);
    let (mut follows, mut is_last) = (false, false);
    loop {
        let writers = finished(context).await?;
        if (0..WRITERS).all(|writer| writers.contains(&writer)) {
            persist(context, || catch_up(&context.session)).await?;
            is_last = true;
        }
        // The last round reads until no more changes come.
        let patience = if is_last { Duration::from_secs(20) } else { up_to(context, 200) };
        while let Some(change) = within(context, patience, children.next()).await {
            let change = heard(context, change)?;
            // Its watch was registered before the first report.
            if change.is_some() && !std::mem::replace(&mut follows, true) {
                context.record(Noted::Follows(Coordinator::session(&context.session)));
            }
            match change {
                Some(Change::Put { name, znode }) => {
                    let stat = znode.stat;
                    let before = newest.insert(name.to_string(), stat.mzxid);
                    if before.is_some_and(|before| before >= stat.mzxid) {
                        context.record(Noted::Wrong(format!("{name} of {} after {before:?}", stat.mzxid)));
                    }
                }
                Some(Change::Gap) => context.record(Noted::Gap),
                Some(_) | None => {}
            }
        }
        while let Some(change) = within(context, patience, node.next()).await {
            let Some(ZnodeChange::Now(znode)) = heard(context, change)? else { continue };
            let version = znode.map(|znode| znode.stat.mzxid);
            if told == Some(version) {
                context.record(Noted::Wrong(format!("{version:?} is told twice")));
            }
            told = Some(version);
        }
        while let Some(update) = within(context, patience, configuration.next()).await {
            if let Some(zoolet_recipes::Update::Accepted(bytes)) = heard(context, update)? {
                last_good = parse(&bytes).ok();
            }
            if configuration.value().copied() != last_good {
                context.record(Noted::Wrong(format!(
                    "{:?}, and the last good one was {last_good:?}",
                    configuration.value()
                )));
            }
        }
        if is_last {
            context.record(Noted::Quiet);
            break;
        }
    }
    // Reads the final state from a server that is up to date.
    persist(context, || catch_up(&context.session)).await?;
    for number in 0..CHILDREN {
        let path = child(number);
        let found = persist(context, || async {
            match context.session.get(&path).await {
                Err(error) if error.is_no_node() => Ok(None),
                found => Ok(Some(found?)),
            }
        })
        .await?;
        let cached = children.child(&number.to_string());
        let content = |znode: &zoolet_recipes::Znode| (znode.data.clone(), znode.stat.mzxid);
        if cached.map(content) != found.as_ref().map(content) {
            context.record(Noted::Wrong(format!("{number}: {cached:?} is {found:?}")));
        }
        if number == 0 && node.current().map(content) != found.as_ref().map(content) {
            context.record(Noted::Wrong(format!("{:?} is {found:?}", node.current())));
        }
    }
    context.record(Noted::Same);
    Ok(())
}

/// Checks that a gap was reported after each client's last reconnect.
fn told_of_gaps(ran: &Ran<Noted>) -> Result<(), String> {
    for quiet in ran.facts.iter().filter(|fact| fact.what == Noted::Quiet) {
        let mut theirs = ran.facts.iter().filter(|fact| (fact.client, fact.life) == (quiet.client, quiet.life));
        let gap_us = theirs.clone().filter(|fact| fact.what == Noted::Gap).map(|fact| fact.at_us).max();
        let Some((from_us, session)) = theirs.find_map(|fact| match fact.what {
            Noted::Follows(session) => Some((fact.at_us, session)),
            _ => None,
        }) else {
            continue;
        };
        let connections = ran.history.connections.iter().filter(|connection| connection.session() == Some(session));
        let replies = connections.filter_map(|connection| connection.reply.as_ref()).map(|(at, _)| at.us);
        let back_us = replies.filter(|us| (from_us + 1..quiet.at_us).contains(us)).max();
        if back_us > gap_us {
            return Err(format!(
                "client {} was back at {back_us:?} us, and was told of a gap at {gap_us:?}",
                quiet.client
            ));
        }
    }
    Ok(())
}

pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    for fact in &ran.facts {
        if let Noted::Wrong(what) = &fact.what {
            return Err(format!("client {} at {} us: {what}", fact.client, fact.at_us));
        }
    }
    told_of_gaps(ran)?;
    let followed = ran.facts.iter().filter(|fact| fact.what == Noted::Same).count();
    if followed >= CLIENTS - WRITERS { Ok(()) } else { Err(format!("{followed} followed to the end")) }
}

#[test]
fn caches_equal_the_tree_in_the_end() {
    drawn(50, CLIENTS, live, judge);
}

#[test]
fn children_cache_reports_one_gap_after_a_broken_connection() {
    let live = |context: ClientContext<Noted>| async move {
        let mut cache = ChildrenCache::new(context.session.clone(), &PATH);
        let writer = context.clone();
        context.spawn(async move {
            writer.sleep(Duration::from_secs(20)).await;
            // The connection breaks before the reply.
            let _ = writer.session.create(&PATH, None).await;
        });
        let mut gaps = 0;
        while let Some(change) = within(&context, Duration::from_secs(60), cache.next()).await {
            gaps += u32::from(change.unwrap() == Change::Gap);
        }
        context.record(if gaps == 1 { Noted::Same } else { Noted::Wrong(format!("{gaps} gaps")) });
        Next::Done
    };
    let cut = |seed| {
        let peaceful = Scenario::peaceful(seed, 1);
        let fates = vec![(10_000_000, zoolet_sim::ensemble::Fate::LostReply)];
        let plan = Plan { safety_us: 30_000_000, ..peaceful.plan };
        Scenario { plan, homes: vec![None], timeouts_ms: (16_000, 16_000), fates, ..peaceful }
    };
    let one = |ran: &Ran<Noted>| match ran.facts.first().map(|fact| &fact.what) {
        Some(Noted::Same) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    run_seeds_of(5, cut, live, one);
}

/// Regression: a daemon that began with a kept value could not read it before the ensemble was
/// there.
#[test]
fn configuration_keeps_its_initial_value_without_an_ensemble() {
    let scenario = |seed| Scenario {
        fates: vec![(3_000_000, Fate::Cut(10_000_000))],
        homes: vec![None],
        timeouts_ms: (16_000, 16_000),
        ..Scenario::peaceful(seed, 1)
    };
    let live = |context: ClientContext<Noted>| async move {
        while context.session.state() == zoolet_model::SessionState::Connected {
            context.sleep(Duration::from_millis(100)).await;
        }
        let parse = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap_or_default().parse::<u32>();
        let mut interval = Configuration::new(context.session.clone(), &PATH, Some(7), parse);
        assert_eq!(interval.value(), Some(&7));
        assert_eq!(within(&context, Duration::from_millis(100), interval.next()).await, None);
        assert_eq!(interval.value(), Some(&7));
        assert_eq!(interval.next().await, Ok(zoolet_recipes::Update::Absent));
        context.session.create(&PATH, "8").await.unwrap();
        assert!(matches!(interval.next().await, Ok(zoolet_recipes::Update::Accepted(_))));
        assert_eq!(interval.value(), Some(&8));
        Next::Done
    };
    run_seeds_of(4, scenario, live, |_: &Ran<Noted>| Ok(()));
}

/// Regression: a change that was undone while the client was disconnected was not reported, not
/// even as a gap.
#[test]
fn node_cache_reports_a_gap_after_a_disconnect() {
    let scenario = |seed| Scenario {
        fates: vec![(5_000_000, Fate::Cut(10_000_000))],
        homes: vec![None],
        timeouts_ms: (16_000, 16_000),
        ..Scenario::peaceful(seed, 1)
    };
    let live = |context: ClientContext<Noted>| async move {
        let mut node = ZnodeCache::new(context.session.clone(), &PATH);
        assert_eq!(node.next().await, Ok(ZnodeChange::Now(None)));
        assert_eq!(node.next().await, Ok(ZnodeChange::Gap));
        assert_eq!(within(&context, Duration::from_secs(2), node.next()).await, None);
        context.session.create(&PATH, "8").await.unwrap();
        assert!(matches!(node.next().await, Ok(ZnodeChange::Now(Some(_)))));
        Next::Done
    };
    run_seeds_of(4, scenario, live, |_: &Ran<Noted>| Ok(()));
}

/// Regression: the cache answered each change of the parent's data with a list and a read of every
/// child.
#[test]
fn children_cache_ignores_data_changes_of_the_parent() {
    let live = |context: ClientContext<Noted>| async move {
        context.session.create(&PATH, None).await.unwrap();
        for number in 0..CHILDREN {
            context.session.create(&child(number), None).await.unwrap();
        }
        let mut cache = ChildrenCache::new(context.session.clone(), &PATH);
        while cache.next().await.unwrap() != Change::Complete {}
        context.session.set(&PATH, "new", Version::Any).await.unwrap();
        assert_eq!(within(&context, Duration::from_secs(2), cache.next()).await, None);
        Next::Done
    };
    let listed_once = |ran: &Ran<Noted>| match ran.lists_of(0) {
        1 => Ok(()),
        lists => Err(format!("{lists} lists")),
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, listed_once);
}
