//! Checks that all servers hold the same state, and that it is what clients were promised.

use crate::history::{self, Last};
use crate::load::{self, FIRST, Seen, TOP};
use crate::site::{Server, Site};
use crate::{Outcome, said};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use zoolet_model::Request;
use zoolet_powercut::check::Observed;
use zoolet_powercut::client::{Client, Joined};

const SESSION_TIMEOUT_MS: i32 = 10_000;
const PATIENCE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(100);

/// The tree as a server shows it after a sync.
type Tree = BTreeMap<String, (bytes::Bytes, zoolet_model::Stat)>;

/// Checks the final state, when a load is over and all servers run.
///
/// - Every server serves.
/// - A client of each server sees the same tree after a sync.
/// - That tree agrees with the answers that the load's clients got.
/// - All servers have one digest at one zxid (zoolet only; the other products report none).
///
/// # Errors
/// The first check that fails.
pub fn check(site: &Site, keys: usize, seen: &Seen) -> Outcome<()> {
    site.wait_for_all()?;
    let trees = site.servers().iter().map(|server| Ok((server.place.id, read_in_time(server)?)));
    let trees: Vec<(u8, Tree)> = trees.collect::<Outcome<_>>()?;
    let Some(((first, tree), others)) = trees.split_first() else { return Err("no servers".to_owned()) };
    for (id, other) in others {
        if let Some(difference) = difference(tree, other) {
            return Err(format!("servers {first} and {id} differ: {difference}"));
        }
    }
    let last = (0..keys).map(|key| last(tree, key)).collect::<Outcome<Vec<_>>>()?;
    history::check(&seen.operations, FIRST, &last).map_err(|violation| violation.to_string())?;
    if site.plan.product.is_zoolet() { same_digest(site) } else { Ok(()) }
}

fn last(tree: &Tree, key: usize) -> Outcome<Last> {
    let (data, stat) = tree.get(&load::path(key)).ok_or_else(|| format!("key {key} is gone"))?;
    let value = load::value(data).ok_or_else(|| format!("key {key} holds {data:?}"))?;
    Ok(Last { version: stat.version, value })
}

/// Retries, because a server that has just come back may still act in its former role and break off
/// once more.
fn read_in_time(server: &Server) -> Outcome<Tree> {
    let until = Instant::now() + PATIENCE;
    loop {
        match read(server) {
            Err(_) if Instant::now() < until => std::thread::sleep(RETRY),
            outcome => return outcome,
        }
    }
}

/// Returns the tree of [`TOP`] that a client of this server sees after a sync.
///
/// Session znodes of other clients come and go, so they are not compared.
fn read(server: &Server) -> Outcome<Tree> {
    let named = format!("server {}", server.place.id);
    let joined = Client::join(server.client(), None, SESSION_TIMEOUT_MS, PATIENCE).map_err(said(&named))?;
    let Joined::Client(mut client) = joined else { return Err(format!("{named} gives no session")) };
    match client.ask(&Request::Sync { path: Some(TOP.into()) }).map_err(said(&named))? {
        Some((_, Ok(_))) => {}
        other => return Err(format!("{named}: sync: {other:?}")),
    }
    let observed = Observed::read(&mut client).map_err(said(&named))?.ok_or_else(|| format!("{named} closes"))?;
    client.ask(&Request::CloseSession).map_err(said(&named))?;
    Ok(observed.znodes.into_iter().filter(|(path, _)| path.starts_with(TOP)).collect())
}

fn difference(one: &Tree, other: &Tree) -> Option<String> {
    let of_one = one.iter().find(|(path, znode)| other.get(*path) != Some(znode));
    let path = of_one.map(|(path, _)| path).or_else(|| other.keys().find(|path| !one.contains_key(*path)))?;
    Some(format!("{path} is {:?} and {:?}", one.get(path), other.get(path)))
}

/// Waits until all servers have applied the same zxid, and compares their digests.
///
/// # Errors
/// They never reach one zxid, or their digests differ.
pub fn same_digest(site: &Site) -> Outcome<()> {
    let mut digests = BTreeMap::new();
    site.wait("all servers have the same zxid", || {
        digests = site.servers().iter().filter_map(|server| Some((server.place.id, digest(server)?))).collect();
        let mut zxids = digests.values().map(|(zxid, _): &(String, String)| zxid);
        let first = zxids.next();
        digests.len() == site.servers().len() && zxids.all(|zxid| Some(zxid) == first)
    })?;
    let mut values = digests.values().map(|(_, digest)| digest);
    let first = values.next();
    if values.all(|digest| Some(digest) == first) { Ok(()) } else { Err(format!("digests differ: {digests:?}")) }
}

/// Returns the zxid and the digest of the whole state at that zxid.
fn digest(server: &Server) -> Option<(String, String)> {
    let figures = server.figures().ok()?;
    let (zxid, digest) = figures.get("digest")?.split_once(": ")?;
    Some((zxid.to_owned(), digest.to_owned()))
}
