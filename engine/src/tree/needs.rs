//! What an entry is known to need before its turn comes, so that it is fetched while the log syncs.

use super::view::View;
use crate::action::FetchWhat;
use crate::store::key;
use crate::txn::{Op, Txn};
use zoolet_model::{SessionId, path::parent_and_name};

/// A record that an entry is known to need before anything else is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need<'a> {
    /// The znode of this path, if one can have it.
    Znode(&'a str),
    /// The list of what this session owns.
    Ephemerals(SessionId),
}

/// Names everything that an entry is known to need, so that it is fetched while the log syncs.
pub fn needs<'a>(txn: &Txn<'a>, need: &mut impl FnMut(Need<'a>)) {
    match txn {
        Txn::Write { op, .. } => op_needs(op, need),
        Txn::Multi { ops, .. } => ops.iter().for_each(|op| op_needs(op, need)),
        Txn::CloseSession { session } => need(Need::Ephemerals(*session)),
        Txn::Reap { path } => path_needs(path, need),
        Txn::NoOp | Txn::CreateSession { .. } => {}
    }
}

fn op_needs<'a>(op: &Op<'a>, need: &mut impl FnMut(Need<'a>)) {
    match *op {
        // A sequential znode's name is known only when its turn comes.
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

impl Need<'_> {
    /// What to fetch, unless memory has it.
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

/// The parent as create and delete see it: `/` is in `/`, so that creating it says NodeExists (surface 13.12).
pub(super) fn parent_of(path: &str) -> Option<&str> {
    if path == "/" { Some("/") } else { parent_and_name(path).map(|(parent, _)| parent) }
}
