//! Readers and writers where one kind overtakes the other.

use crate::exclusion::{Noted, hold, is_over, judge, note_leaks};
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Error, Mode, Preference, ReadWriteLock};
use zoolet_sim::ensemble::{Next, Scenario, Seat, run_seeds_of};

const PARENT: &str = "/locks/recipe";

async fn cycle(seat: Seat<Noted>, preference: Preference) -> Next {
    let lock = ReadWriteLock::new(seat.session.clone(), &Path::from_static(PARENT)).prefer(preference);
    let mut cycles = 0;
    while cycles < 5 {
        seat.sleep(Duration::from_millis(seat.below(500))).await;
        let patience = Duration::from_millis(seat.below(3000));
        let (mode, grant) = match seat.below(6) {
            0 => (Mode::Shared, lock.try_read().await),
            1 => (Mode::Exclusive, lock.try_write().await),
            2 | 3 => (Mode::Shared, lock.read_within(patience).await),
            _ => (Mode::Exclusive, lock.write_within(patience).await),
        };
        match grant {
            Ok(Some(grant)) if mode == Mode::Exclusive && seat.below(3) == 0 => {
                seat.record(Noted::Granted(grant.token().0, Mode::Exclusive));
                match lock.downgrade(grant).await {
                    Ok(grant) => hold(&seat, grant, Mode::Shared).await,
                    Err(Error::Session(_) | Error::Lost) => {}
                    Err(error) => panic!("{error}"),
                }
                cycles += 1;
            }
            Ok(Some(grant)) => {
                hold(&seat, grant, mode).await;
                cycles += 1;
            }
            Ok(None) | Err(Error::Session(_)) => {}
            Err(error) => panic!("{error}"),
        }
        if let Some(next) = is_over(&seat) {
            return next;
        }
    }
    note_leaks(&seat, PARENT).await;
    Next::Done
}

#[test]
fn where_readers_overtake_writers_nobody_holds_what_somebody_who_minds_has() {
    run_seeds_of(40, |seed| Scenario::drawn(seed, 5), |seat| cycle(seat, Preference::Readers), judge);
}

#[test]
fn where_writers_overtake_readers_nobody_holds_what_somebody_who_minds_has() {
    run_seeds_of(40, |seed| Scenario::drawn(seed, 5), |seat| cycle(seat, Preference::Writers), judge);
}
