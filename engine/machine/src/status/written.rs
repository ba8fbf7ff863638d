//! Bytes written to a device, by cause.

/// Why bytes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Batches of the log.
    Log,
    /// Space prepared before use.
    ///
    /// Zeroes for each new log segment, once, and space that the file system can reserve only by
    /// writing.
    Prepared,
    /// Checkpoints and merges.
    Base,
    /// Bases received from peers.
    Snapshot,
    /// Images outside the store.
    Image,
    /// Anything else: the marker, and the noise in the reserve file.
    Other,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 6] = [Self::Log, Self::Prepared, Self::Base, Self::Snapshot, Self::Image, Self::Other];

    /// Returns the name in status and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Prepared => "prepared",
            Self::Base => "base",
            Self::Snapshot => "snapshot",
            Self::Image => "image",
            Self::Other => "other",
        }
    }
}

/// Bytes by cause, in whole blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written([u64; Cause::ALL.len()]);

impl Written {
    /// Creates the counts from the bytes of each cause, in the order of [`Cause::ALL`].
    pub const fn new(bytes: [u64; Cause::ALL.len()]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of one cause.
    pub const fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Returns the bytes of all causes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the total without [`Cause::Prepared`], which does not predict future writes.
    pub fn recurring(&self) -> u64 {
        self.total() - self.of(Cause::Prepared)
    }

    /// Returns these counts plus `bytes` of one cause.
    #[must_use]
    pub fn with(mut self, cause: Cause, bytes: u64) -> Self {
        self.0[cause as usize] += bytes;
        self
    }
}
