//! Rules that can be broken on purpose: a test of the tests.
//!
//! Compiled in only with the feature `mutations`, which nothing but these tests asks for; without it every check is the constant `false` and costs
//! nothing.

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
        }
    };
}

mutations! {
    /// Everybody in a line watches the first one and not the nearest before it: a herd.
    WatchSmallest,
    /// The order of a line is that of whole names and not of numbers.
    NamesComparedAsStrings,
    /// A place is taken for the own one when it has the number of that.
    PlaceKnownByNumber,
    /// The item that a dropped attempt was about is not on the list of the next one.
    DroppedAttemptForgotten,
    /// The owner of a re-entrant lock gets its grant again without a look whether that stands.
    GrantUnconfirmed,
    /// The znode of a create whose reply was lost is not looked for.
    OwnNotSought,
    /// A znode with the own GUID is taken for the own one, whatever session it is of.
    OwnerUnchecked,
    /// An attempt that is given up while it takes its place leaves what it has created.
    CancelLeavesPlace,
    /// A fenced writer writes without its check.
    FencedUnchecked,
    /// The GUID of an attempt that was given up is given to the next one.
    GuidReused,
    /// A transaction whose reply was lost is done again, whatever its receipt says.
    ReceiptIgnored,
    /// What is taken from a queue is not claimed with that.
    ClaimNotInTake,
    /// A site votes before its log has that.
    VoteBeforeLog,
    /// A transaction is committed when one vote is missing.
    CommitWithoutAll,
    /// A transaction is deleted although a dismissed site may come back and ask for the outcome.
    DismissedForgotten,
    /// What says that a meeting has begun counts as a party.
    ReadyCountsAsParty,
    /// Rooms of meetings whose parties have died stay.
    FormerRoomsStay,
    /// Whoever waits for a permit counts who waits behind it.
    SemaphoreCountsLater,
    /// The list of holders is written whatever others wrote since it was read.
    PreferenceListUnversioned,
    /// A participant stands in line with others that have another preference.
    PreferenceUnchecked,
    /// A grant is broken as soon as it is withdrawn.
    WithdrawnAtOnce,
    /// A withdrawn grant goes on telling later instants.
    WithdrawalUnheard,
    /// A holder trusts a watch that its server may have refused to register again.
    GapUnheard,
    /// A candidate whose place is gone takes office.
    OfficeUnchecked,
    /// A gate is opened without a look who is behind it.
    GateOpenedBlindly,
    /// A latch is counted down from what it was when it was read.
    LatchUnversioned,
    /// A member deletes its znode without a look whose it is.
    MemberDeletedBlindly,
    /// A name is given up without a look who has it.
    NameGivenUpBlindly,
    /// A cache does not say that it may have missed something.
    GapNotTold,
}

#[cfg(feature = "mutations")]
mod switch {
    use super::Mutation;
    use std::cell::Cell;

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
