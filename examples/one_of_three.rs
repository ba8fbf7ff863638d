//! A daemon that is one of three servers.
//!
//! Each box runs it with a different number. The ensemble serves while any two boxes are up.
//!
//! Run `zoolet keygen --out site.key` once, and copy the file (mode 0600) to every box. Then run
//! this on each box:
//!
//! `cargo run --example one_of_three -- NUMBER DIRECTORY site.key HOST1 HOST2 HOST3`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::config::{Ensemble, Server, TrustSource};
use zoolet::{AddWatchMode, Config, CreateOptions, Node, Session, Version, Wait, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [number, directory, key, hosts @ ..] = &arguments[..] else {
        return Err("one_of_three NUMBER DIRECTORY KEY HOST...".into());
    };
    let node = member(number.parse()?, directory, key, hosts)?;
    // Waits until two servers have found each other, however long that takes.
    node.ready().wait()?;
    let session = node.session().wait()?;
    println!("started {} times, all boxes together", count_start(&session)?);
    session.create_with(path!("/boxes/box-"), None, &CreateOptions::ephemeral().sequential()).wait()?;
    let mut events = session.watch(path!("/boxes"), AddWatchMode::Persistent).wait()?;
    loop {
        println!("{} boxes are up", session.children(path!("/boxes")).wait()?.len());
        if events.next().wait().is_none() {
            break;
        }
    }
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// Starts server `number` of the servers at `hosts`.
///
/// A host is a name or an address, with `:PORT` (UDP) where the port is not 2888. All boxes must
/// list the same hosts.
pub fn member(number: u8, directory: &str, key: &str, hosts: &[String]) -> Result<Node, zoolet::StartError> {
    let members: Vec<_> = (1..).zip(hosts).map(|(id, host)| Server::new(id, host)).collect();
    let mut config = Config::new(directory);
    config.server_id = number;
    config.ensemble = Some(Ensemble::new(members, TrustSource::SiteKeyFile(key.into())));
    Node::start(config)
}

/// Counts a start; the znode belongs to all boxes.
pub fn count_start(session: &Session) -> Result<i32, zoolet::Error> {
    for path in [path!("/boxes"), path!("/starts")] {
        session.ensure(path).wait()?;
    }
    Ok(session.set(path!("/starts"), None, Version::Any).wait()?.version)
}
