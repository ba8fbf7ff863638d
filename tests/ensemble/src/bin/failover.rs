//! `failover --product zoolet|zookeeper|etcd --fault FAULT [--runs 20] ...`: measures failover
//! times.
//!
//! In each run a fault hits the leader. The program prints the longest time between two
//! acknowledged writes of each run, their median and the maximum. FAULT is one of:
//! - `kill`: kill -9.
//! - `freeze`: SIGSTOP.
//! - `cable`: the leader is cut off, from clients as well, in a network namespace for each server.
//!   Root only.
//! - `relay`: the same between servers alone, by the relay. zoolet only.
//! - `stop`: SIGTERM, and a new start after the leader has ended.
//! - `idle`: kill -9 with no load. At that moment a client sends one write to a follower, and the
//!   time until its acknowledgement counts.
//! - `idle-deaf`: as `idle`, but instead of the kill the relay drops everything that the others
//!   send to the leader. zoolet only.
//! - `idle-mute`: the same with everything that the leader sends to the others.
#![allow(clippy::print_stdout, reason = "a program that reports to people")]

use std::process::ExitCode;
use std::time::Duration;
use zoolet_ensemble_tests::Outcome;
use zoolet_ensemble_tests::arguments::exit_code;
use zoolet_ensemble_tests::gap::{Idler, Shape, Writers, longest, median_and_worst};
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::site::{Between, PATIENCE, Plan, Site};
use zoolet_powercut::random::Random;

/// Time of load before a fault. Up to the same time again is drawn and added.
const BEFORE: Duration = Duration::from_millis(1000);
/// Time without writes after which the leader pings at the idle pace.
const QUIET: Duration = Duration::from_millis(3000);
/// Time of load after a fault.
const AFTER: Duration = Duration::from_millis(1000);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill,
    Freeze,
    Cable,
    Relay,
    Stop,
    Idle,
    IdleDeaf,
    IdleMute,
}

const FAULTS: [(&str, Fault); 8] = [
    ("kill", Fault::Kill),
    ("freeze", Fault::Freeze),
    ("cable", Fault::Cable),
    ("relay", Fault::Relay),
    ("stop", Fault::Stop),
    ("idle", Fault::Idle),
    ("idle-deaf", Fault::IdleDeaf),
    ("idle-mute", Fault::IdleMute),
];

impl Fault {
    fn is_idle(self) -> bool {
        matches!(self, Self::Idle | Self::IdleDeaf | Self::IdleMute)
    }
}

struct Options {
    product: Product,
    fault: Fault,
    runs: u32,
    servers: u8,
    shape: Shape,
    settings: String,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(what) => {
            println!("{what}");
            return ExitCode::from(2);
        }
    };
    exit_code(measure(&options))
}

fn options() -> Outcome<Options> {
    let mut product = "zoolet".to_owned();
    let shape = Shape { writers: 12, bytes: 1000, keys: 100 };
    let (mut fault, mut runs, mut servers, mut shape, mut settings) = (Fault::Kill, 20, 3, shape, String::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("{argument} {value}: allowed is a number"));
        match argument.as_str() {
            "--product" => product = value,
            "--fault" => {
                let found = FAULTS.iter().find(|(name, _)| *name == value);
                fault = found.map(|(_, fault)| *fault).ok_or_else(|| format!("--fault {value}: no such fault"))?;
            }
            "--runs" => runs = number()?.max(1),
            "--servers" => servers = u8::try_from(number()?).unwrap_or(9).clamp(3, 9),
            "--writers" => shape.writers = number()?.max(1) as usize,
            "--bytes" => shape.bytes = number()? as usize,
            "--settings" => settings = value,
            _ => {
                return Err(format!(
                    "{argument}: allowed are --product, --fault, --runs, --servers, --writers, --bytes, --settings LINES"
                ));
            }
        }
    }
    Ok(Options { product: Product::named(&product)?, fault, runs, servers, shape, settings })
}

