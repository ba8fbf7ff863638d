//! A device daemon without an executor. It shows with an ephemeral that it is alive, and follows a
//! part of the tree. Other processes of the box reach the same tree on a port, with any ZooKeeper
//! client.
//!
//! Run `cargo run --example blocking_daemon -- DIRECTORY`, then `set /config/interval 5` from
//! zkCli. It ends when `/config/stop` is created.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::path::PathBuf;
use std::time::Duration;
use zoolet::{AddWatchMode, Config, CreateOptions, EventKind, Node, Session, Wait, WatchItem, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data: PathBuf = std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into()).into();
    let mut config = Config::new(data);
    config.clients = Some("127.0.0.1:2181".parse()?);
    let node = Node::start(config)?;
    let session = node.session().wait()?;
    follow(&session, |line| println!("{line}"))?;
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// Reports every change below `/config` until `/config/stop` appears.
pub fn follow(session: &Session, mut tell: impl FnMut(String)) -> Result<(), zoolet::Error> {
    session.ensure(path!("/config")).wait()?;
    let mut changes = session.watch(path!("/config"), AddWatchMode::PersistentRecursive).wait()?;
    session.create_with(path!("/alive"), None, &CreateOptions::ephemeral()).wait()?;
    tell("alive".to_owned());
    while let Some(item) = changes.next().wait() {
        match item {
            WatchItem::Event(event) if event.kind == EventKind::NodeCreated && event.path == "/config/stop" => break,
            WatchItem::Event(event) => tell(format!("{:?} {}", event.kind, event.path)),
            // Another client wrote faster than this one reads: only the state itself is certain.
            WatchItem::Gap => tell(format!("now {:?}", session.children(path!("/config")).wait()?)),
        }
    }
    Ok(())
}
