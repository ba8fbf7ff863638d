//! Hostile bytes for the codec: nothing panics, nothing takes more than was sent, and what is read can be written.

mod random;
#[path = "random/targets.rs"]
mod targets;

use random::Random;
use zoolet_sim::fuzz::exercise;

#[test]
fn any_bytes_are_a_message_or_refused() {
    for target in targets::TARGETS {
        exercise(target, 1, 3_000);
    }
}
