//! A client whose random bits are the same after each start, as those of a box may be that boots without entropy: then its GUIDs are those of its
//! former life, whose znodes may still stand.

use crate::exclusion::{Noted, hold, is_over, judge_drawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use zoolet_model::{AddWatchMode, Path, Request, SessionId};
use zoolet_recipes::{Coordinator, Errand, Error, Lock, Mode};
use zoolet_session::{Session, SessionState};
use zoolet_sim::ensemble::{Fate, MS, Next, SECOND, Scenario, Seat, run_seeds_of};

const PARENT: &str = "/locks/repeating";

/// A session with such bits.
#[derive(Clone, Debug)]
struct Repeating {
    session: Session,
    client: usize,
    drawn: Arc<AtomicU64>,
}

impl Coordinator for Repeating {
    type Ticket = <Session as Coordinator>::Ticket;
    type Watch = <Session as Coordinator>::Watch;
    type Events = <Session as Coordinator>::Events;
    type States = <Session as Coordinator>::States;
    type Timer = <Session as Coordinator>::Timer;

    fn submit(&self, request: Request) -> Self::Ticket {
        Coordinator::submit(&self.session, request)
    }

    fn submit_watching(&self, request: Request) -> (Self::Ticket, Self::Watch) {
        Coordinator::submit_watching(&self.session, request)
    }

    fn watch(&self, path: &Path, mode: AddWatchMode) -> (Self::Ticket, Self::Events) {
        Coordinator::watch(&self.session, path, mode)
    }

    fn run_errand(&self, errand: Errand) {
        Coordinator::run_errand(&self.session, errand);
    }

    fn session(&self) -> SessionId {
        Coordinator::session(&self.session)
    }

    fn timeout(&self) -> Duration {
        Coordinator::timeout(&self.session)
    }

    fn state(&self) -> SessionState {
        Coordinator::state(&self.session)
    }

    fn states(&self) -> Self::States {
        Coordinator::states(&self.session)
    }

    fn safe_until(&self) -> Duration {
        Coordinator::safe_until(&self.session)
    }

    fn now(&self) -> Duration {
        Coordinator::now(&self.session)
    }

    fn timer(&self, at: Duration) -> Self::Timer {
        Coordinator::timer(&self.session, at)
    }

    fn random_bits(&self) -> u128 {
        (self.client as u128) << 100 | u128::from(self.drawn.fetch_add(1, Relaxed))
    }
}

pub(crate) async fn cycle(seat: Seat<Noted>) -> Next {
    let session = Repeating { session: seat.session.clone(), client: seat.number, drawn: Arc::default() };
    let lock = Lock::new(session, &Path::from_static(PARENT));
    let mut cycles = 0;
    while cycles < 8 || seat.goes_on() {
        match lock.acquire().await {
            Ok(grant) => {
                hold(&seat, grant, Mode::Exclusive).await;
                cycles += 1;
            }
            Err(Error::Session(_)) => {}
            Err(error) => panic!("{error}"),
        }
        if let Some(next) = is_over(&seat) {
            return next;
        }
    }
    Next::Done
}

/// Power fails, clients come back at once, and replies are lost.
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
fn a_place_of_a_former_life_is_not_taken_for_the_own_one_though_its_guid_is_the_same() {
    run_seeds_of(40, scenario, cycle, judge_drawn);
}
