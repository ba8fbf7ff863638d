//! Cuts the power of the zoolet binary, and checks what is left.
//!
//! - [`volume`] models what a cut may leave; [`mount`] makes a file system of it.
//! - [`tree`] is the state that the server must hold after each write.
//! - [`load`] sends writes and keeps every answer.
//! - [`check`] compares a restarted server with both.
//! - [`rounds`] alternates load, cut and check.
//!
//! `tests/powercut/README.md` says how to run them.

pub mod check;
pub mod client;
pub mod digest;
pub mod load;
#[cfg(all(feature = "fuse", target_os = "linux"))]
pub mod mount;
pub mod random;
pub mod rounds;
pub mod server_process;
pub mod strace;
pub mod tree;
pub mod volume;

/// Reports that something cannot be checked here, on a separate line as `.ci/run` counts them.
///
/// It writes to stderr directly: the test runner hides the output of a test that passes.
pub fn not_checked(what: impl std::fmt::Display) {
    use std::io::Write;
    // An error means that stderr has no reader left.
    let _ = writeln!(std::io::stderr(), "\nNOT CHECKED: {what}");
}
