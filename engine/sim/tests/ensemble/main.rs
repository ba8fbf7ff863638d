//! Whole ensembles on virtual time.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod half_cut;
mod long;
mod oracle_world;
mod owners;
mod pause;
mod profiles;
mod seeds;
