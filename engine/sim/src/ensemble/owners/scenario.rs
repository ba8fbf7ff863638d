//! Many clients with futures, under faults of servers and fates of clients; then a part that is healed, in which all of them must finish; then the
//! judgement of everything that was seen.

use super::seat::Journal;
use super::{Fact, Fate, Next, Seat};
use crate::ensemble::host::Host;
use crate::ensemble::world::World;
use crate::ensemble::{Failure, Kind, MS, Mix, Plan, SECOND, Statistics, Trace, conclude};
use crate::oracle::{Changed, ClientId, History, Operation, Received, changed};
use crate::workload::Random;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zoolet_model::{Request, SessionId, SessionState};
use zoolet_session::Session;
use zoolet_zab::ServerId;

/// How often it is looked whether clients are done.
const LOOKS_EVERY_US: u64 = 20 * MS;
/// An ensemble that nothing hinders is born by then.
const BORN_US: u64 = 2 * SECOND;
/// How long faults and fates that a seed draws strike, microseconds.
const DRAWN_US: (u64, u64) = (18 * SECOND, 30 * SECOND);
/// Lines of the trace of a failure that are shown.
const LINES: u64 = 400;

/// What a run is like; the rest its seed decides.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The servers, their faults, and how long they strike. Its clients are others, beside these.
    pub plan: Plan,
    /// In which server's process each client is; `None`: in none.
    pub homes: Vec<Option<ServerId>>,
    /// Session timeouts that clients ask for, milliseconds: the shortest and the longest.
    pub timeouts_ms: (u32, u32),
    /// What happens to clients: when, microseconds, and what. To whom is decided then.
    pub fates: Vec<(u64, Fate)>,
    /// How long a client that died is away, microseconds: at least and at most.
    pub away_us: (u64, u64),
    /// One in so many that died never comes back; 0 is none. In a server's process all do.
    pub stays_away_one_in: u64,
    /// How long all clients together may take to finish after everything is healed, microseconds.
    pub finishes_us: u64,
}

impl Scenario {
    /// So many clients and one to five servers, nothing broken; some of the clients may be in servers' processes.
    pub fn peaceful(seed: u64, clients: usize) -> Self {
        let mut random = Random::new(seed ^ 0x5ce4e);
        let plan = Plan { clients: 0, operations_min: 0, ..Plan::peaceful(seed) };
        let servers = u64::from(plan.voters + plan.observers);
        let has_embedded = random.one_in(2);
        let home = |random: &mut Random| ServerId::new(1 + random.below(servers) as u8);
        let homes = (0..clients).map(|_| if has_embedded && random.one_in(2) { home(&mut random) } else { None });
        Self {
            homes: homes.collect(),
            plan,
            timeouts_ms: (2000, 16_000),
            fates: Vec::new(),
            away_us: (SECOND / 20, 10 * SECOND),
            stays_away_one_in: 0,
            finishes_us: 120 * SECOND,
        }
    }

    /// The same with faults of every kind that a seed may draw, or with fates of clients, or both.
    pub fn drawn(seed: u64, clients: usize) -> Self {
        let peaceful = Self::peaceful(seed, clients);
        let mut random = Random::new(seed ^ 0xfa7e5);
        let with_faults = Plan::ensemble(seed);
        // Faults of servers alone, fates of clients alone, or both.
        let which = random.below(4);
        let mix = if which == 0 { Mix::of(&[]) } else { with_faults.mix };
        // So many in a time that clients fill with what they do ([`Seat::goes_on`]).
        let safety_us = random.between(DRAWN_US.0, DRAWN_US.1);
        // Four before birth would leave a short run without servers for most of its time.
        let plan = Plan { mix, faults: (4, 14), early_faults: 1, faults_min: 0, safety_us, ..peaceful.plan };
        let fates = if which == 1 { Vec::new() } else { Fate::drawn(plan.safety_us, &mut random) };
        Self { plan, fates, ..peaceful }
    }

    /// One in four of the clients that die never comes back.
    #[must_use]
    pub fn where_some_stay_away(self) -> Self {
        Self { stays_away_one_in: 4, ..self }
    }

    /// With no faults of servers of these kinds.
    pub fn without(mut self, kinds: &[Kind]) -> Self {
        let rest: Vec<Kind> = self.plan.mix.kinds().filter(|kind| !kinds.contains(kind)).collect();
        self.plan.mix = Mix::of(&rest);
        self
    }
}

