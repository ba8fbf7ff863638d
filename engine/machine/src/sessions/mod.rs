//! Sessions: authentication, liveness, and the order in which requests are answered.

mod auth;
mod connection;
mod connections;
mod guesses;
mod local;
mod table;

pub use auth::{Proved, Secrets, digest_id, names_super, prove};
pub use connection::{Connection, Newcomer, Phase, Waiting, identity_bytes};
pub use connections::Connections;
pub use guesses::Guesses;
pub use local::LocalSessions;
pub use table::{Live, Place, SessionTable};
