//! Commands about quotas, by zkCli's algorithm: znodes below `/zookeeper/quota` hold the limits.
//!
//! These znodes are outside of a session's root, and so are the paths here, except in texts.

use super::super::Shell;
use super::super::arguments::Arguments;
use super::super::client::{Session, unexpected};
use super::super::failure::{Failure, code};
use super::super::output::Output;
use super::super::quota::Quota;
use super::super::table::{Choice, Command, Operands, Origin};
use super::super::walk;
use super::super::znode_path::{self, child};
use bytes::Bytes;
use serde_json::json;
use zoolet_model::{Create, CreateKind, CreateMode, Reply, Request, RequestedAcl, WriteOp};

const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

/// The options of a quota with their keys in its text.
const KEYS: [(&str, &str); 4] = [("n", "count"), ("b", "bytes"), ("N", "countHardLimit"), ("B", "byteHardLimit")];

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "setquota",
        usage: "-n|-b|-N|-B val path",
        options: &[
            Choice::value(
                "n",
                "N",
                "znodes of the subtree, its root included, as a soft limit: the server logs writes beyond it",
            ),
            Choice::value("b", "BYTES", "bytes of all data of the subtree, as a soft limit, as -n"),
            Choice::value(
                "N",
                "N",
                "znodes of the subtree, its root included, as a hard limit; the server refuses writes beyond it only with enforce_quotas (enforceQuota)",
            ),
            Choice::value("B", "BYTES", "bytes of all data of the subtree, as a hard limit, as -N"),
        ],
        says: "set a quota for a subtree",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "a limit that is no number exits with 1, zkCli's with 0; the quota commands work with a root in the address, zkCli's fail",
        run: set,
    },
    Command {
        name: "listquota",
        usage: "path",
        options: &[],
        says: "print the quota of a subtree and its usage; -1 is no limit",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "",
        run: list,
    },
    Command {
        name: "delquota",
        usage: "[-n|-b|-N|-B] path",
        options: &[
            Choice::flag("n", "only the soft limit of znodes"),
            Choice::flag("b", "only the soft limit of bytes"),
            Choice::flag("N", "only the hard limit of znodes"),
            Choice::flag("B", "only the hard limit of bytes"),
        ],
        says: "delete the quota of a subtree",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "",
        run: delete,
    },
];

fn set(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let (key, value) = limit(arguments)?;
    let session = shell.session()?;
    let shown = arguments.word(0)?;
    if session.outer(shown).starts_with(ROOT) {
        return Err(Failure::Text(format!("cannot set a quota under the path: {ROOT}")));
    }
    znode_path::check(shown).map_err(Failure::Text)?;
    let (path, outside) = (session.outer(shown), session.outside());
    if !exists(&outside, &path)? {
        return Err(Failure::Text(format!("{shown} does not exist.")));
    }
    znode_path::check(&place(&path)).map_err(Failure::Text)?;
    if let Some((relation, other)) = nested(&outside, &path)? {
        let other = session.inner(&other);
        return Err(Failure::Text(format!("{shown} has a {relation} {other} which has a quota")));
    }
    let quota = store(&outside, &path, key, value)?;
    let usage = read(&outside, &child(&place(&path), STATS))?.unwrap_or_default();
    Ok(Output::Many(quota.exceeded(&usage).into_iter().map(Output::said).collect()))
}

/// Returns the key and the value of the only limit that is given.
fn limit(arguments: &Arguments) -> Result<(&'static str, i64), Failure> {
    let given: Vec<&str> = arguments.options().collect();
    let Some(first) = given.first() else {
        let all = "[-n num soft quota, -b bytes soft quota, -N num hard quota, -B bytes hard quota]";
        return Err(Failure::Text(format!("Missing required option: {all}")));
    };
    if let Some(second) = given.iter().find(|name| *name != first) {
        return Err(Failure::Text(format!(
            "The option '{second}' was specified but an option from this group has already been selected: '{first}'"
        )));
    }
    let complaint = "NumberFormatException happens when parsing the option value";
    let value: i64 = arguments.parsed(first, complaint)?.unwrap_or(-1);
    let counts = matches!(*first, "n" | "N");
    if counts && i32::try_from(value).is_err() {
        return Err(Failure::text(complaint));
    }
    match value {
        ..=0 if counts => return Err(Failure::text("the num quota must be greater than zero")),
        ..0 => return Err(Failure::text("the bytes quota must be greater than or equal to zero")),
        _ => {}
    }
    let key = KEYS.iter().find(|(name, _)| name == first).map_or("", |(_, key)| key);
    Ok((key, value))
}

/// Returns the znode that holds the quota of a path.
fn place(path: &str) -> String {
    format!("{ROOT}{path}")
}

