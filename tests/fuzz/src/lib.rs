//! The fuzz targets of the tree under libFuzzer: each binary runs the one whose name it has.

#[path = "../../../transport/tests/random/peer_targets.rs"]
mod peer_targets;
#[path = "../../../transport/tests/random/peers.rs"]
mod peers;
#[path = "../../../transport/tests/random/mod.rs"]
mod random;
#[path = "../../../transport/tests/random/targets.rs"]
mod wire;

use random::Random;

/// Runs one target on one input.
pub fn run(name: &str, input: &[u8]) {
    let mut all = zoolet_sim::fuzz::TARGETS.iter().chain(wire::TARGETS).chain(peer_targets::TARGETS);
    let target = all.find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name}"));
    (target.check)(input);
}

/// redb panics on some damage, and the base makes an error of that: libFuzzer must not take it for the end. A panic of redb's that nobody
/// catches still is one.
pub fn let_redb_panic() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|at| at.file().contains("/redb-")) {
            others(panic);
        }
    }));
}
