//! Tests the tests: for each broken rule, its test has to find a failing seed.
//!
//! A seed that also fails while the rule is intact proves nothing and does not count.
//!
//! `cargo test --release -p zoolet-recipes --features mutations --test mutations rules::` runs
//! them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(dead_code, reason = "what some tests of the recipes share, and others do not use")]

#[path = "simulated/apart.rs"]
mod apart;
#[path = "simulated/cache.rs"]
mod cache;
#[path = "simulated/contention.rs"]
mod contention;
#[path = "simulated/counter.rs"]
mod counter;
#[path = "simulated/disconnected.rs"]
mod disconnected;
#[path = "simulated/double_barrier.rs"]
mod double_barrier;
#[path = "simulated/drawn.rs"]
mod drawn;
#[path = "simulated/election.rs"]
mod election;
#[path = "simulated/exclusion.rs"]
mod exclusion;
#[path = "simulated/gate.rs"]
mod gate;
#[path = "simulated/intercepted.rs"]
mod intercepted;
#[path = "simulated/latch.rs"]
mod latch;
#[path = "simulated/lock.rs"]
mod lock;
#[path = "simulated/names.rs"]
mod names;
#[path = "simulated/persistent.rs"]
mod persistent;
#[path = "simulated/preference.rs"]
mod preference;
#[path = "simulated/queue.rs"]
mod queue;
#[path = "simulated/read_write_lock.rs"]
mod read_write_lock;
#[path = "simulated/reentrant_lock.rs"]
mod reentrant_lock;
#[path = "simulated/repeating.rs"]
mod repeating;
#[path = "simulated/semaphore.rs"]
mod semaphore;
#[path = "simulated/two_phase_commit.rs"]
mod two_phase_commit;

