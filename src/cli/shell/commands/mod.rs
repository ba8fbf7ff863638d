//! The commands, each file with its part of the table.

pub(super) mod access;
pub(super) mod archiving;
pub(super) mod changes;
pub(super) mod comparing;
pub(super) mod copying;
pub(super) mod following;
pub(super) mod itself;
pub(super) mod membership;
pub(super) mod quota;
pub(super) mod searching;
pub(super) mod subtree;
pub(super) mod watching;
pub(super) mod znodes;
