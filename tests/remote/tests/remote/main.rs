//! Recipes over TCP: requests, faults of the network, and every recipe.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod faults;
mod recipes;
mod requests;
