//! Reads. The outcome is decided here from memory; only bytes may be left to fetch from the base.

use crate::record::acl::{self, Identity};
use crate::record::key::{self, Key};
use crate::record::znode::{Data, Znode};
use crate::seam::action::{FetchWhat, Listing, Pending, PendingRead};
use crate::seam::completion::many;
use crate::state::{Found, Stuck, View};
use bytes::Bytes;
use zoolet_model::{
    ErrorCode, EventKind, Names, NamesBuilder, Perms, Read, ReadOp, ReadResult, Reply, SessionId, Stat, Text,
    TimeToLive,
};

/// A decided read.
#[derive(Debug)]
pub(crate) enum Determined {
    /// The complete reply.
    Reply(Reply),
    /// The outcome is final. Bytes still have to be read from the base.
    Pending(Pending),
}

/// Why a read has no outcome, or fails.
enum Stop {
    Missing(FetchWhat),
    Damaged(&'static str),
    Failed(ErrorCode),
}

impl From<ErrorCode> for Stop {
    fn from(code: ErrorCode) -> Self {
        Self::Failed(code)
    }
}

type Decided<T> = Result<Result<T, ErrorCode>, Stuck>;

fn decided<T>(done: Result<T, Stop>) -> Decided<T> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Failed(code)) => Ok(Err(code)),
        Err(Stop::Missing(what)) => Err(Stuck::Missing(vec![what])),
        Err(Stop::Damaged(what)) => Err(Stuck::Damaged(what)),
    }
}

/// Decides a read.
///
/// Paths are not validated: an invalid path names no znode, and the empty path is `/` (surface
/// 7.4). The caller registers watches, because they depend on the outcome. `ensemble_ms` is
/// ensemble time by this server's clock.
///
/// # Errors
/// [`Stuck`] if a record is not in memory or is damaged.
pub(crate) fn read(
    view: &mut impl View,
    identity: &Identity,
    session: SessionId,
    read: Read<'_>,
    ensemble_ms: u64,
) -> Decided<Determined> {
    decided(match read {
        Read::Exists { path, .. } => exists_checked(view, identity, path).map(Reply::Stat).map(Determined::Reply),
        Read::GetData { path, .. } => data(view, identity, path),
        Read::GetChildren { path, with_stat, .. } => children(view, identity, path, with_stat),
        Read::GetAcl { path } => get_acl(view, identity, path).map(Determined::Reply),
        Read::GetEphemerals { prefix } => Ok(ephemerals(view, session, prefix)),
        Read::GetAllChildrenNumber { path } => descendants(view, identity, path),
        Read::GetTtl { path } => time_to_live(view, identity, path, ensemble_ms).map(Reply::Ttl).map(Determined::Reply),
        Read::MultiRead(reads) => return multi(view, identity, reads),
    })
}

/// Returns a znode's Stat without a permission check, for setWatches.
///
/// # Errors
/// [`Stuck`] if its record is not in memory or is damaged.
fn exists(view: &mut impl View, path: &str) -> Result<Option<Stat>, Stuck> {
    let found = find(view, path).and_then(|record| record.map(|record| Ok(decode(&record)?.stat())).transpose());
    match decided(found)? {
        Ok(stat) => Ok(stat),
        Err(_) => Ok(None),
    }
}

/// The read that set a watch, before its client lost the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remembered {
    /// The data of a znode.
    Data,
    /// The absence of a znode.
    Absence,
    /// The children of a znode.
    Children,
}

/// Returns the event that a watch missed since `since_zxid`, if any (surface 5.5).
///
/// # Errors
/// [`Stuck`] if the record is not in memory or is damaged.
pub(crate) fn missed(
    view: &mut impl View,
    set_by: Remembered,
    path: &Text,
    since_zxid: i64,
) -> Result<Option<EventKind>, Stuck> {
    let stat = exists(view, path)?;
    Ok(match (set_by, stat) {
        (Remembered::Absence, stat) => stat.map(|_| EventKind::NodeCreated),
        (Remembered::Data | Remembered::Children, None) => Some(EventKind::NodeDeleted),
        (Remembered::Data, Some(stat)) => (stat.mzxid > since_zxid).then_some(EventKind::NodeDataChanged),
        (Remembered::Children, Some(stat)) => (stat.pzxid > since_zxid).then_some(EventKind::NodeChildrenChanged),
    })
}

fn exists_checked(view: &mut impl View, identity: &Identity, path: &str) -> Result<Stat, Stop> {
    if path.contains('\0') {
        return Err(ErrorCode::BadArguments.into());
    }
    let record = existing(view, path)?;
    Ok(readable(identity, Perms::READ, &record)?.stat())
}

/// Returns a znode's time to live. It needs the permissions of exists, which shows the Stat.
fn time_to_live(view: &mut impl View, identity: &Identity, path: &str, ensemble_ms: u64) -> Result<TimeToLive, Stop> {
    let record = existing(view, path)?;
    Ok(readable(identity, Perms::READ, &record)?.time_to_live(ensemble_ms))
}

