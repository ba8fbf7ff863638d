//! The classification of requests: which become entries, which read, and which need a leader.

use crate::{ErrorCode, ReadOp, Request, SetWatches, Text, WriteOp};
use core::slice;

/// The class of a request, by which a server decides how to handle it.
///
/// Code that treats all requests of a class alike matches on the class. The compiler then asks it
/// about a new class, and about a new read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class<'a> {
    /// Ordered: an entry that changes the tree.
    Write(&'a WriteOp),
    /// Ordered: an entry that makes all changes or none.
    Multi(&'a [WriteOp]),
    /// Ordered: an entry that ends the session.
    CloseSession,
    /// Ordered: an entry that always fails with this error, because ZooKeeper spends a zxid on it.
    Refusal(ErrorCode),
    /// Answered from the state that the client's server has applied.
    Read(Read<'a>),
    /// Answered once the client's server has applied all that a quorum had committed.
    Sync,
    /// A sign of life, answered by a server that leads or follows.
    Ping,
    /// Registers watches anew, and compares them with the applied state.
    SetWatches(&'a SetWatches),
    /// Concerns the watches of the connection alone.
    Watches,
    /// Concerns the identities of the connection alone.
    Identities,
    /// A body that did not parse, and that ZooKeeper spends no zxid on.
    Malformed,
    /// An unknown opcode, which ends the connection.
    Unknown,
}

impl Class<'_> {
    /// Returns whether the request becomes an entry, and so costs a zxid.
    pub const fn is_ordered(self) -> bool {
        match self {
            Self::Write(_) | Self::Multi(_) | Self::CloseSession | Self::Refusal(_) => true,
            Self::Read(_)
            | Self::Sync
            | Self::Ping
            | Self::SetWatches(_)
            | Self::Watches
            | Self::Identities
            | Self::Malformed
            | Self::Unknown => false,
        }
    }

    /// Returns whether only a leading or following server can answer the request.
    ///
    /// Without a leader, the others continue from the applied state while their connections are
    /// kept, which is a short time (surface 13.38).
    pub const fn needs_leader(self) -> bool {
        self.is_ordered() || matches!(self, Self::Sync | Self::Ping)
    }
}

/// A request that reads the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the request")]
pub enum Read<'a> {
    Exists { path: &'a Text, watch: bool },
    GetData { path: &'a Text, watch: bool },
    GetChildren { path: &'a Text, watch: bool, with_stat: bool },
    GetAcl { path: &'a Text },
    GetEphemerals { prefix: Option<&'a Text> },
    GetAllChildrenNumber { path: &'a Text },
    GetTtl { path: &'a Text },
    MultiRead(&'a [ReadOp]),
}

impl Read<'_> {
    /// Returns whether the answer may be large: it has data or names.
    pub const fn may_answer_much(self) -> bool {
        match self {
            Self::GetData { .. } | Self::GetChildren { .. } | Self::GetEphemerals { .. } | Self::MultiRead(_) => true,
            Self::Exists { .. } | Self::GetAcl { .. } | Self::GetAllChildrenNumber { .. } | Self::GetTtl { .. } => {
                false
            }
        }
    }

    /// Returns whether the answer may need more than one record.
    pub const fn may_need_many_records(self) -> bool {
        match self {
            Self::GetChildren { .. }
            | Self::GetEphemerals { .. }
            | Self::GetAllChildrenNumber { .. }
            | Self::MultiRead(_) => true,
            Self::Exists { .. } | Self::GetData { .. } | Self::GetAcl { .. } | Self::GetTtl { .. } => false,
        }
    }
}

/// The kind of a one-shot watch, by the request that sets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OneShot {
    /// getData: set if the znode exists.
    Data,
    /// exists: set on the znode, or on its absence.
    Exist,
    /// getChildren: set if the znode exists.
    Child,
}

impl Request {
    /// Returns the class of the request.
    #[inline]
    pub fn class(&self) -> Class<'_> {
        match self {
            Self::Write(op) => Class::Write(op),
            Self::Multi(ops) => Class::Multi(ops),
            Self::CloseSession => Class::CloseSession,
            Self::Reconfig => Class::Refusal(ErrorCode::ReconfigDisabled),
            Self::Malformed { write: true } => Class::Refusal(ErrorCode::MarshallingError),
            Self::Exists { path, watch } => Class::Read(Read::Exists { path, watch: *watch }),
            Self::GetData { path, watch } => Class::Read(Read::GetData { path, watch: *watch }),
            Self::GetChildren { path, watch, with_stat } => {
                Class::Read(Read::GetChildren { path, watch: *watch, with_stat: *with_stat })
            }
            Self::GetAcl { path } => Class::Read(Read::GetAcl { path }),
            Self::GetEphemerals { prefix } => Class::Read(Read::GetEphemerals { prefix: prefix.as_ref() }),
            Self::GetAllChildrenNumber { path } => Class::Read(Read::GetAllChildrenNumber { path }),
            Self::GetTtl { path } => Class::Read(Read::GetTtl { path }),
            Self::MultiRead(reads) => Class::Read(Read::MultiRead(reads)),
            Self::Sync { .. } => Class::Sync,
            Self::Ping => Class::Ping,
            Self::SetWatches(watches) => Class::SetWatches(watches),
            Self::AddWatch { .. } | Self::CheckWatches { .. } | Self::RemoveWatches { .. } => Class::Watches,
            Self::Auth { .. } | Self::Sasl | Self::WhoAmI => Class::Identities,
            Self::Malformed { write: false } => Class::Malformed,
            Self::Unknown => Class::Unknown,
        }
    }

    /// Returns the operations of a write or multi, in order; empty for other requests.
    pub fn ops(&self) -> &[WriteOp] {
        match self.class() {
            Class::Write(op) => slice::from_ref(op),
            Class::Multi(ops) => ops,
            Class::CloseSession
            | Class::Refusal(_)
            | Class::Read(_)
            | Class::Sync
            | Class::Ping
            | Class::SetWatches(_)
            | Class::Watches
            | Class::Identities
            | Class::Malformed
            | Class::Unknown => &[],
        }
    }

    /// Returns the one-shot watch that a read asks for.
    pub fn one_shot_watch(&self) -> Option<(&Text, OneShot)> {
        let Class::Read(read) = self.class() else { return None };
        match read {
            Read::Exists { path, watch } => watch.then_some((path, OneShot::Exist)),
            Read::GetData { path, watch } => watch.then_some((path, OneShot::Data)),
            Read::GetChildren { path, watch, .. } => watch.then_some((path, OneShot::Child)),
            Read::GetAcl { .. }
            | Read::GetEphemerals { .. }
            | Read::GetAllChildrenNumber { .. }
            | Read::GetTtl { .. }
            | Read::MultiRead(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddWatchMode, WatcherType};
    use alloc::vec::Vec;

    /// Surface 1.7 and 2.4: which requests ZooKeeper orders and spends a zxid on.
    #[test]
    fn writes_and_what_ends_or_fails_like_a_write_are_ordered() {
        let path = || Text::from_static("/a");
        let delete = || WriteOp::Delete { path: path(), version: -1 };
        let ordered = [
            Request::Write(delete()),
            Request::Multi(Vec::from([delete(), delete()])),
            Request::Multi(Vec::new()),
            Request::CloseSession,
            Request::Reconfig,
            Request::Malformed { write: true },
        ];
        for request in ordered {
            assert!(request.class().is_ordered() && request.class().needs_leader(), "{request:?}");
        }
        for request in [Request::Ping, Request::Sync { path: None }] {
            assert!(!request.class().is_ordered() && request.class().needs_leader(), "{request:?}");
        }
        let local = [
            Request::Exists { path: path(), watch: true },
            Request::GetData { path: path(), watch: true },
            Request::GetChildren { path: path(), watch: true, with_stat: true },
            Request::GetAcl { path: path() },
            Request::GetEphemerals { prefix: None },
            Request::GetAllChildrenNumber { path: path() },
            Request::GetTtl { path: path() },
            Request::MultiRead(Vec::new()),
            Request::Auth { scheme: None, auth: None },
            Request::Sasl,
            Request::WhoAmI,
            Request::SetWatches(SetWatches::default()),
            Request::AddWatch { path: path(), mode: AddWatchMode::Persistent },
            Request::CheckWatches { path: path(), kind: WatcherType::Any },
            Request::RemoveWatches { path: path(), kind: WatcherType::Any },
            Request::Malformed { write: false },
            Request::Unknown,
        ];
        for request in local {
            assert!(!request.class().is_ordered() && !request.class().needs_leader(), "{request:?}");
            assert!(request.ops().is_empty(), "{request:?}");
        }
    }

    #[test]
    fn read_registers_the_watch_of_its_kind_only_on_request() {
        let path = || Text::from_static("/a");
        let asked = |request: &Request| request.one_shot_watch().map(|(path, kind)| (path.clone(), kind));
        for (watch, expected) in [(true, Some(())), (false, None)] {
            let expect = |kind| expected.map(|()| (path(), kind));
            assert_eq!(asked(&Request::Exists { path: path(), watch }), expect(OneShot::Exist));
            assert_eq!(asked(&Request::GetData { path: path(), watch }), expect(OneShot::Data));
            let children = Request::GetChildren { path: path(), watch, with_stat: false };
            assert_eq!(asked(&children), expect(OneShot::Child));
        }
        assert_eq!(asked(&Request::GetAcl { path: path() }), None);
        assert_eq!(asked(&Request::Ping), None);
    }
}
