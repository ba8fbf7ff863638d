//! A few whole servers wired by hand, and their sessions.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod checkpoint_hangs;
mod failover;
mod full_disks;
mod hand_over;
mod held_commits;
mod history;
mod operator;
mod quotas;
mod repair;
mod sessions_embedded;
mod sessions_forward;
mod sessions_local;
mod sessions_lost;
mod sessions_pause;
mod sessions_read_only;
mod sessions_readers;
mod sessions_return;
mod sessions_silence;
mod time_to_live;

#[path = "../member_boxes/mod.rs"]
mod member_boxes;
#[path = "../member_support/mod.rs"]
mod member_support;
