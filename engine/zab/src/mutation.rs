//! Rules that can be broken on purpose: a test of the tests.
//!
//! Compiled in only with the feature `mutations`, which nothing but the simulator's tests asks for; without it every check is the constant
//! `false` and costs nothing.

/// Whether rules can be broken in this build: a binary that serves anybody refuses to be built so.
pub const ARE_COMPILED_IN: bool = cfg!(feature = "mutations");

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule that is broken while its mutation is on.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

mutations! {
    /// D1: a leader announces its epoch before its own promise of it is durable.
    LeaderInfoBeforePromise,
    /// D2: a learner answers LeaderInfo before its promise is durable.
    AckEpochBeforePromise,
    /// D3: votes and reports name entries that are appended and not durable.
    ReportUnpersisted,
    /// D4: the epoch is recorded before the history that goes with it.
    EpochBeforeHistory,
    /// D4: the epoch is acknowledged, and counts, without being recorded.
    EpochNotRecorded,
    /// D5, D7: a leader counts its own entries before they are durable.
    LeaderCountsUnpersisted,
    /// D6: a learner acknowledges what it has appended and not persisted.
    AckBeforePersist,
    /// D9: a configuration is not recorded before its entry.
    ConfigNotRecorded,
    /// An entry is committed when one less than a quorum has it.
    CommitWithoutQuorum,
    /// An entry of an older epoch is committed because a quorum has it.
    CommitOldEpoch,
    /// The longest history wins an election, whatever its epoch; and phase 1, which makes up for that, does not look at histories again.
    ElectionByLengthAlone,
    /// The greatest id wins an election; and phase 1 as before.
    ElectionByIdAlone,
    /// A server joins a prospective leader that has less history, which goes on all the same: each of the two rules suffices alone.
    IgnoreBetterHistory,
    /// A learner with entries that its leader does not have keeps them.
    NoTrunc,
    /// A learner that is below the log's beginning gets a Diff.
    DiffBelowFloor,
    /// A snapshot for a learner that is below the log's beginning may end below it too.
    SnapBelowFloor,
    /// A promise that may have been given to another leader counts.
    CountOldPromise,
    /// A learner follows a leader of an epoch below its promise.
    FollowOlderEpoch,
    /// Only the committed configuration decides, while another one is proposed.
    JointDropped,
    /// A disk counts whatever its incarnation.
    IncarnationIgnored,
    /// An ensemble is born by a majority.
    BirthByMajority,
    /// A confirmation counts answers to earlier rounds.
    RoundReused,
    /// A read is confirmed without asking anybody.
    ConfirmWithoutQuorum,
    /// What belongs to an attempt that is over is taken, by the leader and by the learner.
    StaleAttemptCounts,
    /// A late completion counts for an entry appended again after a truncation.
    CompletionAba,
    /// A follower leaves its leader as soon as it suspects it.
    LeaveAlone,
    /// A reply leaves before its entry is persisted.
    ReplyBeforePersist,
    /// A recovered tail is applied before it is committed.
    ApplyUncommittedTail,
    /// A watch event is queued behind everything that is still undetermined.
    EventAtTail,
    /// Sessions expire, and are continued or refused, by a leader that does not ask a quorum whether it leads.
    ExpireWithoutQuorum,
    /// A new leader goes on with old timeouts.
    NoFullTimeout,
    /// A session that comes back with another timeout has it at its leader alone: the next leader grants the one that it began with.
    RenewalNotReplicated,
    /// A recycled segment does not restate the facts.
    FactsNotRestated,
    /// The watermark of an append counts from its first record on, and not behind the truncations among its records.
    WatermarkAtFirstRecord,
    /// Neither a page of the base nor a record in it is verified.
    PageUnverified,
    /// A session is continued at another server before its earlier writes are applied there.
    ReadBeforeOwnWrites,
    /// A session's old connection goes on after the session has moved.
    OldOwnerGoesOn,
    /// A client that has seen more than this server is taken, and only its own writes are waited for.
    ClientAheadTaken,
    /// Each record of an ephemeral that an entry touches counts as its birth or its death, whether or not it was there before.
    EphemeralsDrift,
    /// A session's end is forwarded however much waits for the leader already.
    EndsUnbounded,
    /// A client that is coming back to the leader is sent away when a write of its former connection is applied there.
    ReturningSentAway,
}

#[cfg(feature = "mutations")]
mod switch {
    extern crate std;

    use super::Mutation;
    use core::cell::Cell;

    std::thread_local! {
        static ON: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Breaks one rule, for whatever this thread runs, until it is called again.
    pub fn set(mutation: Option<Mutation>) {
        ON.set(mutation);
    }

    /// Whether this rule is broken.
    pub fn is_on(mutation: Mutation) -> bool {
        ON.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub use switch::{is_on, set};

/// Whether this rule is broken: never, without the feature.
#[cfg(not(feature = "mutations"))]
pub const fn is_on(_: Mutation) -> bool {
    false
}
