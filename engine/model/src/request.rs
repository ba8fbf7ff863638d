//! Decoded requests, before the server decides anything.

use crate::{AskedAcl, ServerId, Text};
use alloc::vec::Vec;
use bytes::Bytes;

/// A session's number.
///
/// A global session has the zxid of its creation, which is positive. A session that began local has a
/// negative number, also once it is global. 0 names no session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SessionId(pub i64);

impl SessionId {
    /// Names no session.
    pub const NONE: Self = Self(0);
    /// Set in the entries that a session requests while it is local.
    const IS_LOCAL: i64 = 1 << 62;
    /// Bits of a local session's number, below its server.
    const LOCAL_NUMBER_BITS: u32 = 54;

    /// Returns whether the session began local. It may have become global since.
    pub const fn began_local(self) -> bool {
        self.0 < 0
    }

    /// Returns the name of this local session in its entries.
    ///
    /// The state does not have the session. The name says so, and applying the entry depends on the
    /// state and the entry alone.
    pub const fn named_local(self) -> Self {
        Self(self.0 | Self::IS_LOCAL)
    }

    /// Returns whether an entry's requester was a local session at that time.
    pub const fn is_named_local(self) -> bool {
        self.began_local() && self.0 & Self::IS_LOCAL != 0
    }

    /// Returns the server at which a local session began; `None` for a session that began global.
    pub const fn server_of_local(self) -> Option<ServerId> {
        if self.began_local() { ServerId::new((self.0 as u64 >> Self::LOCAL_NUMBER_BITS) as u8) } else { None }
    }

    /// Returns the id of a local session that begins at `server` with this number.
    pub const fn of_local(server: ServerId, number: u64) -> Self {
        let number = number & ((1 << Self::LOCAL_NUMBER_BITS) - 1);
        Self(((1 << 63) | (server.as_u8() as u64) << Self::LOCAL_NUMBER_BITS | number) as i64)
    }

    /// Returns the session that an entry names.
    pub const fn of_name(self) -> Self {
        if self.is_named_local() { Self(self.0 & !Self::IS_LOCAL) } else { self }
    }
}

/// Proof of ownership of a session: 16 random bytes.
///
/// Unlike ZooKeeper's, it cannot be derived from the session id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionSecret(pub [u8; 16]);

impl core::fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SessionSecret(..)")
    }
}

/// The first message of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// Newest zxid that the client has seen. A server behind it must not serve the client.
    pub last_zxid_seen: i64,
    /// Requested session timeout, milliseconds; may be negative.
    pub timeout_ms: i32,
    /// Session to continue; `SessionId(0)` requests a new one.
    pub session: SessionId,
    /// The session's secret as sent, of any length.
    pub password: Option<Bytes>,
    /// `None` when a client older than 3.4 omitted the byte. The reply then omits it too.
    pub read_only: Option<bool>,
}

impl ConnectRequest {
    /// Returns the request of a fresh client for a new session.
    pub fn for_new_session(timeout_ms: i32) -> Self {
        Self { last_zxid_seen: 0, timeout_ms, session: SessionId(0), password: None, read_only: None }
    }
}

/// Answers [`ConnectRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectReply {
    /// Negotiated timeout, milliseconds; 0 when the session is refused.
    pub timeout_ms: i32,
    /// The session; `SessionId(0)` when refused.
    pub session: SessionId,
    /// The session's secret; zeroes when refused.
    pub secret: SessionSecret,
    /// Whether the request carried the read-only byte, so that the reply must too.
    pub read_only_byte: bool,
    /// From a read-only server: how old its state may be, in milliseconds. Not on the wire.
    pub read_only_ms: Option<u64>,
}

/// Longest time to live, milliseconds: 40 bits.
pub const TTL_MAX_MS: u64 = (1 << 40) - 1;

/// The kind of a new znode. The wire codec maps the create flags to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CreateKind {
    /// Lives until deleted.
    Persistent,
    /// Deleted with its session.
    Ephemeral,
    /// Reaped when it has had children and has none left.
    Container,
    /// Reaped when it has had no children, and no change of its data, for `ttl_ms`.
    Ttl {
        /// Milliseconds, 1 to 2^40 - 1.
        ttl_ms: u64,
    },
}

/// A create with any of the four opcodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Create {
    /// As sent, not validated: ZooKeeper checks other things first (surface 2.3).
    pub path: Text,
    /// `None` is null data, which differs from empty data.
    pub data: Option<Bytes>,
    /// As sent; `None` for a null vector.
    pub acl: Option<AskedAcl>,
    /// The create mode.
    pub mode: CreateMode,
    /// Whether the reply carries a Stat (every opcode except plain create).
    pub with_stat: bool,
}

/// The create mode that opcode and flags give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CreateMode {
    /// A legal combination.
    Valid {
        /// The kind of znode.
        kind: CreateKind,
        /// Whether the parent's counter is appended to the name.
        sequential: bool,
    },
    /// Unknown flags, or a time to live out of range: BADARGUMENTS.
    BadArguments,
    /// A mode that this server has not enabled (time to live): UNIMPLEMENTED.
    Unimplemented,
    /// In a multi, time-to-live flags under a header without one: MARSHALLINGERROR.
    Mismatched,
}

/// An operation that changes the tree, alone or inside a multi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteOp {
    /// Opcodes 1, 15, 19, 21.
    Create(Create),
    /// Opcode 2.
    Delete {
        /// As sent.
        path: Text,
        /// Expected version; -1 matches any.
        version: i32,
    },
    /// Opcode 5.
    SetData {
        /// As sent.
        path: Text,
        /// `None` is null data, which differs from empty data.
        data: Option<Bytes>,
        /// Expected version; -1 matches any.
        version: i32,
    },
    /// Opcode 7; never inside a multi.
    SetAcl {
        /// As sent.
        path: Text,
        /// As sent; `None` for a null vector.
        acl: Option<AskedAcl>,
        /// Expected aversion; -1 matches any.
        version: i32,
    },
    /// Opcode 13; only inside a multi.
    Check {
        /// As sent.
        path: Text,
        /// Expected version; -1 matches any.
        version: i32,
    },
}

