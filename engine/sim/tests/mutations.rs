//! A test of the tests: the ensemble simulator must find each broken rule.
//!
//! The rules are broken in turn, and seeds that the simulator always runs must find that. A seed
//! that fails with every rule in force proves nothing and does not count.
//!
//! `cargo test --release -p zoolet-sim --features mutations --test mutations` runs one seed for
//! each rule, which the table in docs/explanation/safety.md names.
//!
//! - `MUTATION_SEEDS=500` instead searches for the first seed that finds each rule.
//! - `MUTATION_REGENERATE=500` rewrites the table. Seeds that still find their rule stay. For the
//!   other rules, it searches for the first seed that does.
//! - `MUTATION=Name,Name` restricts a run to some rules.
#![cfg(feature = "mutations")]
#![allow(clippy::print_stderr, reason = "the table is for people")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use zoolet_sim::ensemble::{Plan, Trace, run_guarded};
use zoolet_zab::mutation::{self, Mutation};

/// Page with a table that has a row for each rule.
///
/// The columns are the name, the seeds of the core's explorer and of the simulator, and the
/// message.
const TABLE: &str = "../../docs/explanation/safety.md";
/// Rules that hardly any random seed comes near.
///
/// A scenario in another file finds each of them broken. Seeds are tried only if `MUTATION` names
/// the rule.
const OF_SCENARIOS: [Mutation; 9] = [
    // A read must meet the block with the flipped bit before a merge or a scrub does:
    // `page_unverified_mutation_serves_a_flipped_bit`.
    Mutation::PageUnverified,
    // An outage must be longer than the tolerance of the oracle for times to live:
    // `outage_counts_mutation_deletes_a_ttl_znode_early`.
    Mutation::OutageCounts,
    // A disk must hang for longer than that tolerance:
    // `stall_counts_mutation_deletes_a_renewed_ttl_znode`.
    Mutation::StallCounts,
    // A learner must lose its leader and return within the epoch while a write is in flight:
    // `serves_too_early_mutation_does_a_write_in_flight_twice` and
    // `old_forward_taken_mutation_proposes_an_entry_of_an_earlier_attempt`.
    Mutation::ServesTooEarly,
    Mutation::OldForwardTaken,
    // 1,024 writes must wait at one learner:
    // `ends_unbounded_mutation_makes_the_leader_drop_the_link`.
    Mutation::EndsUnbounded,
    // A leader must refuse a write and be lost with the refusal, but not with a write behind it:
    // `lost_refusal_ignored_mutation_answers_the_later_write_first`.
    Mutation::LostRefusalIgnored,
    // A leader without a quorum leads for 0.3 s only. A client must ask it for a sync in that time:
    // `confirm_without_quorum_mutation_answers_a_sync_of_a_leader_without_one`. Or a learner must
    // come back to it with a newer promise: the core's explorer finds that.
    Mutation::ConfirmWithoutQuorum,
    Mutation::FollowOlderEpoch,
];
/// Maximum length of a message in characters, enough to identify the check.
const SAID: usize = 120;

/// Seeds that ran with every rule in force, and whether they passed.
type Sound = Mutex<BTreeMap<u64, bool>>;

/// A seed that finds a broken rule, and its message.
struct Found {
    seed: u64,
    said: String,
}

/// Returns the message of a failing seed; `None` if it passes.
fn failure(mutation: Option<Mutation>, seed: u64) -> Option<String> {
    mutation::set(mutation);
    let failure = run_guarded(seed, &Plan::ensemble(seed), Trace::last(0)).err();
    mutation::set(None);
    let said = failure?.what.first()?.lines().next().unwrap_or_default().to_owned();
    Some(said.chars().take(SAID).collect())
}

fn is_sound(sound: &Sound, seed: u64) -> bool {
    if let Some(&known) = sound.lock().expect("no test panicked").get(&seed) {
        return known;
    }
    let passes = failure(None, seed).is_none();
    sound.lock().expect("no test panicked").insert(seed, passes);
    passes
}

fn find(mutation: Mutation, seed: u64, sound: &Sound) -> Option<Found> {
    let said = failure(Some(mutation), seed)?;
    is_sound(sound, seed).then_some(Found { seed, said })
}

