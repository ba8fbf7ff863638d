//! A read through a session of this process allocates nothing, counted over all threads.

mod scratch;

use scratch::Scratch;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use zoolet::{Bytes, Config, Node, Wait, path};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_get_of_a_kilobyte_allocates_nothing_in_the_whole_process() {
    let scratch = Scratch::new();
    let node = Node::start(Config::new(scratch.join("data"))).unwrap();
    let session = node.session().wait().unwrap();
    session.create(path!("/config"), Bytes::from(vec![7; 1024])).wait().unwrap();
    let read = || {
        let sum = session
            .get_with(path!("/config"), |znode| znode.data.map_or(0, |data| data.iter().map(|b| u64::from(*b)).sum()));
        assert_eq!(sum.wait().unwrap(), 7 * 1024);
    };
    // Queues grow to the size they need, once.
    (0..2000).for_each(|_| read());
    let region = Region::new(COUNTED);
    (0..2000).for_each(|_| read());
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
}
