//! An ensemble whose test says what happens to it.

use super::ServerId;
use crate::{Limits, Session, SessionState};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use zoolet_sim::ensemble::{DiskModel, Fate, Host, Plan, Trace};
use zoolet_sim::oracle::ClientId;

/// What is drawn of an ensemble, as how long its packets take: the same for each.
const SEED: u64 = 1;
/// Virtual time after which a future that is not ready counts as one that never will be.
const RUN_MAX: Duration = Duration::from_secs(300);
/// The session timeout when a test names none, as for a [`Node`](crate::Node)'s.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether the servers serve.
const LOOKS_EVERY_US: u64 = 1000;

/// Servers that are in memory and on virtual time. Time passes only in [`Ensemble::run`], [`Ensemble::advance`] and what says that it waits.
///
/// All of it is one thread's, and equal calls make equal runs.
///
/// ```
/// use zoolet::testing::Ensemble;
/// use zoolet::{Bytes, path};
///
/// let mut ensemble = Ensemble::in_memory(3);
/// let session = ensemble.session();
/// ensemble.run(session.create(path!("/door"), Bytes::from_static(b"closed")))?;
/// # Ok::<(), zoolet::Error>(())
/// ```
pub struct Ensemble {
    world: zoolet_sim::ensemble::World,
    parted: Vec<(ServerId, ServerId)>,
}

impl fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ensemble").field("now", &self.now()).field("leader", &self.leader()).finish_non_exhaustive()
    }
}

/// What there is.
impl Ensemble {
    /// So many servers, 1 to 7, which all serve. Their disks take no time; session timeouts are 1 to 20 s.
    ///
    /// # Panics
    /// With another number of servers.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// let ensemble = Ensemble::in_memory(3);
    /// assert!(ensemble.leader().is_some());
    /// ```
    pub fn in_memory(servers: u8) -> Self {
        assert!((1..=7).contains(&servers), "{servers} servers: allowed are 1 to 7");
        let steady = Plan::steady(servers, DiskModel::Instant, 0);
        // As small as takes the largest request there may be.
        let limits = Limits { log_segment_bytes: 2 << 20, ..steady.limits };
        let world = Plan { clients: 0, limits, ..steady }.build(SEED, Trace::off());
        let mut ensemble = Self { world, parted: Vec::new() };
        let serves =
            |ensemble: &Self, server| ensemble.world.witness().said(server).is_some_and(|said| said.is_serving);
        while !ensemble.servers().into_iter().all(|server| serves(&ensemble, server)) {
            ensemble.pass(LOOKS_EVERY_US);
            assert!(ensemble.now() < RUN_MAX, "the servers do not serve: {}", ensemble.told());
        }
        ensemble
    }

    /// All servers, in the order of their numbers.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// let numbers: Vec<u8> = Ensemble::in_memory(3).servers().into_iter().map(|server| server.as_u8()).collect();
    /// assert_eq!(numbers, [1, 2, 3]);
    /// ```
    pub fn servers(&self) -> Vec<ServerId> {
        self.world.servers()
    }

    /// Who leads, as far as that server knows.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// let ensemble = Ensemble::in_memory(1);
    /// assert_eq!(ensemble.leader(), Some(ensemble.servers()[0]));
    /// ```
    pub fn leader(&self) -> Option<ServerId> {
        self.world.leader()
    }

    /// The virtual time since the ensemble was made.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use std::time::Duration;
    /// let mut ensemble = Ensemble::in_memory(1);
    /// let began = ensemble.now();
    /// ensemble.advance(Duration::from_secs(3600));
    /// assert_eq!(ensemble.now() - began, Duration::from_secs(3600));
    /// ```
    pub fn now(&self) -> Duration {
        Duration::from_micros(self.world.now_us())
    }
}

/// Sessions, and what is done with them.
impl Ensemble {
    /// A session of a client that is in no server's process, with a timeout of 10 s: it moves to another server when its own is gone. Waits until it is served.
    ///
    /// # Panics
    /// When it is not served after 300 s of virtual time.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use zoolet::SessionState;
    /// let mut ensemble = Ensemble::in_memory(3);
    /// assert_eq!(ensemble.session().state(), SessionState::Connected);
    /// ```
    pub fn session(&mut self) -> Session {
        self.session_with(TIMEOUT)
    }

    /// The same with another timeout.
    ///
    /// # Panics
    /// As [`Ensemble::session`].
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use std::time::Duration;
    /// assert_eq!(Ensemble::in_memory(1).session_with(Duration::from_secs(3)).timeout_ms(), 3000);
    /// ```
    pub fn session_with(&mut self, timeout: Duration) -> Session {
        self.open(timeout, None)
    }

