//! Every recipe on virtual time: whole ensembles of the real engine, sessions of production, and what can go wrong with servers, networks, disks and the
//! clients themselves. `ENSEMBLE_SEEDS=N` runs so many seeds, `ENSEMBLE_SEED=S` one of them with its trace.
//!
//! What is known to have gone wrong in other libraries, and what would show it here. Where it says "drawn", the test runs under faults and fates that
//! its seed draws: pauses, cuts, crashes, expired sessions and lost replies among them.
//!
//! | hazard | tests |
//! |---|---|
//! | 1 holding is not having | `holding` (acts only as long as nobody else may), fenced writes in the order of tokens in every drawn test of `exclusion::judge`; `contention::what_was_broken_writes_nothing_more_and_is_written_down` |
//! | 2 created, and the reply lost | every drawn test: who does not find its own place again does not finish, or leaves it behind; rules `OwnNotSought`, `GuidReused` |
//! | 3 a znode of a former session is taken for the own one | `repeating`, where GUIDs are those of a former life; rule `OwnerUnchecked` |
//! | 4 mistakes about how the session is | drawn tests with expiry; `holding::who_stands_still_or_is_cut_off_knows_when_somebody_else_may_have_it`; `contention::a_holder_is_asked_first_and_broken_when_it_does_not_listen` (the own znode vanishes); `election::a_leader_that_is_broken_is_out_of_office_at_once_and_the_next_one_leads` |
//! | 5 attempts that are given up leave something | `note_leaks` at the end of every drawn test; rule `CancelLeavesPlace` |
//! | 6 herds | the tests that count wake-ups and lists: `lock`, `read_write_lock`, `election`, `semaphore`; by design in `gate`; rules `WatchSmallest`, `NamesComparedAsStrings` |
//! | 7 queues | `queue` |
//! | 8 stale reads | locks and elections ask behind a write of their own; `election` (observers see later terms only) |
//! | 9 sizes that disagree | `semaphore::a_size_that_grows_lets_in_who_waits_and_one_that_shrinks_nobody_new` |
//! | 10 time that clients measure | clocks of clients drift in every run; nobody's turn depends on them |
//! | 11 many sessions expire at once | drawn faults that stop leaders: a new one gives every session its whole time, as the oracle of expiry demands |
//! | 12 watch events that are lost, doubled or late | the oracle of watches judges every run; a lost one is a client that does not finish |
//! | 13 a new leader fires everything at once | drawn elections of servers; an event without a change does not exist, as the oracle of watches demands |
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod apart;
mod barrier;
mod cache;
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
mod persistent;
mod preference;
mod queue;
mod read_write_lock;
mod reentrant_lock;
mod refused;
mod repeating;
mod rolling_restart;
mod semaphore;
mod two_phase_commit;
mod two_phase_finish;
mod two_phase_reuse;
