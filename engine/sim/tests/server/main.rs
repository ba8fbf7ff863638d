//! One whole server: its bounds, its pipeline, its crashes, its store.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bounds;
mod bounds_held;
mod crash_server;
mod pipeline;
mod quotas;
mod refusing;
mod set_watches;
mod store_capped;
mod store_meter;
mod ttl;
mod upkeep;
