//! Runs under what their seeds draw, and that they met it: a test whose clients were done before the first fault came would prove nothing.

use std::fmt;
use std::future::Future;
use zoolet_sim::ensemble::{Fate, Kind, Next, Ran, Scenario, Seat, Statistics, run_seeds_of};

/// A few seeds, as somebody runs who looks for one thing, need not meet everything.
const RUNS_MIN: u64 = 20;

/// Runs of so many clients under what so many seeds draw.
pub(crate) fn drawn<F, B, W>(
    seeds: u64,
    clients: usize,
    body: B,
    judge: impl Fn(&Ran<F>) -> Result<(), String> + Sync,
) -> Statistics
where
    F: fmt::Debug + 'static,
    B: Fn(Seat<F>) -> W + Sync,
    W: Future<Output = Next> + 'static,
{
    drawn_of(seeds, |seed| Scenario::drawn(seed, clients), body, judge)
}

/// The same, where nobody waits for a client that died: in every second run some never come back.
pub(crate) fn some_stay_away(seed: u64, clients: usize) -> Scenario {
    let drawn = Scenario::drawn(seed, clients);
    if seed % 2 == 1 { drawn.where_some_stay_away() } else { drawn }
}

/// The same of other scenarios that are drawn.
pub(crate) fn drawn_of<F, B, W>(
    seeds: u64,
    scenario: impl Fn(u64) -> Scenario + Sync,
    body: B,
    judge: impl Fn(&Ran<F>) -> Result<(), String> + Sync,
) -> Statistics
where
    F: fmt::Debug + 'static,
    B: Fn(Seat<F>) -> W + Sync,
    W: Future<Output = Next> + 'static,
{
    let statistics = run_seeds_of(seeds, scenario, body, judge);
    if statistics.runs >= RUNS_MIN {
        must_have_met(&statistics);
    }
    statistics
}

/// Each fate of clients, servers that die, and ways between servers or to them that are cut, each in one of four runs and more; and as many
/// requests as runs of which nobody was told whether they were done.
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
    assert!(statistics.lost >= statistics.runs, "{statistics}");
}

/// Whether until when a session is safe was promised in this run: not where a link between servers works one way alone, nor where the clock of a
/// server stands still.
pub(crate) fn promises_time<F>(ran: &Ran<F>) -> bool {
    let faults = ran.statistics.coverage.faults();
    !faults.contains_key(&Kind::CutOneWay) && !faults.contains_key(&Kind::ClockFreeze)
}
