//! What a znode tells about itself.

/// ZooKeeper's Stat, in wire order (68 bytes there). Times are milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Zxid that created the znode.
    pub czxid: i64,
    /// Zxid of the last setData.
    pub mzxid: i64,
    /// Wall clock of the creation.
    pub ctime: i64,
    /// Wall clock of the last setData.
    pub mtime: i64,
    /// Count of setData.
    pub version: i32,
    /// Count of children created plus children deleted.
    pub cversion: i32,
    /// Count of setACL.
    pub aversion: i32,
    /// Session that owns an ephemeral; 0 for every other kind.
    pub ephemeral_owner: i64,
    /// Bytes of data.
    pub data_length: i32,
    /// Direct children.
    pub num_children: i32,
    /// Zxid of the last creation or deletion of a direct child.
    pub pzxid: i64,
}
