//! The image: one immutable file of the whole tree.