/// Borrows the path of a [`WriteOp`], as shared or unique as the operation is borrowed.
macro_rules! path_of_operation {
    ($operation:expr) => {
        match $operation {
            WriteOp::Create(Create { path, .. })
            | WriteOp::Delete { path, .. }
            | WriteOp::SetData { path, .. }
            | WriteOp::SetAcl { path, .. }
            | WriteOp::Check { path, .. } => path,
        }
    };
}

impl WriteOp {
    /// Returns the path, as the client sent it.
    #[must_use]
    pub fn path(&self) -> &Text {
        path_of_operation!(self)
    }

    /// Returns the path, to replace it.
    pub fn path_mut(&mut self) -> &mut Text {
        path_of_operation!(self)
    }
}

/// One read of a multiRead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadOp {
    /// Opcode 4.
    GetData {
        /// As sent.
        path: Text,
    },
    /// Opcode 8.
    GetChildren {
        /// As sent.
        path: Text,
    },
    /// A write, or a null path. The multiRead ends here with
    /// [`Reply::MultiReadBroken`](crate::Reply::MultiReadBroken).
    Unreadable,
}

/// WatcherType of checkWatches and removeWatches (surface 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum WatcherType {
    Children,
    Data,
    Any,
    Persistent,
    PersistentRecursive,
}

/// The mode of addWatch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddWatchMode {
    /// Data and child events of one znode, until removed.
    Persistent,
    /// Data events of a whole subtree, until removed.
    PersistentRecursive,
}

/// The watches a client re-registers after a reconnect (opcodes 101, 105).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SetWatches {
    /// Newest zxid that the client saw before it lost its connection.
    pub relative_zxid: i64,
    /// One-shot data watches.
    pub data: Vec<Text>,
    /// One-shot watches on absent znodes.
    pub exist: Vec<Text>,
    /// One-shot child watches.
    pub child: Vec<Text>,
    /// Persistent watches.
    pub persistent: Vec<Text>,
    /// Persistent recursive watches.
    pub persistent_recursive: Vec<Text>,
}

/// A request of an established session.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields repeat the names of surface 2.1")]
pub enum Request {
    /// A write of one operation.
    Write(WriteOp),
    /// Opcode 14: all or nothing.
    Multi(Vec<WriteOp>),
    Exists {
        path: Text,
        watch: bool,
    },
    GetData {
        path: Text,
        watch: bool,
    },
    GetChildren {
        path: Text,
        watch: bool,
        with_stat: bool,
    },
    GetAcl {
        path: Text,
    },
    GetEphemerals {
        prefix: Option<Text>,
    },
    GetAllChildrenNumber {
        path: Text,
    },
    /// How long a TTL znode still lives. ZooKeeper has no such request.
    GetTtl {
        path: Text,
    },
    /// Opcode 22: each read succeeds or fails by itself, up to the first unreadable one.
    MultiRead(Vec<ReadOp>),
    /// Opcode 9; the path is only echoed and may be null.
    Sync {
        path: Option<Text>,
    },
    Ping,
    Auth {
        scheme: Option<Text>,
        auth: Option<Bytes>,
    },
    /// Opcode 102; this server has no mechanism and answers a null token.
    Sasl,
    WhoAmI,
    SetWatches(SetWatches),
    AddWatch {
        path: Text,
        mode: AddWatchMode,
    },
    CheckWatches {
        path: Text,
        kind: WatcherType,
    },
    RemoveWatches {
        path: Text,
        kind: WatcherType,
    },
    /// Opcode 16: answered RECONFIGDISABLED.
    Reconfig,
    CloseSession,
    /// A body that did not parse: MARSHALLINGERROR; the connection stays.
    ///
    /// `write` is set when ZooKeeper spends a zxid on it (surface 2.4).
    Malformed {
        write: bool,
    },
    /// An unknown or forbidden opcode: UNIMPLEMENTED, then the connection closes.
    Unknown,
}

/// Borrows the path of a [`Request`], as shared or unique as the request is borrowed.
macro_rules! path_of_request {
    ($request:expr, $path_of_operation:path) => {
        match $request {
            Request::Write(operation) => Some($path_of_operation(operation)),
            Request::Exists { path, .. }
            | Request::GetData { path, .. }
            | Request::GetChildren { path, .. }
            | Request::GetAcl { path }
            | Request::GetAllChildrenNumber { path }
            | Request::GetTtl { path }
            | Request::AddWatch { path, .. }
            | Request::CheckWatches { path, .. }
            | Request::RemoveWatches { path, .. } => Some(path),
            Request::GetEphemerals { prefix: path } | Request::Sync { path } => path.into(),
            Request::Multi(_)
            | Request::MultiRead(_)
            | Request::Ping
            | Request::Auth { .. }
            | Request::Sasl
            | Request::WhoAmI
            | Request::SetWatches(_)
            | Request::Reconfig
            | Request::CloseSession
            | Request::Malformed { .. }
            | Request::Unknown => None,
        }
    };
}

impl Request {
    /// Returns the path; `None` for a request that has none, or several.
    #[must_use]
    pub fn path(&self) -> Option<&Text> {
        path_of_request!(self, WriteOp::path)
    }

    /// Returns the path, to replace it; `None` for a request that has none, or several.
    pub fn path_mut(&mut self) -> Option<&mut Text> {
        path_of_request!(self, WriteOp::path_mut)
    }
}
