//! The interface between recipes and a session: [`Coordinator`] and [`Errand`].
//!
//! An errand is a cleanup that the session runs for a caller that no longer waits. This is a
//! separate crate, so that sessions and the simulator that drives them do not depend on the
//! recipes.

mod coordinator;
mod errand;
mod guid;
mod instant;

pub use coordinator::Coordinator;
pub use errand::{Errand, Left, Shared};
pub use guid::Guid;
pub use instant::Instant;
