//! zoolet's storage: the log and the base.
//!
//! The log holds every durable fact. The base holds the state as of a checkpoint, in redb and in
//! immutable sorted files. The machine's memory holds the state newer than the base
//! ([`zoolet_machine::state`]). All disk IO goes through [`disk::Disk`], on the caller's thread.

pub mod base;
mod capped;
mod device;
pub mod disk;
mod fs;
pub mod image;
pub mod log;
mod marker;
mod meter;
mod open;
mod open_names;
mod reserve;
mod snapshot;

pub use capped::capped;
pub use device::device_wear;
pub use fs::{FileSystem, FsDisk, Opened, Strategy, make_private};
pub use marker::{MARKER, MARKER_UNFINISHED, Marker};
pub use meter::{Meter, MeteredDisk};
pub use open::{Health, OpenError, Store};
pub use reserve::{Reserve, disk_bytes_min};
pub use snapshot::{Received, SnapshotSink, SnapshotSource};