fn data(view: &mut impl View, identity: &Identity, path: &str) -> Result<Determined, Stop> {
    let record = existing(view, path)?;
    let znode = readable(identity, Perms::READ, &record)?;
    Ok(match known_data(view, path, &record, &znode)? {
        Ok((data, stat)) => Determined::Reply(Reply::Data(data, stat)),
        Err((key, stat)) => Determined::Pending(Pending::Data { key, stat }),
    })
}

type KnownData = Result<(Option<Bytes>, Stat), (Key, Stat)>;

/// Returns the data if it is in memory, or else its key.
fn known_data(view: &mut impl View, path: &str, record: &Bytes, znode: &Znode<'_>) -> Result<KnownData, Stop> {
    let stat = znode.stat();
    Ok(match znode.data {
        Data::Null => Ok((None, stat)),
        Data::Inline(bytes) => Ok((Some(record.slice_ref(bytes)), stat)),
        Data::Usage(usage) => Ok((Some(usage.text().into()), stat)),
        Data::Large { .. } => {
            let key = key::data(root_if_empty(path)).ok_or(Stop::Damaged("the data of a large znode has no key"))?;
            match view.record(&key) {
                Found::Record(bytes) => Ok((Some(bytes), stat)),
                Found::Absent => return Err(Stop::Damaged("the data of a large znode is missing")),
                Found::Unknown => Err((key, stat)),
            }
        }
    })
}

/// Returns whether a getData of this path would have to wait for bytes from the base.
///
/// The next entry may change the answer.
///
/// # Errors
/// The fetch that is needed to answer.
pub(crate) fn waits_for_bytes(view: &mut impl View, path: &str) -> Result<bool, FetchWhat> {
    let known = match find(view, path) {
        Ok(Some(record)) => {
            decode(&record).and_then(|znode| known_data(view, path, &record, &znode)).map(|known| known.is_err())
        }
        Ok(None) => return Ok(false),
        Err(stop) => Err(stop),
    };
    match known {
        Ok(waits) => Ok(waits),
        Err(Stop::Missing(what)) => Err(what),
        // The read itself will report the error.
        Err(Stop::Damaged(_) | Stop::Failed(_)) => Ok(true),
    }
}

fn children(view: &mut impl View, identity: &Identity, path: &str, with_stat: bool) -> Result<Determined, Stop> {
    let record = existing(view, path)?;
    let stat = readable(identity, Perms::READ, &record)?.stat();
    Ok(match known_children(view, path, stat.num_children) {
        Ok(names) if with_stat => Determined::Reply(Reply::NamesStat(names, stat)),
        Ok(names) => Determined::Reply(Reply::Names(names)),
        Err(listing) => Determined::Pending(Pending::Children { listing, stat: with_stat.then_some(stat) }),
    })
}

/// Returns the names if memory has all of them, or else a listing. Their number tells whether all
/// are there.
fn known_children(view: &mut impl View, path: &str, num_children: i32) -> Result<Names, Listing> {
    if num_children == 0 {
        return Ok(Names::default());
    }
    let prefix = key::children_prefix(root_if_empty(path));
    let newer = view.newer(&prefix);
    if newer.values().filter(|&&there| there).count() == num_children as usize {
        let mut names = NamesBuilder::default();
        newer.iter().filter(|&(_, &there)| there).for_each(|(name, _)| names.push(name));
        return Ok(names.finish());
    }
    Err(Listing { expected: num_children.unsigned_abs(), prefix, filter: Text::EMPTY, newer })
}

fn get_acl(view: &mut impl View, identity: &Identity, path: &str) -> Result<Reply, Stop> {
    let record = existing(view, path)?;
    let znode = readable(identity, Perms::READ.union(Perms::ADMIN), &record)?;
    let mut entries = znode.acl_entries().map_err(|_| Stop::Damaged("an ACL does not decode"))?;
    if !identity.may(Perms::ADMIN, znode.acl) {
        acl::redact(&mut entries);
    }
    Ok(Reply::Acl(entries, znode.stat()))
}

/// Returns this session's ephemerals.
///
/// A null, blank or `/` prefix selects all; any other prefix is compared as text (surface 2.3). The
/// caller sets their maximum number, which no view knows ([`Pending::expect_paths`]).
///
/// ZooKeeper trims the prefix as Java does, which counts every character up to a space as blank.
fn ephemerals(view: &mut impl View, session: SessionId, prefix: Option<&Text>) -> Determined {
    let selects_all = |prefix: &str| matches!(prefix.trim_matches(|blank| blank <= ' '), "" | "/");
    let filter = prefix.filter(|prefix| !selects_all(prefix)).cloned().unwrap_or_default();
    let prefix = key::ephemerals_prefix(session);
    let newer = view.newer(&prefix);
    Determined::Pending(Pending::Paths { listing: Listing { expected: 0, prefix, filter, newer } })
}

