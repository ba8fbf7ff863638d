//! The base and the image on a simulated disk.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod checkpoint;
mod crash;
mod faults;
mod flip;
mod full;
mod image_file;
mod image_subtree;
mod image_switch;
mod image_transfer;
mod large;
mod measure;
mod receive_room;
mod scrub;
mod space;

#[path = "../base_support/mod.rs"]
mod base_support;
#[path = "../log_support/mod.rs"]
mod log_support;
