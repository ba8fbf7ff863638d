//! A run of one seed, in three parts.
//!
//! 1. Faults strike.
//! 2. A quorum is healed and must make progress.
//! 3. Everything is healed, and all servers must reach the same state.

use super::client::{Asks, Client, Renews};
use super::clock::draw_drift;
use super::host::Host;
use super::owners::Owners;
use super::process::Configuration;
use super::steady::{Load, Steady};
use super::witness::Witness;
use super::world::{Happening, World};
use super::{
    Clock, Coverage, DRIFT_PPM_MAX, DiskModel, Epochs, Habits, Kind, MS, Mix, Network, Path, Rank, SECOND, SimLinks,
    Speed, Trace, Wires,
};
use crate::machine::SPARE_CACHE_BYTES;
use crate::oracle::{self, ClientId, End, History, Promises, Violation, load};
use crate::reference::{COUNTED_AT_ONCE, digest_of};
use crate::workload::{Random, SUPER_USER, Workload};
use std::collections::BTreeMap;
use std::fmt;
use zoolet_machine::{Limits, Settings};
use zoolet_model::Request;
use zoolet_zab::{Config, EnsembleId, Incarnation, Member, ServerId, Timing, Zxid};

/// Faults that strike before birth.
///
/// With fewer, the rare combinations of birth and a fault would depend on chance, because some
/// faults find no victim.
const EARLY_FAULTS: usize = 4;
/// Length of one extension of a run in which too little happened.
const ROUND_US: u64 = 10 * SECOND;
const ROUNDS_MAX: u32 = 60;
/// Extensions after which faults are drawn from every kind that can strike a single server.
const OWN_ROUNDS: u32 = 20;
/// Time that a healed quorum has until it serves its clients.
const LIVENESS_US: u64 = 40 * SECOND;
/// Delay that networks may add to the age of a state that a server shows.
const STALENESS_MARGIN_US: u64 = 2 * SECOND;
/// Longest stop of a leader's clock that no server notices.
///
/// A leader notices a jump of its clock by the idle heartbeat interval plus 200 ms. It has read the
/// clock up to 50 ms before the stop.
const UNNOTICED_US: u64 = 600 * MS;
/// Maximum time by which a TTL znode outlives its time in a healthy ensemble, in microseconds.
const REAP_US: u64 = 5000 * MS;
/// Longest time for which a message of a leader that ended may be on its way.
///
/// A cut link keeps it until the link's idle timeout.
const LAST_WORDS_US: u64 = 6 * SECOND;
/// Largest minimum session timeout that a server is configured with, in milliseconds.
const TIMEOUT_MIN_MS_MAX: u32 = 4000;
/// Time that all servers and clients have to catch up at the end.
const CONVERGENCE_US: u64 = 60 * SECOND;

/// Parameters of a run; the seed decides the rest.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of voters.
    pub voters: u8,
    /// Number of observers.
    pub observers: u8,
    /// Number of clients.
    pub clients: u32,
    /// Duration of the first part, in which faults strike, in microseconds.
    pub safety_us: u64,
    /// Bounds for the number of faults that are tried, both inclusive.
    pub faults: (u64, u64),
    /// Faults that strike before birth, in about one run of three.
    pub early_faults: usize,
    /// Faults that must have struck; the run is extended until then.
    pub faults_min: u64,
    /// Requests that clients must have sent; the run is extended until then.
    pub operations_min: u64,
    /// Kinds of faults, with weights.
    pub mix: Mix,
    /// Whether every fault strikes the leader.
    pub at_leader: bool,
    /// Model of the disk in every box.
    pub disk: DiskModel,
    /// Resource limits of every server.
    pub limits: Limits,
    /// Requests that clients send.
    pub load: Load,
    /// Whether clients' sessions begin local.
    pub sessions: Sessions,
    /// Whether servers without a leader serve readers, and some clients ask for it.
    pub read_only: bool,
    /// Network of the servers and their timing.
    pub site: Site,
}

/// The sessions that clients get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sessions {
    /// Every session is global from its beginning.
    #[default]
    Global,
    /// Sessions begin local, and become global with their first ephemeral.
    Upgraded,
    /// Sessions begin local and stay so.
    Local,
}

