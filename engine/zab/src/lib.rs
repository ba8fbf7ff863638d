//! The Zab broadcast protocol alone: sans-IO, `no_std`, no allocation.
//!
//! Events go in through `handle_*` methods and commands, [`Action`]s come out of [`Zab::poll_action`]. Bytes never pass
//! through: actions name entries by zxid and appends by number, and whoever drives the machine keeps the bytes.
#![no_std]

mod quorum;
mod spans;
mod zab;
mod zxid;

pub use quorum::{VOTERS_MAX, Voters};
pub use spans::{SPANS_MAX, Span, Spans};
pub use zab::{Action, Recovered, Refused, Role, Round, Zab};
pub use zxid::{AppendSeq, Epoch, ServerId, Zxid};
