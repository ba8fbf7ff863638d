//! `zoolet-fleet ID DATA CLIENT_PORT PEERS JOURNAL`: one member of a mixed fleet.
//!
//! It is a server of an ensemble, and its sessions contend with clients of other libraries. PEERS
//! are the addresses of all members, separated by commas. The member takes part in three fleets on
//! separate paths, until it reads a line from standard input. It prints `idle` when its contenders
//! are done, and serves until standard input ends. `tests/foreign/mixed/run` starts it.

#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

mod journal;

use journal::Journal;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use zoolet::config::{Ensemble, Server, TrustSource};
use zoolet::recipes::{Contention, Coordinator, Counter, Election, Lock, Naming, ReadWriteLock, Semaphore};
use zoolet::{Bytes, Config, Node, Path, Session, SessionOptions, SessionState, Version, Wait};

type Failure = Box<dyn std::error::Error>;

/// Short, so that the sessions of a killed member end within the run.
const SESSION: SessionOptions =
    SessionOptions { timeout: Some(Duration::from_secs(8)), watchdog: None, read_only: false };
/// Interval between two requests to a holder of another library.
const ASK_AFTER: Duration = Duration::from_millis(500);
/// Permits of each semaphore.
const PERMITS: u32 = 2;

/// Path, naming and recipe of each contest. The path begins with the fleet.
const CONTESTS: [(&str, Naming, Recipe); 13] = [
    ("curator/mutex", Naming::Curator, Recipe::Mutex),
    ("curator/read-write", Naming::Curator, Recipe::ReadWrite),
    ("curator/election", Naming::Curator, Recipe::Election),
    ("curator/semaphore", Naming::Curator, Recipe::Semaphore),
    ("curator/revocable", Naming::Curator, Recipe::Revocable),
    ("kazoo/mutex", Naming::Kazoo, Recipe::Mutex),
    ("kazoo/read-write", Naming::Kazoo, Recipe::ReadWrite),
    ("kazoo/election", Naming::Kazoo, Recipe::Election),
    ("kazoo/counter", Naming::Kazoo, Recipe::Counter),
    ("kazoo/listed", Naming::Kazoo, Recipe::Listed),
    ("all/mutex", Naming::Curator, Recipe::Mutex),
    ("all/read-write", Naming::Curator, Recipe::ReadWrite),
    ("all/election", Naming::Curator, Recipe::Election),
];

#[derive(Clone, Copy, Debug)]
enum Recipe {
    Mutex,
    ReadWrite,
    Election,
    Semaphore,
    Revocable,
    Counter,
    Listed,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [id, data, client_port, peers, journal] = &words[..] else {
        return Err("zoolet-fleet ID DATA CLIENT_PORT PEERS JOURNAL".into());
    };
    let process = format!("zoolet-{id}");
    let node = Arc::new(start(id.parse()?, data, client_port, peers)?);
    node.ready().wait()?;
    let journal = Arc::new(Journal::open(FilePath::new(journal), &process)?);
    let is_over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = CONTESTS
        .into_iter()
        .map(|(name, naming, recipe)| {
            let path = Path::new(format!("/mixed/{name}"))?;
            let contender = Contender {
                node: Arc::clone(&node),
                journal: Arc::clone(&journal),
                is_over: Arc::clone(&is_over),
                process: process.clone(),
                name,
                path,
                naming,
                recipe,
            };
            Ok(std::thread::spawn(move || contender.run()))
        })
        .collect::<Result<_, Failure>>()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    is_over.store(true, SeqCst);
    for thread in threads {
        thread.join().map_err(|_| "a contender panicked")?;
    }
    println!("idle");
    while std::io::stdin().read_line(&mut line)? > 0 {}
    Ok(())
}

fn start(id: u8, data: &str, client_port: &str, peers: &str) -> Result<Node, Failure> {
    let mut config = Config::new(data);
    config.server_id = id;
    config.clients = Some(format!("127.0.0.1:{client_port}").parse()?);
    config.four_letter_words = vec!["*".to_owned()];
    let members: Vec<_> = (1..).zip(peers.split(',')).map(|(id, address)| Server::new(id, address)).collect();
    config.ensemble = Some(Ensemble::new(members, TrustSource::Loopback));
    Ok(Node::start(config)?)
}

/// A contender: a thread with one session after the other.
struct Contender {
    node: Arc<Node>,
    journal: Arc<Journal>,
    is_over: Arc<AtomicBool>,
    process: String,
    name: &'static str,
    path: Path,
    naming: Naming,
    recipe: Recipe,
}

