//! `zoolet bench`: a load generator for any server that speaks ZooKeeper's protocol.
//!
//! It runs on one thread, with one task per connection. A connection batches all its pending
//! requests into one write call, and reads all available answers in one call. A request is a copy
//! of bytes that were encoded once. All of this leaves the processor of a small machine to the
//! server.

mod course;
mod fan_out;
mod ground;
mod histogram;
mod keys;
mod link;
mod load;
mod lock;
mod measured;
mod options;
mod pace;
mod progress;
mod report;
mod requests;

pub(super) use options::{Distribution, Op, Options, Until};

use super::blocking::look_up;
use super::{Exit, complain, open_files, say};
use course::{Course, Created};
use fan_out::Round;
use ground::Ground;
use link::Link;
use progress::Progress;
use report::Report;
use rustix::time::{ClockId, clock_gettime};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Maximum time for looking up the addresses of a name.
const LOOK_UP_MAX: Duration = Duration::from_secs(10);

pub(super) fn bench(options: Options) -> Result<(), Exit> {
    open_files::raise_to_maximum();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Exit::failed)?;
    let servers = runtime.block_on(resolve(&options.servers))?;
    LocalSet::new().block_on(&runtime, run(options, servers))
}

/// Resolves each name to all of its addresses. A connection tries them in turn.
async fn resolve(servers: &[String]) -> Result<Rc<[SocketAddr]>, Exit> {
    let mut resolved = Vec::new();
    for server in servers {
        let addresses = look_up(server, LOOK_UP_MAX).await;
        resolved.extend(addresses.map_err(|error| Exit::failed(format!("{server}: {error}")))?);
    }
    Ok(resolved.into())
}

/// Prepares the znodes, measures, reports, and deletes the znodes.
async fn run(options: Options, servers: Rc<[SocketAddr]>) -> Result<(), Exit> {
    let mut interrupts = signal(SignalKind::interrupt()).map_err(Exit::failed)?;
    let mut progress = Progress::new(options.progress);
    let mut ground = Ground::new(&options);
    let created = Rc::new(Created::default());
    let prepared = select! {
        prepared = prepare(&mut ground, &options, &servers, &mut progress) => prepared,
        _ = interrupts.recv() => Err("interrupted before the measurement".to_owned()),
    };
    let outcome = match prepared {
        Ok(prepared) => {
            let course = Course::new(options.clone(), servers.clone(), created.clone());
            measure(&Rc::new(course), prepared, &mut interrupts, &progress).await
        }
        Err(line) => Err(line),
    };
    if !options.keep {
        let cleared = select! {
            cleared = clear(&ground, &options, &servers, &created, &mut progress) => cleared,
            _ = interrupts.recv() => Err("interrupted".to_owned()),
        };
        // If the run failed, the cleanup fails for the same reason, which needs no second line.
        if let (Err(line), Ok(())) = (cleared, &outcome) {
            complain(&format!("znodes are left under {}: {line}", options.path));
        }
    }
    outcome.map_err(Exit::failed)
}

/// Prepares the znodes and returns the time that it took.
async fn prepare(
    ground: &mut Ground,
    options: &Options,
    servers: &Rc<[SocketAddr]>,
    progress: &mut Progress,
) -> Result<Duration, String> {
    let mut link = Link::open(servers, 0, options.session_timeout).await?;
    let began = Instant::now();
    ground.prepare(&mut link, options, progress).await?;
    link.close().await;
    Ok(began.elapsed())
}

async fn clear(
    ground: &Ground,
    options: &Options,
    servers: &Rc<[SocketAddr]>,
    created: &Created,
    progress: &mut Progress,
) -> Result<(), String> {
    let mut link = Link::open(servers, 0, options.session_timeout).await?;
    ground.clear(&mut link, created, progress).await?;
    link.close().await;
    Ok(())
}

