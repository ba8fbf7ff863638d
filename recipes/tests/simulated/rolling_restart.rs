//! Tests of the gate for rolling restarts.
//!
//! Hazards, numbered as in `main.rs`:
//! - 2, reply lost after a create: [`at_most_the_allowed_boxes_are_down_and_all_restart`] loses
//!   replies.
//! - 3 and 4, sessions: a permit outlives its session. In that test, clients crash with a permit.
//! - 5, attempts given up: attempts are dropped and repeated in that test and in
//!   [`late_restart_permit_does_not_block_its_own_box`]. `Left` records leftovers.
//! - 6, herd: [`returned_restart_permit_wakes_one_box`].
//! - 8 and 12, staleness and missed events: lagging servers and cuts; all finish. See also
//!   [`restart_permit_returned_by_another_process_is_given_anew`].
//! - 9, sizes disagree: each box counts the permits that exist, so a box with a smaller limit waits
//!   longer. Not drawn here.
//! - 1, 7, 10, 11 and 13: neither the end of a session nor a clock ends a permit.

use crate::apart::{finish, finished, heard, left_behind, persist, up_to, within};
use crate::drawn::drawn;
use std::collections::BTreeSet;
use std::time::Duration;
use zoolet_model::{EventKind, Path, Version};
use zoolet_recipes::{Op, Permit, RollingRestart};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, run_seeds_of};

const PATH: Path = Path::from_static("/restarts");
const BOXES: &str = "/restarts/boxes/";
const AT_ONCE: usize = 2;
pub(crate) const CLIENTS: usize = 5;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    Down(Permit),
    Up,
    Left(String),
}

fn gate(context: &ClientContext<Noted>, at_once: usize) -> RollingRestart<Session> {
    RollingRestart::new(context.session.clone(), &PATH, at_once)
}

pub(crate) async fn live(context: ClientContext<Noted>) -> Next {
    let done = restart(&context).await;
    if done.is_ok()
        && let Some(path) = left_behind(&context).await
    {
        context.record(Noted::Left(path));
    }
    done.map_or_else(|next| next, |()| Next::Done)
}

async fn restart(context: &ClientContext<Noted>) -> Result<(), Next> {
    let (gate, name) = (gate(context, AT_ONCE), format!("gw-{}", context.number));
    if finished(context).await?.contains(&context.number) {
        return Ok(());
    }
    let mut rounds = 0;
    while rounds < 3 || context.goes_on() {
        rounds += 1;
        context.sleep(up_to(context, 300)).await;
        // Attempts that are dropped at any moment, and repeated.
        for _ in 0..context.below(3) {
            if let Some(begun) = within(context, up_to(context, 200), gate.begin(&name)).await {
                heard(context, begun)?;
            }
        }
        let permit = persist(context, || gate.begin(&name)).await?;
        context.record(Noted::Down(permit));
        context.sleep(up_to(context, 400)).await;
        context.record(Noted::Up);
        persist(context, || gate.done(&name)).await?;
    }
    finish(context).await
}

pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    judge_of(ran, AT_ONCE)
}

fn judge_of(ran: &Ran<Noted>, at_once: usize) -> Result<(), String> {
    let mut down = BTreeSet::new();
    let mut changes = ran.changed()?.into_iter().filter(|change| change.path.starts_with(BOXES)).peekable();
    for fact in &ran.facts {
        // A client learns of its permit only after the permit exists.
        while let Some(change) = changes.next_if(|change| change.at_us <= fact.at_us) {
            follow(&mut down, &change, at_once)?;
        }
        match &fact.what {
            Noted::Down(_) if !down.contains(&format!("{BOXES}gw-{}", fact.client)) => {
                return Err(format!("client {} goes down without a permit", fact.client));
            }
            Noted::Down(_) | Noted::Up => {}
            Noted::Left(path) => return Err(format!("client {} left {path}", fact.client)),
        }
    }
    changes.try_for_each(|change| follow(&mut down, &change, at_once))?;
    if down.is_empty() { Ok(()) } else { Err(format!("down for ever: {down:?}")) }
}

