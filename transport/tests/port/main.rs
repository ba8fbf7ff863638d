//! The client port: its codec, its connections, and what it delivers.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod codec;
mod delivery;
mod ensemble_words;
mod fuzz;
mod serving;

#[path = "../fake/mod.rs"]
mod fake;
#[path = "../random/mod.rs"]
mod random;
#[path = "../random/targets.rs"]
mod targets;

// The targets take it from the module above them, here as in tests/fuzz.
use random::Random;