/// Runs every connection to the end of the course, and prints the report.
async fn measure(
    course: &Rc<Course>,
    prepared: Duration,
    interrupts: &mut Signal,
    progress: &Progress,
) -> Result<(), String> {
    let options = &course.options;
    let mut workers = start(course).await?;
    let end = attend(course, &mut workers, interrupts, progress).await;
    let is_clean = end.failure.is_none() && !end.interrupted;
    let finished = course.finished(is_clean, course.measured.borrow().last_answer);
    let unsent = course.unsent(finished, end.interrupted);
    let mut measured = course.measured.borrow_mut();
    measured.unsent = unsent;
    measured.end(finished);
    let report = Report {
        options,
        measured: &measured,
        measured_ns: finished.saturating_sub(course.begins()),
        prepared,
        cpu: end.cpu,
        interrupted: end.interrupted,
        failure: end.failure.as_deref(),
    };
    let said = say(&if options.json { report.json() } else { report.text() });
    match end.failure {
        Some(failure) => Err(failure),
        None if measured.acknowledged() == 0 && !end.interrupted => Err("no request was acknowledged".to_owned()),
        None => said.map_err(|exit| exit.line),
    }
}

type Workers = JoinSet<Result<(), String>>;

/// Opens all connections before the first begins, so that the clock covers requests alone.
async fn start(course: &Rc<Course>) -> Result<Workers, String> {
    let options = &course.options;
    let connections = options.connections + usize::from(options.op == Op::Watch);
    let mut links = Vec::with_capacity(connections);
    for number in 0..connections {
        links.push(Link::open(&course.servers, number, options.session_timeout).await?);
    }
    course.start();
    let mut workers = JoinSet::new();
    let (rounds, seen_rounds) = tokio::sync::watch::channel(0);
    let round = Rc::new(Round::new(options.connections));
    let mut rounds = Some(rounds);
    for (number, link) in links.into_iter().enumerate() {
        let course = course.clone();
        match options.op {
            Op::Watch => match rounds.take() {
                Some(rounds) => workers.spawn_local(fan_out::write(course, link, round.clone(), rounds)),
                None => workers.spawn_local(fan_out::watch(course, link, round.clone(), seen_rounds.clone())),
            },
            Op::Lock => workers.spawn_local(lock::contend(course, link, number)),
            Op::Set | Op::Get | Op::Exists | Op::Children | Op::Mix | Op::Create | Op::CreateDelete => {
                workers.spawn_local(load::load(course, link, number))
            }
        };
    }
    Ok(workers)
}

/// How a run ended.
struct End {
    /// CPU time of this process since the end of the warm-up.
    cpu: Duration,
    interrupted: bool,
    failure: Option<String>,
}

/// Waits for the workers while it shows progress.
///
/// Stops them at Ctrl-C or when one fails. After the end of the run it waits for outstanding
/// answers for one session timeout, then abandons the workers.
async fn attend(course: &Course, workers: &mut Workers, interrupts: &mut Signal, progress: &Progress) -> End {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warm = pin!(sleep(course.options.warmup));
    let mut cpu_before = cpu();
    let mut is_warm = false;
    let mut over_since = None;
    let mut answered = 0;
    let mut end = End { cpu: Duration::ZERO, interrupted: false, failure: None };
    loop {
        select! {
            joined = workers.join_next() => match joined {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(line))) => {
                    end.failure.get_or_insert(line);
                    course.stop();
                }
                Some(Err(broken)) => {
                    end.failure.get_or_insert(broken.to_string());
                    course.stop();
                }
            },
            _ = interrupts.recv() => {
                course.stop();
                if std::mem::replace(&mut end.interrupted, true) {
                    break;
                }
            }
            () = &mut warm, if !is_warm => {
                is_warm = true;
                cpu_before = cpu();
            }
            _ = second.tick() => {
                answered = show(course, progress, answered);
                let now = Instant::now();
                if course.is_over(course.now())
                    && now.duration_since(*over_since.get_or_insert(now)) > course.options.session_timeout
                {
                    break;
                }
            }
        }
    }
    workers.abort_all();
    end.cpu = cpu().saturating_sub(cpu_before);
    end
}

/// Shows the progress, and returns the number of answers so far.
fn show(course: &Course, progress: &Progress, before: u64) -> u64 {
    let measured = course.measured.borrow();
    let (acknowledged, errors) = (measured.acknowledged(), measured.refused() + measured.lost);
    let now = course.now();
    if course.counts(now) {
        let seconds = course.measuring().div_ceil(1_000_000_000);
        progress.say(&format!("{seconds:3} s  {}/s  {errors} errors in total", acknowledged + errors - before));
    } else {
        progress.say("warming up");
    }
    acknowledged + errors
}

/// Returns the CPU time that this process has used.
fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}
