//! An ensemble whose faults the test chooses.

use super::ServerId;
use crate::{Client, Limits, Session, SessionState};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use zoolet_sim::ensemble::{DiskModel, Fate, Host, Opener, Plan, Trace};
use zoolet_sim::oracle::ClientId;

/// Seed of random values such as packet delays, the same for each ensemble.
const SEED: u64 = 1;
/// Virtual time after which a pending future counts as stuck.
const RUN_MAX: Duration = Duration::from_secs(300);
/// Session timeout if a test names none, as for a [`Node`](crate::Node).
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks whether all servers serve, microseconds.
const LOOKS_EVERY_US: u64 = 1000;

/// Returns a timeout as a session requests it.
fn milliseconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(i32::MAX as u32)
}

/// Servers in memory, on virtual time.
///
/// Time passes only in [`MemoryEnsemble::run`], [`MemoryEnsemble::advance`] and methods that say that they
/// wait. Everything runs on one thread, and equal calls make equal runs.
///
/// ```
/// use zoolet::testing::MemoryEnsemble;
/// use zoolet::path;
///
/// let mut ensemble = MemoryEnsemble::in_memory(3);
/// let session = ensemble.session();
/// ensemble.run(session.create(path!("/door"), "closed"))?;
/// # Ok::<(), zoolet::Error>(())
/// ```
pub struct MemoryEnsemble {
    world: zoolet_sim::ensemble::World,
    parted: Vec<(ServerId, ServerId)>,
}

impl fmt::Debug for MemoryEnsemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEnsemble")
            .field("now", &self.now())
            .field("leader", &self.leader())
            .finish_non_exhaustive()
    }
}

/// Creation and state.
impl MemoryEnsemble {
    /// Returns an ensemble of 1 to 7 servers, all serving.
    ///
    /// Their disks take no time. Session timeouts are 1 to 20 s.
    ///
    /// # Panics
    /// With another number of servers.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// let ensemble = MemoryEnsemble::in_memory(3);
    /// assert!(ensemble.leader().is_some());
    /// ```
    #[must_use]
    pub fn in_memory(servers: u8) -> Self {
        assert!((1..=7).contains(&servers), "{servers} servers: allowed are 1 to 7");
        let steady = Plan::steady(servers, DiskModel::Instant, 0);
        // The smallest segment that holds the largest request.
        let limits = Limits { log_segment_bytes: 2 << 20, ..steady.limits };
        let world = Plan { clients: 0, limits, ..steady }.build(SEED, Trace::off());
        let mut ensemble = Self { world, parted: Vec::new() };
        let serves =
            |ensemble: &Self, server| ensemble.world.witness().said(server).is_some_and(|said| said.is_serving);
        while !ensemble.servers().into_iter().all(|server| serves(&ensemble, server)) {
            ensemble.pass(LOOKS_EVERY_US);
            assert!(ensemble.now() < RUN_MAX, "the servers do not serve: {}", ensemble.described());
        }
        ensemble
    }

    /// Returns all servers, in order of their numbers.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// let numbers: Vec<u8> = MemoryEnsemble::in_memory(3).servers().into_iter().map(|server| server.as_u8()).collect();
    /// assert_eq!(numbers, [1, 2, 3]);
    /// ```
    #[must_use]
    pub fn servers(&self) -> Vec<ServerId> {
        self.world.servers()
    }

    /// Returns the leader of the newest epoch, as that server sees itself.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// let ensemble = MemoryEnsemble::in_memory(1);
    /// assert_eq!(ensemble.leader(), Some(ensemble.servers()[0]));
    /// ```
    #[must_use]
    pub fn leader(&self) -> Option<ServerId> {
        self.world.leader()
    }

    /// Returns the virtual time since the ensemble was created.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use std::time::Duration;
    /// let mut ensemble = MemoryEnsemble::in_memory(1);
    /// let began = ensemble.now();
    /// ensemble.advance(Duration::from_secs(3600));
    /// assert_eq!(ensemble.now() - began, Duration::from_secs(3600));
    /// ```
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_micros(self.world.now_us())
    }
}

/// Sessions, and work with them.
impl MemoryEnsemble {
    /// Opens a session of a client outside the servers' processes, with a timeout of 10 s.
    ///
    /// Waits until it is served. The session moves to another server when its server is gone.
    ///
    /// # Panics
    /// The session is not served within 300 s of virtual time.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::SessionState;
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
    /// assert_eq!(ensemble.session().state(), SessionState::Connected);
    /// ```
    pub fn session(&mut self) -> Session {
        self.session_with(TIMEOUT)
    }

    /// Like [`MemoryEnsemble::session`], with another timeout.
    ///
    /// # Panics
    /// As [`MemoryEnsemble::session`].
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use std::time::Duration;
    /// let timeout = Duration::from_secs(3);
    /// assert_eq!(MemoryEnsemble::in_memory(1).session_with(timeout).session_timeout(), timeout);
    /// ```
    pub fn session_with(&mut self, timeout: Duration) -> Session {
        self.open(timeout, None)
    }

