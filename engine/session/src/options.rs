//! What a write is given beside its path and data.

use bytes::Bytes;
use std::time::Duration;
use zoolet_model::{AclEntry, AskedAcl, Create, CreateKind, CreateMode, Path, RequestedAcl, Stat, Text, WriteOp};

/// How a session of this process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionOptions {
    /// The timeout to ask for; `None` is 10 s. What the node does not grant it moves to the nearest that it does, 4 s to 40 s unless it is told otherwise:
    /// [`Session::timeout`](zoolet_coordinator::Coordinator::timeout) says what it is. The node keeps the session alive: the timeout matters when the process dies, and is how long its
    /// ephemerals then stay. In an ensemble a session of less than 9.6 s asks its leader three times in its timeout whether it is alive, and what it asks
    /// behind that waits until it is answered: for one way to the leader and back.
    pub timeout: Option<Duration>,
    /// The session closes when its owner does not [touch](crate::Session::touch) it for so long; `None`: it lives as long as the process. For daemons
    /// whose main loop may hang while the process, and so the node's threads, live on: their ephemerals and locks go then, and the state is
    /// `Lost(`[`Untouched`](crate::LostReason::Untouched)`)`. It counts from when the session is first served.
    pub watchdog: Option<Duration>,
}

/// What a create made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Created {
    /// Its path: with the number appended when it is sequential.
    pub path: Text,
    /// Its stat.
    pub stat: Stat,
}

/// What kind of znode to create, and for whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateOptions {
    /// Persistent, ephemeral or container; a time to live is not built yet and refused with Unimplemented.
    pub kind: CreateKind,
    /// Whether the parent's counter is appended to the name.
    pub sequential: bool,
    /// Who may do what.
    pub acl: Vec<AclEntry>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { kind: CreateKind::Persistent, sequential: false, acl: zoolet_model::open_acl() }
    }
}

impl CreateOptions {
    /// A znode that dies with the session.
    pub fn ephemeral() -> Self {
        Self { kind: CreateKind::Ephemeral, ..Self::default() }
    }

    /// The same kind, with a number appended.
    #[must_use]
    pub fn sequential(self) -> Self {
        Self { sequential: true, ..self }
    }

    /// The operation, also for a multi.
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

/// Which version a write expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Whatever is there.
    Any,
    /// This one, or the write fails with BadVersion.
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
