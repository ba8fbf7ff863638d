//! An event that may fire watches.

use bytes::Bytes;
use zoolet_model::{EventKind, Text};

/// An event that may fire watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fired {
    /// Kind of event.
    pub kind: EventKind,
    /// The znode it happened to.
    pub path: Text,
    /// The stored ACL that decides which clients receive the event (surface 5.3). It is the znode's
    /// own, its last one, or its parent's.
    pub acl: Bytes,
}
