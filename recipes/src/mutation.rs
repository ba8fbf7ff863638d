//! Rules that can be broken on purpose, to test the tests.
//!
//! Compiled in only with the feature `mutations`, which only these tests use. Without it every
//! check is the constant `false` and costs nothing.

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule that is broken while its mutation is on.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// All mutations.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

mutations! {
    /// A herd: every participant in a line watches the first one, not the nearest before it.
    WatchSmallest,
    /// A line is ordered by whole names, not by numbers.
    NamesComparedAsStrings,
    /// A place counts as the participant's own if only its number matches.
    PlaceKnownByNumber,
    /// The next attempt does not list the item of a dropped attempt again.
    DroppedAttemptForgotten,
    /// A re-entrant lock gives its owner the grant again without checking that it stands.
    GrantUnconfirmed,
    /// A znode whose create was not answered is not looked for.
    OwnNotSought,
    /// A znode with the participant's GUID counts as its own, whichever session owns it.
    OwnerUnchecked,
    /// An attempt that is given up while it takes its place leaves its znode behind.
    CancelLeavesPlace,
    /// A fenced writer writes without its check.
    FencedUnchecked,
    /// The next attempt reuses the GUID of an attempt that was given up.
    GuidReused,
    /// A transaction whose reply was lost is repeated, even if its receipt exists.
    ReceiptIgnored,
    /// A refused repeat passes for a transaction that was not done, even if its receipt exists.
    RefusalBelieved,
    /// A take from a queue does not claim the item in its transaction.
    ClaimNotInTake,
    /// A site votes before its log has the vote.
    VoteBeforeLog,
    /// A transaction is committed although one vote is missing.
    CommitWithoutAll,
    /// A transaction is deleted although a dismissed site may come back and ask for the outcome.
    DismissedForgotten,
    /// The `ready` child of a meeting counts as a party.
    ReadyCountsAsParty,
    /// Rooms of meetings whose parties have died stay.
    FormerRoomsStay,
    /// A participant that waits for a permit also counts those waiting behind it.
    SemaphoreCountsLater,
    /// The list of holders is written even if it has changed since it was read.
    PreferenceListUnversioned,
    /// A participant stands in line with others that have another preference.
    PreferenceUnchecked,
    /// A grant is broken as soon as it is withdrawn.
    WithdrawnAtOnce,
    /// A place that is gone passes for released, even if the audit says that it was broken.
    AuditUnread,
    /// A grant is broken although another client has overwritten its withdrawal.
    WithdrawalUnchecked,
    /// A withdrawn grant goes on reporting later instants.
    WithdrawalUnheard,
    /// A holder trusts a watch that its server may have refused to register again.
    GapUnheard,
    /// A candidate whose place is gone takes office.
    OfficeUnchecked,
    /// A dropped passage opens its gate without checking which participant is behind it.
    GateOpenedBlindly,
    /// A latch is counted down even if it has changed since it was read.
    LatchUnversioned,
    /// A member deletes its znode without checking which session owns it.
    MemberDeletedBlindly,
    /// A name is given up without checking which session has it.
    NameGivenUpBlindly,
    /// A cache does not report that it may have missed changes.
    GapNotTold,
    /// A cache that goes on with another session does not report that it may have missed changes.
    SessionGapNotTold,
    /// Paused work goes on as soon as there is a connection, before the grant was checked again.
    ResumedUnchecked,
    /// A member that goes on with another session does not create its znode again.
    MembershipNotRenewed,
}

#[cfg(feature = "mutations")]
mod switch {
    use super::Mutation;
    use std::cell::Cell;

    std::thread_local! {
        static ON: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Breaks one rule for everything that this thread runs, until the next call.
    pub fn set(mutation: Option<Mutation>) {
        ON.set(mutation);
    }

    /// Whether this rule is broken on this thread.
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
