//! Access control lists and identities.

use crate::Text;
use alloc::{borrow::Cow, vec, vec::Vec};

/// A permission set: ZooKeeper's bits as the client sent them, unvalidated (surface 6.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Perms(pub i32);

impl Perms {
    /// Read data and list children.
    pub const READ: Self = Self(1);
    /// Set data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Set the ACL.
    pub const ADMIN: Self = Self(16);
    /// All five permissions.
    pub const ALL: Self = Self(31);

    /// Returns whether the sets share a bit. ZooKeeper's check is any-bit (surface 13.35).
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of the sets.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One line of an ACL.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AclEntry {
    /// The granted permissions.
    pub perms: Perms,
    /// The authentication scheme: world, ip, digest, auth.
    pub scheme: Text,
    /// The identity, in the scheme's form.
    pub id: Text,
}

/// One line of an ACL as a client sent it.
///
/// Its strings may be null: kazoo sends empty strings as null.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RequestedAcl {
    /// The requested permissions.
    pub perms: Perms,
    /// The scheme; `None` is null.
    pub scheme: Option<Text>,
    /// The id; `None` is null.
    pub id: Option<Text>,
}

/// An ACL as a client requests it.
///
/// Nearly all clients request the open ACL. It is static, so requesting it allocates nothing.
pub type AskedAcl = Cow<'static, [RequestedAcl]>;

impl RequestedAcl {
    /// Returns the open ACL as a client requests it: ZooKeeper's OPEN_ACL_UNSAFE.
    ///
    /// It grants all permissions to `world:anyone`.
    pub const fn open() -> AskedAcl {
        static OPEN: [RequestedAcl; 1] = [RequestedAcl {
            perms: Perms::ALL,
            scheme: Some(Text::from_static("world")),
            id: Some(Text::from_static("anyone")),
        }];
        Cow::Borrowed(&OPEN)
    }
}

/// Returns the open ACL, ZooKeeper's OPEN_ACL_UNSAFE: all permissions for `world:anyone`.
pub fn open_acl() -> Vec<AclEntry> {
    vec![AclEntry { perms: Perms::ALL, scheme: Text::from_static("world"), id: Text::from_static("anyone") }]
}

/// One identity of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AuthId {
    /// The scheme that proved it.
    pub scheme: Text,
    /// The identity, in the scheme's form.
    pub id: Text,
}
