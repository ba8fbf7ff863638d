//! The kind of a new znode, and what its creation returns.

use bytes::Bytes;
use std::time::Duration;
use zoolet_model::{AclEntry, AskedAcl, Create, CreateKind, CreateMode, Path, RequestedAcl, Stat, WriteOp};

/// A znode that was created.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Created {
    /// The znode's path, including the number of a sequential znode.
    pub path: Path,
    /// The znode's stat.
    pub stat: Stat,
}

impl Created {
    /// Returns a znode that was created at `path`.
    pub const fn new(path: Path, stat: Stat) -> Self {
        Self { path, stat }
    }
}

/// The kind of znode to create, and its ACL.
///
/// ```
/// use std::time::Duration;
/// use zoolet::CreateOptions;
///
/// let numbered = CreateOptions::ephemeral().sequential();
/// let brief = CreateOptions::ttl(Duration::from_secs(60));
/// ```
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
    /// Returns the options of [`CreateOptions::persistent`].
    fn default() -> Self {
        Self::of(CreateKind::Persistent)
    }
}

impl CreateOptions {
    fn of(kind: CreateKind) -> Self {
        Self { kind, sequential: false, acl: zoolet_model::open_acl() }
    }

    /// Returns options for a znode that lives until it is deleted.
    pub fn persistent() -> Self {
        Self::of(CreateKind::Persistent)
    }

    /// Returns options for a znode that is deleted when the session ends.
    pub fn ephemeral() -> Self {
        Self::of(CreateKind::Ephemeral)
    }

    /// Returns options for a znode that is deleted some time after its last child.
    pub fn container() -> Self {
        Self::of(CreateKind::Container)
    }

    /// Returns options for a znode that is deleted when nothing has changed it for `ttl`.
    ///
    /// A znode with children stays. A fraction of a millisecond counts as a whole one. The server
    /// refuses zero, and more than 2^40 - 1 milliseconds, with BadArguments.
    pub fn ttl(ttl: Duration) -> Self {
        let ttl_ms = ttl.as_nanos().div_ceil(1_000_000);
        Self::of(CreateKind::Ttl { ttl_ms: u64::try_from(ttl_ms).unwrap_or(u64::MAX) })
    }

    /// Returns the same options, with a number appended to the name.
    #[must_use]
    pub fn sequential(self) -> Self {
        Self { sequential: true, ..self }
    }

    /// Returns the same options with another ACL.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<AclEntry>>) -> Self {
        Self { acl: acl.into(), ..self }
    }

    pub(crate) fn request(&self, path: &Path, data: Option<Bytes>) -> WriteOp {
        WriteOp::Create(Create {
            path: path.text().clone(),
            data,
            acl: requested(&self.acl),
            mode: CreateMode::Valid { kind: self.kind, sequential: self.sequential },
            with_stat: true,
        })
    }
}

/// Returns the ACL as a request has it. The open one allocates nothing.
pub(crate) fn requested(acl: &[AclEntry]) -> Option<AskedAcl> {
    let entry = |entry: &AclEntry| RequestedAcl {
        perms: entry.perms,
        scheme: Some(entry.scheme.clone()),
        id: Some(entry.id.clone()),
    };
    Some(acl.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_to_live_is_rounded_up_to_milliseconds() {
        let kind = |ttl| CreateOptions::ttl(ttl).kind;
        assert_eq!(kind(Duration::from_millis(5)), CreateKind::Ttl { ttl_ms: 5 });
        assert_eq!(kind(Duration::from_micros(1)), CreateKind::Ttl { ttl_ms: 1 });
        assert_eq!(kind(Duration::MAX), CreateKind::Ttl { ttl_ms: u64::MAX });
    }
}