fn measure(options: &Options) -> Outcome<()> {
    let mut plan = Plan::new(options.product.clone(), options.servers);
    plan.settings.clone_from(&options.settings);
    plan.between = match options.fault {
        Fault::Cable => Between::Cables,
        Fault::Relay | Fault::IdleDeaf | Fault::IdleMute => Between::Relay(1),
        Fault::Kill | Fault::Freeze | Fault::Stop | Fault::Idle => Between::Nothing,
    };
    let mut site = Site::start(plan)?;
    println!("{}; {:?}; {} servers, {:?}", options.product.version(), options.fault, options.servers, options.shape);
    let mut random = Random::new(options.runs.into());
    warm_up(&site, options);
    let mut gaps = Vec::new();
    for run in 1..=options.runs {
        site.wait_for_all()?;
        let (gap, note) = match options.fault {
            fault if fault.is_idle() => (idle(&mut site, fault, &mut random)?, String::new()),
            _ => under_load(&mut site, options, &mut random)?,
        };
        println!("run {run}: {} ms{note}", gap.as_millis());
        gaps.push(gap);
    }
    if let Some((median, worst)) = median_and_worst(&gaps) {
        let (name, fault) = (options.product.name(), options.fault);
        println!(
            "| {name} | {fault:?} | median {} ms | worst {} ms of {} |",
            median.as_millis(),
            worst.as_millis(),
            options.runs
        );
    }
    Ok(())
}

/// Warms up the JVM and creates the keys.
fn warm_up(site: &Site, options: &Options) {
    let writers = Writers::start(&options.product, &site.clients(), &options.shape);
    let is_java = matches!(options.product, Product::ZooKeeper(_));
    std::thread::sleep(Duration::from_secs(if is_java { 15 } else { 2 }));
    drop(writers.finish());
}

fn under_load(site: &mut Site, options: &Options, random: &mut Random) -> Outcome<(Duration, String)> {
    let leader = site.wait_for_leader()?;
    let writers = Writers::start(&options.product, &site.clients(), &options.shape);
    std::thread::sleep(BEFORE + BEFORE.mul_f64(random.below(1000) as f64 / 1000.0));
    let from = writers.now();
    strike(site, options.fault, leader)?;
    site.wait_for_other_leader(leader)?;
    if options.fault == Fault::Stop {
        site.server_mut(leader).wait_for_end(PATIENCE)?;
        site.server_mut(leader).start()?;
        site.wait_for_all()?;
    }
    std::thread::sleep(AFTER);
    let acknowledged = writers.finish();
    heal(site, options.fault, leader)?;
    let gap = longest(&acknowledged, from).ok_or("nothing was acknowledged afterwards")?;
    let before = acknowledged.iter().filter(|at| **at <= from).count();
    let usual: Vec<Duration> = acknowledged.iter().copied().filter(|at| *at <= from).collect();
    let usual = longest(&usual, BEFORE / 4).unwrap_or_default();
    Ok((
        gap,
        format!(
            " ({:.0} writes/s before, longest gap there {} ms)",
            before as f64 / from.as_secs_f64(),
            usual.as_millis()
        ),
    ))
}

fn strike(site: &mut Site, fault: Fault, leader: u8) -> Outcome<()> {
    let mut others = (1..=site.plan.servers).filter(|server| *server != leader);
    match fault {
        Fault::Kill => site.server_mut(leader).kill(),
        // The client's write need not wait for the end of the process.
        Fault::Idle => site.server_mut(leader).send_kill(),
        Fault::Freeze => site.server_mut(leader).freeze(),
        Fault::Stop => site.server_mut(leader).send_terminate(),
        Fault::Cable | Fault::Relay => site.pull_cable(leader)?,
        Fault::IdleDeaf => others.try_for_each(|other| site.cut_way(other, leader))?,
        Fault::IdleMute => others.try_for_each(|other| site.cut_way(leader, other))?,
    }
    Ok(())
}

fn heal(site: &mut Site, fault: Fault, leader: u8) -> Outcome<()> {
    match fault {
        Fault::Kill => site.server_mut(leader).start()?,
        Fault::Idle => {
            site.server_mut(leader).reap();
            site.server_mut(leader).start()?;
        }
        Fault::Freeze => site.server_mut(leader).thaw(),
        Fault::Stop => {}
        Fault::Cable | Fault::Relay => site.plug_in(leader)?,
        Fault::IdleDeaf | Fault::IdleMute => site.relay()?.heal(),
    }
    // A former leader reports that it leads until it notices that it does not.
    std::thread::sleep(AFTER);
    site.wait_for_all()
}

fn idle(site: &mut Site, fault: Fault, random: &mut Random) -> Outcome<Duration> {
    let leader = site.wait_for_leader()?;
    let follower = site.followers()?.into_iter().next().ok_or("no follower")?;
    let idler = Idler::connect(&site.plan.product, site.server(follower).client(), PATIENCE)?;
    std::thread::sleep(QUIET + BEFORE.mul_f64(random.below(1000) as f64 / 1000.0));
    strike(site, fault, leader)?;
    let took = idler.write(PATIENCE)?;
    heal(site, fault, leader)?;
    Ok(took)
}