/// Returns the first of `seeds` seeds that finds this rule broken.
fn first(mutation: Mutation, seeds: u64, sound: &Sound) -> Option<Found> {
    let (next, best) = (AtomicU64::new(0), Mutex::new(None::<Found>));
    let search = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_late = best.lock().expect("no test panicked").as_ref().is_some_and(|best| best.seed < seed);
            if seed >= seeds || is_late {
                return;
            }
            if let Some(found) = find(mutation, seed, sound) {
                let mut best = best.lock().expect("no test panicked");
                if best.as_ref().is_none_or(|best| best.seed > found.seed) {
                    *best = Some(found);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(search))));
    best.into_inner().expect("no test panicked")
}

fn table() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(TABLE)
}

fn known() -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(table()).expect("the table can be read");
    let row = |line: &str| {
        let mut columns = line.strip_prefix("| ")?.split(" | ");
        Some((columns.next()?.to_owned(), columns.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Returns the rules that `MUTATION` names, or all that random runs reach.
fn chosen() -> Vec<Mutation> {
    let names = std::env::var("MUTATION").ok();
    let is_chosen = |of: &Mutation| match &names {
        Some(names) => names.split(',').any(|name| name == of.name()),
        None => !OF_SCENARIOS.contains(of),
    };
    Mutation::ALL.iter().copied().filter(is_chosen).collect()
}

fn look(mutation: Mutation, known: Option<u64>, sound: &Sound) -> Option<Found> {
    if let Some(seeds) = number("MUTATION_SEEDS") {
        return first(mutation, seeds, sound);
    }
    let still = known.and_then(|seed| find(mutation, seed, sound));
    still.or_else(|| first(mutation, number("MUTATION_REGENERATE")?, sound))
}

/// Searches for all these rules. Known seeds are independent, so two run at a time.
fn look_for_all(mutations: &[Mutation]) -> Vec<(Mutation, Option<Found>)> {
    let (known, sound, next) = (known(), Sound::default(), AtomicU64::new(0));
    let found = Mutex::new(Vec::new());
    let search = || {
        while let Some(&mutation) = mutations.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let it = look(mutation, known.get(mutation.name()).copied(), &sound);
            let (seed, said) = it.as_ref().map_or(("-".to_owned(), ""), |it| (it.seed.to_string(), &it.said));
            eprintln!("{} {seed} {said}", mutation.name());
            found.lock().expect("no test panicked").push((mutation, it));
        }
    };
    // A search through many seeds already uses two threads.
    let at_once = if number("MUTATION_SEEDS").is_some() { 1 } else { 2 };
    std::thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(search))));
    found.into_inner().expect("no test panicked")
}

/// Returns a rule's row with the new result.
///
/// `None` if the line is not the row of a rule in `all`.
fn row(line: &str, all: &[(Mutation, Option<Found>)]) -> Option<String> {
    let mut columns = line.strip_prefix("| ")?.split(" | ");
    let name = columns.next()?;
    let (_, found) = all.iter().find(|(mutation, _)| mutation.name() == name)?;
    let explorer = columns.next()?;
    let (seed, said) = found.as_ref().map_or(("-".to_owned(), "-"), |found| (found.seed.to_string(), &found.said));
    Some(format!("| {name} | {explorer} | {seed} | {} |", said.replace('|', "/").trim_end()))
}

fn regenerate(all: &[(Mutation, Option<Found>)]) {
    let text = std::fs::read_to_string(table()).expect("the table can be read");
    let lines = text.lines().map(|line| row(line, all).unwrap_or_else(|| line.to_owned()) + "\n");
    std::fs::write(table(), lines.collect::<String>()).expect("the table can be written");
}

#[test]
fn every_broken_rule_is_found() {
    let all = look_for_all(&chosen());
    if number("MUTATION_REGENERATE").is_some() {
        regenerate(&all);
    }
    // A rule without a row or a seed in the table counts as missed.
    let missed = all.iter().filter(|(_, found)| found.is_none());
    let missed: Vec<_> = missed.map(|(mutation, _)| mutation.name()).collect();
    let (few, of) = (missed.len(), all.len());
    assert!(
        missed.is_empty(),
        "{few} of {of} are not found: {missed:?}; MUTATION_REGENERATE=500 looks for other seeds"
    );
}