impl Sessions {
    /// Draws local sessions for about one seed of four, independently of all that the seed decides.
    fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5a00);
        match (random.one_in(4), random.one_in(5)) {
            (false, _) => Self::Global,
            (true, false) => Self::Upgraded,
            (true, true) => Self::Local,
        }
    }
}

/// The network of an ensemble, and its timeouts.
#[derive(Clone, Debug)]
pub struct Site {
    /// Protocol timeouts between servers.
    pub timing: Timing,
    /// A learner stops serving clients after this silence of its leader, in milliseconds.
    pub staleness_max_ms: u32,
    /// Path of every link in both directions; `None` draws each one.
    pub path: Option<Path>,
    /// Whether all clients run on the boxes of their servers. Otherwise their latency is drawn.
    pub clients_are_local: bool,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            staleness_max_ms: Settings::default().staleness_max_ms,
            path: None,
            clients_are_local: false,
        }
    }
}

impl Site {
    /// Returns the default site. In half of the runs, a leader soon holds Commits back.
    fn drawn(seed: u64) -> Self {
        let usual = Timing::default();
        let commit_hold_entries = if seed.is_multiple_of(2) { 2 } else { usual.commit_hold_entries };
        Self { timing: Timing { commit_hold_entries, ..usual }, ..Self::default() }
    }
}

impl Plan {
    /// Returns a plan for one server, drawn from `seed`.
    pub fn standalone(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5ea);
        let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| kind.is_for_one()).collect();
        let mix = Mix::drawn(&kinds, &mut random);
        Self {
            voters: 1,
            observers: 0,
            clients: random.between(3, 7) as u32,
            safety_us: random.between(50, 70) * SECOND,
            faults: (8, 30),
            early_faults: EARLY_FAULTS,
            faults_min: 5,
            operations_min: 300,
            mix,
            at_leader: false,
            disk: *random.pick(&DiskModel::ALL),
            limits: limits(&mut random),
            load: Load::Anything,
            sessions: Sessions::drawn(seed),
            read_only: Random::new(seed ^ 0x2d900).one_in(4),
            site: Site::drawn(seed),
        }
    }
}

impl Plan {
    /// Returns a plan for one, three or five voters and up to two observers.
    pub fn ensemble(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xe5e);
        let voters = *random.pick(&[1, 3, 3, 3, 3, 5, 5]);
        let observers = if random.one_in(3) { 1 + random.below(2) as u8 } else { 0 };
        let mix = Mix::drawn(&Kind::ALL, &mut random);
        Self { voters, observers, mix, ..Self::standalone(seed) }
    }

    /// Returns a plan for three or five voters whose likeliest fault is a lost disk.
    pub fn of_lost_disks(seed: u64) -> Self {
        let plan = Self::ensemble(seed);
        let mut random = Random::new(seed ^ 0xd15c);
        let voters = *random.pick(&[3, 3, 5]);
        let mix = plan.mix.with(&[Kind::Wipe, Kind::Clone, Kind::Rot], 8);
        Self { voters, mix, ..plan }
    }

    /// Returns a plan for three or five voters that lose their leader every few seconds.
    pub fn of_lost_leaders(seed: u64) -> Self {
        let plan = Self::ensemble(seed);
        let mut random = Random::new(seed ^ 0x1ead);
        let voters = *random.pick(&[3, 3, 5]);
        let mix = Mix::drawn(&Kind::LEADER_LOSSES, &mut random);
        Self { voters, mix, at_leader: true, faults: (15, 30), early_faults: 0, ..plan }
    }

    /// Returns the plan of [`Plan::ensemble`] without faults.
    pub fn peaceful(seed: u64) -> Self {
        Self { mix: Mix::of(&[]), faults_min: 0, ..Self::ensemble(seed) }
    }
}

/// Draws limits at which a few writes rotate the log, freeze the memtable and overflow the cache.
///
/// Some runs get larger limits.
fn limits(random: &mut Random) -> Limits {
    let limits = Limits {
        memtable_bytes: random.logarithmic(4 << 10, 64 << 10) as u32,
        record_cache_bytes: random.logarithmic(1 << 10, 32 << 10) as u32,
        base_cache_bytes: 64 << 10,
        log_segment_bytes: 4096 * random.logarithmic(6, 24) as u32,
        log_segments: random.between(8, 13) as u32,
        disk_reserve_bytes: if random.one_in(2) { 128 << 10 } else { 0 },
        ..Limits::default()
    };
    // A quarter of the runs have a spare cache. The choice draws no random number, so that the other
    // runs stay as they were.
    let has_spare_cache = limits.record_cache_bytes.is_multiple_of(4);
    Limits { spare_cache_bytes: if has_spare_cache { SPARE_CACHE_BYTES } else { 0 }, ..limits }
}

