//! Many clients with futures under faults of servers and fates of clients.
//!
//! After the faults everything is healed, and all clients must finish. Then all observations are
//! judged.

use super::client_context::Journal;
use super::{ClientContext, Fact, Fate, Next};
use crate::ensemble::host::Host;
use crate::ensemble::world::World;
use crate::ensemble::{Failure, Kind, MS, Mix, Plan, SECOND, Sessions, Statistics, Trace, conclude};
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

/// Interval of the checks whether clients are done.
const LOOKS_EVERY_US: u64 = 20 * MS;
/// An undisturbed ensemble is born by this time.
const BORN_US: u64 = 2 * SECOND;
/// Bounds for the drawn duration of faults and fates, in microseconds.
const DRAWN_US: (u64, u64) = (18 * SECOND, 30 * SECOND);
/// Lines of trace shown for a failure.
const LINES: u64 = 400;

/// Parameters of a run; the seed decides the rest.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The servers and their faults. The plan's own clients come in addition to those below.
    pub plan: Plan,
    /// The server in whose process each client lives; `None` for a client on its own machine.
    pub homes: Vec<Option<ServerId>>,
    /// Bounds of the session timeouts that clients request, in milliseconds.
    pub timeouts_ms: (u32, u32),
    /// Fates of clients, with their times in microseconds. The victim is drawn when the fate
    /// strikes.
    pub fates: Vec<(u64, Fate)>,
    /// Bounds of a dead client's absence, in microseconds.
    pub away_us: (u64, u64),
    /// One dead client in this many never returns; 0 means that all return.
    ///
    /// Clients in a server's process always return.
    pub stays_away_one_in: u64,
    /// Time that clients have to finish after everything is healed, in microseconds.
    pub finishes_us: u64,
}

impl Scenario {
    /// Returns a scenario of `clients` clients and one to seven undisturbed servers.
    ///
    /// In half of the seeds, about half of the clients live in servers' processes.
    pub fn peaceful(seed: u64, clients: usize) -> Self {
        let mut random = Random::new(seed ^ 0x5ce4e);
        let mut plan = Plan { clients: 0, operations_min: 0, ..Plan::peaceful(seed) };
        if plan.sessions == Sessions::Local {
            // Owners need ephemerals.
            plan.sessions = Sessions::Upgraded;
        }
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

    /// Returns a scenario with the seed's faults of servers, fates of clients, or both.
    pub fn drawn(seed: u64, clients: usize) -> Self {
        let peaceful = Self::peaceful(seed, clients);
        let mut random = Random::new(seed ^ 0xfa7e5);
        let with_faults = Plan::ensemble(seed);
        // One in four has only fates, one in four only faults, half have both.
        let which = random.below(4);
        let mix = if which == 0 { Mix::of(&[]) } else { with_faults.mix };
        // The duration is short enough that clients fill it with work ([`ClientContext::goes_on`]).
        let safety_us = random.between(DRAWN_US.0, DRAWN_US.1);
        // Four faults before birth would leave a short run without servers for most of its time.
        let plan = Plan { mix, faults: (4, 14), early_faults: 1, faults_min: 0, safety_us, ..peaceful.plan };
        let fates = if which == 1 { Vec::new() } else { Fate::drawn(plan.safety_us, &mut random) };
        Self { plan, fates, ..peaceful }
    }

    /// Makes one in four of the dead clients never return.
    #[must_use]
    pub fn where_some_stay_away(self) -> Self {
        Self { stays_away_one_in: 4, ..self }
    }

    /// Removes these kinds of server faults.
    pub fn without(mut self, kinds: &[Kind]) -> Self {
        let rest: Vec<Kind> = self.plan.mix.kinds().filter(|kind| !kinds.contains(kind)).collect();
        self.plan.mix = Mix::of(&rest);
        self
    }
}

impl Fate {
    /// Draws fates of some kinds between 0.5 s and `to_us` microseconds, in order.
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

/// The outcome of a run in which the ensemble did nothing wrong.
#[derive(Debug)]
pub struct Ran<F> {
    /// Facts that clients recorded, in order.
    pub facts: Vec<Fact<F>>,
    /// Requests and answers of clients, and committed entries.
    pub history: History,
    /// Totals of the run.
    pub statistics: Statistics,
    /// Polls of each client's futures.
    pub polls: Vec<u64>,
    /// Fates that struck.
    pub struck: Vec<Fate>,
    /// Clients of the scenario, in order.
    clients: Vec<ClientId>,
}

impl<F> Ran<F> {
    /// Returns the requests of this client.
    pub fn asked_by(&self, client: usize) -> impl Iterator<Item = &Operation> {
        let is_theirs = move |asked: &&Operation| self.history.connection_of(asked).client == self.clients[client];
        self.history.operations.iter().filter(is_theirs)
    }

    /// Returns how many requests of a kind this client sent.
    pub fn requests_of(&self, client: usize, is_it: impl Fn(&Request) -> bool) -> usize {
        self.asked_by(client).filter(|asked| is_it(&asked.request)).count()
    }

