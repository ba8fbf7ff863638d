//! A maintained number beside its recount, for tests.
//!
//! A wrong update leaves a maintained number wrong for good, and nothing in the machine notices.

/// A maintained number beside a recount from its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Derived {
    /// Name of the number.
    pub name: &'static str,
    /// The maintained value.
    pub kept: u64,
    /// The recounted value.
    pub counted: u64,
}

impl Derived {
    pub(crate) fn new(name: &'static str, kept: usize, counted: usize) -> Self {
        Self { name, kept: kept as u64, counted: counted as u64 }
    }

    /// Returns whether both values agree.
    pub fn is_true(&self) -> bool {
        self.kept == self.counted
    }
}
