//! Writes of a learner's clients: sent to the leader, returned as entries.
//!
//! The learner encodes an entry once; the leader fills in its times and proposes those bytes. The
//! entry names the learner and its number for the entry, which identifies the waiting request. So
//! the learner knows the entry again, whichever leader sends it.
//!
//! When the leader is lost, the learner keeps its clients' entries. Once it serves again, an entry
//! that is not in its history can never be committed any more, and the learner forwards it again
//! (docs/design/sessions.md, "A lost leader").
//!
//! `learner.rs` sends entries, and asks again for those that it has kept. `leader.rs` receives entries.
//! `table.rs` holds the entries of both.

mod leader;
mod learner;
mod table;

pub(super) use table::{Forwards, Wanted};

/// Maximum forwarded entries of one learner in flight; beyond it pipelines wait. An entry is in
/// flight until the leader returns or refuses it.
const FORWARDS_MAX: usize = 1024;
/// Maximum for entries that begin or end a session. Its extra room keeps them from waiting for
/// other clients' writes.
const SESSION_FORWARDS_MAX: usize = FORWARDS_MAX + 256;
/// Maximum payload bytes of forwards in flight. A single larger entry is still sent.
const FORWARD_BYTES_MAX: usize = 2 << 20;

/// Bytes allowed for each session entry beyond `FORWARDS_MAX`, rounded up.
const SESSION_FORWARD_BYTES: usize = 256;
