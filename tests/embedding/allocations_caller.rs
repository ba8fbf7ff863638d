//! A caller of a session in this process allocates nothing on its thread, for request or answer.

use crate::allocations_cycles::Cycles;

/// Counts the allocations of this thread alone.
fn counted(mut once: impl FnMut()) -> u64 {
    (0..2000).for_each(|_| once());
    allocation_counter::measure(|| (0..1000).for_each(|_| once())).count_total
}

#[test]
fn reads_writes_and_locks_allocate_no_memory_on_the_callers_thread() {
    let cycles = Cycles::new();
    assert_eq!(counted(|| cycles.get()), 0, "a get of a kilobyte");
    assert_eq!(counted(|| cycles.exists()), 0, "exists");
    assert_eq!(counted(|| cycles.set()), 0, "a set");
    assert_eq!(counted(|| cycles.lock()), 0, "a lock taken and released");
}
