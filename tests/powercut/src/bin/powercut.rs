//! `powercut --zoolet BINARY [--cuts N] [--seed S] [--lying] [--keep DIR]`: cuts the power N times,
//! and checks after each cut.
//!
//! A history is one disk over many cuts. When a check fails, its seed is printed and its images are
//! kept. The last line is `N passed, M failed`.
#![allow(clippy::print_stdout, reason = "a program that reports to people")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zoolet_powercut::check::Violation;
use zoolet_powercut::digest;
use zoolet_powercut::load::LoadShape;
use zoolet_powercut::mount::{Kind, Mounted, Seen, Trigger};
use zoolet_powercut::random::Random;
use zoolet_powercut::rounds::{PATIENCE, Rounds};
use zoolet_powercut::server_process::Server;
use zoolet_powercut::volume::{Cut, Rules, Survival, Torn, Volume};

/// Cuts per disk.
const CUTS_PER_HISTORY: u64 = 20;
const WRITERS: u64 = 4;

struct Options {
    zoolet: PathBuf,
    cuts: u64,
    seed: u64,
    lying: bool,
    keep: PathBuf,
}

fn main() -> ExitCode {
    match options() {
        Ok(options) if options.lying => lying(&options),
        Ok(options) => cuts(&options),
        Err(what) => {
            println!("{what}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options, String> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let keep = std::env::temp_dir().join("zoolet-powercut-kept");
    let mut options = Options { zoolet: PathBuf::new(), cuts: 100, seed, lying: false, keep };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match argument.as_str() {
            "--zoolet" => options.zoolet = value()?.into(),
            "--cuts" => options.cuts = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--keep" => options.keep = value()?.into(),
            "--lying" => options.lying = true,
            _ => return Err(format!("{argument}: allowed are --zoolet, --cuts, --seed, --keep, --lying")),
        }
    }
    if options.zoolet.is_file() { Ok(options) } else { Err("--zoolet must name the binary".to_owned()) }
}

/// Runs histories until the number of cuts is reached.
fn cuts(options: &Options) -> ExitCode {
    let began = Instant::now();
    let (mut passed, mut failed, mut number) = (0, 0, 0);
    let mut sums = Sums::default();
    while passed + failed < options.cuts {
        let seed = options.seed + number;
        number += 1;
        let cuts = CUTS_PER_HISTORY.min(options.cuts - passed - failed);
        let mut history = match History::new(options, seed) {
            Ok(history) => history,
            Err(error) => {
                println!("no history: {error}");
                return ExitCode::from(2);
            }
        };
        let outcome = history.run(cuts);
        sums.add(&history);
        passed += history.cuts;
        println!("seed {seed}: {}", history.line());
        if let Err(violation) = outcome {
            failed += 1;
            println!("seed {seed}: FAILED at cut {}: {violation}", history.cuts + 1);
            history.keep(&options.keep.join(seed.to_string()), &violation);
        }
    }
    println!("{}; {:.1} s", sums.line(), began.elapsed().as_secs_f32());
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Verifies that the checks detect a disk whose syncs do nothing.
fn lying(options: &Options) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for number in 0..4 {
        let seed = options.seed + number;
        let outcome = History::new(options, seed).map_err(|error| error.to_string()).map(|mut history| {
            history.lies_from = Some(1 + number % 2);
            // Not every cut loses something: the power may fail while nothing is in flight.
            history.run(CUTS_PER_HISTORY)
        });
        match outcome {
            // The first missing thing that the check meets may be a session.
            Ok(Err(
                violation @ (Violation::Lost { .. }
                | Violation::NoStart(_)
                | Violation::Shown(_)
                | Violation::Session(_)),
            )) => {
                passed += 1;
                println!("seed {seed}: found out: {violation}");
            }
            other => {
                failed += 1;
                println!("seed {seed}: a disk that lies was not found out: {other:?}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Runs `work`, which must not block after a cut: the cut kills the server.
fn until_cut<T>(mounted: &Mounted, server: &mut Server, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                if mounted.wait_for_cut(Duration::from_millis(2)) {
                    server.kill();
                    // A thread that waits for the disk keeps the sockets open.
                    mounted.release();
                    return;
                }
            }
        });
        let outcome = work();
        done.store(true, Relaxed);
        outcome
    })
}

#[derive(Default)]
struct Sums {
    sent: u64,
    acknowledged: u64,
    survivors: u64,
    changes: u64,
    sectors: u64,
    sectors_lost: u64,
    names_lost: u64,
    starts_cut: u64,
    kills: u64,
    log_syncs: u64,
    base_syncs: u64,
    names: u64,
}

impl Sums {
    fn saw(&mut self, seen: Seen) {
        self.log_syncs += seen.log_syncs;
        self.base_syncs += seen.base_syncs;
        self.names += seen.names;
    }

    fn line(&self) -> String {
        format!(
            "{} writes acknowledged of {} sent, {} more survived; the server synced its log {} times, its base {} times, \
             changed names {} times; at the cuts {} changes were un-synced, of them {} of {} sectors and {} names lost; {} \
             cuts during a start, {} kills without a cut",
            self.acknowledged,
            self.sent,
            self.survivors,
            self.log_syncs,
            self.base_syncs,
            self.names,
            self.changes,
            self.sectors_lost,
            self.sectors,
            self.names_lost,
            self.starts_cut,
            self.kills
        )
    }

    fn add(&mut self, history: &History) {
        self.sent += history.rounds.sent;
        self.acknowledged += history.rounds.acknowledged;
        self.survivors += history.rounds.survivors;
        self.changes += history.sums.changes;
        self.sectors += history.sums.sectors;
        self.sectors_lost += history.sums.sectors_lost;
        self.names_lost += history.sums.names_lost;
        self.starts_cut += history.sums.starts_cut;
        self.kills += history.sums.kills;
        self.log_syncs += history.sums.log_syncs;
        self.base_syncs += history.sums.base_syncs;
        self.names += history.sums.names;
    }
}

/// One disk, over many cuts.
struct History {
    zoolet: PathBuf,
    directory: PathBuf,
    random: Random,
    rules: Rules,
    limits: String,
    volume: Volume,
    /// The volume at the last cut, with its pending changes, and the cut.
    before: Option<(Volume, Cut)>,
    rounds: Rounds,
    prepared: bool,
    /// Syncs do nothing from the load of this cut on.
    lies_from: Option<u64>,
    cuts: u64,
    sums: Sums,
    began: Instant,
}

impl History {
    fn new(options: &Options, seed: u64) -> std::io::Result<Self> {
        let mut random = Random::new(seed);
        let directory = std::env::temp_dir().join(format!("zoolet-powercut-{}-{seed}", std::process::id()));
        std::fs::create_dir_all(directory.join("disk"))?;
        let rules = *random.pick(&[Rules::Journal, Rules::Bare]);
        let shape = *random.pick(&[
            LoadShape { window: 64, znodes: 150, big_per_cent: 0, bytes_max: 8000 },
            LoadShape { window: 32, znodes: 120, big_per_cent: 4, bytes_max: 60_000 },
            LoadShape { window: 16, znodes: 600, big_per_cent: 1, bytes_max: 30_000 },
        ]);
        let segments = random.pick(&[6, 8, 12]);
        let memtable = random.pick(&[65_536, 262_144]);
        let limits = format!(
            "[limits]\nframe_bytes_max = 100000\nlog_segment_bytes = 262144\nlog_segments = {segments}\n\
             memtable_bytes = {memtable}\nrecord_cache_bytes = 65536\nbase_cache_bytes = 262144\n\
             [settings]\nsession_timeout_max_ms = 3600000\n"
        );
        let rounds = Rounds::new(WRITERS, shape, &mut random);
        Ok(Self {
            zoolet: options.zoolet.clone(),
            directory,
            random,
            rules,
            limits,
            volume: Volume::new(rules),
            before: None,
            rounds,
            prepared: false,
            lies_from: None,
            cuts: 0,
            sums: Sums::default(),
            began: Instant::now(),
        })
    }

    fn line(&self) -> String {
        format!(
            "{:?}, {} cuts, {} writes acknowledged, {} bytes on the disk, {:.1} s",
            self.rules,
            self.cuts,
            self.rounds.acknowledged,
            self.volume.bytes(),
            self.began.elapsed().as_secs_f32()
        )
    }

    fn run(&mut self, cuts: u64) -> Result<(), Violation> {
        while self.cuts < cuts {
            self.cuts += u64::from(self.life()?);
        }
        // The server must also serve the data that the last cut left.
        self.life_without_cut()
    }

    /// One start, check, load and end; returns whether the end was a cut.
    fn life(&mut self) -> Result<bool, Violation> {
        // Sometimes the power fails again while the server starts.
        let early = self.random.chance(15).then(|| self.trigger(30));
        let (mounted, mut server) = self.start(early)?;
        let outcome = self.serve(&mounted, &mut server);
        mounted.cut_now();
        server.kill();
        mounted.release();
        server.wait();
        self.sums.saw(mounted.seen());
        let outcome = match outcome {
            Ok(Some(working)) => self.rounds.gather(working),
            Ok(None) => Ok(()),
            Err(violation) => Err(violation),
        };
        let before = mounted.unmount().map_err(|error| Violation::Answer(format!("unmount: {error}")))?;
        // On a failure `self.volume` must stay the disk that this server was started on.
        outcome?;
        if self.lies_from.is_none() && self.random.chance(15) {
            // Only the process dies: its pending changes stay visible, and a later cut may lose
            // them.
            self.volume = before;
            self.sums.kills += 1;
            return Ok(false);
        }
        let mut cut = Cut::any(&mut self.random);
        if self.lies_from.is_some() {
            cut = Cut { survival: Survival::Nothing, torn: Torn::Old, sector: 4096 };
        }
        let (after, report) = before.cut(cut, &mut self.random);
        self.sums.changes += report.changes;
        self.sums.sectors += report.sectors;
        self.sums.sectors_lost += report.sectors_lost;
        self.sums.names_lost += report.names_lost;
        self.before = Some((before, cut));
        self.volume = after;
        Ok(true)
    }

    fn life_without_cut(&mut self) -> Result<(), Violation> {
        let (mounted, mut server) = self.start(None)?;
        let outcome = match self.address(&mounted, &mut server) {
            Ok(Some(address)) => self.rounds.check(address).map(drop),
            Ok(None) => Ok(()),
            Err(violation) => Err(violation),
        };
        server.kill();
        server.wait();
        mounted.unmount().map_err(|error| Violation::Answer(format!("unmount: {error}")))?;
        outcome
    }

    fn start(&mut self, trigger: Option<Trigger>) -> Result<(Mounted, Server), Violation> {
        let strategy = self.random.pick(&["recycle", "append"]);
        let config = self.directory.join("zoolet.toml");
        let text = format!("log_strategy = \"{strategy}\"\nfour_letter_words = [\"*\"]\n{}", self.limits);
        let failed = |what: String| Violation::NoStart(what);
        std::fs::write(&config, text).map_err(|error| failed(error.to_string()))?;
        let disk = self.directory.join("disk");
        let random = self.random.fork(0);
        let mounted =
            Mounted::new(self.volume.clone(), &disk, trigger, random).map_err(|error| failed(error.to_string()))?;
        let server = Server::start(&[], &self.zoolet, &config, &disk).map_err(|error| failed(error.to_string()))?;
        Ok((mounted, server))
    }

    fn address(&self, mounted: &Mounted, server: &mut Server) -> Result<Option<std::net::SocketAddr>, Violation> {
        server.address(PATIENCE, || mounted.is_cut()).map_err(|what| {
            let log = std::fs::read_to_string(self.directory.join("zoolet.log")).unwrap_or_default();
            Violation::NoStart(format!("{what}; its log: {}", log.trim_end()))
        })
    }

    /// Runs everything between start and cut; returns the writers still at work.
    fn serve(
        &mut self,
        mounted: &Mounted,
        server: &mut Server,
    ) -> Result<Option<zoolet_powercut::rounds::Working>, Violation> {
        let Some(address) = self.address(mounted, server)? else {
            self.sums.starts_cut += 1;
            return Ok(None);
        };
        let expected = digest::recompute(self.volume.visible_files()).map_err(Violation::Inconsistent)?;
        let checked = until_cut(mounted, server, || {
            if Rounds::check_digest(address, expected)? { self.rounds.check(address) } else { Ok(false) }
        });
        // A failed check on a frozen disk is no finding.
        match checked {
            Ok(true) => {}
            _ if mounted.is_cut() => return Ok(None),
            Ok(false) => return Err(Violation::Answer("the server went away during the check".to_owned())),
            Err(violation) => return Err(violation),
        }
        if !self.prepared {
            match until_cut(mounted, server, || Rounds::prepare(address)) {
                Ok(true) => self.prepared = true,
                _ if mounted.is_cut() => return Ok(None),
                Ok(false) => return Err(Violation::Answer("the server went away".to_owned())),
                Err(violation) => return Err(violation),
            }
        }
        if self.lies_from.is_some_and(|from| self.cuts >= from) {
            mounted.lie();
        }
        let load = Duration::from_millis(20 + self.random.below(280));
        let working = self.rounds.work(address, usize::MAX);
        if self.random.chance(75) {
            let trigger = self.trigger(600);
            mounted.arm(trigger);
        }
        let is_cut = mounted.wait_for_cut(load);
        if !is_cut && !server.is_running() {
            let _ = self.rounds.gather(working);
            let log = std::fs::read_to_string(self.directory.join("zoolet.log")).unwrap_or_default();
            return Err(Violation::Answer(format!("the server ended under load; its log: {}", log.trim_end())));
        }
        Ok(Some(working))
    }

    fn trigger(&mut self, most: u64) -> Trigger {
        let (kind, most) = match self.random.below(12) {
            0..=2 => (Kind::Any, most),
            3 | 4 => (Kind::Sync("seg-"), most / 3),
            5 => (Kind::Write("seg-"), most / 3),
            6 | 7 => (Kind::Write("base-"), most / 10),
            8 | 9 => (Kind::Sync("base-"), most / 30),
            _ => (Kind::Names, most / 30),
        };
        Trigger { kind, count: 1 + self.random.below(most.max(2)), before: self.random.chance(50) }
    }

    /// Keeps the images needed to examine a failure.
    fn keep(&self, place: &Path, violation: &Violation) {
        let written = self.write_images(place, violation);
        match written {
            Ok(()) => println!("kept in {}", place.display()),
            Err(error) => println!("cannot keep it in {}: {error}", place.display()),
        }
    }

    fn write_images(&self, place: &Path, violation: &Violation) -> std::io::Result<()> {
        let store = |name: &str, volume: &Volume| {
            let directory = place.join(name);
            std::fs::create_dir_all(&directory)?;
            for (name, content) in volume.durable_files() {
                std::fs::write(directory.join(name), content)?;
            }
            Ok::<(), std::io::Error>(())
        };
        let mut report = format!("{violation}\n{:?}\n", self.rules);
        if let Some((before, cut)) = &self.before {
            store("before", before)?;
            report.push_str(&format!("{cut:?}\nun-synced when the power failed:\n{}\n", before.unsynced().join("\n")));
        }
        store("after", &self.volume)?;
        std::fs::write(place.join("report.txt"), report)?;
        for name in ["zoolet.toml", "zoolet.log"] {
            let _ = std::fs::copy(self.directory.join(name), place.join(name));
        }
        Ok(())
    }
}

impl Drop for History {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
