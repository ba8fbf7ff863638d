//! The commands, each file with its part of the table.

pub(super) mod access;
pub(super) mod changes;
pub(super) mod itself;
pub(super) mod membership;
pub(super) mod quota;
pub(super) mod subtree;
pub(super) mod watching;
pub(super) mod znodes;
