//! The library as embedders use it: nodes in this process, alone and in ensembles.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod allocations_caller;
mod handles;
mod one_node;
mod statuses;
#[cfg(feature = "ensemble")]
mod three_servers;

#[path = "../allocations_cycles/mod.rs"]
mod allocations_cycles;
#[path = "../scratch/mod.rs"]
mod scratch;
