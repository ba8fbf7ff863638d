//! Tests of every recipe on virtual time.
//!
//! Whole ensembles of the real engine run with the sessions of production. Servers, networks, disks
//! and clients fail. `ENSEMBLE_SEEDS=N` runs N seeds, and `ENSEMBLE_SEED=S` runs seed S alone with
//! its trace.
//!
//! The list names the hazards known from other libraries, and the tests that would show them here.
//! A "drawn" test runs under faults and fates that its seed draws, such as pauses, cuts, crashes,
//! expired sessions and lost replies. A "rule" is a mutation that breaks one rule of the recipes,
//! for `mutations.rs`.
//!
//! 1. Believing in a grant is not having it. `holding` acts only as long as no other client may
//!    hold the grant. Every drawn test of `exclusion::judge` requires fenced writes in token order.
//!    See also `contention::broken_grant_writes_no_more_and_is_audited`.
//! 2. A znode is created and the reply is lost. In every drawn test, a client that does not find
//!    its own place again never finishes, or leaves the place behind. Rules `OwnNotSought`,
//!    `GuidReused`.
//! 3. A znode of a former session is mistaken for the client's own. `repeating` reuses the GUIDs of
//!    a former life. Rule `OwnerUnchecked`.
//! 4. A client is wrong about the state of its session. See the drawn tests with expiry, and: -
//!    `holding::paused_or_disconnected_holder_knows_when_its_grant_may_be_lost`; -
//!    `contention::revocation_asks_the_holder_first_and_breaks_a_silent_holder` (the client's own
//!    znode vanishes); - `election::broken_leader_leaves_office_at_once_and_the_next_leads`.
//! 5. An attempt that is given up leaves something behind. `note_leaks` checks at the end of every
//!    drawn test. Rule `CancelLeavesPlace`.
//! 6. Herds. `lock`, `read_write_lock`, `election` and `semaphore` count wake-ups and lists; `gate`
//!    is a herd by design. Rules `WatchSmallest`, `NamesComparedAsStrings`.
//! 7. Queues lose or repeat items: `queue`.
//! 8. Stale reads. Locks and elections read after a write of their own session. Observers in
//!    `election` see later terms only.
//! 9. Participants disagree about a size:
//!    `semaphore::growing_a_semaphore_admits_waiters_and_shrinking_blocks_them`.
//! 10. Clients measure time. Their clocks drift in every run, and no participant's turn depends on
//!     them.
//! 11. Many sessions expire at once. Drawn faults stop leaders, and a new leader gives every
//!     session its whole timeout, as the oracle of expiry demands.
//! 12. Watch events are lost, doubled or late. The oracle of watches judges every run, and a client
//!     that loses an event never finishes.
//! 13. A new leader fires every watch at once. Servers elect leaders in the drawn tests, and the
//!     oracle of watches accepts no event without a change.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod apart;
mod barrier;
mod cache;
mod claim_in_doubt;
mod client;
mod commands;
mod contention;
mod counter;
mod disconnected;
mod double_barrier;
mod drawn;
mod dropped;
mod election;
mod event_handle;
mod exclusion;
mod gate;
mod holding;
mod intercepted;
mod latch;
mod lock;
mod names;
mod paused_work;
mod persistent;
mod preference;
mod queue;
mod queue_order;
mod read_write_lock;
mod reentrant_lock;
mod refused;
mod repeating;
mod rolling_restart;
mod semaphore;
mod two_phase_commit;
mod two_phase_drawbacks;
mod two_phase_finish;
mod two_phase_reuse;
