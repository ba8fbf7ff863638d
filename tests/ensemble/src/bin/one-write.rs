//! `one-write [--runs 5] [--seconds 5] [--warmup 10] PRODUCT...`: latency of one write at a time.
//!
//! One client writes 100 bytes at a time, at the leader and through a follower. All products run at
//! once and take turns. The program prints the median of the runs' medians, with their extremes.
#![allow(clippy::print_stdout, reason = "a program that reports to people")]

use std::process::ExitCode;
use std::time::Duration;
use zoolet_ensemble_tests::Outcome;
use zoolet_ensemble_tests::arguments::{exit_code, products};
use zoolet_ensemble_tests::gap::latencies;
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::site::{Plan, Site};

const BYTES: usize = 100;

struct Options {
    products: Vec<Product>,
    runs: u64,
    seconds: u64,
    warmup: u64,
}

fn main() -> ExitCode {
    exit_code(options().and_then(|options| measure(&options)))
}

fn options() -> Outcome<Options> {
    let mut options = Options { products: Vec::new(), runs: 5, seconds: 5, warmup: 10 };
    let Options { runs, seconds, warmup, .. } = &mut options;
    options.products = products(&mut [("--runs", runs), ("--seconds", seconds), ("--warmup", warmup)])?;
    Ok(options)
}

/// One place of a client: its latency in each run, in microseconds.
///
/// `p99` is the 99th percentile of the last run.
struct Row {
    site: usize,
    at: &'static str,
    server: u8,
    medians: Vec<u128>,
    p99: u128,
}

fn measure(options: &Options) -> Outcome<()> {
    let mut sites = Vec::new();
    for product in &options.products {
        println!("{}", product.version());
        sites.push(Site::start(Plan::new(product.clone(), 3))?);
    }
    let mut rows = Vec::new();
    for (number, site) in sites.iter().enumerate() {
        let follower = site.followers()?.into_iter().next().ok_or("no follower")?;
        for (at, server) in [("leader", site.wait_for_leader()?), ("follower", follower)] {
            rows.push(Row { site: number, at, server, medians: Vec::new(), p99: 0 });
        }
    }
    for row in &mut rows {
        run(&sites, row, options.warmup)?;
        row.medians.clear();
    }
    for _ in 0..options.runs {
        for row in &mut rows {
            run(&sites, row, options.seconds)?;
        }
    }
    for row in &mut rows {
        row.medians.sort_unstable();
        let (name, at, last) = (sites[row.site].plan.product.name(), row.at, row.medians.len() - 1);
        let (median, least, most) = (row.medians[last / 2], row.medians[0], row.medians[last]);
        println!("| {name} | {at} | p50 {median} us ({least}-{most}) | p99 {} us |", row.p99);
    }
    Ok(())
}

fn run(sites: &[Site], row: &mut Row, seconds: u64) -> Outcome<()> {
    let site = &sites[row.site];
    let server = site.server(row.server).client();
    let measured = latencies(&site.plan.product, server, BYTES, Duration::from_secs(seconds));
    let mut all = measured.map_err(|error| format!("{server}: {error}"))?;
    all.sort_unstable();
    let at = |share: usize| all.get((all.len() * share / 100).min(all.len() - 1)).map_or(0, Duration::as_micros);
    row.medians.push(at(50));
    row.p99 = at(99);
    Ok(())
}
