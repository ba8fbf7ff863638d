//! How long a daemon that leads cannot write when the server leader dies.
//!
//! The daemon's session is at another server, which lives on. It leads by `Client::lead`, and writes
//! fenced all the time.

use crate::{Failure, free_addresses};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use zoolet::config::{Ensemble, Server, TrustSource};
use zoolet::recipes::{Client, Election, Hold};
use zoolet::{Config, Error, Node, Session, SessionOptions, Wait, path};

/// Pause between two writes of the daemon.
const WRITES_EVERY: Duration = Duration::from_millis(5);
/// Writes before the server leader is dropped.
const WRITES_BEFORE: usize = 100;

/// Kills the server leader `times` times, each time of new servers.
pub(crate) fn measure(runtime: &Runtime, data: &str, timeout: Duration, times: usize) -> Result<Value, Failure> {
    let (mut gaps, mut terms) = (Vec::new(), Vec::new());
    for time in 0..times {
        // Where the daemon's own server is elected, new servers elect again.
        let (gap, begun) = loop {
            if let Some(measured) = once(runtime, &format!("{data}/{time}"), timeout)? {
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
    Err(format!("{:?}", node(data, id, addresses)?.stopped().wait()).into())
}

fn node(data: &str, id: u8, addresses: &[&str]) -> Result<Node, Failure> {
    let members: Vec<_> = (1..).zip(addresses).map(|(id, address)| Server::new(id, address)).collect();
    let mut config = Config::new(format!("{data}/{id}"));
    config.server_id = id;
    config.settings.session_timeout_min_ms = 1000;
    config.ensemble = Some(Ensemble::new(members, TrustSource::Loopback));
    Ok(Node::start(config)?)
}

/// Returns the longest gap between two writes of the daemon, and how many terms it began.
///
/// `None` if the daemon's own server leads.
fn once(runtime: &Runtime, data: &str, timeout: Duration) -> Result<Option<(Duration, u32)>, Failure> {
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
    let own = node(data, 3, &addresses)?;
    own.ready().wait()?;
    let leading = loop {
        let status = own.status().wait().ok_or("the node has ended")?;
        match status.server.summary().leader.map(|leader| leader.as_u8()) {
            Some(3) => return Ok(None),
            Some(leader) => break leader,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let client = Client::new(own.sessions(SessionOptions { timeout: Some(timeout), ..SessionOptions::default() }));
    let (written, writes) = mpsc::channel();
    let terms = Arc::new(AtomicU32::new(0));
    let daemon = runtime.spawn({
        let (client, terms) = (client.clone(), Arc::clone(&terms));
        async move {
            let work = |term: Hold<Session>| {
                let written = written.clone();
                terms.fetch_add(1, SeqCst);
                async move {
                    for count in 0_u64.. {
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
    let (dropped, mut longest) = (Instant::now(), Duration::ZERO);
    processes.retain(|(id, _)| *id != leading);
    // A lost office would come back after a session timeout at most, and an election.
    while last < dropped + timeout + Duration::from_secs(3) {
        let next = writes.recv_timeout(timeout + Duration::from_secs(20))?;
        longest = longest.max(next - last);
        last = next;
        if last > dropped + Duration::from_secs(2) && terms.load(SeqCst) == 1 {
            break;
        }
    }
    drop(writes);
    runtime.block_on(daemon)??;
    drop((client, session, own, processes));
    std::fs::remove_dir_all(data)?;
    Ok(Some((longest, terms.load(SeqCst))))
}
