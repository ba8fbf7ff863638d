//! Cuts the power of the zoolet binary, and checks what is left.
//!
//! The parts: a [`volume`] that knows what a cut may leave, and a file system made of it ([`mount`]); a [`tree`] that is
//! what the server must hold after each write; a [`load`] that sends writes and keeps every answer; a [`check`] of the server
//! after a restart against both; and [`rounds`], which lets them take turns. `tests/powercut/README.md` says how they run.

pub mod check;
pub mod client;
pub mod digest;
pub mod load;
#[cfg(all(feature = "fuse", target_os = "linux"))]
pub mod mount;
pub mod random;
pub mod rounds;
pub mod server;
pub mod strace;
pub mod tree;
pub mod volume;

/// Says that something could not be looked at here, on a line of its own as `.ci/run` counts them: past the test runner, which shows nothing of what a test
/// that passes prints.
pub fn not_checked(what: impl std::fmt::Display) {
    use std::io::Write;
    // Nobody who reads it is left: there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "\nNOT CHECKED: {what}");
}
