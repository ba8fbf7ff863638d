//! Limits on the clients of a server process: memory, connections, sessions, watches.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod base;
mod bytes;
mod connections;
mod sessions;
mod slow;
mod watches;

#[path = "../support/mod.rs"]
mod support;
