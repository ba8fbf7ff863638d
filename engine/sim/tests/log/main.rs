//! The log on a simulated disk: crashes, damage and format.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod append;
mod born;
mod crash;
mod damage;
mod diverged;
mod entries;
mod facts;
mod format;
mod health;
mod lost;
mod measure;
mod recover;
mod room;
mod truncate;

#[path = "../base_support/mod.rs"]
mod base_support;
#[path = "../log_support/mod.rs"]
mod log_support;
