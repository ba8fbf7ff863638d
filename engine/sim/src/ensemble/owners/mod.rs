//! Clients whose requests come from futures: recipes, and code that embedders write.
//!
//! The futures hold the same [`Session`] type as in production. A simulated client sends its
//! requests, over the network or within a server's process. Its time is the time of the client's
//! machine. Requests are recorded like those of other clients, so all oracles judge them.
//!
//! [`World::open`] returns a session, and [`World::spawn`] runs the futures that use it.
//! [`Scenario`] does both for many clients, under faults.

mod client_context;
mod executor;
mod fate;
mod line;
mod opener;
mod scenario;
mod timer;

pub use client_context::{ClientContext, Fact, Next};
pub(super) use fate::Due;
pub use fate::Fate;
pub(super) use line::Line;
pub use opener::{Opener, Opening};
pub use scenario::{Ran, Scenario, run_judged, run_seeds_of, run_with};
pub use timer::OwnClock;
pub use zoolet_session::Timer;

use super::client::{Client, ToClient};
use super::host::Host;
use super::world::{Happening, World};
use super::{Clock, DRIFT_PPM_MAX, Rank};
use crate::oracle::ClientId;
use crate::workload::Random;
use executor::{Executor, Spawner};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use zoolet_machine::ConnId;
use zoolet_model::SessionId;
use zoolet_session::Session;
use zoolet_zab::ServerId;

/// Polls at one instant before the run counts as a livelock.
const POLLS_AT_ONCE_MAX: u64 = 100_000;

/// State of a client with futures, beside its connection.
#[derive(Debug)]
struct Owned {
    line: Line,
    clock: OwnClock,
    /// The end of its pause.
    paused_until_us: Option<u64>,
    /// The end of its cut from all servers.
    cut_until_us: Option<u64>,
    is_expiring: bool,
    /// Input that its kernel took while the client was paused.
    held: Vec<(ConnId, ToClient)>,
    is_dead: bool,
}

impl Owned {
    fn is_sound(&self) -> bool {
        self.paused_until_us.is_none() && self.cut_until_us.is_none() && !self.is_expiring
    }
}

/// All such clients of a world.
///
/// They draw from a separate generator, so that nothing else depends on them.
pub(super) struct Owners {
    random: Random,
    executor: Executor,
    owned: BTreeMap<ClientId, Owned>,
    now_us: Arc<AtomicU64>,
    /// Sessions that the clients' own futures have asked for.
    orders: opener::Orders,
}

impl Owners {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x0043_4e5e);
        let executor = Executor::new(random.fork());
        Self { random, executor, owned: BTreeMap::new(), now_us: Arc::default(), orders: Arc::default() }
    }

    /// Sets the run's time for the clients' clocks.
    pub(super) fn set_time(&self, now_us: u64) {
        if !self.owned.is_empty() {
            self.now_us.store(now_us, Relaxed);
        }
    }

    /// Returns whether no fate of a client still lasts.
    pub(super) fn are_sound(&self) -> bool {
        self.owned.values().all(Owned::is_sound)
    }

    /// Ends a dead client: nothing that the destructors of its futures request is sent.
    pub(super) fn bury(&mut self, id: ClientId) {
        let Some(owned) = self.owned.get_mut(&id) else { return };
        owned.line.shut();
        owned.held.clear();
        owned.is_dead = true;
        self.executor.drop_tasks_of(id);
    }

    /// Holds back input of a paused client until it continues.
    pub(super) fn hold(&mut self, id: ClientId, conn: ConnId, what: ToClient) {
        if let Some(owned) = self.owned.get_mut(&id).filter(|owned| !owned.is_dead) {
            owned.held.push((conn, what));
        }
    }

    fn is_dead(&self, id: ClientId) -> bool {
        self.owned.get(&id).is_none_or(|owned| owned.is_dead)
    }

    fn is_paused(&self, id: ClientId) -> bool {
        self.owned.get(&id).is_some_and(|owned| owned.paused_until_us.is_some())
    }
}

