//! The Zab broadcast protocol alone.
#![no_std]

mod zxid;

pub use zxid::{AppendSeq, Epoch, ServerId, Zxid};
