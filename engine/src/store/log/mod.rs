//! The log: a recycled ring of preallocated segments.
