//! How long a daemon that leads cannot write when the server leader dies.
//!
//! The daemon's session is at another server, which lives on. It leads by `Client::lead`, and its
//! writes are fenced.

use crate::{Failure, free_addresses};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use zoolet::config::{Ensemble, Server, TrustSource};
use zoolet::recipes::{Client, Coordinator, CoordinatorExt, Election, Hold, OpenSession};
use zoolet::{Config, Error, Node, SessionOptions, Wait, path};
use zoolet_recipes::remote::Servers;

/// Pause between two writes of the daemon.
const WRITES_EVERY: Duration = Duration::from_millis(5);
/// Writes before the server leader is dropped.
const WRITES_BEFORE: usize = 100;
/// Time without writes of an idle daemon, before the server leader is dropped.
const IDLE: Duration = Duration::from_secs(1);

/// How the daemon is connected, and when it writes.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Over TCP to the server of its box, otherwise in its process.
    tcp: bool,
    /// Writes nothing for a second before the server leader dies, and then at once. Otherwise it
    /// writes every 5 ms.
    idle: bool,
}

impl Shape {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (tcp, idle) = match name {
            "busy" => (false, false),
            "idle" => (false, true),
            "tcp" => (true, false),
            "tcp-idle" => (true, true),
            _ => return None,
        };
        Some(Self { tcp, idle })
    }
}

/// Kills the server leader `times` times, each time of new servers.
pub(crate) fn measure(
    runtime: &Runtime,
    data: &str,
    shape: Shape,
    timeout: Duration,
    times: usize,
) -> Result<Value, Failure> {
    let (mut gaps, mut terms) = (Vec::new(), Vec::new());
    for time in 0..times {
        // Where the daemon's own server is elected, new servers elect again.
        let (gap, begun) = loop {
            if let Some(measured) = once(runtime, &format!("{data}/{time}"), shape, timeout)? {
                break measured;
            }
            std::fs::remove_dir_all(format!("{data}/{time}"))?;
        };
        gaps.push(gap.as_millis());
        terms.push(begun);
    }
    gaps.sort_unstable();
    let lost = terms.iter().filter(|begun| **begun != 1).count();
    let median = gaps.get(gaps.len() / 2);
    Ok(json!({ "timeout_ms": timeout.as_millis() as u64, "times": times, "office_lost": lost,
        "gap_ms_median": median.map(|gap| *gap as u64), "gap_ms_worst": gaps.last().map(|gap| *gap as u64) }))
}

/// A server in a process of its own, killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs server `id` of the servers at `addresses` until the process is killed.
pub(crate) fn serve(data: &str, id: u8, addresses: &[&str]) -> Result<Value, Failure> {
    Err(format!("{:?}", node(data, id, addresses, None)?.stopped().wait()).into())
}

fn node(data: &str, id: u8, addresses: &[&str], clients: Option<SocketAddr>) -> Result<Node, Failure> {
    let members: Vec<_> = (1..).zip(addresses).map(|(id, address)| Server::new(id, address)).collect();
    let mut config = Config::new(format!("{data}/{id}"));
    config.server_id = id;
    config.settings.session_timeout_min_ms = 1000;
    config.clients = clients;
    config.ensemble = Some(Ensemble::new(members, TrustSource::Loopback));
    Ok(Node::start(config)?)
}

/// Returns the longest gap between two writes of the daemon, and how many terms it began.
///
/// Of an idle daemon it is the time from the death until its next write is done, which begins at
/// once. `None` if the daemon's own server leads.
fn once(runtime: &Runtime, data: &str, shape: Shape, timeout: Duration) -> Result<Option<(Duration, u32)>, Failure> {
    std::fs::create_dir_all(data)?;
    let addresses = free_addresses(3)?;
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    // Two servers elect one of them, before the daemon's own server joins.
    let process = |id: u8| {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.args(["node", data, &id.to_string()]).args(&addresses).stdout(Stdio::null()).spawn()?;
        Ok::<_, Failure>((id, Process(child)))
    };
    let mut processes = vec![process(1)?, process(2)?];
    let clients = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let own = node(data, 3, &addresses, Some(clients))?;
    own.ready().wait()?;
    let leading = loop {
        let status = own.status().wait().ok_or("the node has ended")?;
        match status.server.summary().leader.map(|leader| leader.as_u8()) {
            Some(3) => return Ok(None),
            Some(leader) => break leader,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let dies = move || {
        processes.retain(|(id, _)| *id != leading);
        processes
    };
    let measured = if shape.tcp {
        let servers = Servers::new(clients.to_string()).session_timeout(timeout);
        lead_on(runtime, &Client::new(servers), shape, timeout, dies)?
    } else {
        let options = SessionOptions { timeout: Some(timeout), ..SessionOptions::default() };
        lead_on(runtime, &Client::new(own.sessions(options)), shape, timeout, dies)?
    };
    drop(own);
    std::fs::remove_dir_all(data)?;
    Ok(Some(measured))
}

/// Lets a daemon lead while the server leader dies; returns what [`once`] does.
fn lead_on<O: OpenSession, L>(
    runtime: &Runtime,
    client: &Client<O>,
    shape: Shape,
    timeout: Duration,
    dies: impl FnOnce() -> L,
) -> Result<(Duration, u32), Failure> {
    let (written, writes) = mpsc::channel();
    let terms = Arc::new(AtomicU32::new(0));
    let awake = Arc::new(Semaphore::new(if shape.idle { WRITES_BEFORE + 1 } else { Semaphore::MAX_PERMITS }));
    let daemon = runtime.spawn({
        let (client, terms, awake) = (client.clone(), Arc::clone(&terms), Arc::clone(&awake));
        async move {
            let work = |term: Hold<O::Session>| {
                let (written, awake) = (written.clone(), Arc::clone(&awake));
                terms.fetch_add(1, SeqCst);
                async move {
                    for count in 0_u64.. {
                        awake.acquire().await.map_err(Error::other)?.forget();
                        term.fenced().put(path!("/count"), count.to_string()).await?;
                        if written.send(Instant::now()).is_err() {
                            break;
                        }
                        term.session().sleep(WRITES_EVERY).await;
                    }
                    Ok::<_, Error>(())
                }
            };
            client.lead(|session| Election::new(session, path!("/leader")), work).await
        }
    });
    let mut last = writes.recv()?;
    for _ in 0..WRITES_BEFORE {
        last = writes.recv()?;
    }
    let session = runtime.block_on(client.session())?;
    assert_eq!(session.session_timeout(), timeout, "the server grants what was asked for");
    if shape.idle {
        std::thread::sleep(IDLE);
    }
    let dropped = Instant::now();
    let _alive = dies();
    if shape.idle {
        last = dropped;
        awake.add_permits(Semaphore::MAX_PERMITS / 2);
    }
    let mut longest = Duration::ZERO;
    // A lost office would come back after a session timeout at most, and an election.
    while last < dropped + timeout + Duration::from_secs(3) {
        let next = writes.recv_timeout(timeout + Duration::from_secs(20))?;
        if !shape.idle || longest.is_zero() {
            longest = longest.max(next - last);
        }
        last = next;
        if last > dropped + Duration::from_secs(2) && terms.load(SeqCst) == 1 {
            break;
        }
    }
    drop(writes);
    runtime.block_on(daemon)??;
    Ok((longest, terms.load(SeqCst)))
}