    /// Returns every change of a znode, in order.
    ///
    /// # Errors
    /// A violation, if the history is impossible.
    pub fn changed(&self) -> Result<Vec<Changed>, String> {
        changed(&self.history).map_err(|violation| violation.to_string())
    }

    /// Returns the client that had this session.
    pub fn client_of(&self, session: SessionId) -> Option<usize> {
        let connection = self.history.connections.iter().find(|one| one.session() == Some(session))?;
        self.clients.iter().position(|client| *client == connection.client)
    }

    /// Returns how many lists of children this client requested.
    pub fn lists_of(&self, client: usize) -> usize {
        self.requests_of(client, |request| matches!(request, Request::GetChildren { .. }))
    }

    /// Returns when the server process around a session ended, in microseconds of the run.
    ///
    /// The session ends with that process, regardless of any answer before. `None` for other
    /// sessions.
    pub fn orphaned_us(&self, session: SessionId) -> Option<u64> {
        let theirs = self.history.connections.iter().filter(|connection| connection.session() == Some(session));
        theirs.filter_map(|connection| connection.orphaned).map(|moment| moment.us).min()
    }

    /// Returns how many watch events reached this client.
    pub fn events_of(&self, client: usize) -> usize {
        let theirs = self.history.connections.iter().filter(|connection| connection.client == self.clients[client]);
        let received = theirs.flat_map(|connection| &connection.received);
        received.filter(|received| matches!(received, Received::Event(..))).count()
    }
}

/// One client, as the run supervises it.
struct Looked {
    id: ClientId,
    timeout_ms: u32,
    life: u32,
    next: Rc<Cell<Option<Next>>>,
    is_done: bool,
    /// The start of its next life.
    returns_us: Option<u64>,
}

/// A run in progress.
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

/// Runs `body` for each session of each client.
///
/// The caller judges the recorded facts.
///
/// # Errors
/// [`Failure`] when clients did not finish, or an observation is wrong.
pub fn run_with<F, B, W>(seed: u64, scenario: &Scenario, trace: Trace, body: &B) -> Result<Ran<F>, Failure>
where
    F: fmt::Debug + 'static,
    B: Fn(ClientContext<F>) -> W,
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
    B: Fn(ClientContext<F>) -> W,
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

    /// Begins a life of a client.
    fn live(&mut self, number: usize, session: Session) {
        let looked = &self.clients[number];
        let context = ClientContext {
            number,
            life: looked.life,
            session,
            client: looked.id,
            clock: self.world.clock_of(looked.id),
            journal: self.journal.clone(),
            goes_on_until_us: self.scenario.plan.safety_us / 5 * 4,
            spawner: self.world.spawner(),
            opener: self.world.opener_of(looked.id, looked.timeout_ms),
            trace: self.trace.clone(),
        };
        let (id, next) = (looked.id, Rc::clone(&looked.next));
        let served = served(context.session.clone());
        // The future is created before the session is served and polled afterwards. It does nothing
        // before its first poll.
        let work = (self.body)(context);
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

    /// Runs the world until `until_us`, or until all clients are done.
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
            // The session is over, but the client's futures have not heard of it yet.
            None if !self.world.owners.is_dead(looked.id) => {}
            None => match looked.returns_us {
                Some(returns_us) if returns_us > now_us && !self.is_healed => {}
                Some(_) => self.begin_again(number),
                None => self.send_away(number),
            },
        }
    }

    /// Decides when a dead client returns, or that it does not.
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

/// Waits until the session is served; `false` if it ends before.
async fn served(session: Session) -> bool {
    let mut states = session.states();
    while let Some(state) = states.next().await {
        if state == SessionState::Connected {
            return true;
        }
    }
    false
}

/// Runs a scenario, and lets `judge` judge it after all other checks.
///
/// A panic counts as a failure.
///
/// # Errors
/// [`Failure`] of [`run_with`], or with the text of `judge`.
pub fn run_judged<F, B, W>(
    seed: u64,
    scenario: &Scenario,
    trace: Trace,
    body: &B,
    judge: impl Fn(&Ran<F>) -> Result<(), String>,
) -> Result<Statistics, Failure>
where
    F: fmt::Debug + 'static,
    B: Fn(ClientContext<F>) -> W,
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

/// Runs a scenario with `seeds` seeds on two threads and lets `judge` judge each run.
///
/// Environment variables:
///
/// - `ENSEMBLE_SEEDS=N`: number of seeds.
/// - `ENSEMBLE_FROM=N`: first seed; the default is 0.
/// - `ENSEMBLE_SEED=S`: runs only this seed and prints its last events if it fails.
/// - `ENSEMBLE_LINES=N`: lines to print, 400 by default; with it a successful seed prints them too.
///
/// # Panics
/// When a seed failed; the message has the trace of the first one. The list of failed seeds is
/// printed before.
#[allow(clippy::print_stderr, reason = "what a seed had in it, for people")]
pub fn run_seeds_of<F, B, W>(
    seeds: u64,
    scenario: impl Fn(u64) -> Scenario + Sync,
    body: B,
    judge: impl Fn(&Ran<F>) -> Result<(), String> + Sync,
) -> Statistics
where
    F: fmt::Debug + 'static,
    B: Fn(ClientContext<F>) -> W + Sync,
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
