//! Replies and watch events.

use crate::{AclEntry, AuthId, ErrorCode, Names, Stat, Text};
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

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
    /// getTtl.
    Ttl(TimeToLive),
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
    /// The results of a multiRead up to its [`ReadOp::Unreadable`](crate::ReadOp::Unreadable).
    ///
    /// On the wire it is MARSHALLINGERROR followed by a body, the only error with a body (surface
    /// 2.5).
    MultiReadBroken(Vec<ReadResult>),
}

impl Reply {
    /// Returns the error that the header shows although the reply has a body.
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
            | Self::Ttl(_)
            | Self::Synced(_)
            | Self::NullToken
            | Self::Ids(_)
            | Self::WatchAdded
            | Self::Multi(_)
            | Self::MultiRead(_) => None,
        }
    }
}

/// How long a znode lives, and how much of that is left.
///
/// Both are `None` for a znode that is no TTL znode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeToLive {
    /// As [`TimeToLive::chosen`], in milliseconds: so the protocol carries it.
    #[doc(hidden)]
    pub ttl_ms: Option<u64>,
    /// As [`TimeToLive::left`], in milliseconds.
    #[doc(hidden)]
    pub left_ms: Option<u64>,
}

impl TimeToLive {
    /// Returns the time to live that its creator chose.
    pub fn chosen(&self) -> Option<Duration> {
        self.ttl_ms.map(Duration::from_millis)
    }

    /// Returns the time until the znode may be deleted; `None` while it has children.
    ///
    /// The server that answers estimates it on its own clock. Zero: its deletion is due.
    pub fn left(&self) -> Option<Duration> {
        self.left_ms.map(Duration::from_millis)
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
    /// The multi failed; holds this operation's code.
    ///
    /// The code is 0 (`None`) before the culprit, the error at the culprit, RUNTIMEINCONSISTENCY
    /// after it.
    Failed(Option<ErrorCode>),
}

/// Returns the position and error of the operation that failed a multi.
///
/// A failed multi has 0 before the culprit and RUNTIMEINCONSISTENCY after it, so the first error is
/// the culprit's.
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

/// The change of a watched znode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum EventKind {
    NodeCreated = 1,
    NodeDeleted = 2,
    NodeDataChanged = 3,
    NodeChildrenChanged = 4,
}

/// A watch event as delivered. Its server state is always SyncConnected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchEvent {
    /// The change.
    pub kind: EventKind,
    /// The znode's path.
    pub path: Text,
    /// Zxid of the change; -1 when setWatches synthesized the event.
    pub zxid: i64,
}
