//! `idle --product zoolet|zookeeper|etcd [--seconds 60] [--load 0] [--servers 3]`: idle resource
//! usage.
//!
//! It prints memory, processor time and disk writes of each server, and the traffic of the site in
//! bytes and packets.
//!
//! Each server has a network namespace (root only), so the traffic includes all headers, as on a
//! cable. With `--load N`, writers work for N seconds first and then leave.
#![allow(clippy::print_stdout, reason = "a program that reports to people")]

use std::process::ExitCode;
use std::time::{Duration, Instant};
use zoolet_ensemble_tests::Outcome;
use zoolet_ensemble_tests::arguments::exit_code;
use zoolet_ensemble_tests::gap::{Shape, Writers};
use zoolet_ensemble_tests::process::Usage;
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::site::{Between, Plan, Site};

/// Time for a start or a load to settle.
const SETTLE: Duration = Duration::from_secs(15);

struct Options {
    product: Product,
    servers: u8,
    seconds: u64,
    load: u64,
}

fn main() -> ExitCode {
    exit_code(options().and_then(|options| measure(&options)))
}

fn options() -> Outcome<Options> {
    let mut product = "zoolet".to_owned();
    let (mut servers, mut seconds, mut load) = (3, 60, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{argument} {value}: allowed is a number"));
        match argument.as_str() {
            "--product" => product = value,
            "--servers" => servers = u8::try_from(number()?).unwrap_or(9).clamp(1, 9),
            "--seconds" => seconds = number()?.max(1),
            "--load" => load = number()?,
            _ => return Err(format!("{argument}: allowed are --product, --servers, --seconds, --load")),
        }
    }
    Ok(Options { product: Product::named(&product)?, servers, seconds, load })
}

fn measure(options: &Options) -> Outcome<()> {
    let plan = Plan { between: Between::Cables, ..Plan::new(options.product.clone(), options.servers) };
    let site = Site::start(plan)?;
    println!("{}; {} servers", options.product.version(), options.servers);
    if options.load > 0 {
        let shape = Shape { writers: 24, bytes: 100, keys: 100 };
        let writers = Writers::start(&options.product, &site.clients(), &shape);
        std::thread::sleep(Duration::from_secs(options.load));
        println!("{} writes in {} s before", writers.finish().len(), options.load);
    }
    std::thread::sleep(SETTLE);
    let (began, before) = (Instant::now(), usages(&site)?);
    let sent_before = sent(&site)?;
    std::thread::sleep(Duration::from_secs(options.seconds));
    let (seconds, after) = (began.elapsed().as_secs_f64(), usages(&site)?);
    let sent_after = sent(&site)?;
    for ((id, before), (_, after)) in before.iter().zip(&after) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let role = site.server(*id).status().map(|status| status.role);
        println!(
            "server {id} ({role:?}): resident {:.1} MiB, {:.1} at most; {:.2} % of a core; {} bytes to the disk in {seconds:.0} s",
            mib(after.resident),
            mib(after.resident_peak),
            (after.cpu - before.cpu).as_secs_f64() / seconds * 100.0,
            after.disk_bytes - before.disk_bytes,
        );
    }
    let (bytes, packets) = (sent_after.0 - sent_before.0, sent_after.1 - sent_before.1);
    println!("the site on the wire: {:.0} bytes/s, {:.1} packets/s", bytes as f64 / seconds, packets as f64 / seconds);
    Ok(())
}

fn usages(site: &Site) -> Outcome<Vec<(u8, Usage)>> {
    let of_one = |id: u8| {
        let pid = site.server(id).pid().ok_or_else(|| format!("server {id} does not run"))?;
        Ok((id, Usage::of(pid)?))
    };
    site.ids().into_iter().map(of_one).collect()
}

/// Returns the bytes and packets that all servers have sent. So each packet counts once.
fn sent(site: &Site) -> Outcome<(u64, u64)> {
    site.ids().into_iter().try_fold((0, 0), |(bytes, packets), id| {
        let (more_bytes, more_packets) = site.sent(id)?;
        Ok((bytes + more_bytes, packets + more_packets))
    })
}