impl Fate {
    /// Some of some kinds between two and `to_us` microseconds, in order.
    fn drawn(to_us: u64, random: &mut Random) -> Vec<(u64, Self)> {
        let weights: Vec<u64> = (0..6).map(|_| if random.one_in(2) { random.logarithmic(1, 8) } else { 0 }).collect();
        let all: u64 = weights.iter().sum();
        let count = if all == 0 { 0 } else { random.between(3, 18) };
        let mut fates: Vec<_> = (0..count)
            .map(|_| {
                let mut left = random.below(all);
                let at = weights.iter().position(|&weight| {
                    let is_it = left < weight;
                    left = left.saturating_sub(weight);
                    is_it
                });
                let for_us = random.logarithmic(SECOND / 100, 20 * SECOND);
                let fate = match at.unwrap_or_default() {
                    0 => Self::Crash,
                    1 => Self::PowerLoss,
                    2 => Self::Pause(for_us),
                    3 => Self::Cut(for_us),
                    4 => Self::LostReply,
                    _ => Self::Expiry,
                };
                (random.between(BORN_US / 4, to_us), fate)
            })
            .collect();
        fates.sort_unstable();
        fates
    }
}

/// What came of a run in which nothing was wrong with the ensemble.
#[derive(Debug)]
pub struct Ran<F> {
    /// What clients wrote down, in order.
    pub facts: Vec<Fact<F>>,
    /// What clients asked for and were told, and what was committed.
    pub history: History,
    /// What there was.
    pub statistics: Statistics,
    /// How often the futures of each client were polled.
    pub polls: Vec<u64>,
    /// Fates that struck.
    pub struck: Vec<Fate>,
    /// Clients of the scenario, in order.
    clients: Vec<ClientId>,
}

impl<F> Ran<F> {
    /// What this client asked for.
    pub fn asked_by(&self, client: usize) -> impl Iterator<Item = &Operation> {
        let is_theirs = move |asked: &&Operation| self.history.connection_of(asked).client == self.clients[client];
        self.history.operations.iter().filter(is_theirs)
    }

    /// How many requests of a kind this client sent.
    pub fn requests_of(&self, client: usize, is_it: impl Fn(&Request) -> bool) -> usize {
        self.asked_by(client).filter(|asked| is_it(&asked.request)).count()
    }

    /// Every change of a znode, in order.
    ///
    /// # Errors
    /// The history cannot have been.
    pub fn changed(&self) -> Result<Vec<Changed>, String> {
        changed(&self.history).map_err(|violation| violation.to_string())
    }

    /// Whose session that was.
    pub fn client_of(&self, session: SessionId) -> Option<usize> {
        let connection = self.history.connections.iter().find(|one| one.session() == Some(session))?;
        self.clients.iter().position(|client| *client == connection.client)
    }

    /// How many lists of children it asked for.
    pub fn lists_of(&self, client: usize) -> usize {
        self.requests_of(client, |request| matches!(request, Request::GetChildren { .. }))
    }

    /// When the process of a server ended in which a session was, microseconds of the run: the session ends with it, whatever it was told before.
    pub fn orphaned_us(&self, session: SessionId) -> Option<u64> {
        let theirs = self.history.connections.iter().filter(|connection| connection.session() == Some(session));
        theirs.filter_map(|connection| connection.orphaned).map(|moment| moment.us).min()
    }

    /// How many watch events reached it.
    pub fn events_of(&self, client: usize) -> usize {
        let theirs = self.history.connections.iter().filter(|connection| connection.client == self.clients[client]);
        let received = theirs.flat_map(|connection| &connection.received);
        received.filter(|received| matches!(received, Received::Event(..))).count()
    }
}

/// One client, as the run looks after it.
struct Looked {
    id: ClientId,
    timeout_ms: u32,
    life: u32,
    next: Rc<Cell<Option<Next>>>,
    is_done: bool,
    /// When it begins another life.
    returns_us: Option<u64>,
}

/// A run that is under way.
struct Run<'a, F, B> {
    scenario: &'a Scenario,
    body: &'a B,
    world: World,
    random: Random,
    journal: Journal<F>,
    trace: Trace,
    clients: Vec<Looked>,
    struck: Vec<Fate>,
    is_healed: bool,
}

/// One run of `body`, which each client does with each of its sessions.
///
/// # Errors
/// [`Failure`] when clients did not finish, or anything that was seen is wrong. What clients wrote down is for the caller to judge.
pub fn run_with<F, B, W>(seed: u64, scenario: &Scenario, trace: Trace, body: &B) -> Result<Ran<F>, Failure>
where
    F: fmt::Debug + 'static,
    B: Fn(Seat<F>) -> W,
    W: Future<Output = Next> + 'static,
{
    let mut run = Run::begin(seed, scenario, trace, body);
    run.go_through();
    let Run { world, journal, clients, struck, .. } = run;
    let polls = clients.iter().map(|client| world.polls_of(client.id)).collect();
    let clients = clients.into_iter().map(|client| client.id).collect();
    let (mut statistics, history, _) = conclude(seed, world)?;
    for fate in &struck {
        *statistics.fates.entry(fate.name()).or_default() += 1;
    }
    Ok(Ran { facts: journal.take(), history, statistics, polls, struck, clients })
}

