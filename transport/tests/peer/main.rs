//! Links between servers: codec, handshakes and refusals.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![cfg(feature = "peer")]

mod bulk;
mod codec;
mod cut;
mod fuzz;
mod golden;
mod links;
mod opening;
mod refusals;
mod slow;
mod tie_break;

#[path = "../random/peer_targets.rs"]
mod peer_targets;
#[path = "../random/peers.rs"]
mod peers;
#[path = "../servers/mod.rs"]
mod servers;
