//! The binary as a server: clients on real sockets, hostile clients, signals, ports.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod four_letter_words;
mod hostile;
mod hostile_reads;
mod open_ports;
mod serve;

#[path = "../support/mod.rs"]
mod support;
