//! The tree against a naive model.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod apply;
mod recovery;
mod tree;
