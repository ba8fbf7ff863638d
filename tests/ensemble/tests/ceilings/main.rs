//! Tests of the profiles' ceilings for memory and disk. `.ci/run ceiling` runs them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod disk;
mod memory;
