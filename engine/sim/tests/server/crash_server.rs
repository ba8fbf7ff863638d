//! A whole server, killed at every step of its disk.
//!
//! It must come back from process crashes and power losses with everything that it acknowledged and
//! nothing half done, and it must continue.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use std::collections::BTreeMap;
use zoolet_machine::{ConnId, Event};
use zoolet_model::{ConnectRequest, CreateKind, Request, Zxid};
use zoolet_sim::client::{CONN, NOW, TIMEOUT_MS, create, delete, set};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, Stopped, Told, tiny_limits};

/// A client's action; `Settle` persists everything requested since the last one.
enum Act {
    Ask(Request),
    Settle,
}

/// Returns creates, changes, deletes, ephemerals, containers, large data and multis, in groups.
///
/// The tree outgrows every memory bound.
fn script() -> Vec<Act> {
    let mut acts = Vec::new();
    let mut ask = |request| acts.push(Act::Ask(request));
    ask(Request::Write(create("/app", 0, CreateKind::Persistent)));
    ask(Request::Write(create("/lock", 0, CreateKind::Container)));
    let mut acts: Vec<Act> = acts;
    for round in 0..36usize {
        let mut ask = |write| acts.push(Act::Ask(Request::Write(write)));
        let path = format!("/app/z{}", round % 17);
        ask(create(path.as_str(), 300, CreateKind::Persistent));
        ask(set(path.as_str(), if round % 5 == 0 { 2500 } else { 200 }));
        ask(create(format!("/lock/l{round}"), 10, CreateKind::Ephemeral));
        if round % 3 == 0 {
            ask(delete(format!("/app/z{}", (round + 5) % 17)));
            ask(delete(format!("/lock/l{round}")));
        }
        if round % 4 == 1 {
            let ops = vec![create(format!("/app/m{round}"), 50, CreateKind::Persistent), set("/app", round)];
            acts.push(Act::Ask(Request::Multi(ops)));
        }
        if round % 2 == 0 {
            acts.push(Act::Settle);
        }
    }
    acts.push(Act::Ask(Request::CloseSession));
    acts.push(Act::Settle);
    acts
}

/// Runs the script until it ends or the disk dies.
///
/// Returns the last zxid that the client was promised, in an answered write or as its session.
fn play(machine: &mut Machine, one_by_one: bool, seen: &mut impl FnMut(&Machine)) -> (i64, Result<(), Stopped>) {
    let mut promised = 0;
    let mut promise = |machine: &mut Machine| {
        for told in machine.told.drain(..) {
            match told {
                Told::Reply(_, _, zxid, _) => promised = promised.max(zxid),
                Told::Connected(_, reply) => promised = promised.max(reply.session.0),
                Told::Closed(_) => {}
            }
        }
    };
    let result = (|| {
        let request = ConnectRequest::for_new_session(TIMEOUT_MS);
        machine.handle(Event::Connect { conn: CONN, peer: Some([127, 0, 0, 1].into()), request })?;
        machine.settle()?;
        promise(machine);
        for (xid, act) in script().into_iter().enumerate() {
            match act {
                Act::Ask(request) => {
                    let done = machine.handle(Event::Request { conn: CONN, xid: xid as i32, request });
                    promise(machine);
                    done?;
                    if one_by_one {
                        machine.settle()?;
                        promise(machine);
                        seen(machine);
                    }
                }
                Act::Settle => {
                    let done = machine.settle();
                    promise(machine);
                    done?;
                    seen(machine);
                }
            }
        }
        Ok(())
    })();
    (promised, result)
}

/// Returns the digest after each entry, from a run without crashes.
fn truth() -> BTreeMap<Zxid, u128> {
    let mut machine = Machine::start(&SimDisk::new(1), tiny_limits(), NOW).unwrap();
    let mut digests = BTreeMap::from([(machine.server.applied(), machine.server.digest())]);
    let mut note = |machine: &Machine| {
        digests.insert(machine.server.applied(), machine.server.digest());
    };
    machine.connect(ConnId(9), ConnectRequest::for_new_session(TIMEOUT_MS));
    note(&machine);
    // The session of the script gets the same zxid, so start again and play.
    let mut machine = Machine::start(&SimDisk::new(1), tiny_limits(), NOW).unwrap();
    let (_, result) = play(&mut machine, true, &mut note);
    assert_eq!(result, Ok(()));
    assert!(machine.base().generation().0 > 3, "the script makes checkpoints");
    digests
}

