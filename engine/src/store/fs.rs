//! A directory of the real file system.

/// A directory of the real file system.
#[derive(Debug)]
pub struct FsDisk;