fn follow(down: &mut BTreeSet<String>, change: &zoolet_sim::oracle::Changed, at_once: usize) -> Result<(), String> {
    match change.kind {
        EventKind::NodeCreated => down.insert(change.path.clone()),
        EventKind::NodeDeleted => down.remove(&change.path),
        kind => return Err(format!("{kind:?}")),
    };
    if down.len() <= at_once { Ok(()) } else { Err(format!("down at once: {down:?}")) }
}

#[test]
fn at_most_the_allowed_boxes_are_down_and_all_restart() {
    drawn(50, CLIENTS, live, judge);
}

/// Regression: gw-1 stood in the line behind a box that waited for the late permit of gw-1 to come
/// back.
#[test]
fn late_restart_permit_does_not_block_its_own_box() {
    const LATE: Path = Path::from_static("/restarts/boxes/gw-1");
    let live = |context: ClientContext<Noted>| async move {
        let (gate, name) = (gate(&context, 1), format!("gw-{}", context.number));
        match context.number {
            0 => {
                gate.begin(&name).await.unwrap();
                // A create that a former process of gw-1 sent, or a dropped future, takes effect
                // only now.
                context.sleep(Duration::from_secs(15)).await;
                let back = Path::new(format!("{BOXES}{name}")).unwrap();
                context.session.multi([Op::delete(&back, Version::Any), Op::create(&LATE, None)]).await.unwrap();
                return Next::Done;
            }
            1 => context.sleep(Duration::from_secs(10)).await,
            _ => context.sleep(Duration::from_secs(5)).await,
        }
        let permit = gate.begin(&name).await.unwrap();
        context.record(Noted::Down(permit));
        gate.done(&name).await.unwrap();
        Next::Done
    };
    let all_through = |ran: &Ran<Noted>| match &ran.facts[..] {
        [one, other] if one.client != other.client => Ok(()),
        facts => Err(format!("{facts:?}")),
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 3), live, all_through);
}

#[test]
fn returned_restart_permit_wakes_one_box() {
    const ALL: usize = 8;
    let live = |context: ClientContext<Noted>| async move {
        let (gate, name) = (gate(&context, 1), format!("gw-{}", context.number));
        assert_eq!(gate.begin(&name).await.unwrap(), Permit::Given);
        context.record(Noted::Down(Permit::Given));
        // By then all others wait.
        context.sleep(Duration::from_secs(5)).await;
        gate.done(&name).await.unwrap();
        Next::Done
    };
    let few = |ran: &Ran<Noted>| {
        judge_of(ran, 1)?;
        // Its turn, the permit that returns then, and its own permit, by name and in the list.
        // Permits of the others cause no further event.
        let events: Vec<_> = (0..ALL).map(|client| ran.events_of(client)).collect();
        if events.iter().all(|events| *events <= 4) { Ok(()) } else { Err(format!("{events:?}")) }
    };
    run_seeds_of(10, |seed| Scenario::peaceful(seed, ALL), live, few);
}

std::thread_local! {
    /// Number of finished rounds. The two processes of the box share it outside the tree.
    static DONE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Regression: a lagging server still showed the permit that a former process had returned.
#[test]
fn restart_permit_returned_by_another_process_is_given_anew() {
    const ROUNDS: u64 = 30;
    let live = |context: ClientContext<Noted>| async move {
        let gate = gate(&context, 1);
        if context.number == 0 {
            DONE.set(0);
        }
        for round in (0..ROUNDS).filter(|round| round % 2 == context.number as u64) {
            while DONE.get() != round {
                context.sleep(Duration::from_millis(1)).await;
            }
            match gate.begin("gw").await.unwrap() {
                Permit::Given => {}
                Permit::Kept => context.record(Noted::Left(format!("round {round}"))),
            }
            gate.done("gw").await.unwrap();
            DONE.set(round + 1);
        }
        Next::Done
    };
    let never_kept = |ran: &Ran<Noted>| match ran.facts.first() {
        None => Ok(()),
        Some(fact) => Err(format!("{:?}", fact.what)),
    };
    run_seeds_of(20, |seed| Scenario::peaceful(seed, 2), live, never_kept);
}
