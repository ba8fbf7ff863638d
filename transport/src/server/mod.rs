//! The client port.
