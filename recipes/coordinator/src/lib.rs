//! The interface between recipes and a session: [`Coordinator`], [`CoordinatorExt`] and [`Errand`].
//!
//! An errand is a cleanup that the session runs for a caller that no longer waits. This is a
//! separate crate, so that sessions and the simulator that drives them do not depend on the
//! recipes.

mod coordinator;
mod create_options;
mod errand;
mod error;
mod grant_change;
mod guid;
mod instant;
mod op;
mod open_session;
mod operations;
mod prepared;
mod recorded;
mod znode;

pub use coordinator::Coordinator;
pub use create_options::{CreateOptions, Created};
pub use errand::{Errand, Left, Shared};
pub use error::{Error, ErrorKind, GrantEnd};
pub use grant_change::{FencingToken, GrantChange, GrantStep};
pub use guid::Guid;
pub use instant::Instant;
pub use op::{Done, Op};
pub use open_session::OpenSession;
pub use operations::CoordinatorExt;
pub use prepared::Prepared;
pub use recorded::{Recorded, RecordedOpening};
pub use znode::Znode;
