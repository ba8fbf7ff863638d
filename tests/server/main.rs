//! The binary as a server: clients on real sockets, hostile clients, signals, ports, crashes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod crash;
mod flash;
mod four_letter_words;
mod hostile;
mod hostile_reads;
mod open_ports;
mod panics;
mod probe;
mod refusals;
mod serve;

#[path = "../support/mod.rs"]
mod support;
