//! The version that a write expects.

use crate::Stat;

/// The version that a write expects of a znode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// Any version.
    Any,
    /// This version; otherwise the write fails with BadVersion.
    Is(i32),
}

impl Version {
    /// Returns the number on the wire, where -1 matches any version.
    pub const fn on_wire(self) -> i32 {
        match self {
            Self::Any => -1,
            Self::Is(version) => version,
        }
    }

    /// Returns the version that a number on the wire stands for.
    pub const fn from_wire(version: i32) -> Self {
        if version == -1 { Self::Any } else { Self::Is(version) }
    }
}

impl From<&Stat> for Version {
    /// Returns the version of the data that this stat came with.
    fn from(stat: &Stat) -> Self {
        Self::Is(stat.version)
    }
}

impl From<Stat> for Version {
    fn from(stat: Stat) -> Self {
        Self::from(&stat)
    }
}
