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
#[path = "simulated/client.rs"]
mod client;
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
#[path = "simulated/paused_work.rs"]
mod paused_work;
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
    use crate::exclusion::{judge, judge_drawn, judge_paused};
    use crate::{
        cache, client, contention, counter, double_barrier, election, gate, latch, lock, names, paused_work,
        persistent, preference, queue, read_write_lock, reentrant_lock, repeating, semaphore, two_phase_commit,
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
    fn lock_watching_the_first_contender_is_detected_as_a_herd() {
        let scenario = |seed| Scenario::peaceful(seed, lock::CLIENTS);
        is_found(Mutation::WatchSmallest, 3, scenario, lock::once, lock::wakes_one);
    }

    #[test]
    fn election_watching_the_first_candidate_is_detected_as_a_herd() {
        let scenario = |seed| Scenario::peaceful(seed, election::CANDIDATES);
        is_found(Mutation::WatchSmallest, 3, scenario, election::once, election::wakes_one);
    }

    #[test]
    fn string_order_of_names_is_detected_by_two_holders() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::NamesComparedAsStrings, 60, scenario, lock::cycle, judge);
    }

    #[test]
    fn place_not_sought_after_a_lost_reply_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::OwnNotSought, 60, scenario, lock::cycle, judge);
    }

    #[test]
    fn unchecked_owner_of_a_place_is_detected() {
        is_found(Mutation::OwnerUnchecked, 40, repeating::scenario, repeating::cycle, judge);
    }

    #[test]
    fn place_left_by_a_cancelled_attempt_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::CancelLeavesPlace, 60, scenario, lock::cycle, judge);
    }

    #[test]
    fn unchecked_fenced_writes_of_a_lock_are_detected() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::FencedUnchecked, 50, scenario, contention::cycle, judge);
    }

    #[test]
    fn reused_guid_of_a_cancelled_attempt_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::GuidReused, 60, scenario, lock::cycle, judge);
    }

    #[test]
    fn unchecked_fenced_writes_of_a_leader_are_detected() {
        let scenario = |seed| Scenario::drawn(seed, 5);
        is_found(Mutation::FencedUnchecked, 40, scenario, election::broken, judge_drawn);
    }

    #[test]
    fn unchecked_fenced_writes_of_a_read_write_lock_are_detected() {
        let scenario = |seed| Scenario::drawn(seed, 5);
        is_found(Mutation::FencedUnchecked, 40, scenario, read_write_lock::broken, judge_drawn);
    }

    #[test]
    fn unchecked_fenced_writes_with_preferred_readers_are_detected() {
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
    fn unchecked_fenced_writes_of_a_permit_are_detected() {
        let scenario = |seed| Scenario::drawn(seed, 6);
        is_found(Mutation::FencedUnchecked, 40, scenario, semaphore::broken, semaphore::judge_broken);
    }

    #[test]
    fn place_recognized_by_its_number_alone_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::PlaceKnownByNumber, 40, scenario, lock::razed, lock::judge_razed);
    }

    #[test]
    fn unconfirmed_reentrant_grant_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 3);
        is_found(Mutation::GrantUnconfirmed, 40, scenario, reentrant_lock::broken, reentrant_lock::judge_broken);
    }

    #[test]
    fn forgotten_item_of_a_dropped_take_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 2);
        is_found(Mutation::DroppedAttemptForgotten, 40, scenario, queue::cut, queue::judge_cut);
    }

    #[test]
    fn decision_deleted_before_a_dismissed_site_returns_is_detected() {
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
    fn addition_with_an_ignored_receipt_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::ReceiptIgnored, 40, scenario, counter::add, counter::judge);
    }

    #[test]
    fn refused_repeat_believed_despite_its_receipt_is_detected() {
        is_found(Mutation::RefusalBelieved, 30, counter::of_full_disks, counter::add, counter::judge);
    }

    #[test]
    fn take_of_a_claimed_item_is_detected() {
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
    fn vote_sent_before_its_log_entry_is_detected() {
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
    fn commit_without_all_votes_is_detected() {
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
    fn ready_znode_counted_as_a_party_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, double_barrier::CLIENTS);
        is_found(Mutation::ReadyCountsAsParty, 5, scenario, double_barrier::live, double_barrier::judge);
    }

    #[test]
    fn leftover_rooms_of_dead_parties_are_detected() {
        let scenario = |seed| Scenario::drawn(seed, double_barrier::CLIENTS);
        is_found(Mutation::FormerRoomsStay, 60, scenario, double_barrier::live, double_barrier::judge);
    }

    #[test]
    fn permit_waiter_counting_later_waiters_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 6);
        is_found(Mutation::SemaphoreCountsLater, 40, scenario, semaphore::broken, semaphore::judge_broken);
    }

    #[test]
    fn unversioned_write_of_the_holders_list_is_detected() {
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
    fn unchecked_preferences_of_participants_are_detected() {
        let scenario = |seed| Scenario::drawn(seed, 6);
        is_found(Mutation::PreferenceUnchecked, 40, scenario, preference::mixed, judge_drawn);
    }

    #[test]
    fn break_without_waiting_after_a_withdrawal_is_detected() {
        is_found(Mutation::WithdrawnAtOnce, 40, contention::of_short_sessions, contention::safely, judge_drawn);
    }

    #[test]
    fn own_break_reported_as_a_release_is_detected() {
        let (scenario, body) = (contention::of_lost_replies, contention::cycle);
        is_found(Mutation::AuditUnread, 20, scenario, body, contention::judge_operated);
    }

    #[test]
    fn break_despite_an_overwritten_withdrawal_is_detected() {
        let scenario = contention::of_one_small_server;
        is_found(Mutation::WithdrawalUnchecked, 10, scenario, contention::overwritten, judge_drawn);
    }

    #[test]
    fn withdrawn_grant_that_extends_its_safe_time_is_detected() {
        is_found(Mutation::WithdrawalUnheard, 40, contention::of_short_sessions, contention::safely, judge_drawn);
    }

    #[test]
    fn trust_in_a_watch_after_a_gap_is_detected() {
        let scenario = contention::of_three_small_servers;
        is_found(Mutation::GapUnheard, 60, scenario, contention::unwatched_elsewhere, judge_drawn);
    }

    #[test]
    fn broken_candidate_taking_office_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 5);
        is_found(Mutation::OfficeUnchecked, 80, scenario, election::broken, judge_drawn);
    }

    #[test]
    fn unchecked_opening_of_a_gate_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::GateOpenedBlindly, 60, scenario, gate::cycle, judge_drawn);
    }

    #[test]
    fn unversioned_count_down_of_a_latch_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 4);
        is_found(Mutation::LatchUnversioned, 20, scenario, latch::count, latch::judge);
    }

    #[test]
    fn unchecked_deletion_by_a_group_member_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, persistent::CLIENTS);
        is_found(Mutation::MemberDeletedBlindly, 60, scenario, persistent::live, persistent::judge);
    }

    #[test]
    fn unchecked_release_of_a_name_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, 3);
        is_found(Mutation::NameGivenUpBlindly, 60, scenario, names::live, names::judge);
    }

    #[test]
    fn cache_that_reports_no_gap_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, cache::CLIENTS);
        is_found(Mutation::GapNotTold, 20, scenario, cache::live, cache::judge);
    }

    /// Every mutation has to occur in the text of this file.
    #[test]
    fn work_resumed_without_a_check_is_detected() {
        let (scenario, body) = (paused_work::cut_often, paused_work::broken);
        is_found(Mutation::ResumedUnchecked, 100, scenario, body, judge_paused);
    }

    #[test]
    fn membership_not_renewed_on_the_next_session_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, client::DAEMONS);
        is_found(Mutation::MembershipNotRenewed, 20, scenario, client::daemon, client::judge_daemons);
    }

    #[test]
    fn dropped_gap_of_another_session_is_detected() {
        let scenario = |seed| Scenario::drawn(seed, client::DAEMONS);
        is_found(Mutation::SessionGapNotTold, 20, scenario, client::daemon, client::judge_daemons);
    }

    #[test]
    fn every_mutation_has_a_test() {
        let here = include_str!("mutations.rs");
        for mutation in Mutation::ALL {
            assert!(here.contains(&format!("Mutation::{mutation:?},")), "{mutation:?}");
        }
    }
}
