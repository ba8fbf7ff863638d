//! Tests of names.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, reply lost after a create: [`name_belongs_to_one_session_until_given_up`] loses replies.
//! - 3, a znode of the former session: a client does not own another session's name. That test has
//!   crashes.
//! - 4, sessions: a registration ends with its session, in that test.
//! - 5, attempts given up: claims are dropped while another claim of the session has the name.
//!   `Left` records leftovers.
//! - 8, staleness: a claim asks the leader. [`zoolet_recipes::NameService::resolve`] returns what its
//!   server knows.
//! - 1, 6, 7, 9 to 13: no client waits for a name, and there is no clock.

use crate::apart::{both, heard, left_behind, up_to, within};
use crate::drawn::{drawn_of, some_stay_away};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use zoolet_model::{EventKind, Path, SessionId};
use zoolet_recipes::{Coordinator, NameService};
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// The session begins to claim this name.
    Claiming(SessionId, String),
    /// The session has this name, and no other registration of it.
    Has(SessionId, String),
    /// The session is about to give this name up.
    GivesUp(SessionId, String),
    Bound(String),
    Unique(String),
    Left(String),
}

pub(crate) async fn live(context: ClientContext<Noted>) -> Next {
    let done = register(&context).await;
    if done.is_ok()
        && let Some(path) = left_behind(&context).await
    {
        context.record(Noted::Left(path));
    }
    done.map_or_else(|next| next, |()| Next::Done)
}

async fn register(context: &ClientContext<Noted>) -> Result<(), Next> {
    let names = NameService::new(context.session.clone(), &Path::from_static("/services"));
    let session = Coordinator::session(&context.session);
    let own = format!("{}.{}", context.number, context.life);
    let mut round = 0;
    while round < 5 || context.goes_on() {
        round += 1;
        let name = format!("camera/{}", context.below(2));
        context.record(Noted::Claiming(session, name.clone()));
        // Two claims of one session: at most one of them succeeds. The second one is dropped at any
        // moment.
        let one = names.claim(&name, own.clone());
        let other = within(context, up_to(context, 60), names.claim(&name, own.clone()));
        let (one, other) = both(one, other).await;
        let one = heard(context, one)?.flatten();
        let other = other.map(|other| heard(context, other)).transpose()?.flatten().flatten();
        assert!(one.is_none() || other.is_none(), "both have {name}");
        if let Some(registration) = one.or(other) {
            context.record(Noted::Has(session, name.clone()));
            context.sleep(up_to(context, 800)).await;
            context.record(Noted::GivesUp(session, name));
            drop(registration);
        }
        if heard(context, names.bind(&format!("door/{round}"), own.clone()).await)? == Some(true) {
            context.record(Noted::Bound(format!("/services/door/{round}")));
        }
        if let Some(name) = heard(context, names.unique("job-", own.clone()).await)? {
            assert!(heard(context, names.resolve(&name).await)?.is_none_or(|found| found.is_some()));
            context.record(Noted::Unique(name.to_string()));
        }
        context.sleep(up_to(context, 300)).await;
    }
    Ok(())
}

pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let changes = ran.changed()?;
    let mut uniques = BTreeSet::new();
    let mut has: BTreeMap<(SessionId, String), u64> = BTreeMap::new();
    let mut held = Vec::new();
    for fact in &ran.facts {
        match &fact.what {
            Noted::Claiming(..) => {}
            Noted::Has(session, name) => {
                has.insert((*session, name.clone()), fact.at_us);
            }
            Noted::GivesUp(session, name) => {
                let from = has.remove(&(*session, name.clone())).unwrap();
                held.push((*session, format!("/services/{name}"), from, fact.at_us));
            }
            Noted::Bound(path) => {
                let made = changes.iter().find(|change| change.path == *path && change.kind == EventKind::NodeCreated);
                let by = made.and_then(|change| change.session).and_then(|session| ran.client_of(session));
                if by != Some(fact.client) {
                    return Err(format!("client {} was told it bound {path}, and {by:?} did", fact.client));
                }
            }
            Noted::Unique(name) if uniques.insert(name.clone()) => {}
            Noted::Unique(name) => return Err(format!("{name} was given twice")),
            Noted::Left(path) => return Err(format!("client {} left {path}", fact.client)),
        }
    }
    // Until a session begins to give its name up, only its end may change the name.
    for (session, path, from, to) in held {
        let mut during = changes.iter().filter(|change| change.path == path && (from..to).contains(&change.at_us));
        if let Some(change) = during.find(|change| !(change.is_end && change.session == Some(session)))
            && !changes.iter().any(|end| {
                end.is_end
                    && end.session == Some(session)
                    && end.path == path
                    && end.at_us <= change.at_us
                    && end.at_us >= from
            })
        {
            return Err(format!("{session:?} has {path} from {from} to {to} us, and {change:?}"));
        }
    }
    Ok(())
}

#[test]
fn name_belongs_to_one_session_until_given_up() {
    drawn_of(50, |seed| some_stay_away(seed, 3), live, judge);
}

/// Regression: the errand of a dropped claim looked for any name of its session, and deleted the
/// name of another registration.
#[test]
fn dropped_name_claim_spares_another_claim_of_its_session() {
    let live = |context: ClientContext<Noted>| async move {
        let names = NameService::new(context.session.clone(), &Path::from_static("/services"));
        let session = Coordinator::session(&context.session);
        for us in (0..40_000).step_by(500) {
            let one = names.claim("camera", "");
            let other = within(&context, Duration::from_micros(us), names.claim("camera", ""));
            let (one, other) = both(one, other).await;
            let Some(registration) = one.unwrap().or(other.and_then(Result::unwrap)) else { continue };
            context.record(Noted::Has(session, "camera".to_owned()));
            context.sleep(Duration::from_secs(1)).await;
            context.record(Noted::GivesUp(session, "camera".to_owned()));
            drop(registration);
            context.sleep(Duration::from_secs(1)).await;
        }
        Next::Done
    };
    run_seeds_of(4, |seed| Scenario::peaceful(seed, 1), live, judge);
}
