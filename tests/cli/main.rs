//! The binary's operator interface: commands, configuration, mistakes, exit codes and documents.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bench;
mod certificates;
mod completions;
mod coordination;
mod documented;
mod ensemble_command;
mod exit_codes;
mod fuzz_config;
mod help;
mod init;
mod licences;
mod mistakes;
mod probe;
mod proxy;
mod refusals;
mod shell;
mod shell_outages;
mod shell_session;
mod shell_subtrees;
mod shell_zkcli;

#[path = "../support/json.rs"]
mod json;
#[path = "../support/mod.rs"]
mod support;
