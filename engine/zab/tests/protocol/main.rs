//! Tests of the protocol core: sentences of the papers, heartbeats, scripted traces, and random
//! runs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod commits;
mod explore;
mod heartbeats;
mod model;
mod paper;
mod traces;

#[path = "../net/mod.rs"]
mod net;
