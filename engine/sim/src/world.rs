//! One server on a virtual clock and disk.