/// Asserts that the server's state belongs to the true history.
///
/// The state must be no older than `promised`, and the server must continue.
fn check(image: &SimDisk, promised: i64, truth: &BTreeMap<Zxid, u128>, story: &str) {
    let mut machine =
        Machine::start(image, tiny_limits(), NOW).unwrap_or_else(|stopped| panic!("{story}: {stopped:?}"));
    let noop = machine.server.applied();
    assert_eq!(noop.counter(), 0, "{story}: a new epoch begins");
    // The no-op changes nothing, so the digest is that of the last entry before it.
    let digest = machine.server.digest();
    let last = truth.iter().rev().find(|&(_, known)| *known == digest).map(|(zxid, _)| *zxid);
    let last = last.unwrap_or_else(|| panic!("{story}: a state that never was"));
    assert!(last.as_i64() >= promised, "{story}: {promised:#x} was promised, {last} is there");
    assert!(machine.server.is_serving(), "{story}");
    let (promised, result) = play(&mut machine, false, &mut |_| {});
    assert_eq!(result, Ok(()), "{story}: it goes on");
    assert!(promised > noop.as_i64(), "{story}: it acknowledges");
}

fn crash_everywhere(losses: u64) {
    let truth = truth();
    let steps = {
        let disk = SimDisk::new(1);
        let mut machine = Machine::start(&disk, tiny_limits(), NOW).unwrap();
        assert_eq!(play(&mut machine, false, &mut |_| {}).1, Ok(()));
        disk.steps()
    };
    assert!(steps > 100, "{steps} steps");
    // Two threads: any machine that runs these tests has two processors.
    std::thread::scope(|threads| {
        for first in [1, 2] {
            let truth = &truth;
            threads.spawn(move || (first..=steps).step_by(2).for_each(|step| crash_at(step, losses, truth)));
        }
    });
}

fn crash_at(step: u64, losses: u64, truth: &BTreeMap<Zxid, u128>) {
    let disk = SimDisk::new(1);
    disk.set_crash_at(step);
    let promised = match Machine::start(&disk, tiny_limits(), NOW) {
        Err(_) => 0,
        Ok(mut machine) => play(&mut machine, false, &mut |_| {}).0,
    };
    check(&disk.after_process_crash(), promised, truth, &format!("process crash at step {step}"));
    for seed in 0..losses {
        let image = disk.after_power_loss(step * 1000 + seed);
        check(&image, promised, truth, &format!("power loss {seed} at step {step}"));
    }
}

#[test]
fn server_killed_at_any_disk_step_keeps_acked_writes() {
    crash_everywhere(2);
}

#[test]
#[ignore = "every step with many power losses: minutes"]
fn server_killed_at_any_disk_step_in_many_ways_keeps_acked_writes() {
    crash_everywhere(8);
}

#[test]
fn base_with_records_and_no_log_is_refused_not_replaced() {
    use std::sync::Arc;
    use zoolet_store::disk::Disk;
    use zoolet_store::{Store, Strategy};
    let disk = SimDisk::new(1);
    let mut machine = Machine::start(&disk, tiny_limits(), NOW).unwrap();
    play(&mut machine, false, &mut |_| {}).1.unwrap();
    drop(machine);
    for name in disk.list().unwrap().into_iter().filter(|name| name.ends_with(".log")) {
        disk.remove(&name).unwrap();
    }
    // A commit from before the marker named the log left it like this. A later marker tells more
    // (`born.rs`).
    disk.open("ZOOLET").unwrap().set_len("zoolet data directory, format 1\n".len() as u64).unwrap();
    let names = disk.list().unwrap();
    let before: Vec<_> = names.iter().map(|name| disk.contents(name)).collect();
    let refusal = Store::open(Arc::new(disk.clone()), Strategy::Recycle, &tiny_limits(), 1).err().unwrap().to_string();
    assert!(refusal.contains("the log is missing, and base 0 is not empty"), "{refusal}");
    assert_eq!(names.iter().map(|name| disk.contents(name)).collect::<Vec<_>>(), before);
    // Nor is a base without its manifest.
    disk.remove("base-0.manifest").unwrap();
    let refusal = Store::open(Arc::new(disk.clone()), Strategy::Recycle, &tiny_limits(), 1).err().unwrap().to_string();
    assert!(refusal.contains("the log is missing, and base 0 is not empty"), "{refusal}");
}
