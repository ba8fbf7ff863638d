//! Tests of persistent znodes and groups.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, reply lost after a create: [`members_rejoin_and_delete_only_their_own_znodes`] loses
//!   replies.
//! - 3, a znode of the former session: in that test, members come back while their former znode
//!   stands.
//! - 4, the client's own znode vanishes unnoticed; sessions: another client deletes members there.
//! - 5, attempts given up: `keep` is dropped at any moment. `Left` records leftovers. See also
//!   [`znode_being_recreated_during_a_drop_is_deleted_too`].
//! - 8 and 12, staleness and missed events: cuts and lagging servers, in the first test.
//! - 1, 6, 7, 9 to 11 and 13: nothing is held or queued, and each member waits for its own znode
//!   only.

use crate::apart::{finish, finished, heard, left_behind, up_to, within};
use crate::drawn::drawn;
use std::collections::BTreeMap;
use std::time::Duration;
use zoolet_model::{EventKind, Path};
use zoolet_recipes::Group;
use zoolet_session::Version;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PATH: Path = Path::from_static("/sensors");
pub(crate) const CLIENTS: usize = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// A kept member was missing although nothing deleted it.
    Missing,
    Left(String),
}

pub(crate) async fn live(context: ClientContext<Noted>) -> Next {
    let done = if context.number + 1 == CLIENTS { delete(&context).await } else { keep(&context).await };
    if done.is_ok()
        && let Some(path) = left_behind(&context).await
    {
        context.record(Noted::Left(path));
    }
    done.map_or_else(|next| next, |()| Next::Done)
}

async fn keep(context: &ClientContext<Noted>) -> Result<(), Next> {
    let (group, name) = (Group::new(context.session.clone(), &PATH), format!("{}", context.number));
    let mut round = 0;
    while round < 6 || context.goes_on() {
        round += 1;
        let mut member = group.member(&name, format!("{}.{}.{round}", context.number, context.life)).unwrap();
        let for_so_long = if context.below(2) == 0 { up_to(context, 100) } else { up_to(context, 3000) };
        if let Some(Err(error)) = within(context, for_so_long, member.keep()).await {
            heard::<_, ()>(context, Err(error))?;
            // A server in the same process refuses at once. Without a pause, a full disk would get
            // a million requests.
            context.sleep(up_to(context, 200)).await;
        }
        // A second member with the same name and session finds the same znode or creates another.
        if context.below(3) == 0 {
            let mut other = group.member(&name, "another one").unwrap();
            if let Some(Err(error)) = within(context, up_to(context, 100), other.keep()).await {
                heard::<_, ()>(context, Err(error))?;
            }
        }
    }
    finish(context).await?;
    // Waits until the client that deletes members is done.
    while !finished(context).await?.contains(&(CLIENTS - 1)) {
        context.sleep(Duration::from_millis(500)).await;
    }
    let mut member = group.member(&name, "the last one").unwrap();
    loop {
        // Keeps the member for 30 s in one go, and then requires an answer. The time covers a
        // reconnect and the end of the former session.
        if let Some(Err(error)) = within(context, Duration::from_secs(30), member.keep()).await {
            heard::<_, ()>(context, Err(error))?;
            continue;
        }
        let Some(members) = heard(context, group.members().await)? else { continue };
        if context.session.state() != zoolet_model::SessionState::Connected {
            continue;
        }
        if !members.iter().any(|member| *member.name == *name && member.content.as_deref() == Some(b"the last one")) {
            context.record(Noted::Missing);
        }
        return Ok(());
    }
}

/// Deletes members until all other clients are done.
async fn delete(context: &ClientContext<Noted>) -> Result<(), Next> {
    let group = Group::new(context.session.clone(), &PATH);
    while finished(context).await?.iter().filter(|client| **client + 1 < CLIENTS).count() + 1 < CLIENTS {
        context.sleep(up_to(context, 600)).await;
        let members = heard(context, group.members().await)?.unwrap_or_default();
        if let Some(member) = members.first() {
            let path = Path::new(zoolet_model::path::child(PATH.as_str(), &member.name)).unwrap();
            let _ = context.session.delete(&path, Version::Any).await;
        }
    }
    finish(context).await
}

pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    if let Some(fact) = ran.facts.first() {
        return Err(format!("client {} at {} us: {:?}", fact.client, fact.at_us, fact.what));
    }
    let mut there = BTreeMap::new();
    for change in ran.changed()?.into_iter().filter(|change| change.path.starts_with("/sensors/")) {
        let who = change.session.and_then(|session| ran.client_of(session));
        match change.kind {
            EventKind::NodeCreated => {
                there.insert(change.path, change.session);
            }
            EventKind::NodeDeleted => {
                let whose = there.remove(&change.path).flatten();
                if whose != change.session && who != Some(CLIENTS - 1) {
                    return Err(format!("{who:?} deleted {} of {whose:?}", change.path));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn members_rejoin_and_delete_only_their_own_znodes() {
    drawn(50, CLIENTS, live, judge);
}

/// Regression: the member knew the zxid of its former znode, and left behind the one that it was
/// about to create.
#[test]
fn znode_being_recreated_during_a_drop_is_deleted_too() {
    let live = |context: ClientContext<Noted>| async move {
        let group = Group::new(context.session.clone(), &PATH);

        for us in (0..60_000).step_by(500) {
            let mut member = group.member(&format!("{us}"), "").unwrap();
            member.put().await.unwrap();
            let path = Path::new(format!("{PATH}/{us}")).unwrap();
            context.session.delete(&path, Version::Any).await.unwrap();
            let _ = within(&context, Duration::from_micros(us), member.keep()).await;
        }
        if let Some(path) = left_behind(&context).await {
            context.record(Noted::Left(path));
        }
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, judge);
}

/// Regression: the later member had adopted the earlier member's znode, and lost it when the
/// earlier member was dropped.
#[test]
fn dropping_a_replaced_member_spares_its_successors_znode() {
    let live = |context: ClientContext<Noted>| async move {
        let group = Group::new(context.session.clone(), &PATH);
        for round in 0..10 {
            let content = |which: &str| format!("{which} {round}");
            let mut before = group.member("thermometer", content("before")).unwrap();
            let first = before.put().await.unwrap();
            // With the same content in even rounds, and with other content in odd rounds.
            let mut later =
                group.member("thermometer", content(if round % 2 == 0 { "before" } else { "later" })).unwrap();
            let second = later.put().await.unwrap();
            assert!(second.czxid > first.czxid, "it has come again");
            drop(before);
            context.sleep(up_to(&context, 1000)).await;
            // A second put keeps the znode.
            assert_eq!(later.put().await.unwrap().czxid, second.czxid);
            let members = group.members().await.unwrap();
            if members.len() != 1 || members[0].incarnation.0 != second.czxid {
                context.record(Noted::Missing);
            }
        }
        if let Some(path) = left_behind(&context).await {
            context.record(Noted::Left(path));
        }
        Next::Done
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 1), live, judge);
}

/// A replaced member waits until the later one is gone, and then comes back. If both kept the
/// znode, they would replace each other forever.
#[test]
fn replaced_member_rejoins_once_its_successor_is_gone() {
    let live = |context: ClientContext<Noted>| async move {
        let group = Group::new(context.session.clone(), &PATH);
        let mut before = group.member("thermometer", "before").unwrap();
        before.put().await.unwrap();
        let mut later = group.member("thermometer", "later").unwrap();
        let there = later.put().await.unwrap();
        assert!(within(&context, Duration::from_secs(3), before.keep()).await.is_none());
        let members = group.members().await.unwrap();
        assert_eq!((members.len(), members[0].incarnation.0), (1, there.czxid));
        drop(later);
        assert!(within(&context, Duration::from_secs(3), before.keep()).await.is_none());
        assert_eq!(group.members().await.unwrap()[0].content.as_deref(), Some(&b"before"[..]));
        drop(before);
        if let Some(path) = left_behind(&context).await {
            context.record(Noted::Left(path));
        }
        Next::Done
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, 1), live, judge);
}
