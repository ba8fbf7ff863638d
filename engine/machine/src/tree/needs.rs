//! Records an entry is known to need before its turn, so that they are fetched while the log syncs.

use crate::record::key;
use crate::record::znode::Znode;
use crate::seam::action::FetchWhat;
use crate::state::{Found, View};
use crate::txn::{Op, Txn};
use bytes::{BufMut, BytesMut};
use std::collections::BTreeMap;
use std::io::Write;
use zoolet_model::{SessionId, Text, path::parent_and_name};

/// A record that an entry is known to need before its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need<'a> {
    /// The znode at this path, if the path can name one.
    Znode(&'a str),
    /// The list of this session's ephemerals.
    Ephemerals(SessionId),
}

/// Lists everything that an entry is known to need.
pub fn needs<'a>(txn: &Txn<'a>, need: &mut impl FnMut(Need<'a>)) {
    match txn {
        Txn::Write { op, .. } => op_needs(op, need),
        Txn::Multi { ops, .. } => ops.iter().for_each(|op| op_needs(op, need)),
        Txn::CloseSession { session } => need(Need::Ephemerals(*session)),
        Txn::Reap { path } => path_needs(path, need),
        Txn::NoOp
        | Txn::CreateSession { .. }
        | Txn::RenewSession { .. }
        | Txn::CountUsage { .. }
        | Txn::UpgradeSession { .. }
        | Txn::Membership(_) => {}
    }
}

fn op_needs<'a>(op: &Op<'a>, need: &mut impl FnMut(Need<'a>)) {
    match *op {
        // A sequential znode's name is known only when its turn comes; see `foreseen_names`.
        Op::Create { path, sequential: true, .. } => {
            if let Some(parent) = parent_of(path) {
                need(Need::Znode(parent));
            }
        }
        Op::Create { path, .. } | Op::Delete { path, .. } => path_needs(path, need),
        Op::SetData { path, .. } | Op::SetAcl { path, .. } | Op::Check { path, .. } => need(Need::Znode(path)),
        Op::Refused(_) => {}
    }
}

fn path_needs<'a>(path: &'a str, need: &mut impl FnMut(Need<'a>)) {
    if let Some(parent) = parent_of(path) {
        need(Need::Znode(parent));
    }
    need(Need::Znode(path));
}

/// Adds the likely names of an entry's sequential znodes to `missing`, if not in memory.
///
/// The names hold if no other entry comes between. Without this, a multi with many sequential
/// creates would be tried once per create, and delay all other writes.
pub fn foreseen_names(txn: &Txn<'_>, view: &mut impl View, missing: &mut Vec<FetchWhat>) {
    let ops = match txn {
        Txn::Write { op, .. } => std::slice::from_ref(op),
        Txn::Multi { ops, .. } => ops.as_slice(),
        Txn::NoOp
        | Txn::CreateSession { .. }
        | Txn::CloseSession { .. }
        | Txn::RenewSession { .. }
        | Txn::UpgradeSession { .. }
        | Txn::Reap { .. }
        | Txn::CountUsage { .. }
        | Txn::Membership(_) => &[],
    };
    if !ops.iter().any(|op| matches!(op, Op::Create { sequential: true, .. })) {
        return;
    }
    if let [Op::Create { path, .. }] = *ops {
        if let Some(number) = parent_of(path).and_then(|parent| creates_in(parent, view)) {
            missing.extend(missing_name(path, number, view));
        }
        return;
    }
    // The next number under each parent; `None` while its record is not in memory.
    let mut numbers: BTreeMap<&str, Option<i32>> = BTreeMap::new();
    for op in ops {
        let Op::Create { path, sequential, .. } = *op else { continue };
        let Some(parent) = parent_of(path) else { continue };
        let Some(number) = numbers.entry(parent).or_insert_with(|| creates_in(parent, view)) else { continue };
        if sequential {
            missing.extend(missing_name(path, *number, view));
        }
        *number = number.saturating_add(1);
    }
}

/// Returns how many children a znode has ever had. `None` if its record is not in memory.
fn creates_in(path: &str, view: &mut impl View) -> Option<i32> {
    match key::with_znode(path, |key| view.record(key))? {
        Found::Record(record) => Znode::decode(&record).ok().map(|znode| znode.creates),
        // The entry itself may create the parent.
        Found::Absent => Some(0),
        Found::Unknown => None,
    }
}

/// Builds names of sequential znodes in a buffer that a few names share.
///
/// The buffer is freed when the last of them is dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Names(BytesMut);

/// Size of the buffer that names share, in bytes. A retained name keeps all of it alive.
const NAMES_BYTES: usize = 1024;

impl Names {
    /// Returns the name of a sequential znode.
    pub(super) fn text(&mut self, asked: &str, number: i32) -> Text {
        with_sequential(asked, number, |name| {
            if self.0.capacity() < name.len() {
                self.0.reserve(name.len().max(NAMES_BYTES));
            }
            self.0.put_slice(name.as_bytes());
            Text::from_utf8_lossy(self.0.split().freeze())
        })
    }
}

/// Calls `look` with a sequential znode's name, built on the stack if it is short enough.
fn with_sequential<R>(asked: &str, number: i32, look: impl FnOnce(&str) -> R) -> R {
    let mut name = [0; 256];
    let mut rest = &mut name[..];
    let written = write!(rest, "{asked}{number:010}");
    let bytes = 256 - rest.len();
    match (written, std::str::from_utf8(&name[..bytes])) {
        (Ok(()), Ok(name)) => look(name),
        _ => look(&format!("{asked}{number:010}")),
    }
}

fn missing_name(asked: &str, number: i32, view: &mut impl View) -> Option<FetchWhat> {
    with_sequential(asked, number, |name| Need::Znode(name).missing_in(view))
}

impl Need<'_> {
    /// Returns the fetch for this need; `None` if memory has the record.
    pub fn missing_in(self, view: &mut impl View) -> Option<FetchWhat> {
        match self {
            Need::Znode(path) => {
                key::with_znode(path, |key| view.holds(key).is_none().then(|| FetchWhat::Record(key.into())))?
            }
            Need::Ephemerals(session) => {
                let prefix = key::ephemerals_prefix(session);
                view.keys_under(&prefix).is_none().then_some(FetchWhat::KeysUnder(prefix))
            }
        }
    }
}

/// Returns the parent as create and delete see it.
///
/// The parent of `/` is `/`, so that creating it fails with NodeExists (surface 13.12).
pub(super) fn parent_of(path: &str) -> Option<&str> {
    if path == "/" { Some("/") } else { parent_and_name(path).map(|(parent, _)| parent) }
}
