//! Runs tests under drawn faults and fates, and checks that these struck.
//!
//! Faults strike servers and links, fates strike clients.
//!
//! A test whose clients finish before the first fault proves nothing.

use std::fmt;
use std::future::Future;
use zoolet_sim::ensemble::{ClientContext, Fate, Kind, Next, Ran, Scenario, Statistics, run_seeds_of};

/// Number of runs from which on every kind of fault must have struck.
///
/// Fewer runs, as in a search for one failure, need not meet them all.
const RUNS_MIN: u64 = 20;

/// Runs `clients` clients under the faults and fates that each of `seeds` seeds draws.
pub(crate) fn drawn<F, B, W>(
    seeds: u64,
    clients: usize,
    body: B,
    judge: impl Fn(&Ran<F>) -> Result<(), String> + Sync,
) -> Statistics
where
    F: fmt::Debug + 'static,
    B: Fn(ClientContext<F>) -> W + Sync,
    W: Future<Output = Next> + 'static,
{
    drawn_of(seeds, |seed| Scenario::drawn(seed, clients), body, judge)
}

/// Returns a drawn scenario in which, for odd seeds, some dead clients never come back.
///
/// It is for recipes whose participants never wait for a dead client.
pub(crate) fn some_stay_away(seed: u64, clients: usize) -> Scenario {
    let drawn = Scenario::drawn(seed, clients);
    if seed % 2 == 1 { drawn.where_some_stay_away() } else { drawn }
}

/// Runs drawn scenarios that the caller builds.
pub(crate) fn drawn_of<F, B, W>(
    seeds: u64,
    scenario: impl Fn(u64) -> Scenario + Sync,
    body: B,
    judge: impl Fn(&Ran<F>) -> Result<(), String> + Sync,
) -> Statistics
where
    F: fmt::Debug + 'static,
    B: Fn(ClientContext<F>) -> W + Sync,
    W: Future<Output = Next> + 'static,
{
    let statistics = run_seeds_of(seeds, scenario, body, judge);
    if statistics.runs >= RUNS_MIN {
        must_have_met(&statistics);
    }
    statistics
}

/// Asserts that the runs met enough faults and fates:
/// - each fate of clients, deaths of servers, and cut links: at least one for every four runs;
/// - requests whose outcome their client never learned: at least one for every second run.
fn must_have_met(statistics: &Statistics) {
    let least = statistics.runs / 4;
    for fate in Fate::NAMES {
        let struck = statistics.fates.get(fate).copied().unwrap_or_default();
        assert!(struck >= least, "{fate} struck {struck} times: {statistics}");
    }
    let faults = statistics.coverage.faults();
    let struck = |kinds: &[Kind]| kinds.iter().filter_map(|kind| faults.get(kind)).sum::<u64>();
    let deaths = [
        Kind::Crash,
        Kind::PowerLoss,
        Kind::PowerLossOfAll,
        Kind::CrashInStep,
        Kind::PowerLossInStep,
        Kind::GracefulStop,
    ];
    let cuts = [Kind::Isolate, Kind::CutOneWay, Kind::Partition, Kind::Reset, Kind::ClientReset, Kind::ClientCut];
    for (what, kinds) in [("deaths of servers", &deaths), ("cuts", &cuts)] {
        assert!(struck(kinds) >= least, "{what}: {} in {statistics}", struck(kinds));
    }
    assert!(statistics.lost >= statistics.runs / 2, "{statistics}");
}

/// Whether this run promises until which instant a session is safe.
///
/// The promise fails if a link between servers worked in one direction only, or a server's clock
/// stood still.
pub(crate) fn promises_time<F>(ran: &Ran<F>) -> bool {
    let faults = ran.statistics.coverage.faults();
    !faults.contains_key(&Kind::CutOneWay) && !faults.contains_key(&Kind::ClockFreeze)
}
