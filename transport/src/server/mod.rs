//! The client port.

mod port;
mod seam;
mod words;

pub use port::{About, ClientPort, PortSettings};
pub use seam::{ConnIds, EventSink, Outbox, Output};
pub use words::{Whitelist, Word};
