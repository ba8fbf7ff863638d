//! Storage in three layers: log, memory and base.
//!
//! The log holds every durable fact. Memory holds the state newer than the base. The base holds the
//! state as of a checkpoint, in redb and in immutable sorted files.

pub mod base;
mod cache;
mod capped;
mod changes;
mod device;
pub mod digest;
pub mod disk;
mod fs;
pub mod image;
pub mod key;
pub mod log;
mod marker;
mod memory;
mod meter;
mod names;
mod open;
mod reserve;
mod slate;
mod snapshot;

pub(crate) use cache::Stamp;
pub use capped::capped;
pub use changes::Changes;
pub use device::{DeviceWear, SpareBlocks};
pub use fs::{FileSystem, FsDisk, Opened, Strategy, make_private};
pub use marker::{MARKER, MARKER_UNFINISHED, Marker};
pub use memory::Memory;
pub use meter::{Cause, Meter, MeteredDisk, Written};
pub use open::{Health, OpenError, Store};
pub use reserve::{Reserve, disk_bytes_min};
pub use snapshot::{Received, SnapshotSink};
