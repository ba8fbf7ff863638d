//! A test of the tests: each rule is broken in turn, and the test that is for it has to find that among its seeds. A seed that fails without the broken
//! rule too proves nothing and does not count.
//!
//! `cargo test --release -p zoolet-recipes --features mutations --test mutations rules::` runs them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(dead_code, reason = "what some tests of the recipes share, and others do not use")]

#[path = "simulated/apart.rs"]
mod apart;
#[path = "simulated/contention.rs"]
mod contention;
#[path = "simulated/drawn.rs"]
mod drawn;
#[path = "simulated/election.rs"]
mod election;
#[path = "simulated/exclusion.rs"]
mod exclusion;
#[path = "simulated/lock.rs"]
mod lock;
#[path = "simulated/repeating.rs"]
mod repeating;

mod rules {
    use crate::exclusion::{Noted, judge};
    use crate::{contention, election, lock, repeating};
    use std::future::Future;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use zoolet_recipes::mutation::{self, Mutation};
    use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat, Trace, run_with};

    /// What is said of this seed, if anything is wrong.
    fn failure<B, W>(
        seed: u64,
        mutation: Option<Mutation>,
        scenario: &Scenario,
        body: &B,
        judge: fn(&Ran<Noted>) -> Result<(), String>,
    ) -> Option<String>
    where
        B: Fn(Seat<Noted>) -> W,
        W: Future<Output = Next> + 'static,
    {
        mutation::set(mutation);
        let ran = catch_unwind(AssertUnwindSafe(|| run_with(seed, scenario, Trace::off(), body)));
        mutation::set(None);
        match ran {
            Ok(Ok(ran)) => judge(&ran).err(),
            Ok(Err(failure)) => Some(failure.what.join("\n")),
            Err(_) => Some("it panicked".to_owned()),
        }
    }

    /// That one of so many seeds finds the rule broken.
    #[allow(clippy::print_stderr, reason = "which one, for people")]
    fn is_found<B, W>(
        mutation: Mutation,
        seeds: u64,
        scenario: impl Fn(u64) -> Scenario,
        body: B,
        judge: fn(&Ran<Noted>) -> Result<(), String>,
    ) where
        B: Fn(Seat<Noted>) -> W,
        W: Future<Output = Next> + 'static,
    {
        for seed in 0..seeds {
            let scenario = scenario(seed);
            let Some(said) = failure(seed, Some(mutation), &scenario, &body, judge) else { continue };
            if failure(seed, None, &scenario, &body, judge).is_none() {
                eprintln!("{mutation:?}: seed {seed}: {}", said.lines().next().unwrap_or_default());
                return;
            }
        }
        panic!("{seeds} seeds do not find {mutation:?}");
    }

    #[test]
    fn a_lock_whose_participants_watch_the_first_is_a_herd() {
        let scenario = |seed| Scenario::peaceful(seed, lock::CLIENTS);
        is_found(Mutation::WatchSmallest, 3, scenario, lock::once, lock::wakes_one);
    }

    #[test]
    fn an_election_whose_candidates_watch_the_first_is_a_herd() {
        let scenario = |seed| Scenario::peaceful(seed, election::CANDIDATES);
        is_found(Mutation::WatchSmallest, 3, scenario, election::once, election::wakes_one);
    }

    #[test]
    fn names_in_the_order_of_strings_let_two_hold() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::NamesComparedAsStrings, 60, scenario, lock::cycle, judge);
    }

    #[test]
    fn a_place_that_is_not_looked_for_after_a_lost_reply_stands_in_the_way() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::OwnNotSought, 60, scenario, lock::cycle, judge);
    }

    #[test]
    fn a_place_whose_owner_is_not_looked_at_may_be_that_of_a_former_session() {
        is_found(Mutation::OwnerUnchecked, 40, repeating::scenario, repeating::cycle, judge);
    }

    #[test]
    fn an_attempt_that_is_given_up_and_leaves_its_place_is_found() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::CancelLeavesPlace, 60, scenario, lock::cycle, judge);
    }

    #[test]
    fn writes_that_check_nothing_come_after_those_of_the_next_holder() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::FencedUnchecked, 50, scenario, contention::cycle, judge);
    }

    #[test]
    fn a_guid_that_is_used_again_is_deleted_with_the_attempt_that_had_it() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::GuidReused, 60, scenario, lock::cycle, judge);
    }
}
