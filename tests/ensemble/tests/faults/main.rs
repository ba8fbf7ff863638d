//! Real ensembles under faults. `.ci/run faults` also runs the ignored tests, one at a time.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod clocks;
mod cuts;
mod disks;
mod killed;
mod media;
mod names;
mod network;
mod one;
mod probe;
mod read_only;
mod returned;
