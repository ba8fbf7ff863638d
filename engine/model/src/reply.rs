//! What a server answers.

use crate::{AclEntry, AuthId, ErrorCode, Names, Stat, Text};
use alloc::vec::Vec;
use bytes::Bytes;

/// The body of a successful reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Header only: delete, ping, auth, setWatches, checkWatches, removeWatches, closeSession.
    Empty,
    /// create.
    Path(Text),
    /// create2, createContainer, createTTL.
    PathStat(Text, Stat),
    /// exists, setData, setACL.
    Stat(Stat),
    /// getData.
    Data(Option<Bytes>, Stat),
    /// getChildren, getEphemerals: names or paths, sorted.
    Names(Names),
    /// getChildren2.
    NamesStat(Names, Stat),
    /// getACL.
    Acl(Vec<AclEntry>, Stat),
    /// getAllChildrenNumber.
    Count(i32),
    /// sync.
    Synced(Option<Text>),
    /// sasl: a null token.
    NullToken,
    /// whoAmI.
    Ids(Vec<AuthId>),
    /// addWatch: its body is an error code, always 0.
    WatchAdded,
    /// multi, in order.
    Multi(Vec<OpResult>),
    /// multiRead, in order.
    MultiRead(Vec<ReadResult>),
    /// A multiRead that came to a [`ReadOp::Unreadable`](crate::ReadOp::Unreadable): what it had read by then. On the wire this is
    /// MARSHALLINGERROR with a body behind it, the one error that has one (surface 2.5).
    MultiReadBroken(Vec<ReadResult>),
}

impl Reply {
    /// The error that the header shows although there is a body.
    pub fn error(&self) -> Option<ErrorCode> {
        match self {
            Self::MultiReadBroken(_) => Some(ErrorCode::MarshallingError),
            Self::Empty
            | Self::Path(_)
            | Self::PathStat(..)
            | Self::Stat(_)
            | Self::Data(..)
            | Self::Names(_)
            | Self::NamesStat(..)
            | Self::Acl(..)
            | Self::Count(_)
            | Self::Synced(_)
            | Self::NullToken
            | Self::Ids(_)
            | Self::WatchAdded
            | Self::Multi(_)
            | Self::MultiRead(_) => None,
        }
    }
}

/// The outcome of one operation of a multi.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the operations'")]
pub enum OpResult {
    Create(Text),
    CreateStat(Text, Stat),
    Delete,
    SetData(Stat),
    Check,
    /// The whole multi failed: 0 before the culprit, its error, RUNTIMEINCONSISTENCY after it.
    Failed(Option<ErrorCode>),
}

/// The first error of a multi that failed, and of which operation it is: a failed multi is 0 before the culprit, its code, and
/// RUNTIMEINCONSISTENCY after it.
pub fn first_failure(results: &[OpResult]) -> Option<(usize, ErrorCode)> {
    results.iter().enumerate().find_map(|(at, result)| match result {
        OpResult::Failed(Some(code)) => Some((at, *code)),
        OpResult::Failed(None)
        | OpResult::Create(_)
        | OpResult::CreateStat(..)
        | OpResult::Delete
        | OpResult::SetData(_)
        | OpResult::Check => None,
    })
}

/// The outcome of one read of a multiRead.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the operations'")]
pub enum ReadResult {
    Data(Option<Bytes>, Stat),
    Children(Names),
    Failed(ErrorCode),
}

/// What happened to a watched znode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum EventKind {
    NodeCreated = 1,
    NodeDeleted = 2,
    NodeDataChanged = 3,
    NodeChildrenChanged = 4,
}

/// A watch event as it is delivered. The server's state is always SyncConnected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// To which znode.
    pub path: Text,
    /// The zxid of the change, or -1 when setWatches made the event up.
    pub zxid: i64,
}