/// Sessions and futures of clients.
impl World {
    /// Adds a client, and returns it with a session.
    ///
    /// The client runs on a separate machine, or in the process of the server `home`. The session
    /// is `Suspended` until it is served. It closes when its last clone is dropped.
    pub fn open(&mut self, timeout_ms: u32, home: Option<ServerId>) -> (ClientId, Session) {
        let now_us = self.now_us();
        self.owners.now_us.store(now_us, Relaxed);
        let id = ClientId(self.clients.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        let random = &mut self.owners.random;
        let drift_ppm = random.between(0, 2 * DRIFT_PPM_MAX as u64 + 1) as i64 - DRIFT_PPM_MAX;
        let clock = Clock::new(now_us, random.logarithmic(1, 1 << 40), drift_ppm);
        let clock = OwnClock::new(clock, Arc::clone(&self.owners.now_us), random.fork());
        let (line, session) = Line::new(timeout_ms, &clock);
        let timeout_ms = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
        let servers = self.hosts.keys().copied().collect();
        let client = Client::owned(id, servers, timeout_ms, line.clone(), random.fork());
        self.clients.insert(id, if let Some(home) = home { client.in_process(home) } else { client });
        let owned = Owned {
            line,
            clock,
            paused_until_us: None,
            cut_until_us: None,
            is_expiring: false,
            held: Vec::new(),
            is_dead: false,
        };
        self.owners.owned.insert(id, owned);
        self.arm_client(id);
        (id, session)
    }

    /// Returns another session of a client whose last session is over, or that died.
    ///
    /// After a death the client begins another life on the same machine.
    ///
    /// # Panics
    /// When the client still has a session, or its requests do not come from futures.
    pub fn reopen(&mut self, id: ClientId, timeout_ms: u32) -> Session {
        let now_us = self.now_us();
        let client = self.clients.get_mut(&id).filter(|client| client.is_gone()).expect("its session is over");
        let owned = self.owners.owned.get_mut(&id).expect("its requests come from futures");
        let (line, session) = Line::new(timeout_ms, &owned.clock);
        (owned.line, owned.is_dead) = (line.clone(), false);
        client.revive(now_us, line);
        self.arm_client(id);
        session
    }

    /// Runs a future of a client until it ends or the client dies. It need not be `Send`.
    pub fn spawn(&mut self, client: ClientId, future: impl Future<Output = ()> + 'static) {
        self.owners.executor.spawner().spawn(client, future);
        // The new task is polled with the next event, which is this one.
        let now_us = self.now_us();
        self.around.agenda.at(now_us, Rank::News, Happening::Owner(Due::Timer(client)));
    }

    /// Polls a future outside all clients whenever it is woken, and runs the world meanwhile.
    ///
    /// Returns `None` if the future is not ready by `until_us`, or after a violation.
    ///
    /// # Panics
    /// When the future wakes itself without end.
    pub fn finish<T>(&mut self, future: impl Future<Output = T>, until_us: u64) -> Option<T> {
        let (mut future, (woken, waker)) = (std::pin::pin!(future), executor::alarm());
        let mut polls = 0;
        loop {
            while woken.take() {
                polls += 1;
                assert!(polls < POLLS_AT_ONCE_MAX, "a future wakes itself without end at {} us", self.now_us());
                self.owners.now_us.store(self.now_us(), Relaxed);
                let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
                // Send the requests of this poll at this instant.
                self.run_owners();
                self.note_sent();
                if let Poll::Ready(output) = polled {
                    return Some(output);
                }
            }
            polls = 0;
            if !self.witness().violations().is_empty() || !self.step(until_us) {
                return None;
            }
        }
    }

    /// Returns the client that has this session.
    pub fn client_of(&self, session: SessionId) -> Option<ClientId> {
        let mut owned = self.clients.iter().filter(|(_, client)| client.is_owned());
        owned.find(|(_, client)| client.session() == Some(session)).map(|(&id, _)| id)
    }

    /// Returns the clock of a client's machine.
    ///
    /// # Panics
    /// When the client's requests do not come from futures.
    pub fn clock_of(&self, client: ClientId) -> OwnClock {
        self.owners.owned.get(&client).map(|owned| owned.clock.clone()).expect("its requests come from futures")
    }

    /// Returns whether a client has unfinished futures.
    pub fn has_tasks_of(&self, client: ClientId) -> bool {
        self.owners.executor.has_tasks_of(client)
    }

    /// Returns how often a client's futures were polled.
    pub fn polls_of(&self, client: ClientId) -> u64 {
        self.owners.executor.polls_of(client)
    }

    /// Returns whether a client has no session and requests none: its session is over, or it is
    /// dead.
    pub fn is_gone(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_none_or(Client::is_gone)
    }

    fn spawner(&self) -> Spawner {
        self.owners.executor.spawner()
    }

    /// Returns whether a client pings and reads.
    ///
    /// In a server's process, the threads of that process do so for the client.
    pub(super) fn reads(&self, id: ClientId) -> bool {
        match self.clients.get(&id).and_then(Client::home) {
            Some(home) => self.hosts.get(&home).is_some_and(Host::is_running),
            None => !self.owners.is_paused(id),
        }
    }

    /// Polls the woken futures and sends their requests.
    pub(super) fn run_owners(&mut self) {
        self.carry_out_orders();
        if self.owners.owned.is_empty() {
            return;
        }
        let now_us = self.now_us();
        if self.around.has_changed {
            self.read_held();
        }
        for poll in 0.. {
            assert!(poll < POLLS_AT_ONCE_MAX, "futures wake each other without end at {now_us} us");
            let Self { owners, hosts, clients, .. } = self;
            let Owners { executor, owned, .. } = owners;
            let polls = |id: ClientId| {
                let is_paused = owned.get(&id).is_none_or(|owned| owned.paused_until_us.is_some());
                let home = clients.get(&id).and_then(Client::home);
                !is_paused && home.is_none_or(|home| hosts.get(&home).is_some_and(Host::is_running))
            };
            if !executor.poll_one(polls) && !self.carry_out_orders() {
                break;
            }
        }
        self.send_said();
    }

    /// Delivers held-back input to clients that run again, before anything else.
    fn read_held(&mut self) {
        let holding = self.owners.owned.iter().filter(|(_, owned)| !owned.held.is_empty());
        let holding: Vec<ClientId> = holding.map(|(&id, _)| id).collect();
        let now_us = self.now_us();
        for id in holding {
            if !self.reads(id) {
                continue;
            }
            let held = self.owners.owned.get_mut(&id).map(|owned| std::mem::take(&mut owned.held));
            let Some(client) = self.clients.get_mut(&id) else { continue };
            for (conn, what) in held.unwrap_or_default() {
                client.on_arrival(now_us, conn, what, &mut self.around.wires, &mut self.around.witness);
            }
            self.arm_client(id);
        }
    }

    fn send_said(&mut self) {
        let now_us = self.now_us();
        let Self { around, owners, clients, .. } = self;
        for (&id, owned) in &owners.owned {
            if let Some(client) = clients.get_mut(&id) {
                client.send_said(now_us, &mut around.wires, &mut around.witness);
                if let Some(at_us) = client.arm() {
                    around.agenda.at(at_us, Rank::Deadline, Happening::Client(id));
                }
            }
            if let Some(at_us) = owned.clock.arm() {
                around.agenda.at(at_us, Rank::Deadline, Happening::Owner(Due::Timer(id)));
            }
        }
    }
}