impl<'a, F, B, W> Run<'a, F, B>
where
    F: fmt::Debug + 'static,
    B: Fn(Seat<F>) -> W,
    W: Future<Output = Next> + 'static,
{
    fn begin(seed: u64, scenario: &'a Scenario, trace: Trace, body: &'a B) -> Self {
        let mut run = Self {
            scenario,
            body,
            world: scenario.plan.build(seed, trace.clone()),
            random: Random::new(seed ^ 0x000b_0d1e),
            journal: Journal::new(),
            trace,
            clients: Vec::new(),
            struck: Vec::new(),
            is_healed: false,
        };
        let (shortest_ms, longest_ms) = scenario.timeouts_ms;
        for (number, &home) in scenario.homes.iter().enumerate() {
            let timeout_ms = run.random.logarithmic(shortest_ms.into(), longest_ms.into()) as u32;
            let (id, session) = run.world.open(timeout_ms, home);
            let next = Rc::new(Cell::new(None));
            run.clients.push(Looked { id, timeout_ms, life: 0, next, is_done: false, returns_us: None });
            run.live(number, session);
        }
        run
    }

    /// A life begins.
    fn live(&mut self, number: usize, session: Session) {
        let looked = &self.clients[number];
        let seat = Seat {
            number,
            life: looked.life,
            session,
            client: looked.id,
            clock: self.world.clock_of(looked.id),
            journal: self.journal.clone(),
            goes_on_until_us: self.scenario.plan.safety_us / 5 * 4,
            spawner: self.world.spawner(),
            trace: self.trace.clone(),
        };
        let (id, next) = (looked.id, Rc::clone(&looked.next));
        let served = served(seat.session.clone());
        // Made before the session is served and polled after: a body does nothing before its first poll.
        let work = (self.body)(seat);
        self.world.spawn(id, async move {
            next.set(Some(if served.await { work.await } else { Next::AnotherSession }));
        });
    }

    fn go_through(&mut self) {
        let safety_us = self.scenario.plan.safety_us;
        for &(at_us, fate) in &self.scenario.fates {
            if self.is_done() {
                break;
            }
            self.run_until(at_us.min(safety_us));
            self.meet(fate);
        }
        self.run_until(safety_us);
        self.heal();
        let until_us = self.world.now_us() + self.scenario.finishes_us;
        self.run_until(until_us);
        if !self.is_done() && self.world.witness().violations().is_empty() {
            let left = self.clients.iter().filter(|client| !client.is_done);
            let left: Vec<_> = left.map(|client| self.world.clients[&client.id].to_string()).collect();
            let now_us = self.world.now_us();
            self.world.around.witness.violation(now_us, format!("clients do not finish: {left:?}"));
        }
    }

    /// Until then, or until all are done.
    fn run_until(&mut self, until_us: u64) {
        while self.world.now_us() < until_us && !self.is_done() && self.world.witness().violations().is_empty() {
            let next_us = (self.world.now_us() + LOOKS_EVERY_US).min(until_us);
            self.world.run_until(next_us);
            (0..self.clients.len()).for_each(|number| self.look_after(number));
        }
    }

    fn is_done(&self) -> bool {
        self.clients.iter().all(|client| client.is_done)
    }

    fn look_after(&mut self, number: usize) {
        let now_us = self.world.now_us();
        let looked = &mut self.clients[number];
        if looked.is_done || !self.world.is_gone(looked.id) && looked.next.get() != Some(Next::Done) {
            return;
        }
        match looked.next.get() {
            Some(Next::Done) => looked.is_done = true,
            Some(Next::AnotherSession) => self.begin_again(number),
            // Over for its futures, which have not heard of it yet.
            None if !self.world.owners.is_dead(looked.id) => {}
            None => match looked.returns_us {
                Some(returns_us) if returns_us > now_us && !self.is_healed => {}
                Some(_) => self.begin_again(number),
                None => self.send_away(number),
            },
        }
    }

    /// It died: it comes back, or does not.
    fn send_away(&mut self, number: usize) {
        let (now_us, stays_away_one_in) = (self.world.now_us(), self.scenario.stays_away_one_in);
        let away_us = self.random.logarithmic(self.scenario.away_us.0, self.scenario.away_us.1);
        let stays_away = stays_away_one_in > 0 && self.random.one_in(stays_away_one_in);
        let looked = &mut self.clients[number];
        looked.returns_us = Some(now_us + away_us);
        looked.is_done = stays_away && self.scenario.homes[number].is_none();
    }

    fn begin_again(&mut self, number: usize) {
        let looked = &mut self.clients[number];
        looked.life += 1;
        looked.returns_us = None;
        looked.next.set(None);
        let session = self.world.reopen(looked.id, looked.timeout_ms);
        self.live(number, session);
    }

    fn meet(&mut self, fate: Fate) {
        let left: Vec<_> = self.clients.iter().filter(|client| !client.is_done).map(|client| client.id).collect();
        if !left.is_empty() && self.world.witness().violations().is_empty() {
            let victim = *self.random.pick(&left);
            if self.world.strike_client(victim, fate) {
                self.struck.push(fate);
            }
        }
    }

    fn heal(&mut self) {
        self.is_healed = true;
        self.trace.note(self.world.now_us(), "--", || "everything is healed");
        let servers = self.world.servers();
        self.world.mend_all(&servers);
        servers.into_iter().for_each(|server| self.world.with(server, Host::start));
        self.world.spare_clients();
    }
}

