//! Snapshots: a generation of the base on its way to a learner.

mod sink;
mod source;

pub use sink::{Received, SnapshotSink};
pub use source::SnapshotSource;