    /// A session in a server's own process, as [`Node::session`](crate::Node::session) gives it: it ends with that process.
    ///
    /// # Panics
    /// As [`Ensemble::session`].
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use zoolet::path;
    /// let mut ensemble = Ensemble::in_memory(3);
    /// let server = ensemble.servers()[1];
    /// let session = ensemble.session_in(server);
    /// assert!(ensemble.run(session.exists(path!("/"))).is_ok());
    /// ```
    pub fn session_in(&mut self, server: ServerId) -> Session {
        self.open(TIMEOUT, Some(server))
    }

    fn open(&mut self, timeout: Duration, home: Option<ServerId>) -> Session {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(i32::MAX as u32);
        let (_, session) = self.world.open(timeout_ms, home);
        let mut states = session.states();
        self.run(async { while states.next().await.is_some_and(|state| state != SessionState::Connected) {} });
        session
    }

    /// Lets time pass until the future is ready, and gives what it gives. It may borrow, and is dropped in time.
    ///
    /// # Panics
    /// When it is not ready after 300 s of virtual time: then it waits for something that does not happen here. When a server breaks a promise.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use zoolet::path;
    /// let mut ensemble = Ensemble::in_memory(1);
    /// let session = ensemble.session();
    /// let names = ensemble.run(async { session.children(path!("/")).await });
    /// assert!(names.is_ok());
    /// ```
    pub fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let until = self.now() + RUN_MAX;
        let until_us = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        let output = self.world.finish(future, until_us);
        self.check();
        output.unwrap_or_else(|| {
            panic!("the future is not ready after {} s of virtual time: {}", RUN_MAX.as_secs(), self.told())
        })
    }

    /// Runs a future beside everything else, while time passes. It is in the process of whoever has `session`, and ends with it.
    ///
    /// # Panics
    /// When the session is over.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use zoolet::path;
    /// # use std::time::Duration;
    /// let mut ensemble = Ensemble::in_memory(1);
    /// let (daemon, operator) = (ensemble.session(), ensemble.session());
    /// ensemble.spawn(&daemon.clone(), async move {
    ///     let watched = daemon.exists_and_watch(path!("/stop")).await;
    ///     drop(watched);
    /// });
    /// ensemble.advance(Duration::from_secs(1));
    /// ```
    pub fn spawn(&mut self, session: &Session, future: impl Future<Output = ()> + 'static) {
        let client = self.client(session);
        self.world.spawn(client, future);
    }

    /// Lets so much time pass.
    ///
    /// # Panics
    /// When a server breaks a promise.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use std::time::Duration;
    /// Ensemble::in_memory(3).advance(Duration::from_secs(60));
    /// ```
    pub fn advance(&mut self, time: Duration) {
        self.pass(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    fn pass(&mut self, for_us: u64) {
        let until_us = self.world.now_us().saturating_add(for_us);
        self.world.run_until(until_us);
        self.check();
    }
}

/// What goes wrong with servers.
impl Ensemble {
    /// The server's process dies, as by `kill -9`. Its disk stays; sessions in that process end with it.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use zoolet::{Bytes, path};
    /// let mut ensemble = Ensemble::in_memory(3);
    /// let session = ensemble.session();
    /// ensemble.run(session.create(path!("/kept"), Bytes::from_static(b"1")))?;
    /// for server in ensemble.servers() {
    ///     ensemble.kill(server);
    /// }
    /// for server in ensemble.servers() {
    ///     ensemble.restart(server);
    /// }
    /// let other = ensemble.session();
    /// assert!(ensemble.run(other.exists(path!("/kept")))?.is_some());
    /// # Ok::<(), zoolet::Error>(())
    /// ```
    pub fn kill(&mut self, server: ServerId) {
        self.world.kill_server(server);
    }

    /// A process on that server's disk, if there is none.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// let mut ensemble = Ensemble::in_memory(1);
    /// let server = ensemble.servers()[0];
    /// ensemble.kill(server);
    /// ensemble.restart(server);
    /// ensemble.session();
    /// ```
    pub fn restart(&mut self, server: ServerId) {
        self.world.start_server(server);
    }

    /// The server's process stands still, as by SIGSTOP, and so do the sessions in it.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use std::time::Duration;
    /// let mut ensemble = Ensemble::in_memory(3);
    /// let former = ensemble.leader().expect("nothing hinders them");
    /// ensemble.pause(former);
    /// ensemble.advance(Duration::from_secs(5));
    /// assert!(ensemble.leader().is_some_and(|leader| leader != former));
    /// ensemble.resume(former);
    /// ```
    pub fn pause(&mut self, server: ServerId) {
        self.world.pause(server);
    }

    /// It goes on, and finds what came meanwhile. [`Ensemble::pause`] has an example.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// let mut ensemble = Ensemble::in_memory(1);
    /// let server = ensemble.servers()[0];
    /// ensemble.pause(server);
    /// ensemble.resume(server);
    /// ensemble.session();
    /// ```
    pub fn resume(&mut self, server: ServerId) {
        self.world.resume(server);
    }

    /// No server of one side reaches one of the other until [`Ensemble::heal`]. Clients reach both.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use std::time::Duration;
    /// let mut ensemble = Ensemble::in_memory(3);
    /// let leader = ensemble.leader().expect("nothing hinders them");
    /// let others: Vec<_> = ensemble.servers().into_iter().filter(|server| *server != leader).collect();
    /// ensemble.partition(&[leader], &others);
    /// ensemble.advance(Duration::from_secs(5));
    /// assert!(ensemble.leader().is_some_and(|leader| others.contains(&leader)));
    /// ensemble.heal();
    /// ```
    pub fn partition(&mut self, one_side: &[ServerId], other_side: &[ServerId]) {
        for (one, other) in one_side.iter().flat_map(|&one| other_side.iter().map(move |&other| (one, other))) {
            self.world.part(one, other);
            self.parted.push((one, other));
        }
    }

    /// All servers reach each other again.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// let mut ensemble = Ensemble::in_memory(3);
    /// let servers = ensemble.servers();
    /// ensemble.partition(&servers[..1], &servers[1..]);
    /// ensemble.heal();
    /// ensemble.session_in(servers[0]);
    /// ```
    pub fn heal(&mut self) {
        for (one, other) in std::mem::take(&mut self.parted) {
            self.world.join(one, other);
        }
    }

    /// Nothing that the server asks of its disk ends for so long.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use zoolet::path;
    /// # use std::time::Duration;
    /// let mut ensemble = Ensemble::in_memory(1);
    /// let (server, session, began) = (ensemble.servers()[0], ensemble.session(), ensemble.now());
    /// ensemble.disk_hang(server, Duration::from_secs(2));
    /// let created = ensemble.run(session.create(path!("/late"), None));
    /// assert!(created.is_ok() && ensemble.now() - began >= Duration::from_secs(2));
    /// ```
    pub fn disk_hang(&mut self, server: ServerId, time: Duration) {
        self.world.hang_disk(server, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}

/// What goes wrong with sessions.
impl Ensemble {
    /// The ensemble closes the session although its owner lives, because it does not hear of him. Returns when he knows that it is lost.
    ///
    /// # Panics
    /// When that cannot be: the session is over already, it is in the process of the only server, or nobody serves.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use zoolet::{LostReason, SessionState};
    /// let mut ensemble = Ensemble::in_memory(3);
    /// let session = ensemble.session();
    /// ensemble.expire(&session);
    /// assert_eq!(session.state(), SessionState::Lost(LostReason::Expired));
    /// ```
    pub fn expire(&mut self, session: &Session) {
        self.strike(session, Fate::Expiry);
        let mut states = session.states();
        self.run(async { while states.next().await.is_some() {} });
    }

    /// The session's next write is carried out, and its connection breaks before the answer: its owner hears
    /// [`Error::ConnectionLoss`](crate::Error::ConnectionLoss). The session lives on.
    ///
    /// # Panics
    /// When the session is over.
    ///
    /// ```
    /// # use zoolet::testing::Ensemble;
    /// # use zoolet::{Error, path};
    /// let mut ensemble = Ensemble::in_memory(3);
    /// let (mine, other) = (ensemble.session(), ensemble.session());
    /// ensemble.lose_next_reply(&mine);
    /// assert_eq!(ensemble.run(mine.create(path!("/there"), None)), Err(Error::ConnectionLoss));
    /// ensemble.run(other.sync())?;
    /// assert!(ensemble.run(other.exists(path!("/there")))?.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lose_next_reply(&mut self, session: &Session) {
        self.strike(session, Fate::LostReply);
    }

    fn strike(&mut self, session: &Session, fate: Fate) {
        let client = self.client(session);
        assert!(self.world.strike_client(client, fate), "{fate:?} cannot be: {}", self.told());
    }

    fn client(&mut self, session: &Session) -> ClientId {
        self.world.client_of(session.id()).unwrap_or_else(|| {
            panic!("session {:#x} is over, or of another ensemble: {:?}", session.id().0, session.state())
        })
    }

    /// # Panics
    /// When a server breaks a promise.
    fn check(&self) {
        let violations = self.world.witness().violations();
        assert!(violations.is_empty(), "a server has broken a promise, which is a fault of zoolet: {violations:?}");
    }

    /// How it stands, for whoever waits in vain.
    fn told(&self) -> String {
        let is_running = |server: &ServerId| self.world.host(*server).is_some_and(Host::is_running);
        let running: Vec<_> = self.servers().into_iter().filter(is_running).map(ServerId::as_u8).collect();
        format!("servers that run: {running:?}, leader: {:?}", self.leader().map(ServerId::as_u8))
    }
}
