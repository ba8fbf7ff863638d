//! Identity of a run.

/// Identity of a run in the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RunId {
    /// Number in the file's name; never reused.
    pub(super) number: u64,
    /// XXH3-128 of everything after the first block.
    pub(super) hash: u128,
}
