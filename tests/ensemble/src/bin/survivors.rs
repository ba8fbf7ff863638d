//! `survivors FAULT RUNS --clients DIRECTORY [--report] [--product zookeeper] [--settings LINES]`:
//! measures what clients of the surviving servers notice when three servers lose their leader.
//!
//! DIRECTORY holds one program for each client library; `tests/foreign/survivors/run` makes it. Each
//! program runs once for each server, and knows only that server. FAULT is one of:
//! - `kill`: kill -9 of the leader.
//! - `freeze`: SIGSTOP.
//! - `stop`: SIGTERM, the end of the process, and a new start.
//! - `cable`: the relay drops everything between the leader and the other servers.
//! - `deaf`: the relay drops everything that the other servers send to the leader.
//! - `mute`: the relay drops everything that the leader sends to the other servers.
//! - `alone`: the relay drops everything that the leader sends to one follower; in every second run
//!   also the other direction. No server is lost, so the clients of all three are judged.
//!
//! A run passes if no judged client notices anything but a longer wait for an answer. `--report`
//! fails only for writes that took effect twice and for stale answers.
#![allow(clippy::print_stdout, reason = "a program that reports to people")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use zoolet_ensemble_tests::gap::median_and_worst;
use zoolet_ensemble_tests::notices::{Notices, Times, judge};
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::programs::{Line, Program};
use zoolet_ensemble_tests::relay::{Faults, Pair};
use zoolet_ensemble_tests::site::{Between, PATIENCE, Plan, Role, Site};
use zoolet_ensemble_tests::visitors::{Handshakes, Journey, Newcomers, Roamer};
use zoolet_ensemble_tests::{Outcome, said};

/// Time of load before a fault.
const BEFORE: Duration = Duration::from_millis(2000);
/// Time for which the surviving servers must serve without a break. A server serves on until it
/// notices the fault.
const STEADY: Duration = Duration::from_millis(1000);
/// Time of load after that.
const AFTER: Duration = Duration::from_millis(500);
/// Bound on the wait for the surviving servers; a fault may outlast it. A run of [`Fault::Alone`]
/// always waits so long, because a follower that loses only the leader notices it after seconds.
/// The bound is below the session timeout of the clients, so no session expires in a long run.
const RECOVERY: Duration = Duration::from_secs(7);
/// Time in which a client must finish its last call.
const LAST_CALL: Duration = Duration::from_secs(2);
/// Lines of the configuration: many newcomers may wait at a server at once, all from one address.
const SETTINGS: &str = "[limits]\nconnections_per_address_max = 0";
/// Time after the end of a fault, because a former leader reports for a while that it leads.
const REST: Duration = Duration::from_millis(1000);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill,
    Freeze,
    Stop,
    Cable,
    Deaf,
    Mute,
    Alone,
}

const FAULTS: [(&str, Fault); 7] = [
    ("kill", Fault::Kill),
    ("freeze", Fault::Freeze),
    ("stop", Fault::Stop),
    ("cable", Fault::Cable),
    ("deaf", Fault::Deaf),
    ("mute", Fault::Mute),
    ("alone", Fault::Alone),
];

impl Fault {
    fn needs_relay(self) -> bool {
        matches!(self, Self::Cable | Self::Deaf | Self::Mute | Self::Alone)
    }
}

struct Options {
    fault: Fault,
    runs: u32,
    clients: PathBuf,
    is_report: bool,
    product: Product,
    settings: String,
}

