//! A client that draws the same random bits after each start, as a box without entropy may.
//!
//! Its GUIDs are those of its former life, whose znodes may still stand.

use crate::apart::is_of_session;
use crate::exclusion::{Noted, hold, is_over, judge_drawn};
use crate::intercepted::Intercepted;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zoolet_model::Path;
use zoolet_recipes::{Lock, Mode};
use zoolet_sim::ensemble::{ClientContext, Fate, MS, Next, SECOND, Scenario, run_seeds_of};

const PARENT: &str = "/locks/repeating";

pub(crate) async fn cycle(context: ClientContext<Noted>) -> Next {
    let (client, drawn) = (context.number as u64, AtomicU64::new(0));
    let session = Intercepted::with_random_bits(&context.session, move || {
        u128::from(client) << 100 | u128::from(drawn.fetch_add(1, Relaxed))
    });
    let lock = Lock::new(session, &Path::from_static(PARENT));
    let mut cycles = 0;
    while cycles < 8 || context.goes_on() {
        match lock.acquire().await {
            Ok(grant) => {
                hold(&context, grant, Mode::Exclusive).await;
                cycles += 1;
            }
            Err(error) if is_of_session(&error) => {}
            Err(error) => panic!("{error}"),
        }
        if let Some(next) = is_over(&context) {
            return next;
        }
    }
    Next::Done
}

/// Power fails, clients come back soon, and replies are lost.
pub(crate) fn scenario(seed: u64) -> Scenario {
    let mut scenario = Scenario::peaceful(seed, 3);
    let fate = |at: u64| if at.is_multiple_of(4) { Fate::PowerLoss } else { Fate::LostReply };
    scenario.fates = (0..80).map(|at| (2 * SECOND + at * (100 + seed % 7 * 30) * MS, fate(at))).collect();
    scenario.away_us = (SECOND / 20, SECOND / 2);
    scenario.homes.iter_mut().for_each(|home| *home = None);
    scenario.plan.safety_us = 30 * SECOND;
    scenario
}

#[test]
fn former_sessions_place_with_the_own_guid_is_not_taken_as_own() {
    run_seeds_of(40, scenario, cycle, judge_drawn);
}