fn descendants(view: &mut impl View, identity: &Identity, path: &str) -> Result<Determined, Stop> {
    let record = existing(view, root_if_empty(path))?;
    if readable(identity, Perms::READ, &record)?.num_children == 0 {
        return Ok(Determined::Reply(Reply::Count(0)));
    }
    // Keys below `/` all start like those of its children. The empty path also reads the root, but
    // its only "child" of that name is the root itself, and ZooKeeper counts it (surface 2.3).
    let deeper = key::descendants_prefix(path);
    let prefixes = if path == "/" { vec![deeper] } else { vec![key::children_prefix(path), deeper] };
    let listing = |prefix: Key| Listing { expected: 0, filter: Text::EMPTY, newer: view.newer(&prefix), prefix };
    Ok(Determined::Pending(Pending::Count { listings: prefixes.into_iter().map(listing).collect() }))
}

/// Maximum reads of a multiRead assembled on the core. A larger one is completed off the core,
/// where its size is checked, even if memory has all its data.
const READS_IN_MEMORY_MAX: usize = 8;

/// Decides each read of a multiRead by itself. All use one state, up to the first unreadable read
/// (surface 2.5).
fn multi(view: &mut impl View, identity: &Identity, reads: &[ReadOp]) -> Decided<Determined> {
    let mut missing = Vec::new();
    let mut results = Vec::with_capacity(reads.len());
    let mut broken = false;
    for read in reads {
        let read = match read {
            ReadOp::GetData { path } => data_of_many(view, identity, path),
            ReadOp::GetChildren { path } => children_of_many(view, identity, path),
            ReadOp::Unreadable => {
                broken = true;
                break;
            }
        };
        match decided(read) {
            Ok(Ok(result)) => results.push(result),
            Ok(Err(code)) => results.push(PendingRead::Ready(ReadResult::Failed(code))),
            Err(Stuck::Missing(mut more)) => missing.append(&mut more),
            Err(damaged @ Stuck::Damaged(_)) => return Err(damaged),
        }
    }
    if !missing.is_empty() {
        return Err(Stuck::Missing(missing));
    }
    let ready = |read: &PendingRead| if let PendingRead::Ready(result) = read { Some(result.clone()) } else { None };
    let few = (results.len() <= READS_IN_MEMORY_MAX).then_some(&results);
    Ok(Ok(match few.and_then(|few| few.iter().map(ready).collect::<Option<Vec<_>>>()) {
        Some(results) => Determined::Reply(many(results, broken)),
        None => Determined::Pending(Pending::Many { reads: results, broken }),
    }))
}

fn data_of_many(view: &mut impl View, identity: &Identity, path: &str) -> Result<PendingRead, Stop> {
    let record = existing(view, path)?;
    let znode = readable(identity, Perms::READ, &record)?;
    Ok(match known_data(view, path, &record, &znode)? {
        Ok((data, stat)) => PendingRead::Ready(ReadResult::Data(data, stat)),
        Err((key, stat)) => PendingRead::Data { key, stat },
    })
}

fn children_of_many(view: &mut impl View, identity: &Identity, path: &str) -> Result<PendingRead, Stop> {
    let record = existing(view, path)?;
    let num_children = readable(identity, Perms::READ, &record)?.num_children;
    Ok(match known_children(view, path, num_children) {
        Ok(names) => PendingRead::Ready(ReadResult::Children(names)),
        Err(listing) => PendingRead::Children { listing },
    })
}

/// Returns the record of an existing znode.
fn existing(view: &mut impl View, path: &str) -> Result<Bytes, Stop> {
    find(view, path)?.ok_or(Stop::Failed(ErrorCode::NoNode))
}

/// Decodes the record of a znode that grants `identity` any of `perms`.
fn readable<'r>(identity: &Identity, perms: Perms, record: &'r [u8]) -> Result<Znode<'r>, Stop> {
    let znode = decode(record)?;
    if identity.may(perms, znode.acl) { Ok(znode) } else { Err(ErrorCode::NoAuth.into()) }
}

fn find(view: &mut impl View, path: &str) -> Result<Option<Bytes>, Stop> {
    let path = root_if_empty(path);
    match key::with_znode(path, |key| view.record(key)) {
        Some(Found::Record(record)) => Ok(Some(record)),
        Some(Found::Absent) | None => Ok(None),
        Some(Found::Unknown) => match key::znode(path) {
            Some(key) => Err(Stop::Missing(FetchWhat::Record(key))),
            None => Ok(None),
        },
    }
}

fn decode(record: &[u8]) -> Result<Znode<'_>, Stop> {
    Znode::decode(record).map_err(|_| Stop::Damaged("a znode's record does not decode"))
}

fn root_if_empty(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}
