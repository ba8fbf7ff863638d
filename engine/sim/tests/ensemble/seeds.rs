//! Seeds of the ensemble simulator.
//!
//! - `ENSEMBLE_SEEDS=N` runs N seeds, `ENSEMBLE_FROM=N` names the first of them.
//! - `ENSEMBLE_SEED=S` runs one seed. If it fails, its last events are printed.
//! - `ENSEMBLE_LINES=N` sets the number of printed events. It prints them even if the seed passes.
//! - `ENSEMBLE_COVERAGE=1` prints which features met which faults, and requires that each met each.
//!   A thousand seeds do.
#![allow(clippy::print_stderr, reason = "what the runs had in them, for people")]

use std::time::Instant;
use zoolet_sim::ensemble::{Failure, Plan, Statistics, Trace, run_guarded, run_seeds};

/// Seeds of a plain `cargo test`; `.ci/run ensemble` runs thousands with `--release`.
const SEEDS: u64 = 10;
/// Number of trace lines to print.
const LINES: u64 = 400;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

fn again(seed: u64, plan: &Plan) -> Result<Statistics, String> {
    let trace = Trace::last(variable("ENSEMBLE_LINES").unwrap_or(LINES) as usize);
    let outcome = run_guarded(seed, plan, trace.clone());
    if outcome.is_ok() && variable("ENSEMBLE_LINES").is_some() {
        eprint!("{trace}");
    }
    outcome.map_err(|failure| format!("{trace}\n{failure}"))
}

fn run(plan: impl Fn(u64) -> Plan + Sync) {
    if let Some(seed) = variable("ENSEMBLE_SEED") {
        let statistics = again(seed, &plan(seed)).unwrap_or_else(|story| panic!("{story}"));
        return eprintln!("{statistics}");
    }
    let (seeds, from) = (variable("ENSEMBLE_SEEDS").unwrap_or(SEEDS), variable("ENSEMBLE_FROM").unwrap_or(0));
    let began = Instant::now();
    let (statistics, failures) = run_seeds(from..from + seeds, 2, &plan);
    let took_s = began.elapsed().as_secs_f64();
    let (events, hours) = (statistics.events as f64 / took_s, statistics.simulated_us as f64 / 60e6 / took_s);
    let failed = failures.len() as u64;
    eprintln!("{took_s:.0} s: {events:.0} events a second, {hours:.1} simulated hours a minute");
    eprintln!("seeds from {from}: {} passed, {failed} failed", seeds - failed);
    let wants_coverage = variable("ENSEMBLE_COVERAGE").is_some();
    eprint!("{statistics}");
    if wants_coverage {
        eprintln!("\n{}", statistics.coverage);
    }
    if let Some(first) = failures.first() {
        let story = again(first.seed, &plan(first.seed)).err().unwrap_or_default();
        let rule = |failure: &Failure| failure.what[0].lines().next().unwrap_or_default().to_owned();
        let all: Vec<_> = failures.iter().map(|failure| format!("{}: {}", failure.seed, rule(failure))).collect();
        panic!("{story}\n{} seeds failed:\n{}", failures.len(), all.join("\n"))
    }
    let (operations, faults) = statistics.fewest.unwrap_or_default();
    assert!(
        operations >= plan(0).operations_min && faults >= plan(0).faults_min,
        "{operations} requests and {faults} faults are not enough"
    );
    let gaps = statistics.coverage.gaps();
    assert!(!wants_coverage || gaps.is_empty(), "never met: {gaps:?}");
}

#[test]
fn a_server_alone_keeps_what_it_acknowledged() {
    run(Plan::standalone);
}

#[test]
fn an_ensemble_in_peace_serves_and_agrees() {
    run(Plan::peaceful);
}

#[test]
fn an_ensemble_keeps_its_promises_under_faults() {
    run(Plan::ensemble);
}

#[test]
fn an_ensemble_that_loses_its_leader_again_and_again_keeps_its_promises() {
    run(Plan::of_lost_leaders);
}

#[test]
fn an_ensemble_whose_disks_are_lost_repairs_them_and_keeps_its_promises() {
    run(Plan::of_lost_disks);
}
