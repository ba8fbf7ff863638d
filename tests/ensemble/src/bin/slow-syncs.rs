//! `slow-syncs [--seconds 30] [--every 20] [--delay-ms 400] PRODUCT...`: ensembles on slow disks.
//!
//! Each product runs with three servers and 12 writers, first on the disk as it is. Then every N-th
//! fdatasync or fsync of a thread takes longer by the delay. The program prints writes per second,
//! the longest time without an acknowledged write, new leaders, and bytes on the disk for each
//! write.
//!
//! strace adds the delay, in the same way for every product. The bytes on the disk include
//! everything that this machine wrote meanwhile, so no other program should be at work.
#![allow(clippy::print_stdout, reason = "a program that reports to people")]

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Duration;
use zoolet_ensemble_tests::arguments::{exit_code, products};
use zoolet_ensemble_tests::gap::{Shape, Writers, longest};
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::site::{Plan, Site};
use zoolet_ensemble_tests::{Outcome, said};

const SHAPE: Shape = Shape { writers: 12, bytes: 100, keys: 100 };
/// Time of load before the measurement.
const WARMUP: Duration = Duration::from_secs(5);
/// Unit of /proc/diskstats, in bytes.
const SECTOR_BYTES: u64 = 512;

struct Options {
    products: Vec<Product>,
    seconds: u64,
    every: u64,
    delay_ms: u64,
}

fn main() -> ExitCode {
    exit_code(options().and_then(|options| measure(&options)))
}

fn options() -> Outcome<Options> {
    let mut options = Options { products: Vec::new(), seconds: 30, every: 20, delay_ms: 400 };
    let Options { seconds, every, delay_ms, .. } = &mut options;
    options.products = products(&mut [("--seconds", seconds), ("--every", every), ("--delay-ms", delay_ms)])?;
    Ok(options)
}

fn measure(options: &Options) -> Outcome<()> {
    let Options { every, delay_ms, .. } = options;
    let slow = format!("every {every}th sync {delay_ms} ms more");
    println!("| product | disk | writes/s | longest gap | other leaders | bytes on the disk for each write |");
    println!("|---|---|---|---|---|---|");
    for product in &options.products {
        for (disk, starter) in [("as it is", Vec::new()), (slow.as_str(), tracer(options))] {
            let plan = Plan { starter, ..Plan::new(product.clone(), 3) };
            println!("| {} | {disk} | {}", product.name(), one(plan, options.seconds)?);
        }
    }
    Ok(())
}

/// Returns the starter: strace becomes the server, and traces it from another process.
fn tracer(options: &Options) -> Vec<OsString> {
    let Options { every, delay_ms, .. } = options;
    let inject = format!("inject=fsync,fdatasync:delay_exit={}:when={every}+{every}", delay_ms * 1000);
    let mut words = vec!["strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null"];
    words.extend(["-e", "trace=fsync,fdatasync", "-e", &inject]);
    words.into_iter().map(OsString::from).collect()
}

fn one(plan: Plan, seconds: u64) -> Outcome<String> {
    let site = Site::start(plan)?;
    let writers = Writers::start(&site.plan.product, &site.clients(), &SHAPE);
    std::thread::sleep(WARMUP);
    let (epoch, sectors, began) = (epoch(&site)?, sectors_written()?, writers.now());
    std::thread::sleep(Duration::from_secs(seconds));
    let bytes = (sectors_written()? - sectors) * SECTOR_BYTES;
    let over = writers.now();
    let epoch_after = self::epoch(&site)?;
    let acknowledged = writers.finish();
    let counted: Vec<Duration> = acknowledged.into_iter().filter(|at| (began..=over).contains(at)).collect();
    // A gap at the beginning or the end counts too.
    let edges: Vec<Duration> = [began].into_iter().chain(counted.iter().copied()).chain([over]).collect();
    let gap = longest(&edges, began).unwrap_or_default();
    let each = bytes / (counted.len() as u64).max(1);
    Ok(format!(
        "{:.0} | {} ms | {} | {each} |",
        counted.len() as f64 / (over - began).as_secs_f64(),
        gap.as_millis(),
        epoch_after - epoch,
    ))
}

fn epoch(site: &Site) -> Outcome<u64> {
    let leader = site.wait_for_leader()?;
    site.server(leader).status().map(|status| status.epoch).ok_or_else(|| "nobody leads".to_owned())
}

/// Returns the sectors written by all disks of this machine, after a sync.
fn sectors_written() -> Outcome<u64> {
    Command::new("sync").status().map_err(said("sync"))?;
    let text = std::fs::read_to_string("/proc/diskstats").map_err(said("/proc/diskstats"))?;
    let is_disk = |name: &str| std::path::Path::new("/sys/block").join(name).join("device").exists();
    let written = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        is_disk(fields.get(2)?).then_some(())?;
        fields.get(9)?.parse::<u64>().ok()
    };
    Ok(text.lines().filter_map(written).sum())
}