/// Everything that was noticed in one run.
#[derive(Default)]
struct Noticed {
    /// By the clients of the surviving servers, by library.
    clients: Vec<(String, Notices)>,
    newcomers: Handshakes,
    roamer: Journey,
    /// Time until the surviving servers served again; `None` if one did not in time.
    served_after: Option<Duration>,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(what) => {
            println!("{what}");
            return ExitCode::from(2);
        }
    };
    match measure(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            println!("{what}\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Outcome<Options> {
    let usage = "survivors kill|freeze|stop|cable|deaf|mute|alone RUNS --clients DIRECTORY [--report] [--product NAME] [--settings LINES]";
    let (mut words, mut clients, mut is_report) = (Vec::new(), None, false);
    let (mut product, mut settings) = ("zoolet".to_owned(), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--clients" => clients = Some(PathBuf::from(value()?)),
            "--product" => product = value()?,
            "--settings" => settings = Some(value()?),
            "--report" => is_report = true,
            _ => words.push(argument),
        }
    }
    let [fault, runs] = &words[..] else { return Err(usage.to_owned()) };
    let fault = FAULTS.iter().find(|(name, _)| name == fault).map(|(_, fault)| *fault).ok_or(usage)?;
    let runs = runs.parse::<u32>().map_err(|_| usage)?.max(1);
    let product = Product::named(&product)?;
    if fault.needs_relay() && !product.is_zoolet() {
        return Err(format!("{fault:?}: the relay carries only zoolet's links"));
    }
    let usual = if product.is_zoolet() { SETTINGS } else { "" };
    let settings = settings.unwrap_or_else(|| usual.to_owned());
    Ok(Options { fault, runs, clients: clients.ok_or(usage)?, is_report, product, settings })
}

/// Returns whether all runs passed.
fn measure(options: &Options) -> Outcome<bool> {
    let mut plan = Plan::new(options.product.clone(), 3);
    plan.settings.clone_from(&options.settings);
    plan.between = if options.fault.needs_relay() { Between::Relay(1) } else { Between::Nothing };
    let mut site = Site::start(plan)?;
    println!("{}; {:?}; {} runs", options.product.version(), options.fault, options.runs);
    let mut programs = start_programs(&site, options)?;
    let mut all = Vec::new();
    for run in 1..=options.runs {
        let noticed = one_run(&mut site, &mut programs, options.fault, run)?;
        report_run(run, &noticed);
        all.push(noticed);
    }
    report_all(options.fault, &all);
    let passes = |noticed: &&Noticed| if options.is_report { noticed.is_right() } else { noticed.is_empty() };
    let passed = all.iter().filter(passes).count();
    println!("{passed} passed, {} failed", all.len() - passed);
    Ok(passed == all.len())
}

fn start_programs(site: &Site, options: &Options) -> Outcome<Vec<Program>> {
    let directory = &options.clients;
    let mut libraries = Vec::new();
    for entry in directory.read_dir().map_err(said(directory.display()))? {
        libraries.push(entry.map_err(said(directory.display()))?.file_name().to_string_lossy().into_owned());
    }
    libraries.sort_unstable();
    let mut programs = Vec::new();
    for library in &libraries {
        for server in site.ids() {
            programs.push(Program::start(directory, library, server, site.server(server).client())?);
        }
    }
    Ok(programs)
}

fn one_run(site: &mut Site, programs: &mut [Program], fault: Fault, run: u32) -> Outcome<Noticed> {
    let leader = site.wait_for_leader()?;
    let mut followers = site.followers()?;
    // Another follower in every second pair of runs.
    followers.rotate_left(usize::from(run % 4 > 1));
    let judged = if fault == Fault::Alone { site.ids() } else { followers.clone() };
    let sessions = begin(programs, run)?;
    let begin = Instant::now();
    let roamer = Roamer::start(addresses(site, &[&followers[..], &[leader]].concat()), format!("/roaming-{run}"));
    std::thread::sleep(BEFORE);
    let struck = Instant::now();
    let newcomers = Newcomers::start(&addresses(site, &judged));
    strike(site, fault, leader, followers[0], run)?;
    let steady = if fault == Fault::Alone { RECOVERY } else { STEADY };
    let served_after = wait_for_recovery(site, &judged, steady, struck);
    std::thread::sleep(AFTER);
    for program in programs.iter_mut() {
        program.command(&format!("end {run}"))?;
    }
    let times = Times { begin, fault: struck, end: Instant::now() };
    let mut noticed = Noticed { served_after, ..Noticed::default() };
    let until = times.end + LAST_CALL;
    for (program, session) in programs.iter().zip(sessions).filter(|(program, _)| judged.contains(&program.server)) {
        let is_end = |line: &Line| matches!(line, Line::Ended { run: ended, .. } if *ended == run);
        let notices = judge(session, times, &program.lines_until(until, is_end)?);
        noticed.clients.push((program.library.clone(), notices));
    }
    noticed.roamer = roamer.finish(struck);
    noticed.newcomers = newcomers.finish();
    heal(site, fault, leader)?;
    Ok(noticed)
}

