//! Links between servers: QUIC, one endpoint a server.
//!
//! Everything runs on the tasks of one tokio runtime of one thread, which is not the client port's: a flood of clients must not keep a heartbeat waiting.
//! A link is one connection; when it goes, whatever was on the way goes with it, and the next link begins anew. Each lane of it
//! ([`zoolet_engine::peer::Lane`]) is a one-way stream of its own, but heartbeats, which are datagrams; a snapshot has a stream of low priority that
//! whoever receives it opens, because only that side knows where to go on.
//!
//! | part | what it does |
//! |---|---|
//! | `codec` | messages and their bytes; reads nothing, writes nothing |
//! | `trust` | keys, and who is let in |
//! | `links` | dials, accepts, tells of two connections which one stays |
//!
//! What a peer's bytes do wrong closes that link and no other; what a stranger does costs little and tells it nothing.

pub mod codec;
mod links;
mod port;
mod seam;
mod settings;
mod table;
pub mod trust;

pub use port::PeerPort;
pub use seam::{Instruction, Outbox, PeerEvents, SnapshotBytes, SnapshotSize, SnapshotTaker};
pub use settings::{PeerMember, PeerSettings, lane_bytes_max, link_bytes_max, window_bytes};
pub use table::{PeerFigures, PeerTable, Refusal};
