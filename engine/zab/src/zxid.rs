//! Identifiers of the protocol: servers, epochs, entries, appends, disks and links.

use core::fmt;

/// A member of an ensemble, 1 to 255.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(u8);

impl ServerId {
    /// The id of a standalone server, as in ZooKeeper.
    pub const STANDALONE: Self = Self(1);

    /// Creates an id; `None` for 0, which names no server.
    pub const fn new(id: u8) -> Option<Self> {
        if id == 0 { None } else { Some(Self(id)) }
    }

    /// Returns the number as configured, 1 to 255.
    pub const fn as_u8(self) -> u8 {
        self.0
    }
}

/// A generation of leadership, 23 bits: at most one server leads in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(u32);

impl Epoch {
    /// Before any leader.
    pub const ZERO: Self = Self(0);
    /// The last epoch that fits the zxid layout.
    pub const MAX: Self = Self((1 << 23) - 1);

    /// Creates an epoch; `None` beyond 23 bits.
    pub const fn new(epoch: u32) -> Option<Self> {
        if epoch > Self::MAX.0 { None } else { Some(Self(epoch)) }
    }

    /// Returns the epoch as a number, 0 to 2^23 - 1.
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// Returns the next epoch; `None` when the 23 bits are used up.
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

/// Position of an entry in the total order; always a non-negative i64.
///
/// The epoch is in the high 23 usable bits, the counter in the low 40. ZooKeeper's 32 counter bits
/// force an election every 49.7 days at 1,000 writes/s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Zxid(u64);

impl Zxid {
    /// Before every entry.
    pub const ZERO: Self = Self(0);
    /// Number of counter bits.
    pub const COUNTER_BITS: u32 = 40;
    /// The last counter of an epoch.
    pub const COUNTER_MAX: u64 = (1 << Self::COUNTER_BITS) - 1;

    /// Creates a zxid; `None` when `counter` needs more than 40 bits.
    pub const fn new(epoch: Epoch, counter: u64) -> Option<Self> {
        if counter > Self::COUNTER_MAX { None } else { Some(Self(((epoch.0 as u64) << Self::COUNTER_BITS) | counter)) }
    }

    /// Returns the entry that opens `epoch`: its no-op.
    pub const fn first_of(epoch: Epoch) -> Self {
        Self((epoch.0 as u64) << Self::COUNTER_BITS)
    }

    /// Creates a zxid from its 64 bits in a format or on the wire.
    ///
    /// `None` when the sign bit is set.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> 63 == 0 { Some(Self(bits)) } else { None }
    }

    /// Returns the 64 bits, sign bit clear.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the zxid as the wire carries it.
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// Returns the epoch of this entry.
    pub const fn epoch(self) -> Epoch {
        Epoch((self.0 >> Self::COUNTER_BITS) as u32)
    }

    /// Returns the position in the epoch; 0 is the opening no-op.
    pub const fn counter(self) -> u64 {
        self.0 & Self::COUNTER_MAX
    }

    /// Returns the next entry of the same epoch; `None` when its counters are used up.
    pub const fn next(self) -> Option<Self> {
        if self.counter() == Self::COUNTER_MAX { None } else { Some(Self(self.0 + 1)) }
    }
}

impl fmt::Debug for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch().0, self.counter())
    }
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

/// The physical number of an append.
///
/// It never repeats, while a zxid can be appended, truncated and appended again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AppendSeq(pub u64);

impl AppendSeq {
    /// Returns the number of the append after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One life of a disk, drawn when its log is created.
///
/// A server that lost its disk comes back with its id and another incarnation. It counts in no
/// quorum until the membership names that incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation(pub u128);

/// The ensemble that a disk belongs to.
///
/// The entry that gives birth to the ensemble mints this id; before that it is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EnsembleId(pub u128);

impl EnsembleId {
    /// Of a disk that belongs to no ensemble yet.
    pub const UNBORN: Self = Self(0);
}

/// A link to a peer, numbered by the driver; never reused in one process.
///
/// Streams are FIFO within one link. Nothing of an old link is delivered on a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LinkId(pub u64);

/// A learner's attempt to join a leader, numbered by the learner.
///
/// Every message of synchronization and broadcast carries it, so messages of earlier attempts are
/// dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attempt(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zxid_orders_by_epoch_before_counter() {
        let old = Zxid::new(Epoch(1), Zxid::COUNTER_MAX).unwrap();
        let new = Zxid::first_of(Epoch(2));
        assert!(old < new);
        assert_eq!(old.next(), None);
        assert_eq!((new.epoch(), new.counter()), (Epoch(2), 0));
    }

    #[test]
    fn zxid_is_never_negative_on_the_wire() {
        let last = Zxid::new(Epoch::MAX, Zxid::COUNTER_MAX).unwrap();
        assert!(last.as_i64() > 0);
        assert_eq!(Epoch::MAX.next(), None);
        assert_eq!(Zxid::from_bits(last.to_bits() + 1), None);
    }
}
