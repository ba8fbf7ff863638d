//! The metadata of a znode.

/// ZooKeeper's Stat, in wire order (68 bytes). Times are milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Zxid of the creation.
    pub czxid: i64,
    /// Zxid of the last setData, or of the creation.
    pub mzxid: i64,
    /// Wall clock of the creation.
    pub ctime: i64,
    /// Wall clock of the last setData, or of the creation.
    pub mtime: i64,
    /// Number of setData calls.
    pub version: i32,
    /// Number of children created plus children deleted.
    pub cversion: i32,
    /// Number of setACL calls.
    pub aversion: i32,
    /// Session that owns an ephemeral; 0 for every other kind.
    pub ephemeral_owner: i64,
    /// Bytes of data.
    pub data_length: i32,
    /// Number of direct children.
    pub num_children: i32,
    /// Zxid of the last creation or deletion of a direct child, or of the znode's creation.
    pub pzxid: i64,
}
