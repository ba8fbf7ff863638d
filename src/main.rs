//! zoolet
fn main() {}
