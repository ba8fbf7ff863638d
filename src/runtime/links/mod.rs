//! Links to the other servers of an ensemble: their port, their thread, and snapshots in transfer.
//!
//! Without the feature `ensemble`, `no_links.rs` stands in for this module.

mod port;
mod snapshots;
mod thread;

pub(super) use port::{bind, check};
pub(super) use snapshots::{LentReader, Received};
pub(super) use thread::{PeerLinks, instruction, run};
pub(super) use zoolet_transport::peer::{Instruction, PeerPort};
