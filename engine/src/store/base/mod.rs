//! The base: applied state in redb, every block and record checksummed.
