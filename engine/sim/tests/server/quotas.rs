//! Counts of large subtrees, on one server with the real log and base.

use zoolet_machine::Limits;
use zoolet_machine::seam::action::FIRST_KEYS_MAX;
use zoolet_model::{CreateKind, Request};
use zoolet_sim::client::{create, set};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, tiny_limits};

/// Creates a quota for each name with one multi. Returns how many of them are not counted yet.
///
/// The first four take the whole room of the entry for counting.
fn set_quotas(machine: &mut Machine, names: &[String]) -> u64 {
    let before = machine.server.counts().counting;
    let empty = |path: String| create(path, 0, CreateKind::Persistent);
    let multi = |of: &dyn Fn(&String) -> String| Request::Multi(names.iter().map(|name| empty(of(name))).collect());
    for paths in [
        multi(&|name| format!("/{name}")),
        multi(&|name| format!("/{name}/x")),
        multi(&|name| format!("/zookeeper/quota/{name}")),
        multi(&|name| format!("/zookeeper/quota/{name}/zookeeper_stats")),
    ] {
        machine.ask(paths).unwrap();
    }
    machine.server.counts().counting - before
}

/// A look into the base finds the marks of finished counts too, until the next checkpoint.
#[test]
fn counts_beyond_those_of_one_look_are_finished_without_a_checkpoint() {
    let limits = Limits { memtable_bytes: 1 << 20, log_segment_bytes: 2 << 20, ..tiny_limits() };
    let mut machine = Machine::connected(&SimDisk::new(1), limits);
    let names = |first: &str, many: usize| (0..many).map(|number| format!("{first}{number}")).collect::<Vec<_>>();
    let mut left = set_quotas(&mut machine, &names("q", 2 * FIRST_KEYS_MAX + 20));
    assert!(left > 2 * FIRST_KEYS_MAX as u64, "{left}");
    let before = machine.base().generation();
    while machine.base().generation() == before {
        machine.write(set("/q0", 100 << 10)).unwrap();
    }
    let generation = machine.base().generation();
    for step in 0..4 * FIRST_KEYS_MAX {
        machine.advance(10).unwrap();
        if step == FIRST_KEYS_MAX + 10 {
            // Their marks come before those of the look.
            left = set_quotas(&mut machine, &names("a", 6));
            assert_eq!(left, 2);
        }
    }
    assert_eq!(machine.base().generation(), generation, "no checkpoint came between");
    assert_eq!(machine.server.counts().counting, 0);
}
