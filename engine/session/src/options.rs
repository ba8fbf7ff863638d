//! Options of sessions and writes.

use bytes::Bytes;
use std::time::Duration;
use zoolet_model::{AclEntry, AskedAcl, Create, CreateKind, CreateMode, Path, RequestedAcl, Stat, Text, WriteOp};

/// Options for a session of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionOptions {
    /// The session timeout to request; `None` requests 10 s.
    ///
    /// The node moves a timeout outside its range to the nearest bound; by default the range is 4 s
    /// to 40 s. [`Session::timeout`](zoolet_coordinator::Coordinator::timeout) returns the
    /// negotiated value. The node keeps the session alive while the process lives. So the timeout
    /// is how long ephemerals remain after the process dies.
    ///
    /// In an ensemble, a session with a timeout below 9.6 s sends three syncs to its leader per
    /// timeout. Requests behind a sync wait for its answer, which takes one round trip to the
    /// leader.
    pub timeout: Option<Duration>,
    /// Maximum time between calls of [`touch`](crate::Session::touch) before the session closes.
    ///
    /// `None` disables the watchdog: the session lives as long as the process. The watchdog is for
    /// daemons whose main loop may hang while the process and the node's threads live on. Their
    /// ephemerals and locks are then released, and the state becomes
    /// `Lost(`[`Untouched`](crate::LostReason::Untouched)`)`. The time counts from the moment the
    /// session is first connected.
    pub watchdog: Option<Duration>,
    /// Whether to read while the node's member has no leader, or a disk that accepts nothing.
    ///
    /// The node needs `read_only = true`. Then the session's state is
    /// [`ReadOnly`](crate::SessionState::ReadOnly): reads show the last applied state, and
    /// [`Session::outdated_for`](crate::Session::outdated_for) says how old it may be. Writes are
    /// refused with NotReadOnly. The session itself begins or goes on when there is a leader. So a
    /// session that was opened without one has the id 0 until then.
    pub read_only: bool,
}

/// The result of a create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Created {
    /// The znode's path, including the number of a sequential znode.
    pub path: Text,
    /// The znode's stat.
    pub stat: Stat,
}

/// The kind of znode to create, and its ACL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateOptions {
    /// Persistent, ephemeral, container, or with a time to live. The last is refused with
    /// Unimplemented if the setting `ttl_znodes` is off.
    pub kind: CreateKind,
    /// Whether the parent's counter is appended to the name.
    pub sequential: bool,
    /// The permissions of each identity.
    pub acl: Vec<AclEntry>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { kind: CreateKind::Persistent, sequential: false, acl: zoolet_model::open_acl() }
    }
}

impl CreateOptions {
    /// Returns options for a znode that is deleted when the session ends.
    pub fn ephemeral() -> Self {
        Self { kind: CreateKind::Ephemeral, ..Self::default() }
    }

    /// Returns the same options, with a number appended to the name.
    #[must_use]
    pub fn sequential(self) -> Self {
        Self { sequential: true, ..self }
    }

    /// Returns the create operation, which can also be part of a multi.
    pub fn request(&self, path: &Path, data: Option<Bytes>) -> WriteOp {
        WriteOp::Create(Create {
            path: path.text().clone(),
            data,
            acl: requested(&self.acl),
            mode: CreateMode::Valid { kind: self.kind, sequential: self.sequential },
            with_stat: true,
        })
    }
}

/// The version that a write expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Any version.
    Any,
    /// This version; otherwise the write fails with BadVersion.
    Is(i32),
}

impl Version {
    pub(super) fn on_wire(self) -> i32 {
        match self {
            Self::Any => -1,
            Self::Is(version) => version,
        }
    }
}

pub(super) fn requested(acl: &[AclEntry]) -> Option<AskedAcl> {
    let entry = |entry: &AclEntry| RequestedAcl {
        perms: entry.perms,
        scheme: Some(entry.scheme.clone()),
        id: Some(entry.id.clone()),
    };
    Some(acl.iter().map(entry).collect())
}
