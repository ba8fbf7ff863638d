//! The machine and apply under arbitrary input in any order.

use std::collections::BTreeMap;
use zoolet_sim::fuzz::{TARGETS, damage, exercise, transcript};
use zoolet_sim::workload::Random;

fn all_of(name: &str, rounds: u64) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    exercise(target, 1, rounds);
}

#[test]
fn arbitrary_entries_have_the_same_outcome_on_every_replica() {
    all_of("apply", 100);
}

#[test]
fn arbitrary_events_break_no_rule_of_the_machine() {
    all_of("server", 200);
}

#[test]
fn equal_events_give_equal_actions() {
    let mut random = Random::new(3);
    for _ in 0..30 {
        let bytes = damage(&mut random, vec![0x5a; 900]);
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte ^ random.bits() as u8).collect();
        assert!(transcript(&bytes) == transcript(&bytes));
    }
}

/// A generator that never reaches an action tests nothing there.
#[test]
fn generated_events_reach_every_action_and_reply() {
    let mut random = Random::new(5);
    let mut reached: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..60 {
        let bytes: Vec<u8> = (0..2000).map(|_| random.bits() as u8).collect();
        for action in transcript(&bytes) {
            let word = |text: &str| -> String { text.chars().take_while(|c| c.is_alphabetic()).collect() };
            let outcome = match action.split_once("result: ") {
                Some((_, result)) => word(result.trim_start_matches("Ok(").trim_start_matches("Err(")),
                None => String::new(),
            };
            *reached.entry(format!("{} {outcome}", word(&action))).or_default() += 1;
        }
    }
    for name in [
        "Append ",
        "Checkpoint ",
        "Close ",
        "Complete ",
        "Connected ",
        "Fetch ",
        "Notify ",
        "ReleaseGenerations ",
        "Status ",
        "Reply Acl",
        "Reply AuthFailed",
        "Reply BadArguments",
        "Reply BadVersion",
        "Reply Data",
        "Reply Empty",
        "Reply InvalidAcl",
        "Reply MarshallingError",
        "Reply Multi",
        "Reply MultiRead",
        "Reply Names",
        "Reply NoAuth",
        "Reply NoNode",
        "Reply NoWatcher",
        "Reply NodeExists",
        "Reply Path",
        "Reply Stat",
        "Reply Synced",
        "Reply SystemError",
        "Reply Unimplemented",
        "Reply WatchAdded",
    ] {
        assert!(reached.get(name) >= Some(&1), "{name}: {reached:#?}");
    }
}
