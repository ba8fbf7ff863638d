//! A checkpoint: the changes for the base, and the state that results.

use crate::state::Changes;
use bytes::Bytes;
use std::sync::Arc;
use zoolet_model::Zxid;

/// Changes for one durable transaction of the base.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The changes since the last checkpoint.
    pub changes: Arc<Changes>,
    /// The state that results.
    pub meta: CheckpointMeta,
}

/// The base's description of its own state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointMeta {
    /// Last entry in the state.
    pub zxid: Zxid,
    /// Wrapping sum of the 128-bit hashes of all records (`record::digest`).
    pub digest: u128,
    /// The replicated totals, encoded by the tree.
    pub totals: Bytes,
}