fn exists(session: &Session, path: &str) -> Result<bool, Failure> {
    match session.ask(Request::Exists { path: path.into(), watch: false }) {
        Ok(_) => Ok(true),
        Err(failure) if failure.is(code::NO_NODE) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn read(session: &Session, path: &str) -> Result<Option<Quota>, Failure> {
    match session.ask(Request::GetData { path: path.into(), watch: false }) {
        Ok(Reply::Data(data, _)) => Ok(Some(Quota::parse(&String::from_utf8_lossy(&data.unwrap_or_default())))),
        Ok(_) => Err(unexpected()),
        Err(failure) if failure.is(code::NO_NODE) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns another quota above or below a path, and its relation to the path.
fn nested(session: &Session, path: &str) -> Result<Option<(&'static str, String)>, Failure> {
    match walk::subtree(session, &place(path)) {
        Ok(below) => {
            let own = child(&place(path), LIMITS);
            let other = below.iter().find(|found| found.ends_with(&format!("/{LIMITS}")) && **found != own);
            if let Some(other) = other {
                let other = other.trim_start_matches(ROOT).trim_end_matches(&format!("/{LIMITS}"));
                return Ok(Some(("child", other.to_owned())));
            }
        }
        Err(failure) if failure.is(code::NO_NODE) => {}
        Err(failure) => return Err(failure),
    }
    let mut above = path;
    while let Some((parent, _)) = zoolet_model::path::parent_and_name(above).filter(|(parent, _)| *parent != "/") {
        if exists(session, &child(&place(parent), LIMITS))? {
            return Ok(Some(("parent", parent.to_owned())));
        }
        above = parent;
    }
    Ok(None)
}

/// Writes a limit; returns the whole quota.
fn store(session: &Session, path: &str, key: &str, value: i64) -> Result<Quota, Failure> {
    let limits = child(&place(path), LIMITS);
    if let Some(mut quota) = read(session, &limits)? {
        quota.set(key, value);
        let data = Some(Bytes::from(quota.to_string()));
        session.ask(Request::Write(WriteOp::SetData { path: limits.into(), data, version: -1 }))?;
        Ok(quota)
    } else {
        create_parents(session, path)?;
        let mut quota = Quota::unlimited();
        quota.set(key, value);
        create(session, &limits, Some(quota.to_string()))?;
        create(session, &child(&place(path), STATS), Some("count=0,bytes=0".to_owned()))?;
        Ok(quota)
    }
}

fn create_parents(session: &Session, path: &str) -> Result<(), Failure> {
    let mut at = ROOT.to_owned();
    for name in path.trim_start_matches('/').split('/') {
        at = child(&at, name);
        create(session, &at, None)?;
    }
    Ok(())
}

/// Creates a znode that may exist already.
fn create(session: &Session, path: &str, data: Option<String>) -> Result<(), Failure> {
    let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
    let (path, data, acl) = (path.into(), data.map(Bytes::from), Some(RequestedAcl::open()));
    match session.ask(Request::Write(WriteOp::Create(Create { path, data, acl, mode, with_stat: false }))) {
        Err(failure) if !failure.is(code::NODE_EXISTS) => Err(failure),
        _ => Ok(()),
    }
}

fn list(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    let session = shell.session()?;
    let (place, session) = (place(&session.outer(&path)), session.outside());
    let limits = child(&place, LIMITS);
    shell.emit(&Output::Note(format!("absolute path is {limits}")))?;
    let Some(quota) = read(&session, &limits)? else {
        let value = json!({ "path": path.as_str(), "quota": null, "usage": null });
        return Ok(Output::Remark(format!("quota for {path} does not exist."), value));
    };
    let stats = read(&session, &child(&place, STATS))?;
    let mut text = format!("Output quota for {path} {quota}");
    if let Some(stats) = &stats {
        text += &format!("\nOutput stat for {path} {stats}");
    }
    let value = json!({ "path": path.as_str(), "quota": quota.json(), "usage": stats.map(|stats| stats.json()) });
    Ok(Output::Text(text, value))
}

fn delete(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let shown = arguments.path(0)?;
    let session = shell.session()?;
    let (path, session) = (session.outer(&shown), session.outside());
    let limits = child(&place(&path), LIMITS);
    let Some(mut quota) = read(&session, &limits)? else {
        return Ok(Output::said(format!("Quota does not exist for {shown}")));
    };
    let chosen = KEYS.iter().filter(|(name, _)| arguments.has(name)).map(|(_, key)| *key);
    let keys: Vec<&str> = chosen.collect();
    if keys.is_empty() {
        return remove(&session, &path).map(|()| Output::Nothing);
    }
    keys.into_iter().for_each(|key| quota.set(key, -1));
    let data = Some(Bytes::from(quota.to_string()));
    session.ask(Request::Write(WriteOp::SetData { path: limits.into(), data, version: -1 }))?;
    Ok(Output::Nothing)
}

/// Deletes a quota, and the znodes above it that have no child left.
fn remove(session: &Session, path: &str) -> Result<(), Failure> {
    let delete = |path: &str| session.ask(Request::Write(WriteOp::Delete { path: path.into(), version: -1 }));
    for name in walk::children(session, &place(path), false)? {
        delete(&child(&place(path), &name))?;
    }
    let mut at = place(path);
    while at != ROOT && walk::children(session, &at, false)?.is_empty() {
        delete(&at)?;
        at.truncate(at.rfind('/').unwrap_or(0));
    }
    Ok(())
}