/// Totals of one run or of several.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Runs.
    pub runs: u64,
    /// Events that were simulated.
    pub events: u64,
    /// Simulated time, in microseconds.
    pub simulated_us: u64,
    /// Requests of clients.
    pub operations: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests whose connection broke before the answer; their outcome is unknown to the client.
    pub lost: u64,
    /// Faults that struck, and the features seen meanwhile.
    pub coverage: Coverage,
    /// Fates that struck clients with futures, by name.
    pub fates: BTreeMap<&'static str, u64>,
    /// Smallest number of requests and smallest number of faults in any run.
    pub fewest: Option<(u64, u64)>,
}

impl Statistics {
    /// Adds the totals of `other`.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.simulated_us += other.simulated_us;
        self.operations += other.operations;
        self.answered += other.answered;
        self.lost += other.lost;
        self.coverage.add(&other.coverage);
        for (fate, count) in &other.fates {
            *self.fates.entry(fate).or_default() += count;
        }
        self.fewest = match (self.fewest, other.fewest) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.min(b.1))),
            (a, b) => a.or(b),
        };
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated_us as f64 / (3600 * SECOND) as f64;
        writeln!(f, "{} runs, {hours:.1} simulated hours, {} events", self.runs, self.events)?;
        writeln!(f, "{} requests, {} answered, {} lost", self.operations, self.answered, self.lost)?;
        if let Some((operations, faults)) = self.fewest {
            writeln!(f, "at least {operations} requests and {faults} faults in each")?;
        }
        for (kind, count) in self.coverage.faults() {
            write!(f, "{kind} {count}, ")?;
        }
        for (fate, count) in &self.fates {
            write!(f, "{fate} of clients {count}, ")?;
        }
        writeln!(f)
    }
}

/// A run that violated an expectation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// Descriptions of the violations, in order of occurrence.
    pub what: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}:", self.seed)?;
        self.what.iter().try_for_each(|what| writeln!(f, "  {what}"))?;
        write!(
            f,
            "again, with every event: ENSEMBLE_SEED={} cargo test -p zoolet-sim --test ensemble seeds:: -- --nocapture",
            self.seed
        )
    }
}

/// Runs one seed.
///
/// # Errors
/// [`Failure`] when the run violated an expectation.
pub fn run(seed: u64, plan: &Plan, trace: Trace) -> Result<Statistics, Failure> {
    let mut world = plan.build(seed, trace);
    world.run_until(plan.safety_us);
    plan.go_on(&mut world);
    live(&mut world);
    conclude(seed, world).map(|(statistics, ..)| statistics)
}

/// Ends a run: heals everything, waits for agreement and judges all observations.
///
/// # Errors
/// [`Failure`] when the run violated an expectation, or the servers did not reach the same state.
pub fn conclude(seed: u64, mut world: World) -> Result<(Statistics, History, Epochs), Failure> {
    let failed = |what: Vec<String>| Err(Failure { seed, what });
    settle(&mut world);
    let now_us = world.now_us();
    world.around.witness.recount(now_us);
    if !world.witness().violations().is_empty() {
        return failed(world.witness().violations().to_vec());
    }
    let (events, now_us) = (world.happened(), world.now_us());
    let spans = std::mem::take(&mut world.struck.spans);
    let mut sightings = std::mem::take(&mut world.around.witness.sightings);
    let epochs = std::mem::take(&mut world.around.witness.epochs);
    let disk_us = world.hosts.values().map(|host| host.speed.longest_us()).max().unwrap_or_default();
    let silence_ms = world.hosts.values().map(|host| host.configuration.settings.staleness_max_ms).max();
    let silence_us = u64::from(silence_ms.unwrap_or_default()) * MS;
    let history = world.around.witness.finish(now_us, true);
    if let Err(violation) = judge(&history, disk_us, silence_us) {
        return failed(vec![violation.to_string()]);
    }
    if let Some(lost) = lost_write(&history) {
        return failed(vec![lost]);
    }
    sightings.judge(&history);
    let operations = history.operations.len() as u64;
    let answered = history.operations.iter().filter(|operation| operation.answer.is_some()).count() as u64;
    let is_lost = |asked: &&oracle::Operation| {
        asked.answer.is_none() && matches!(history.connection_of(asked).ended, Some((_, End::Lost | End::ByServer)))
    };
    let lost = history.operations.iter().filter(is_lost).count() as u64;
    let (fewest, coverage) = (Some((operations, spans.len() as u64)), Coverage::of(&sightings, &spans));
    let fates = BTreeMap::new();
    let statistics =
        Statistics { runs: 1, events, simulated_us: now_us, operations, answered, lost, coverage, fates, fewest };
    Ok((statistics, history, epochs))
}