    /// Opens a session in a server's process, like [`Node::session`](crate::Node::session).
    ///
    /// It ends with that process.
    ///
    /// # Panics
    /// As [`MemoryEnsemble::session`].
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::path;
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
    /// let server = ensemble.servers()[1];
    /// let session = ensemble.session_in(server);
    /// assert!(ensemble.run(session.exists(path!("/"))).is_ok());
    /// ```
    pub fn session_in(&mut self, server: ServerId) -> Session {
        self.open(TIMEOUT, Some(server))
    }

    /// Returns a client outside the servers' processes, which opens its next session when one ends.
    ///
    /// Its sessions are like those of [`MemoryEnsemble::session`]. [`MemoryEnsemble::expire`] ends the present
    /// one.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::path;
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
    /// let client = ensemble.client();
    /// let first = ensemble.run(client.session())?;
    /// ensemble.expire(&first);
    /// let next = ensemble.run(client.session())?;
    /// assert_ne!(first.id(), next.id());
    /// # Ok::<(), zoolet::Error>(())
    /// ```
    pub fn client(&mut self) -> Client<Opener> {
        self.client_with(TIMEOUT)
    }

    /// Like [`MemoryEnsemble::client`], with another timeout of its sessions.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use std::time::Duration;
    /// let mut ensemble = MemoryEnsemble::in_memory(1);
    /// let client = ensemble.client_with(Duration::from_secs(3));
    /// assert_eq!(ensemble.run(client.session())?.session_timeout(), Duration::from_secs(3));
    /// # Ok::<(), zoolet::Error>(())
    /// ```
    pub fn client_with(&mut self, timeout: Duration) -> Client<Opener> {
        Client::new(self.world.opener(milliseconds(timeout), None))
    }

    /// Returns what opens the sessions of [`MemoryEnsemble::client`], to be wrapped.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::recipes::{GrantChange, Recorded};
    /// # use zoolet::Client;
    /// let mut ensemble = MemoryEnsemble::in_memory(1);
    /// let client = Client::new(Recorded::new(ensemble.opener(), |change: &GrantChange<'_>| println!("{change:?}")));
    /// assert!(ensemble.run(client.session()).is_ok());
    /// ```
    pub fn opener(&mut self) -> Opener {
        self.world.opener(milliseconds(TIMEOUT), None)
    }

    /// Returns a client in a server's process, like [`Node::client`](crate::Node::client).
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
    /// let server = ensemble.servers()[1];
    /// let client = ensemble.client_in(server);
    /// assert!(ensemble.run(client.session()).is_ok());
    /// ```
    pub fn client_in(&mut self, server: ServerId) -> Client<Opener> {
        Client::new(self.world.opener(milliseconds(TIMEOUT), Some(server)))
    }

    fn open(&mut self, timeout: Duration, home: Option<ServerId>) -> Session {
        let (_, session) = self.world.open(milliseconds(timeout), home);
        let mut states = session.states();
        self.run(async { while states.next().await.is_some_and(|state| state != SessionState::Connected) {} });
        session
    }

    /// Lets time pass until a future is ready, and returns its output.
    ///
    /// The future may borrow: it is dropped before this returns.
    ///
    /// # Panics
    /// - The future is not ready within 300 s of virtual time: it waits for an event that does not
    ///   happen here.
    /// - A server breaks a promise.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::path;
    /// let mut ensemble = MemoryEnsemble::in_memory(1);
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
            panic!("the future is not ready after {} s of virtual time: {}", RUN_MAX.as_secs(), self.described())
        })
    }

    /// Runs a future in the background while time passes.
    ///
    /// It runs in the process of the owner of `session`, and ends with that process.
    ///
    /// # Panics
    /// The session is over.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::path;
    /// # use std::time::Duration;
    /// let mut ensemble = MemoryEnsemble::in_memory(1);
    /// let (daemon, operator) = (ensemble.session(), ensemble.session());
    /// ensemble.spawn(&daemon.clone(), async move {
    ///     let watched = daemon.exists_and_watch(path!("/stop")).await;
    ///     drop(watched);
    /// });
    /// ensemble.advance(Duration::from_secs(1));
    /// ```
    pub fn spawn(&mut self, session: &Session, future: impl Future<Output = ()> + 'static) {
        let client = self.client_of(session);
        self.world.spawn(client, future);
    }

    /// Lets `time` pass.
    ///
    /// # Panics
    /// A server breaks a promise.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use std::time::Duration;
    /// MemoryEnsemble::in_memory(3).advance(Duration::from_secs(60));
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

/// Faults of servers.
impl MemoryEnsemble {
    /// Kills a server's process, as `kill -9` does.
    ///
    /// Its disk survives. Sessions in that process end with it.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::path;
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
    /// let session = ensemble.session();
    /// ensemble.run(session.create(path!("/kept"), "1"))?;
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

