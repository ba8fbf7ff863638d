//! What a client asks for, after the wire and before anything was decided.

use crate::{AskedAcl, Text};
use alloc::vec::Vec;
use bytes::Bytes;

/// A session's number; the zxid of its creation. 0 names no session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SessionId(pub i64);

/// What proves the right to a session: 16 random bytes, not derivable from the id as in ZooKeeper.
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
    /// The newest zxid the client has seen; a server behind it must not serve the client.
    pub last_zxid_seen: i64,
    /// Session timeout asked for, milliseconds; may be negative.
    pub timeout_ms: i32,
    /// The session to continue, or `SessionId(0)` for a new one.
    pub session: SessionId,
    /// The proof that goes with it; any length from the wire.
    pub password: Option<Bytes>,
    /// `None` when a client older than 3.4 left the byte out; the reply then leaves it out too.
    pub read_only: Option<bool>,
}

impl ConnectRequest {
    /// From a client that has seen nothing yet and asks for a session of its own with this timeout.
    pub fn for_new_session(timeout_ms: i32) -> Self {
        Self { last_zxid_seen: 0, timeout_ms, session: SessionId(0), password: None, read_only: None }
    }
}

/// The answer to [`ConnectRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectReply {
    /// The negotiated timeout, milliseconds; 0 when the session is refused.
    pub timeout_ms: i32,
    /// The session, or `SessionId(0)` when refused.
    pub session: SessionId,
    /// Its secret, or zeroes when refused.
    pub secret: SessionSecret,
    /// Whether the request carried the read-only byte, so the reply must.
    pub read_only_byte: bool,
}

/// Which bit of the create flags means what is decided by the wire; this is the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CreateKind {
    /// Lives until deleted.
    Persistent,
    /// Dies with its session.
    Ephemeral,
    /// Reaped once it has had children and has none.
    Container,
    /// Reaped when childless and unmodified for this many milliseconds.
    Ttl {
        /// Milliseconds, 1 to 2^40 - 1.
        ttl_ms: u64,
    },
}

/// A create of any of the four opcodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Create {
    /// As sent; not validated, because ZooKeeper checks other things first (surface 2.3).
    pub path: Text,
    /// Null and empty are different data.
    pub data: Option<Bytes>,
    /// As sent; `None` for a null vector.
    pub acl: Option<AskedAcl>,
    /// What kind of znode, or the flags that name none.
    pub mode: CreateMode,
    /// Whether the reply carries a Stat (every opcode but plain create).
    pub with_stat: bool,
}

/// The create mode as the opcode and flags gave it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CreateMode {
    /// A legal combination.
    Valid {
        /// The kind of znode.
        kind: CreateKind,
        /// Whether the parent's counter is appended to the name.
        sequential: bool,
    },
    /// Flags that name no mode, or a time to live out of range: BADARGUMENTS.
    BadArguments,
    /// A mode that this server does not have switched on (time to live): UNIMPLEMENTED.
    Unimplemented,
    /// Inside a multi, flags for a time to live under a header that carries none: MARSHALLINGERROR.
    Mismatched,
}

/// An operation that changes the tree; alone or inside a multi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteOp {
    /// Opcodes 1, 15, 19, 21.
    Create(Create),
    /// Opcode 2.
    Delete {
        /// As sent.
        path: Text,
        /// -1 matches any.
        version: i32,
    },
    /// Opcode 5.
    SetData {
        /// As sent.
        path: Text,
        /// Null and empty are different data.
        data: Option<Bytes>,
        /// -1 matches any.
        version: i32,
    },
    /// Opcode 7; never inside a multi.
    SetAcl {
        /// As sent.
        path: Text,
        /// As sent; `None` for a null vector.
        acl: Option<AskedAcl>,
        /// Compared with aversion; -1 matches any.
        version: i32,
    },
    /// Opcode 13; only inside a multi.
    Check {
        /// As sent.
        path: Text,
        /// -1 matches any.
        version: i32,
    },
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
    /// A write, or a null path: the multiRead ends here, with [`Reply::MultiReadBroken`](crate::Reply::MultiReadBroken).
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
    /// The newest zxid the client saw before it lost its connection.
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
    /// Opcode 22: each read succeeds or fails by itself, up to the first that is none.
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
    /// A body that did not parse: MARSHALLINGERROR, the connection stays. `write` when ZooKeeper spends a zxid on
    /// it (surface 2.4).
    Malformed {
        write: bool,
    },
    /// An opcode that is unknown, or that no client may send: UNIMPLEMENTED, then the connection closes.
    Unknown,
}

impl Request {
    /// The operations of a write or of a multi, in order; nothing else has any.
    pub fn ops(&self) -> &[WriteOp] {
        match self {
            Self::Write(op) => core::slice::from_ref(op),
            Self::Multi(ops) => ops,
            Self::Exists { .. }
            | Self::GetData { .. }
            | Self::GetChildren { .. }
            | Self::GetAcl { .. }
            | Self::GetEphemerals { .. }
            | Self::GetAllChildrenNumber { .. }
            | Self::MultiRead(_)
            | Self::Sync { .. }
            | Self::Ping
            | Self::Auth { .. }
            | Self::Sasl
            | Self::WhoAmI
            | Self::SetWatches(_)
            | Self::AddWatch { .. }
            | Self::CheckWatches { .. }
            | Self::RemoveWatches { .. }
            | Self::Reconfig
            | Self::CloseSession
            | Self::Malformed { .. }
            | Self::Unknown => &[],
        }
    }
}
