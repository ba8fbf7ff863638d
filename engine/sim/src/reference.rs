//! A naive reference of the tree, to compare with.
