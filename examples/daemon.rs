//! One complete daemon: run it on each box, and stop, kill or unplug any of them.
//!
//! One of the daemons leads and counts, and the next leader goes on with the next number. Each is a
//! member that all others see, follows a setting, and works on jobs whose results are written once.
//! All of this goes on when a session is lost. On Ctrl-C or SIGTERM it hands everything over at once.
//!
//! `cargo run --example daemon -- NAME DIRECTORY`, or on each of several boxes
//! `cargo run --example daemon -- NAME DIRECTORY NUMBER site.key HOST1 HOST2 HOST3`. Then use
//! zkCli at port 2180 + NUMBER, or 2181: `create /daemon/interval_ms 200`, `create -s /daemon/jobs/queue- weld`.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::path::Path as FilePath;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use zoolet::config::{Ensemble, Server, TrustSource};
use zoolet::recipes::{Change, Configuration, Election, Following, Hold, OpenSession, Queue, Update, Watched};
use zoolet::{Client, Config, Coordinator, CoordinatorExt, Error, KeptFile, Node, Op, Znode, path};

/// Maximum attempts at a job; after that an operator has to look at it.
const ATTEMPTS_MAX: u32 = 3;

/// The setting: the leader's pause between two numbers, in milliseconds.
type Setting<O> = Following<O, Configuration<<O as OpenSession>::Session, u64>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [name, directory, ensemble @ ..] = &arguments[..] else {
        return Err("daemon NAME DIRECTORY [NUMBER KEY HOST...]".into());
    };
    let mut config = Config::new(FilePath::new(directory).join("data"));
    if let [number, key, hosts @ ..] = ensemble {
        let servers: Vec<_> = (1..).zip(hosts).map(|(id, host)| Server::new(id, host)).collect();
        config.server_id = number.parse()?;
        config.ensemble = Some(Ensemble::new(servers, TrustSource::SiteKeyFile(key.into())));
    }
    config.clients = Some(([127, 0, 0, 1], 2180 + u16::from(config.server_id)).into());
    let node = Node::start_async(config).await?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut roles = start(node.client(), name.clone(), KeptFile::new(FilePath::new(directory).join("interval_ms")));
    let mut ended = None;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
        // A role ends if a request is refused for good, its work fails, or the node ends.
        role = roles.join_next() => {
            println!("{role:?}");
            ended = role;
        }
    }
    // Drops the roles: the leader resigns, the member leaves, and a claimed job is free again.
    roles.shutdown().await;
    node.shutdown_async(Duration::from_secs(5)).await?;
    ended.transpose()?.transpose()?;
    Ok(())
}

/// Starts all roles of the daemon, each as a task.
fn start<O: OpenSession>(client: Client<O>, name: String, file: KeptFile) -> JoinSet<Result<(), Error>> {
    let kept = file.read().ok().flatten().and_then(|data| String::from_utf8(data).ok()?.trim().parse().ok());
    let setting = client.configuration(path!("/daemon/interval_ms"), Some(kept.unwrap_or(1_000)));
    let every = setting.recipe().watched();
    let mut roles = JoinSet::new();
    roles.spawn(configure(setting, file));
    roles.spawn(lead(client.clone(), name.clone(), every));
    roles.spawn(stay(client.clone(), name));
    roles.spawn(see(client.clone()));
    roles.spawn(async move { client.run(work).await });
    roles
}

/// Stands for election and counts in each term, over all sessions.
pub async fn lead<O: OpenSession>(client: Client<O>, name: String, every: Watched<u64>) -> Result<(), Error> {
    let election = |session| Election::new(session, path!("/daemon/leader")).described(name.as_str());
    client.lead(election, |term| count(term, every.clone())).await
}

/// Counts on from the former leader's number. The client pauses it while it is in doubt who leads.
async fn count<C: Coordinator>(term: Hold<C>, every: Watched<u64>) -> Result<(), Error> {
    let (session, counter) = (term.session(), path!("/daemon/count"));
    // This server may not have applied the former leader's last write yet.
    session.sync().await?;
    let mut count = match session.get(counter).await {
        // Not counted from 0 again: the role ends with this error, and an operator has to look at it.
        Ok(znode) => number(&znode)?,
        Err(error) if error.is_no_node() => 0,
        Err(error) => return Err(error),
    };
    loop {
        count += 1;
        // Fenced: a leader that was stopped for a while cannot write over its successor's number.
        term.fenced().put(counter, count.to_string()).await?;
        session.sleep(Duration::from_millis(every.value().map_or(1_000, |ms| (*ms).max(10)))).await;
    }
}

fn number(znode: &Znode) -> Result<u64, Error> {
    let number = znode.text().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::other(format!("/daemon/count holds {:?}; set a number", znode.text())))
}

/// Is a member of the group while the daemon runs, over all sessions.
pub async fn stay<O: OpenSession>(client: Client<O>, name: String) -> Result<(), Error> {
    match client.member(path!("/daemon/members"), name, "up").keep().await? {}
}

/// Reports the members that come and go.
async fn see<O: OpenSession>(client: Client<O>) -> Result<(), Error> {
    let mut members = client.children(path!("/daemon/members"));
    loop {
        match members.next().await? {
            Change::Put { name, .. } => println!("{name} is up"),
            Change::Gone { name } => println!("{name} has gone"),
            _ => {}
        }
    }
}

/// Follows the setting, and keeps the last good value in a file, for a start without a quorum.
async fn configure<O: OpenSession>(mut setting: Setting<O>, file: KeptFile) -> Result<(), Error> {
    loop {
        match setting.next().await? {
            Update::Accepted(bytes) => drop(file.write(bytes).map_err(|error| println!("{error}"))),
            Update::Rejected(reason) => println!("{reason}; the former value stays"),
            _ => {}
        }
    }
}

/// Works on jobs. The result and the end of a job are one transaction.
async fn work<C: Coordinator>(session: C) -> Result<(), Error> {
    let queue = Queue::new(session.clone(), path!("/daemon/jobs"));
    session.ensure(path!("/daemon/results")).await?;
    loop {
        let claim = queue.claim().await?;
        if claim.attempts() > ATTEMPTS_MAX {
            claim.bury().await?;
            continue;
        }
        let result = [claim.item(), &b" done"[..]].concat();
        let path = path!("/daemon/results").join(claim.token().to_string())?;
        match claim.complete([Op::create(&path, result)]).await {
            // The claim was broken, and another daemon has the job: nothing was written.
            Err(error) if error.is_grant_lost() => {}
            completed => completed?,
        }
    }
}
