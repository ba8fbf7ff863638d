//! What the recipes need of a session: [`Coordinator`], and the [`Errand`]s that it runs for whoever no longer waits.
//!
//! A crate of its own, so that sessions, and the simulator that drives them, know nothing of the recipes.

mod coordinator;
mod errand;
mod guid;
mod instant;

pub use coordinator::Coordinator;
pub use errand::{Errand, Left, Shared};
pub use guid::Guid;
pub use instant::Instant;
