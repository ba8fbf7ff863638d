//! The client port: codec, connections and delivery.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bounds;
mod codec;
mod delivery;
mod ensemble_words;
mod fuzz;
mod golden;
mod serving;
mod words;

#[path = "../fake/mod.rs"]
mod fake;
#[path = "../random/mod.rs"]
mod random;
#[path = "../random/targets.rs"]
mod targets;

// `targets` imports `Random` from its parent module, here and in tests/fuzz.
use random::Random;