fn judge(history: &History, disk_us: u64, silence_us: u64) -> Result<(), Violation> {
    // Twice the permitted silence: a learner that resumes after a pause reads messages sent up to
    // that long ago, and cannot tell their age.
    let staleness_us = Some(2 * silence_us + disk_us + STALENESS_MARGIN_US);
    let drift_ppm = DRIFT_PPM_MAX as u64;
    let reap_us = Some(REAP_US);
    let promises = Promises {
        drift_ppm,
        staleness_us,
        unnoticed_us: UNNOTICED_US,
        reap_us,
        last_words_us: LAST_WORDS_US,
        ..Promises::default()
    };
    oracle::check_with(history, &promises)
}

impl Plan {
    /// Builds the ensemble, its clients and its faults at time 0.
    pub fn build(&self, seed: u64, trace: Trace) -> World {
        let mut random = Random::new(seed);
        let servers: Vec<ServerId> = (1..=self.voters + self.observers).filter_map(ServerId::new).collect();
        let members: Vec<Member> = servers
            .iter()
            .map(|&id| {
                let kind = if id.as_u8() <= self.voters { zoolet_zab::Kind::Voter } else { zoolet_zab::Kind::Observer };
                Member { id, kind, disk: Incarnation(0) }
            })
            .collect();
        let super_digest = Some(digest_of(SUPER_USER));
        let settings = Settings {
            tick_ms: 500,
            session_timeout_min_ms: 1000,
            session_timeout_max_ms: self.load.timeout_ms_max(),
            container_check_interval_ms: 1000,
            staleness_max_ms: self.site.staleness_max_ms,
            super_digest: super_digest.clone(),
            enforce_quotas: true,
            counted_at_once: COUNTED_AT_ONCE,
            read_only: self.read_only,
            local_sessions: self.sessions != Sessions::Global,
            local_sessions_upgrade: self.sessions == Sessions::Upgraded,
            ..Settings::default()
        };
        let members = Config::new(EnsembleId::UNBORN, Zxid::ZERO, &members).expect("ids are distinct, one votes");
        let founders = members.clone();
        let with = Configuration { limits: self.limits, settings, members, timing: self.site.timing };
        let network = Network {
            // Draws 1, 2 or 3 s. The transport ends a link after 1 to 4 s of silence.
            idle_timeout_us: random.between(1, 4) * SECOND,
            dial_us: random.logarithmic(5 * MS, 100 * MS),
            dial_us_max: 2 * SECOND,
            has_stateless_resets: random.one_in(2),
        };
        let mut bounds = Bounds::new(seed, self);
        let hosts = servers.iter().map(|&id| {
            let drift_ppm = draw_drift(&mut random) / 5;
            let clock = Clock::new(0, random.logarithmic(1, 1 << 40), drift_ppm);
            let speed = Speed::new(self.disk, random.fork(), 0);
            let mut with = with.clone();
            bounds.apply(&mut with.settings);
            Host::new(id, clock, speed, random.fork(), with)
        });
        let hosts: Vec<_> = hosts.collect();
        let has_embedded = random.one_in(3);
        let clients = (1..=self.clients).map(|number| {
            let id = ClientId(number);
            let (habits, asks) = self.client(id, &mut random);
            let client = Client::new(id, servers.clone(), habits, asks, random.fork());
            let is_embedded = has_embedded && (number == 1 || random.one_in(3));
            (id, if is_embedded { client.in_process(*random.pick(&servers)) } else { client })
        });
        let clients: Vec<_> = clients.collect();
        let links = SimLinks::new(&servers, network, random.fork(), |_, _, random| {
            let drawn = Path::drawn(random);
            self.site.path.clone().unwrap_or(drawn)
        });
        let wires = Wires::new(&servers, self.site.clients_are_local, random.fork());
        let witness = Witness::new(trace, super_digest, founders.clone());
        let mut world = World::new(hosts, clients, links, wires, witness, founders, random.fork());
        world.owners = Owners::new(seed);
        let count = random.between(self.faults.0, self.faults.1 + 1);
        for mut fault in self.mix.faults_from_birth(count, self.early_faults, self.safety_us, &mut random) {
            fault.at_leader = self.at_leader;
            world.around.agenda.at(fault.at_us, Rank::News, Happening::Fault(fault));
        }
        world
    }
}