fn addresses(site: &Site, servers: &[u8]) -> Vec<SocketAddr> {
    servers.iter().map(|server| site.server(*server).client()).collect()
}

/// Begins the load of all clients, and returns their sessions.
fn begin(programs: &mut [Program], run: u32) -> Outcome<Vec<u64>> {
    for program in programs.iter_mut() {
        program.command(&format!("begin {run}"))?;
    }
    programs.iter().map(|program| program.wait_for_begin(run, PATIENCE)).collect()
}

fn strike(site: &mut Site, fault: Fault, leader: u8, follower: u8, run: u32) -> Outcome<()> {
    let others: Vec<u8> = site.ids().into_iter().filter(|id| *id != leader).collect();
    let cut = |pair: Pair| site.relay().map(|relay| relay.set(pair, Faults::CUT));
    match fault {
        Fault::Kill => site.server_mut(leader).kill(),
        Fault::Freeze => site.server_mut(leader).freeze(),
        Fault::Stop => {
            site.server_mut(leader).send_terminate();
            site.server_mut(leader).wait_for_end(PATIENCE)?;
        }
        Fault::Cable => site.pull_cable(leader)?,
        Fault::Deaf => others.iter().try_for_each(|other| cut(Pair::new(*other, leader)))?,
        Fault::Mute => others.iter().try_for_each(|other| cut(Pair::new(leader, *other)))?,
        Fault::Alone => {
            cut(Pair::new(leader, follower))?;
            if run.is_multiple_of(2) {
                cut(Pair::new(follower, leader))?;
            }
        }
    }
    Ok(())
}

