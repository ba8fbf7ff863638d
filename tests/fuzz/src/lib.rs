//! Runs the tree's fuzz targets under libFuzzer: each binary runs the target of its name.

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

/// Keeps libFuzzer from ending at a panic that the base catches.
///
/// redb panics on some damage, and the base turns that into an error. A panic of redb that is not
/// caught still ends the run.
pub fn let_redb_panic() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|at| at.file().contains("/redb-")) {
            others(panic);
        }
    }));
}
