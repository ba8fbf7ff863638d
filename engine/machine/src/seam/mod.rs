//! The seam between the machine and its driver: events in, actions out.

pub mod action;
pub mod checkpoint;
pub(crate) mod completion;
pub mod event;
pub mod health;
pub mod ids;
pub mod log_rate_limit;
pub mod peer;
