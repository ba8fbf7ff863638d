//! Every recipe on virtual time: whole ensembles of the real engine, sessions of production, and what can go wrong with servers, networks, disks and the
//! clients themselves. `ENSEMBLE_SEEDS=N` runs so many seeds, `ENSEMBLE_SEED=S` one of them with its trace.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod apart;
mod barrier;
mod cache;
mod counter;
mod double_barrier;
mod event_handle;
mod exclusion;
mod latch;
mod lock;
mod names;
mod persistent;
mod queue;
mod rolling_restart;
mod two_phase_commit;
