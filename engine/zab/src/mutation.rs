//! Rules that can be broken on purpose, to test the tests.
//!
//! They are compiled in only with the feature `mutations`, which only tests enable. Without it
//! every check is the constant `false` and costs nothing.

/// Whether this build can break rules; the server binary refuses to compile if so.
pub const ARE_COMPILED_IN: bool = cfg!(feature = "mutations");

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule that is broken while its mutation is on.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// Every mutation.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the mutation's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

mutations! {
    /// D1: a leader announces its epoch before its own promise is durable.
    LeaderInfoBeforePromise,
    /// D2: a learner answers LeaderInfo before its promise is durable.
    AckEpochBeforePromise,
    /// D3: votes and reports name entries that are appended but not durable.
    ReportUnpersisted,
    /// D4: the epoch is recorded before the history that belongs to it.
    EpochBeforeHistory,
    /// D4: the epoch is acknowledged, and counts, without a record.
    EpochNotRecorded,
    /// D5, D7: a leader counts its own entries before they are durable.
    LeaderCountsUnpersisted,
    /// D6: a learner acknowledges entries before they are durable.
    AckBeforePersist,
    /// D9: a configuration is never recorded.
    ConfigNotRecorded,
    /// An entry is committed when one voter less than a quorum has it.
    CommitWithoutQuorum,
    /// An entry of an older epoch is committed because a quorum has it.
    CommitOldEpoch,
    /// The longest history wins an election, even from an older epoch.
    ///
    /// Phase 1 would make up for that, so its comparison of histories is off too.
    ElectionByLengthAlone,
    /// The greatest id wins an election.
    ///
    /// Phase 1 would make up for that, so its comparison of histories is off too.
    ElectionByIdAlone,
    /// A server joins a prospective leader with less history, and the leader accepts it.
    ///
    /// Each of the two rules suffices alone, so both are broken.
    IgnoreBetterHistory,
    /// A learner keeps entries that its leader does not have.
    NoTrunc,
    /// A learner below the log's floor gets a Diff.
    DiffBelowFloor,
    /// A snapshot for a learner below the log's floor may end below it too.
    SnapBelowFloor,
    /// A promise counts although it may have been given to another leader.
    CountOldPromise,
    /// A learner follows a leader whose epoch is below its promise.
    FollowOlderEpoch,
    /// Only the committed configuration decides while another one is proposed.
    JointDropped,
    /// A disk counts whether or not its incarnation is the configured one.
    IncarnationIgnored,
    /// A majority suffices for the birth of an ensemble.
    BirthByMajority,
    /// A confirmation counts answers to earlier rounds.
    RoundReused,
    /// A read is confirmed without asking a quorum.
    ConfirmWithoutQuorum,
    /// Leader and learner accept messages of an attempt that is over.
    StaleAttemptCounts,
    /// A late completion counts for an entry appended again after a truncation.
    CompletionAba,
    /// A follower leaves its leader as soon as it suspects it.
    LeaveAlone,
    /// A leader that holds Commits back never ends the hold by itself.
    HeldForEver,
    /// A reply leaves before its entry is durable.
    ReplyBeforePersist,
    /// A recovered tail is applied before it is committed.
    ApplyUncommittedTail,
    /// A watch event is queued behind replies that it should precede.
    EventAtTail,
    /// A leader expires, continues or refuses sessions without asking a quorum whether it leads.
    ExpireWithoutQuorum,
    /// A new leader does not give sessions a full timeout again.
    NoFullTimeout,
    /// A returning session's new timeout is known to the present leader only.
    ///
    /// The next leader grants the timeout that the session began with.
    RenewalNotReplicated,
    /// A new segment's restated facts omit a promise newer than the current epoch.
    FactsNotRestated,
    /// The watermark of an append counts from its first record on.
    ///
    /// It should count behind the truncations among the append's records.
    WatermarkAtFirstRecord,
    /// Neither pages of the base nor their records are verified.
    PageUnverified,
    /// A session is continued at another server before its earlier writes are applied there.
    ReadBeforeOwnWrites,
    /// A session's old connection keeps working after the session has moved.
    OldOwnerGoesOn,
    /// A server accepts a client that has seen newer entries than it has applied.
    ///
    /// Only the client's own writes are waited for.
    ClientAheadTaken,
    /// A write to an ephemeral's record always raises its owner's count, and a delete lowers it.
    ///
    /// Whether the record existed before the entry is ignored.
    EphemeralsDrift,
    /// The usage of a quota forgets znodes that the reaper or a session's end deletes.
    QuotaForgetsEnded,
    /// A write ahead of a quota's count changes the usage at once, and is counted again later.
    QuotaCountsAhead,
    /// A new leader begins an unfinished count anew, and keeps the sum of the part counted so far.
    QuotaCountedTwice,
    /// A session's end is forwarded however many requests are already waiting for the leader.
    EndsUnbounded,
    /// A leader closes the connection of a returning client.
    ///
    /// It does so when it applies a write of the client's former connection.
    ReturningSentAway,
    /// TTL znodes are reaped by the wall clock instead of ensemble time.
    ReapByWallClock,
    /// A learner keeps its own ensemble time if that is ahead of its leader's.
    ///
    /// As the next leader, it is ahead by the drift of its clock since its start.
    LearnerClockAhead,
    /// Ensemble time goes on while no server leads.
    OutageCounts,
    /// Ensemble time goes on while the leader's entries wait and none is applied.
    StallCounts,
    /// A learner that returns to its leader within the epoch serves once it has what was committed.
    ///
    /// It should wait for all entries that the leader had when the learner returned.
    ServesTooEarly,
    /// A leader takes a write that a learner forwarded in an earlier attempt to join.
    OldForwardTaken,
    /// A learner forwards a write again although the new leader's history has it.
    ForwardedAgainBlindly,
    /// A learner forwards the writes of a lost leader's time again in another order.
    ForwardedAgainInReverse,
    /// A learner answers a write although the refusal of an earlier one was lost.
    LostRefusalIgnored,
    /// A local session is seen as global: its ephemerals are created without an upgrade.
    LocalSeenAsGlobal,
}

#[cfg(feature = "mutations")]
mod switch {
    extern crate std;

    use super::Mutation;
    use core::cell::Cell;

    std::thread_local! {
        static ON: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Breaks one rule, for code run by this thread, until the next call.
    ///
    /// `None` puts every rule back in force.
    pub fn set(mutation: Option<Mutation>) {
        ON.set(mutation);
    }

    /// Returns whether this rule is broken.
    pub fn is_on(mutation: Mutation) -> bool {
        ON.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub use switch::{is_on, set};

/// Returns whether this rule is broken: never, without the feature.
#[cfg(not(feature = "mutations"))]
pub const fn is_on(_: Mutation) -> bool {
    false
}
