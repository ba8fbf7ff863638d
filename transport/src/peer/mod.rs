//! Links between servers: QUIC, with one endpoint per server.
//!
//! All tasks run on one single-threaded tokio runtime. The client port has another runtime, so a
//! flood of clients cannot delay a heartbeat. A link is one connection. Data in flight is lost when
//! the connection ends, and the next link starts afresh.
//!
//! Each lane of a link ([`zoolet_machine::seam::peer::Lane`]) is a one-way stream, except heartbeats,
//! which are datagrams. Each snapshot travels on a low-priority stream. The receiver opens that
//! stream, because only the receiver knows the offset at which to resume.
//!
//! | part | what it does |
//! |---|---|
//! | `codec` | encodes and decodes messages; does no I/O |
//! | `trust` | keys, and which servers are admitted |
//! | `links` | dials, accepts, chooses one connection per pair of servers |
//!
//! Invalid bytes from a peer close that peer's link only. An unproved peer can consume little and
//! learns nothing.

pub mod codec;
mod instruction_queue;
mod links;
mod peer_port;
mod settings;
mod table;
pub mod trust;

pub use instruction_queue::{Instruction, InstructionQueue, PeerEvents, SnapshotBytes, SnapshotSize, SnapshotTaker};
pub use peer_port::PeerPort;
pub use settings::{PeerMember, PeerSettings, lane_bytes_max, link_bytes_max, window_bytes};
pub use table::{PeerFigures, PeerTable, Refusal};