mod rules {
    use crate::exclusion::{judge, judge_drawn};
    use crate::{
        cache, contention, counter, double_barrier, election, gate, latch, lock, names, persistent, preference, queue,
        read_write_lock, reentrant_lock, repeating, semaphore, two_phase_commit,
    };
    use std::fmt;
    use std::future::Future;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use zoolet_recipes::mutation::{self, Mutation};
    use zoolet_recipes::{Notification, Preference};
    use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario, Trace, run_with};

    /// Returns the failure of this seed, if it fails.
    fn failure<F, B, W>(
        seed: u64,
        mutation: Option<Mutation>,
        scenario: &Scenario,
        body: &B,
        judge: fn(&Ran<F>) -> Result<(), String>,
    ) -> Option<String>
    where
        F: fmt::Debug + 'static,
        B: Fn(ClientContext<F>) -> W,
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

    /// Asserts that one of the first `seeds` seeds fails only while the rule is broken.
    #[allow(clippy::print_stderr, reason = "which one, for people")]
    fn is_found<F, B, W>(
        mutation: Mutation,
        seeds: u64,
        scenario: impl Fn(u64) -> Scenario,
        body: B,
        judge: fn(&Ran<F>) -> Result<(), String>,
    ) where
        F: fmt::Debug + 'static,
        B: Fn(ClientContext<F>) -> W,
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

    #[test]
    fn writes_of_a_leader_that_check_nothing_come_after_its_end() {
        let scenario = |seed| Scenario::drawn(seed, 5);
        is_found(Mutation::FencedUnchecked, 40, scenario, election::broken, judge_drawn);
    }

    #[test]
    fn writes_that_check_nothing_come_late_where_some_read() {
        let scenario = |seed| Scenario::drawn(seed, 5);
        is_found(Mutation::FencedUnchecked, 40, scenario, read_write_lock::broken, judge_drawn);
    }

    #[test]
    fn writes_that_check_nothing_come_late_where_one_kind_goes_first() {
        let scenario = |seed| Scenario::drawn(seed, 5);
        is_found(
            Mutation::FencedUnchecked,
            40,
            scenario,
            |context| preference::broken(context, Preference::Readers),
            judge_drawn,
        );
    }

    #[test]
    fn writes_of_a_permit_that_check_nothing_come_after_its_end() {
        let scenario = |seed| Scenario::drawn(seed, 6);
        is_found(Mutation::FencedUnchecked, 40, scenario, semaphore::broken, semaphore::judge_broken);
    }

    #[test]
    fn a_place_that_is_known_by_its_number_is_another_ones() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::PlaceKnownByNumber, 40, scenario, lock::razed, lock::judge_razed);
    }

    #[test]
    fn a_grant_that_is_given_again_unconfirmed_may_be_over() {
        let scenario = |seed| Scenario::drawn(seed, 3);
        is_found(Mutation::GrantUnconfirmed, 40, scenario, reentrant_lock::broken, reentrant_lock::judge_broken);
    }

    #[test]
    fn an_item_of_a_dropped_attempt_that_is_forgotten_comes_late() {
        let scenario = |seed| Scenario::drawn(seed, 2);
        is_found(Mutation::DroppedAttemptForgotten, 40, scenario, queue::cut, queue::judge_cut);
    }

    #[test]
    fn a_decision_that_is_deleted_is_missed_by_a_site_that_comes_back() {
        let scenario = |seed| Scenario::peaceful(seed, 4);
        is_found(
            Mutation::DismissedForgotten,
            5,
            scenario,
            two_phase_commit::dismissed,
            two_phase_commit::judge_dismissed,
        );
    }

    #[test]
    fn an_addition_whose_receipt_is_ignored_is_done_twice() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::ReceiptIgnored, 40, scenario, counter::add, counter::judge);
    }

    #[test]
    fn what_is_taken_without_a_claim_is_taken_from_who_works_on_it() {
        let scenario = |seed| Scenario::drawn(seed, queue::CLIENTS);
        is_found(
            Mutation::ClaimNotInTake,
            20,
            scenario,
            |context| queue::live(context, queue::How::Either, zoolet_recipes::Lifetime::Persistent, false),
            |ran| queue::judge(ran, zoolet_recipes::Lifetime::Persistent),
        );
    }

    #[test]
    fn a_vote_before_the_log_has_it_is_found() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(
            Mutation::VoteBeforeLog,
            20,
            scenario,
            |context| two_phase_commit::live(context, Notification::Coordinator, true),
            two_phase_commit::judge,
        );
    }

    #[test]
    fn a_commit_without_all_votes_is_found() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(
            Mutation::CommitWithoutAll,
            20,
            scenario,
            |context| two_phase_commit::live(context, Notification::Coordinator, true),
            two_phase_commit::judge,
        );
    }

    #[test]
    fn a_meeting_in_which_ready_is_a_party_does_not_end() {
        let scenario = |seed| Scenario::drawn(seed, double_barrier::CLIENTS);
        is_found(Mutation::ReadyCountsAsParty, 5, scenario, double_barrier::live, double_barrier::judge);
    }

    #[test]
    fn rooms_of_those_who_died_stay() {
        let scenario = |seed| Scenario::drawn(seed, double_barrier::CLIENTS);
        is_found(Mutation::FormerRoomsStay, 60, scenario, double_barrier::live, double_barrier::judge);
    }

    #[test]
    fn who_waits_for_a_permit_waits_for_who_came_later() {
        let scenario = |seed| Scenario::drawn(seed, 6);
        is_found(Mutation::SemaphoreCountsLater, 40, scenario, semaphore::broken, semaphore::judge_broken);
    }

    #[test]
    fn a_list_of_holders_that_is_written_unseen_lets_two_hold() {
        let scenario = |seed| Scenario::drawn(seed, 5);
        is_found(
            Mutation::PreferenceListUnversioned,
            40,
            scenario,
            |context| preference::cycle(context, Preference::Writers),
            judge_drawn,
        );
    }

    #[test]
    fn participants_with_different_preferences_both_hold() {
        let scenario = |seed| Scenario::drawn(seed, 6);
        is_found(Mutation::PreferenceUnchecked, 40, scenario, preference::mixed, judge_drawn);
    }

    #[test]
    fn a_grant_that_is_broken_as_soon_as_it_is_withdrawn_overlaps_with_the_next() {
        is_found(Mutation::WithdrawnAtOnce, 40, contention::of_short_sessions, contention::safely, judge_drawn);
    }

    #[test]
    fn a_withdrawn_grant_that_tells_later_instants_overlaps_with_the_next() {
        is_found(Mutation::WithdrawalUnheard, 40, contention::of_short_sessions, contention::safely, judge_drawn);
    }

    #[test]
    fn a_watch_that_is_trusted_after_a_gap_tells_later_instants_than_a_withdrawal_allows() {
        let scenario = contention::of_one_small_server;
        is_found(Mutation::GapUnheard, 10, scenario, contention::unwatched, contention::judge_unwatched);
    }

    #[test]
    fn who_was_broken_takes_office() {
        let scenario = |seed| Scenario::drawn(seed, 5);
        is_found(Mutation::OfficeUnchecked, 80, scenario, election::broken, judge_drawn);
    }

    #[test]
    fn a_gate_that_is_opened_blindly_lets_two_in() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::GateOpenedBlindly, 60, scenario, gate::cycle, judge_drawn);
    }

    #[test]
    fn a_latch_that_is_set_blindly_loses_counts() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::LatchUnversioned, 20, scenario, latch::count, latch::judge);
    }

    #[test]
    fn a_member_that_deletes_blindly_deletes_another_one() {
        let scenario = |seed| Scenario::drawn(seed, persistent::CLIENTS);
        is_found(Mutation::MemberDeletedBlindly, 60, scenario, persistent::live, persistent::judge);
    }

    #[test]
    fn a_name_that_is_given_up_blindly_is_taken_from_another_one() {
        let scenario = |seed| Scenario::drawn(seed, 3);
        is_found(Mutation::NameGivenUpBlindly, 60, scenario, names::live, names::judge);
    }

    #[test]
    fn a_cache_that_does_not_say_gap_is_found() {
        let scenario = |seed| Scenario::drawn(seed, cache::CLIENTS);
        is_found(Mutation::GapNotTold, 20, scenario, cache::live, cache::judge);
    }

    /// Every mutation has to occur in the text of this file.
    #[test]
    fn every_rule_that_can_be_broken_has_a_test() {
        let here = include_str!("mutations.rs");
        for mutation in Mutation::ALL {
            assert!(here.contains(&format!("Mutation::{mutation:?},")), "{mutation:?}");
        }
    }
}
