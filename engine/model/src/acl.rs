//! Who may do what.

use crate::Text;
use alloc::{borrow::Cow, vec, vec::Vec};

/// A permission set: ZooKeeper's bits, stored as the client gave them, valid or not (surface 6.1).
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
    /// All five.
    pub const ALL: Self = Self(31);

    /// Whether any bit is in both: ZooKeeper's check is any-bit (surface 13.35).
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One line of an ACL.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AclEntry {
    /// What is allowed.
    pub perms: Perms,
    /// The authentication scheme: world, ip, digest, auth.
    pub scheme: Text,
    /// Who, in the scheme's own form.
    pub id: Text,
}

/// One line of an ACL as a client sent it: strings may be null there (kazoo sends empty ones as null).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RequestedAcl {
    /// What is allowed.
    pub perms: Perms,
    /// The scheme, or null.
    pub scheme: Option<Text>,
    /// The id, or null.
    pub id: Option<Text>,
}

/// An ACL as a client asks for it. Nearly all ask for the open one, which lives for ever: who asks again and again allocates nothing for it.
pub type AskedAcl = Cow<'static, [RequestedAcl]>;

impl RequestedAcl {
    /// `world:anyone` with all permissions, as a client asks for it: ZooKeeper's OPEN_ACL_UNSAFE.
    pub const fn open() -> AskedAcl {
        static OPEN: [RequestedAcl; 1] = [RequestedAcl {
            perms: Perms::ALL,
            scheme: Some(Text::from_static("world")),
            id: Some(Text::from_static("anyone")),
        }];
        Cow::Borrowed(&OPEN)
    }
}

/// `world:anyone` with all permissions, ZooKeeper's OPEN_ACL_UNSAFE.
pub fn open_acl() -> Vec<AclEntry> {
    vec![AclEntry { perms: Perms::ALL, scheme: Text::from_static("world"), id: Text::from_static("anyone") }]
}

/// One identity of a connection: scheme and id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AuthId {
    /// The scheme that proved it.
    pub scheme: Text,
    /// Who, in the scheme's own form.
    pub id: Text,
}
