//! Tests of what a holder knows about its grant.

use crate::drawn::{drawn_of, some_stay_away};
use crate::exclusion::{Noted, again_and_again, judge_drawn, note_holding, put_to_the_test, within, write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Coordinator, ErrorKind, Grant, Holding, Lock, Mode};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Fate, Kind, Mix, Next, SECOND, Scenario, run_seeds_of};

const PARENT: &str = "/locks/motor";

/// Acts without asking whether the grant is held: `Grant::run`, which polls it, checks that.
async fn acts(context: &ClientContext<Noted>, grant: &Grant<Session>) {
    let token = grant.token().0;
    for _ in 0..context.below(20) {
        context.record(Noted::Acted(token, Mode::Exclusive));
        write(context, token, &grant.fenced()).await;
        context.record(Noted::Acted(token, Mode::Exclusive));
        context.sleep(Duration::from_millis(context.below(300))).await;
    }
}

/// Reads the holdings of a grant until it is lost or the time is over, and checks each change.
async fn listen(context: &ClientContext<Noted>, grant: &Grant<Session>, for_so_long: Duration) {
    let mut holdings = grant.holdings();
    let mut told = None;
    let listening = async {
        while let Some(now) = holdings.next().await {
            match (told, now) {
                (Some(Holding::Lost), _) => context.record(Noted::Wrong(format!("{now:?} after it was lost"))),
                (Some(before), now) if before == now => context.record(Noted::Wrong(format!("{now:?} twice"))),
                _ => {}
            }
            note_holding(context, grant.token().0, Mode::Exclusive, now);
            told = Some(now);
        }
        told
    };
    match within(context, for_so_long, listening).await {
        Some(Some(Holding::Lost)) => {}
        Some(other) => context.record(Noted::Wrong(format!("after {other:?} nothing came"))),
        None if context.session.state().is_over() => {
            context.record(Noted::Wrong("the session is over, and nobody was told".to_owned()));
        }
        None => {}
    }
}

/// Waits until the grant has ended or the time is over, and checks the end.
async fn wait_end(context: &ClientContext<Noted>, grant: &Grant<Session>, for_so_long: Duration) {
    let session = &context.session;
    let is_over = || session.state().is_over();
    match within(context, for_so_long, grant.ended()).await {
        Some(()) if !is_over() && Coordinator::now(session) < session.safe_until() => {
            let path = grant.path().clone();
            if let Ok(Some(_)) = session.exists(&path).await {
                context.record(Noted::Wrong("it ended, and stands".to_owned()));
            }
        }
        None if is_over() => context.record(Noted::Wrong("the session is over, and nobody was told".to_owned())),
        Some(()) | None => {}
    }
}

async fn cycle(context: ClientContext<Noted>) -> Next {
    let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT));
    again_and_again(&context, 6, &[PARENT], async || {
        let grant = lock.acquire().await?;
        context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
        // Some holders wait longer than most sessions survive without contact.
        let most_ms = if context.goes_on() && context.below(4) > 0 { 20_000 } else { 4000 };
        let for_so_long = Duration::from_millis(context.below(most_ms));
        match context.below(3) {
            0 => match grant.run(acts(&context, &grant)).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Doubtful || error.is_grant_lost() => {}
                Err(error) => panic!("{error}"),
            },
            1 => listen(&context, &grant, for_so_long).await,
            _ => wait_end(&context, &grant, for_so_long).await,
        }
        note_holding(&context, grant.token().0, Mode::Exclusive, grant.holding());
        context.record(Noted::Released(grant.token().0));
        Ok(true)
    })
    .await
}

#[test]
fn holder_acting_only_while_held_never_overlaps_the_next() {
    drawn_of(40, |seed| some_stay_away(seed, 3), cycle, judge_drawn);
}

/// Returns a scenario with many pauses, cuts and expiries.
fn doubtful(seed: u64) -> Scenario {
    let mut scenario = Scenario::peaceful(seed, 3);
    let fate = |at: u64| match (seed + at) % 3 {
        0 => Fate::Pause(SECOND / 2 + (seed * 7 + at * 3) % 20 * SECOND),
        1 => Fate::Cut(SECOND / 2 + (seed * 5 + at * 11) % 20 * SECOND),
        _ => Fate::Expiry,
    };
    scenario.fates = (0..12).map(|at| (3 * SECOND + at * 2 * SECOND, fate(at))).collect();
    scenario.plan.safety_us = 40 * SECOND;
    // A holder whose connection breaks still knows until when no other client has the grant.
    scenario.plan.mix = Mix::of(&[Kind::ClientReset, Kind::ClientCut, Kind::Crash]);
    scenario.plan.faults = (6, 12);
    scenario
}

#[test]
fn paused_or_disconnected_holder_knows_when_its_grant_may_be_lost() {
    let told = AtomicU64::new(0);
    let statistics = run_seeds_of(40, doubtful, cycle, |ran| {
        told.fetch_add(put_to_the_test(ran)? as u64, Relaxed);
        judge_drawn(ran)
    });
    assert!(told.load(Relaxed) > statistics.runs / 4, "{told:?} instants until which nobody else was to have it");
}