impl Plan {
    /// Extends a run in which too few faults struck or clients sent too few requests.
    ///
    /// Faults can hinder each other and the clients.
    fn go_on(&self, world: &mut World) {
        let mut random = world.random.fork();
        let any = Mix::of(&Kind::ALL.into_iter().filter(|kind| kind.is_for_one()).collect::<Vec<_>>());
        for round in 0..ROUNDS_MAX {
            let has_enough = world.struck.spans.len() as u64 >= self.faults_min
                && world.witness().recorder.so_far().operations.len() as u64 >= self.operations_min;
            if has_enough {
                return;
            }
            let now_us = world.now_us();
            let until_us = now_us + ROUND_US;
            // The plan's own kinds may all be unable to strike, such as a partition of one server.
            let mix = if round < OWN_ROUNDS || self.faults_min == 0 { &self.mix } else { &any };
            for mut fault in mix.faults(3, now_us, until_us, &mut random) {
                fault.at_leader = self.at_leader;
                world.around.agenda.at(fault.at_us, Rank::News, Happening::Fault(fault));
            }
            world.run_until(until_us);
        }
    }
}

impl Plan {
    fn client(&self, id: ClientId, random: &mut Random) -> (Habits, Box<dyn Asks>) {
        let seed = random.bits();
        if let Load::Steady { think_us, timeouts_ms, readers_one_in, data_bytes } = self.load {
            let only_reads = readers_one_in > 0 && id.0.is_multiple_of(readers_one_in);
            let habits = Habits::steady(think_us, timeouts_ms[usize::from(id.0.is_multiple_of(2))], only_reads);
            return (habits, Box::new(Steady::new(seed, id, self.clients, only_reads, data_bytes)));
        }
        let renews = Renews::drawn(seed);
        // Half of the clients send any request at all. The others send requests that the oracles
        // judge best.
        let asks: Box<dyn Asks> = if id.0.is_multiple_of(2) {
            Box::new(Workload::new(seed))
        } else {
            Box::new(load::Asking::new(seed, id, load::Mix::drawn(random)))
        };
        let may_read_only = self.read_only && id.0.is_multiple_of(3);
        (Habits { renews: Some(renews), may_read_only, ..Habits::drawn(random) }, asks)
    }
}

/// Draws the bounds of session timeouts, which each server may configure differently.
///
/// It has a separate generator, so that no other draw of a seed depends on it.
struct Bounds(Option<Random>);

impl Bounds {
    /// Lets the bounds differ in half of the runs.
    ///
    /// They never differ under a steady load or with clients that run futures: those rely on the
    /// timeout they request.
    fn new(seed: u64, plan: &Plan) -> Self {
        let mut random = Random::new(seed ^ 0xb07d5);
        let differ = plan.load == Load::Anything && plan.clients > 0 && random.one_in(2);
        Self(differ.then(|| random.fork()))
    }

    fn apply(&mut self, settings: &mut Settings) {
        if let Some(random) = &mut self.0 {
            settings.session_timeout_min_ms = *random.pick(&[1000, 1000, 2000, TIMEOUT_MIN_MS_MAX]);
            settings.session_timeout_max_ms = *random.pick(&[20_000, 20_000, 10_000, 5000]);
        }
    }
}

