//! A test of the tests: each rule is broken in turn, and the simulator of ensembles has to find it with the seeds that it always runs.
//!
//! `cargo test -p zoolet-sim --features mutations --test mutations` runs one known seed of each. `MUTATION_SEEDS=500` looks for the first seed that
//! finds each instead, and prints the table of docs/SAFETY.md; `MUTATION=Name` does it for one rule.
#![cfg(feature = "mutations")]

use std::sync::atomic::{AtomicU64, Ordering};
use zoolet_sim::ensemble::{Plan, Trace, run_guarded};
use zoolet_zab::mutation::{self, Mutation};

/// The first seed of the default mix that finds each broken rule.
const KNOWN: &[(Mutation, u64)] = &[];

/// The first of so many seeds that fails, and the rule that said so.
fn first_failure(seeds: u64) -> Option<(u64, String)> {
    let (next, found) = (AtomicU64::new(0), std::sync::Mutex::new(None::<(u64, String)>));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_late = found.lock().unwrap().as_ref().is_some_and(|(first, _)| *first < seed);
                    if seed >= seeds || is_late {
                        return;
                    }
                    if let Some(rule) = failure_of(seed) {
                        let mut found = found.lock().unwrap();
                        if found.as_ref().is_none_or(|(first, _)| *first > seed) {
                            *found = Some((seed, rule));
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// The first line of what was wrong with this seed.
fn failure_of(seed: u64) -> Option<String> {
    let failure = run_guarded(seed, &Plan::ensemble(seed), Trace::last(0)).err()?;
    Some(failure.what[0].lines().next().unwrap_or_default().to_owned())
}

#[test]
fn every_broken_rule_is_found() {
    let only = std::env::var("MUTATION").ok();
    let seeds: Option<u64> = std::env::var("MUTATION_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let mut missed = Vec::new();
    let chosen = |mutation: &&Mutation| only.as_ref().is_none_or(|name| name == mutation.name());
    for &mutation in Mutation::ALL.iter().filter(chosen) {
        let known = KNOWN.iter().find(|(known, _)| *known == mutation).map(|&(_, seed)| seed);
        mutation::set(Some(mutation));
        let found = match (seeds, known) {
            (None, Some(seed)) => failure_of(seed).map(|rule| (seed, rule)),
            (None, None) => None,
            (Some(seeds), _) => first_failure(seeds),
        };
        mutation::set(None);
        match found {
            Some((seed, rule)) => eprintln!("| {} | {seed} | {rule} |", mutation.name()),
            None => {
                eprintln!("| {} | - | |", mutation.name());
                missed.push(mutation.name());
            }
        }
    }
    assert!(missed.is_empty(), "{} of {} are not found: {missed:?}", missed.len(), Mutation::ALL.len());
}
