//! Recipes over TCP: requests, network faults, and every recipe.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod faults;
mod recipes;
mod requests;
