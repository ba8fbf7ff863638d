//! Stored records: their keys, bytes, permissions and hashes.

pub mod acl;
mod chain;
pub mod digest;
pub mod key;
pub mod znode;

pub use chain::{ENTRY_KIND, chain_after};
