//! The binary keeps what it acknowledged: under `kill -9`, over panics of redb, on media that wear.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod crash;
mod flash;
mod panics;
mod quotas;

#[path = "../support/mod.rs"]
mod support;
