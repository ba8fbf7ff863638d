//! The content of a znode, as a read returns it.

use bytes::Bytes;
use zoolet_model::Stat;

/// Data and stat of a znode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Znode {
    /// The data. `None` (null) and empty data are different.
    pub data: Option<Bytes>,
    /// The stat.
    pub stat: Stat,
}

impl Znode {
    /// Returns a znode with this data and stat.
    pub const fn new(data: Option<Bytes>, stat: Stat) -> Self {
        Self { data, stat }
    }

    /// Returns the data; empty for null data.
    pub fn bytes(&self) -> &[u8] {
        self.data.as_deref().unwrap_or_default()
    }

    /// Returns the data as text; `None` if it is not UTF-8. Null data is empty text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()).ok()
    }
}