/// Whether it is served; `false` when it is over before.
async fn served(session: Session) -> bool {
    let mut states = session.states();
    while let Some(state) = states.next().await {
        if state == SessionState::Connected {
            return true;
        }
    }
    false
}

/// One run, judged by `judge` after everything else was. A panic is a failure as any other.
///
/// # Errors
/// [`Failure`] of [`run_with`], or of what `judge` says.
pub fn run_judged<F, B, W>(
    seed: u64,
    scenario: &Scenario,
    trace: Trace,
    body: &B,
    judge: impl Fn(&Ran<F>) -> Result<(), String>,
) -> Result<Statistics, Failure>
where
    F: fmt::Debug + 'static,
    B: Fn(Seat<F>) -> W,
    W: Future<Output = Next> + 'static,
{
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let ran = run_with(seed, scenario, trace, body)?;
        let judged = judge(&ran).map_err(|what| Failure { seed, what: vec![what] });
        judged.map(|()| ran.statistics)
    }));
    ran.unwrap_or_else(|panic| Err(Failure::of_panic(seed, panic.as_ref())))
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Runs of `seeds` seeds, on two threads, each judged by `judge` after everything else was. `ENSEMBLE_SEEDS=N` makes it so many, `ENSEMBLE_FROM=N` says
/// which is the first, and `ENSEMBLE_SEED=S` runs one, with its last events printed (`ENSEMBLE_LINES=N`: so many).
///
/// # Panics
/// With the trace of the first seed that failed, and the numbers of all.
#[allow(clippy::print_stderr, reason = "what a seed had in it, for people")]
pub fn run_seeds_of<F, B, W>(
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
    let one = |seed: u64, trace: Trace| run_judged(seed, &scenario(seed), trace, &body, &judge);
    let again = |seed: u64| {
        let trace = Trace::last(variable("ENSEMBLE_LINES").unwrap_or(LINES) as usize);
        let outcome = one(seed, trace.clone());
        let told = |failure: &Failure| {
            format!("{trace}\nseed {seed}: {}\nagain: ENSEMBLE_SEED={seed}", failure.what.join("\n"))
        };
        match outcome {
            Err(failure) => panic!("{}", told(&failure)),
            Ok(statistics) => {
                eprint!("{}", if variable("ENSEMBLE_LINES").is_some() { trace.to_string() } else { String::new() });
                statistics
            }
        }
    };
    if let Some(seed) = variable("ENSEMBLE_SEED") {
        return again(seed);
    }
    let (seeds, from) = (variable("ENSEMBLE_SEEDS").unwrap_or(seeds), variable("ENSEMBLE_FROM").unwrap_or(0));
    let (next, outcomes) = (AtomicU64::new(from), Mutex::new((Statistics::default(), Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < from + seeds) {
                    let outcome = one(seed, Trace::off());
                    let mut outcomes = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match outcome {
                        Ok(statistics) => outcomes.0.add(&statistics),
                        Err(failure) => outcomes.1.push(failure.seed),
                    }
                }
            });
        }
    });
    let (statistics, mut failed) = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failed.sort_unstable();
    if let Some(&first) = failed.first() {
        eprintln!("{} seeds failed: {failed:?}", failed.len());
        again(first);
        panic!("seed {first} failed only once");
    }
    statistics
}
