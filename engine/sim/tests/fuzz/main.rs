//! The fuzz targets of the engine, with their corpus and random inputs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod corpus;
mod decoders;
mod found;
mod server;

#[path = "../log_support/mod.rs"]
mod log_support;
