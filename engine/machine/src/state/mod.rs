//! The state in memory: layers above the base, and the changes of entries in progress.

mod buffer_pool;
mod cache;
mod changes;
mod memory;
mod overlay;
mod spare;
mod view;
mod weights;

pub(crate) use cache::Stamp;
pub use changes::Changes;
pub use memory::Memory;
pub use overlay::{Change, Overlay};
pub use view::{First, Found, Stuck, View};
