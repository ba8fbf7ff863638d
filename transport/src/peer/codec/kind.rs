//! The kind of a frame: its fifth byte.

/// Declares the kinds once, so that `ALL` and `from_byte` cannot omit one.
macro_rules! kinds {
    ($($kind:ident = $byte:literal,)*) => {
        /// The kind of a frame, named after its message.
        ///
        /// A number is never reused. Zab messages start at 1, where 15 and 16 are datagrams. Other
        /// messages of the log lane start at 32, the forward lane at 48, openings of streams at 64.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs, reason = "the names are those of the messages")]
        pub enum Kind { $($kind = $byte,)* }

        impl Kind {
            /// Every kind that this release knows.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Returns the kind's number in a frame.
            pub const fn byte(self) -> u8 {
                self as u8
            }

            pub(super) const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    Notification = 1,
    FollowerInfo = 2,
    LeaderInfo = 3,
    AckEpoch = 4,
    Diff = 5,
    Trunc = 6,
    Snap = 7,
    NewLeader = 8,
    Proposal = 9,
    Commit = 10,
    Ack = 11,
    Sync = 12,
    Synced = 13,
    HandOver = 14,
    Ping = 15,
    Pong = 16,

    Entries = 32,
    Snapshot = 33,
    Refused = 34,
    Revalidated = 35,
    Moved = 36,
    Alive = 37,
    Health = 38,

    Forward = 48,
    Revalidate = 49,
    Touch = 50,
    Digest = 51,

    Hello = 64,
    OpenLane = 65,
    SnapshotRequest = 66,
    SnapshotReply = 67,
}
