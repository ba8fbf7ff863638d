//! Storage in three layers: the log (every durable fact), memory (what is newer than the base), the base (redb).

pub mod base;
pub mod disk;
mod fs;
pub mod image;
pub mod key;
pub mod log;

pub use fs::{FsDisk, Strategy};