    /// Starts a process on a server's disk, if none is running.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// let mut ensemble = MemoryEnsemble::in_memory(1);
    /// let server = ensemble.servers()[0];
    /// ensemble.kill(server);
    /// ensemble.restart(server);
    /// ensemble.session();
    /// ```
    pub fn restart(&mut self, server: ServerId) {
        self.world.start_server(server);
    }

    /// Suspends a server's process, as SIGSTOP does, and the sessions in it.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use std::time::Duration;
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
    /// let former = ensemble.leader().expect("nothing hinders them");
    /// ensemble.pause(former);
    /// ensemble.advance(Duration::from_secs(5));
    /// assert!(ensemble.leader().is_some_and(|leader| leader != former));
    /// ensemble.resume(former);
    /// ```
    pub fn pause(&mut self, server: ServerId) {
        self.world.pause(server);
    }

    /// Resumes a suspended server, which then handles all that arrived meanwhile.
    ///
    /// [`MemoryEnsemble::pause`] has an example.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// let mut ensemble = MemoryEnsemble::in_memory(1);
    /// let server = ensemble.servers()[0];
    /// ensemble.pause(server);
    /// ensemble.resume(server);
    /// ensemble.session();
    /// ```
    pub fn resume(&mut self, server: ServerId) {
        self.world.resume(server);
    }

    /// Cuts all links between two sides, until [`MemoryEnsemble::heal`]. Clients reach both sides.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use std::time::Duration;
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
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

    /// Restores all links between servers.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
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

    /// Hangs a server's disk: no operation completes for `time`.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::path;
    /// # use std::time::Duration;
    /// let mut ensemble = MemoryEnsemble::in_memory(1);
    /// let (server, session, began) = (ensemble.servers()[0], ensemble.session(), ensemble.now());
    /// ensemble.disk_hang(server, Duration::from_secs(2));
    /// let created = ensemble.run(session.create(path!("/late"), None));
    /// assert!(created.is_ok() && ensemble.now() - began >= Duration::from_secs(2));
    /// ```
    pub fn disk_hang(&mut self, server: ServerId, time: Duration) {
        self.world.hang_disk(server, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}

/// Faults of sessions.
impl MemoryEnsemble {
    /// Makes the ensemble expire a session whose owner is alive, as if it did not hear from the
    /// owner.
    ///
    /// Returns when the owner knows that the session is lost.
    ///
    /// # Panics
    /// The session is over already, it is in the process of the only server, or no server serves.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::{LostReason, SessionState};
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
    /// let session = ensemble.session();
    /// ensemble.expire(&session);
    /// assert_eq!(session.state(), SessionState::Lost(LostReason::Expired));
    /// ```
    pub fn expire(&mut self, session: &Session) {
        self.strike(session, Fate::Expiry);
        let mut states = session.states();
        self.run(async { while states.next().await.is_some() {} });
    }

    /// Carries out the session's next write, but breaks the connection before the reply.
    ///
    /// The owner gets [`ErrorKind::ConnectionLoss`](crate::ErrorKind::ConnectionLoss). The session lives
    /// on.
    ///
    /// # Panics
    /// The session is over.
    ///
    /// ```
    /// # use zoolet::testing::MemoryEnsemble;
    /// # use zoolet::{Error, ErrorKind, path};
    /// let mut ensemble = MemoryEnsemble::in_memory(3);
    /// let (mine, other) = (ensemble.session(), ensemble.session());
    /// ensemble.lose_next_reply(&mine);
    /// let lost = ensemble.run(mine.create(path!("/there"), None)).unwrap_err();
    /// assert_eq!(lost.kind(), ErrorKind::ConnectionLoss);
    /// ensemble.run(other.sync())?;
    /// assert!(ensemble.run(other.exists(path!("/there")))?.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lose_next_reply(&mut self, session: &Session) {
        self.strike(session, Fate::LostReply);
    }

    fn strike(&mut self, session: &Session, fate: Fate) {
        let client = self.client_of(session);
        assert!(self.world.strike_client(client, fate), "{fate:?} cannot be: {}", self.described());
    }

    fn client_of(&mut self, session: &Session) -> ClientId {
        self.world.client_of(session.id()).unwrap_or_else(|| {
            panic!("session {:#x} is over, or of another ensemble: {:?}", session.id().0, session.state())
        })
    }

    /// # Panics
    /// A server breaks a promise.
    fn check(&self) {
        let violations = self.world.witness().violations();
        assert!(violations.is_empty(), "a server has broken a promise, which is a fault of zoolet: {violations:?}");
    }

    /// Returns the servers' state, for messages about a test that is stuck.
    fn described(&self) -> String {
        let is_running = |server: &ServerId| self.world.host(*server).is_some_and(Host::is_running);
        let running: Vec<_> = self.servers().into_iter().filter(is_running).map(ServerId::as_u8).collect();
        format!("servers that run: {running:?}, leader: {:?}", self.leader().map(ServerId::as_u8))
    }
}