/// Waits until each of these servers serves and one of them leads, without a break for `steady`.
///
/// Returns the time from `since` to the end of the last break.
fn wait_for_recovery(site: &Site, judged: &[u8], steady: Duration, since: Instant) -> Option<Duration> {
    let mut good_since = None;
    while since.elapsed() < RECOVERY {
        let roles: Option<Vec<Role>> =
            judged.iter().map(|id| site.server(*id).status().map(|status| status.role)).collect();
        let is_good = roles.is_some_and(|roles| roles.contains(&Role::Leader));
        good_since = if is_good { good_since.or(Some(since.elapsed())) } else { None };
        if good_since.is_some_and(|good_since| since.elapsed() > good_since + steady) {
            return good_since;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    good_since
}

fn heal(site: &mut Site, fault: Fault, leader: u8) -> Outcome<()> {
    match fault {
        Fault::Kill | Fault::Stop => site.server_mut(leader).start()?,
        Fault::Freeze => site.server_mut(leader).thaw(),
        Fault::Cable | Fault::Deaf | Fault::Mute | Fault::Alone => site.relay()?.heal(),
    }
    std::thread::sleep(REST);
    site.wait_for_all()
}

impl Noticed {
    fn sum(&self) -> Notices {
        let mut sum = Notices::default();
        self.clients.iter().for_each(|(_, notices)| sum.add(notices));
        sum
    }

    /// Whether no client noticed anything but a wait.
    fn is_empty(&self) -> bool {
        let Handshakes { turned_away, unanswered, .. } = self.newcomers;
        self.is_right()
            && self.sum().is_empty()
            && turned_away + unanswered + self.roamer.failed + self.roamer.losses == 0
    }

    /// Whether no write took effect twice and none was forgotten.
    fn is_right(&self) -> bool {
        let sum = self.sum();
        sum.twice + sum.stale + self.roamer.twice == 0
    }
}

fn report_run(run: u32, noticed: &Noticed) {
    let (sum, newcomers, roamer) = (noticed.sum(), noticed.newcomers, noticed.roamer);
    let served = noticed.served_after.map_or_else(
        || "a judged server does not serve in time".to_owned(),
        |time| format!("all judged servers serve after {} ms", time.as_millis()),
    );
    println!(
        "run {run}: {served}; {} calls, {} failed, {} connections lost, {} sessions lost, {} watches wrong, \
         {} writes twice, {} stale; longest gap {} ms ({} ms before); newcomers {} of {} turned away, {} unanswered, longest {} ms; \
         roaming writer {} writes, {} failed, {} connections lost, gap {} ms",
        sum.calls,
        sum.failures(),
        sum.losses,
        sum.sessions_lost,
        sum.watches_wrong,
        sum.twice + roamer.twice,
        sum.stale,
        sum.gap.as_millis(),
        sum.gap_before.as_millis(),
        newcomers.turned_away,
        newcomers.all,
        newcomers.unanswered,
        newcomers.longest.as_millis(),
        roamer.writes,
        roamer.failed,
        roamer.losses,
        roamer.gap.as_millis(),
    );
    for (what, count) in &sum.failed {
        println!("    {count} times: {what}");
    }
}

/// Prints a row for each library and one for all, and what newcomers and the roaming writer noticed.
fn report_all(fault: Fault, all: &[Noticed]) {
    println!(
        "| fault | clients | calls | failed | connections lost | sessions lost | watches wrong | writes twice | stale | gap, median | gap, worst |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let clients: Vec<&(String, Notices)> = all.iter().flat_map(|noticed| &noticed.clients).collect();
    let mut libraries: Vec<&str> = clients.iter().map(|(library, _)| library.as_str()).collect();
    libraries.sort_unstable();
    libraries.dedup();
    for library in libraries {
        let own: Vec<&Notices> = clients.iter().filter(|(name, _)| name == library).map(|(_, own)| own).collect();
        report_clients(fault, library, &own);
    }
    report_clients(fault, "all", &clients.iter().map(|(_, own)| own).collect::<Vec<_>>());
    let (mut newcomers, mut journeys) = (Handshakes::default(), Vec::new());
    for noticed in all {
        newcomers.add(&noticed.newcomers);
        journeys.push(noticed.roamer);
    }
    let Handshakes { all, turned_away, unanswered, longest } = newcomers;
    println!(
        "newcomers: {turned_away} of {all} turned away, {unanswered} unanswered, longest wait {} ms",
        longest.as_millis()
    );
    let gaps: Vec<Duration> = journeys.iter().map(|journey| journey.gap).collect();
    let (median, worst) = median_and_worst(&gaps).unwrap_or_default();
    println!(
        "roaming writer: {} writes, {} failed, {} connections lost, {} writes twice, gap median {} ms, worst {} ms",
        journeys.iter().map(|journey| journey.writes).sum::<u64>(),
        journeys.iter().map(|journey| journey.failed).sum::<u64>(),
        journeys.iter().map(|journey| journey.losses).sum::<u64>(),
        journeys.iter().map(|journey| journey.twice).sum::<u64>(),
        median.as_millis(),
        worst.as_millis()
    );
}

fn report_clients(fault: Fault, name: &str, clients: &[&Notices]) {
    let mut sum = Notices::default();
    clients.iter().for_each(|notices| sum.add(notices));
    let gaps: Vec<Duration> = clients.iter().map(|notices| notices.gap).collect();
    let (median, worst) = median_and_worst(&gaps).unwrap_or_default();
    println!(
        "| {fault:?} | {name} | {} | {} | {} | {} | {} | {} | {} | {} ms | {} ms |",
        sum.calls,
        sum.failures(),
        sum.losses,
        sum.sessions_lost,
        sum.watches_wrong,
        sum.twice,
        sum.stale,
        median.as_millis(),
        worst.as_millis()
    );
}