impl Contender {
    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    fn run(&self) {
        while !self.is_over() {
            let Ok(session) = self.node.session_with(&SESSION).wait() else {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            self.journal.tell("session", format_args!("{:x} -", session.id().0));
            while !self.is_over() && !self.is_ended(&session) {
                if let Err(error) = self.turn(&session) {
                    self.journal.tell("failed", format_args!("{} {error}", self.name));
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            if self.is_ended(&session) {
                self.journal.tell("lost", format_args!("{:x}", session.id().0));
            }
        }
    }

    fn is_ended(&self, session: &Session) -> bool {
        matches!(session.state(), SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed)
    }

    fn turn(&self, session: &Session) -> Result<(), Failure> {
        let (c, path) = (session.clone(), &self.path);
        let content = Bytes::from(self.process.clone());
        match self.recipe {
            Recipe::Mutex => {
                let grant = Lock::new(c, path).naming(self.naming).described(content).acquire().wait()?;
                self.inside(session, "x", grant.token(), work);
                grant.release().wait()?;
            }
            Recipe::ReadWrite => {
                let lock = ReadWriteLock::new(c, path).naming(self.naming).described(content);
                let writes = draw(session).is_multiple_of(3);
                let grant = if writes { lock.write().wait()? } else { lock.read().wait()? };
                self.inside(session, if writes { "x" } else { "s" }, grant.token(), work);
                grant.release().wait()?;
            }
            Recipe::Election => {
                let leader = Election::new(c, path).naming(self.naming).described(content).campaign().wait()?;
                self.inside(session, "x", leader.token(), work);
                leader.resign().wait()?;
            }
            Recipe::Semaphore => {
                let semaphore = Semaphore::new(c, path).naming(self.naming);
                semaphore.set_size(PERMITS).wait()?;
                let grant = semaphore.acquire().wait()?;
                self.inside(session, "2", grant.token(), work);
                grant.release().wait()?;
            }
            Recipe::Revocable => self.hold_until_asked(session, content)?,
            Recipe::Counter => {
                self.journal.tell("adding", self.name);
                Counter::new(c, path).add(1).wait()?;
                self.journal.tell("added", self.name);
                std::thread::sleep(Duration::from_millis(5));
            }
            Recipe::Listed => self.list(session, content)?,
        }
        Ok(())
    }

    /// Reports the grant before `during` runs, and its end before the grant is released.
    fn inside(&self, session: &Session, mode: &str, token: impl std::fmt::Display, during: impl FnOnce()) {
        let who = format!("{} {mode} {:x} {token}", self.name, session.id().0);
        self.journal.tell("enter", &who);
        during();
        self.journal.tell("leave", &who);
    }

    fn hold_until_asked(&self, session: &Session, content: Bytes) -> Result<(), Failure> {
        let lock = Lock::new(session.clone(), &self.path).naming(self.naming).described(content);
        let mut acquiring = std::pin::pin!(lock.acquire());
        let grant = loop {
            if let Some(grant) = acquiring.as_mut().wait_timeout(ASK_AFTER) {
                break grant?;
            }
            self.ask_another(session)?;
        };
        self.inside(session, "x", grant.token(), || {
            let asked = std::pin::pin!(grant.asked_to_release());
            let mut asked = asked;
            while !self.is_over() {
                if let Some(asked) = asked.as_mut().wait_timeout(ASK_AFTER) {
                    if asked.is_ok() {
                        self.journal.tell("asked", self.name);
                    }
                    break;
                }
            }
        });
        grant.release().wait()?;
        Ok(())
    }

    /// Asks a holder of another library for a release.
    fn ask_another(&self, session: &Session) -> Result<(), Failure> {
        let line = Contention::new(session.clone(), &self.path);
        let contenders = line.contenders().wait()?;
        let is_ours = |content: &Option<Bytes>| content.as_ref().is_some_and(|content| content.starts_with(b"zoolet"));
        if let Some(holder) = contenders.first().filter(|holder| !is_ours(&holder.content)) {
            line.ask_to_release(holder).wait()?;
        }
        Ok(())
    }

    /// Waits in line behind a client of kazoo, and publishes the contenders that it lists.
    fn list(&self, session: &Session, content: Bytes) -> Result<(), Failure> {
        let seen = Path::new(format!("/mixed/seen-by-{}", self.process))?;
        let line = Contention::new(session.clone(), &self.path);
        let lock = Lock::new(session.clone(), &self.path).naming(self.naming).described(content);
        let mut acquiring = std::pin::pin!(lock.acquire());
        if session.exists(&seen).wait()?.is_none() {
            session.create(&seen, Bytes::new()).wait()?;
        }
        while !self.is_over() {
            if let Some(grant) = acquiring.as_mut().wait_timeout(ASK_AFTER) {
                // Listings are compared only while kazoo holds the lock, so the member gives it
                // back.
                grant?.release().wait()?;
                return Ok(());
            }
            let contenders = line.contenders().wait()?;
            let names: Vec<_> = contenders.iter().map(|one| one.content.clone().unwrap_or_default()).collect();
            session.set(&seen, Bytes::from(names.join(&b","[..])), Version::Any).wait()?;
        }
        Ok(())
    }
}

/// The work of a holder.
fn work() {
    std::thread::sleep(Duration::from_millis(2));
}

fn draw(session: &Session) -> u128 {
    session.random_bits()
}
