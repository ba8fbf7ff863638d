//! Identifiers that events, actions and messages share.

pub use zoolet_zab::{Incarnation, LinkId};

/// A connection, numbered by the driver; an embedded session has one too.
///
/// A number is never reused in one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// Identifies a fetch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetchId(pub u64);

/// A state of the base. The first is found at start; each checkpoint makes the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// Identifies a snapshot transfer. Its sender numbers it and never reuses a number in one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransferId(pub u64);

/// Identifies a log read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReadId(pub u64);