/// Heals a quorum, leaves the other servers as they are, and requires that the quorum serves.
fn live(world: &mut World) {
    let core = world.draw_core();
    world.around.witness.trace.note(world.now_us(), "--", || format!("the core {core:?} is healed"));
    world.mend_all(&core);
    core.iter().for_each(|&server| world.with(server, Host::start));
    let until_us = world.now_us() + LIVENESS_US;
    wait(world, until_us, "no server of a healed quorum serves", |world| {
        core.iter().any(|&server| world.witness().said(server).is_some_and(|state| state.is_serving))
    });
}

/// Stops all requests, heals everything and requires that all servers agree in the end.
fn settle(world: &mut World) {
    let servers = world.servers();
    world.mend_all(&servers);
    servers.iter().for_each(|&server| world.with(server, Host::start));
    let ids: Vec<_> = world.clients.keys().copied().collect();
    for id in ids {
        if let Some(client) = world.clients.get_mut(&id) {
            client.is_quiet = true;
        }
        world.arm_client(id);
    }
    let until_us = world.now_us() + CONVERGENCE_US;
    wait(world, until_us, "not everybody came to the same", |world| {
        let mut states = servers.iter().map(|&server| world.witness().said(server));
        let first = states.next().flatten();
        let is_equal = first.is_some_and(|first| {
            first.is_serving && states.all(|other| other.is_some_and(|other| other.applied == first.applied))
        });
        // The events of the last entry may arrive after everything else.
        let has_heard_all =
            world.clients.values().all(|client| is_served(world, client)) && world.around.wires.are_quiet();
        is_equal && world.is_restored() && world.all_count() && has_heard_all
    });
}

/// Returns whether nothing is in flight between a client and a server that knows its connection.
///
/// A server that lost power has not told its clients that their connections are gone.
fn is_served(world: &World, client: &Client) -> bool {
    client.is_gone()
        || client.attached().is_some_and(|(server, conn)| {
            let process = world.hosts.get(&server).and_then(|host| host.process.as_ref());
            process.is_some_and(|process| process.has_connection(conn))
        })
}

fn wait(world: &mut World, until_us: u64, or: &str, is_done: impl Fn(&World) -> bool) {
    while world.witness().violations().is_empty() && !is_done(world) {
        if world.now_us() >= until_us {
            let now_us = world.now_us();
            let clients: Vec<_> = world.clients.values().map(|client| client.to_string()).collect();
            let states: Vec<_> = world.servers().iter().map(|&server| world.witness().said(server)).collect();
            return world.around.witness.violation(now_us, format!("{or}: servers {states:?}, clients {clients:?}"));
        }
        let next_us = world.now_us() + SECOND / 4;
        world.run_until(next_us);
    }
}

/// Finds a write that was acknowledged and has no entry in the history.
fn lost_write(history: &History) -> Option<String> {
    let is_write = |request: &Request| matches!(request, Request::Write(_) | Request::Multi(_));
    history.operations.iter().filter(|operation| is_write(&operation.request)).find_map(|operation| {
        let answer = operation.answer.as_ref().filter(|answer| answer.result.is_ok())?;
        let is_there = history.entry(answer.zxid).is_some();
        (!is_there).then(|| format!("acknowledged and not in the history: {operation:?}"))
    })
}

/// Runs many seeds on `threads` threads.
///
/// Returns the totals of the successful runs, and the failures by ascending seed.
pub fn run_seeds(
    seeds: std::ops::Range<u64>,
    threads: usize,
    plan: impl Fn(u64) -> Plan + Sync,
) -> (Statistics, Vec<Failure>) {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let outcomes = std::sync::Mutex::new((Statistics::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = run_guarded(seed, &plan(seed), Trace::off());
                    let mut outcomes = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match outcome {
                        Ok(statistics) => outcomes.0.add(&statistics),
                        Err(failure) => outcomes.1.push(failure),
                    }
                }
            });
        }
    });
    let (statistics, mut failures) = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.sort_by_key(|failure| failure.seed);
    (statistics, failures)
}

/// Runs one seed and turns a panic into a failure.
///
/// # Errors
/// [`Failure`] when the run panicked or violated an expectation.
pub fn run_guarded(seed: u64, plan: &Plan, trace: Trace) -> Result<Statistics, Failure> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, plan, trace)));
    outcome.unwrap_or_else(|panic| Err(Failure::of_panic(seed, panic.as_ref())))
}

impl Failure {
    pub(super) fn of_panic(seed: u64, panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Self { seed, what: vec![format!("panicked: {}", text.unwrap_or_default())] }
    }
}
