//! The server's report on refused writes matches its behaviour.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::io::ErrorKind;
use zoolet_machine::{Event, Limits};
use zoolet_model::{CreateKind, ErrorCode};
use zoolet_sim::client::create;
use zoolet_sim::disk::{OperationKind, SimDisk};
use zoolet_sim::machine::{Machine, tiny_limits};

fn refusing(machine: &mut Machine) -> Option<&'static str> {
    machine.handle(Event::Status { ticket: 1 }).unwrap();
    machine.status.take().unwrap().refusing_writes
}

#[test]
fn refusal_status_matches_refused_writes_while_checkpoints_fail() {
    let disk = SimDisk::new(1);
    let mut machine = Machine::connected(&disk, tiny_limits());
    disk.fail_with(|operation| {
        let is_base = operation.name.starts_with("base-") && operation.kind == OperationKind::Create;
        is_base.then_some(ErrorKind::Other)
    });
    let (mut taken_while_failing, mut refused) = (0, 0);
    for number in 0..100 {
        let said = refusing(&mut machine);
        match machine.write(create(format!("/z{number}"), 300, CreateKind::Persistent)) {
            Ok(_) => {
                assert_eq!(said, None, "write {number} was taken");
                machine.handle(Event::Status { ticket: 1 }).unwrap();
                taken_while_failing += u32::from(machine.status.take().unwrap().checkpoints_failed > 0);
            }
            Err(ErrorCode::SystemError) => {
                refused += 1;
                assert!(refusing(&mut machine).unwrap().starts_with("the last checkpoint failed"), "write {number}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(taken_while_failing > 0 && refused > 0, "{taken_while_failing} taken, {refused} refused");
}

/// A checkpoint that fits only into the reserve ends the wait of other writes: the disk has no room
/// for them.
#[test]
fn writes_waiting_for_a_checkpoint_that_uses_the_reserve_are_refused() {
    let disk = SimDisk::new(1);
    let mut machine = Machine::connected(&disk, Limits { log_segments: 32, ..tiny_limits() });
    machine.advance(1).unwrap();
    for number in 0..2000 {
        if number == 20 {
            // Other programs fill the disk, except for a little.
            disk.set_capacity(Some(disk.used_bytes() + 8192));
        }
        let was_short = refusing(&mut machine) == Some("the disk is full");
        let answer = machine.write(create(format!("/z{number}"), 300, CreateKind::Persistent));
        let is_short = refusing(&mut machine) == Some("the disk is full");
        if is_short {
            assert!(!was_short);
            assert!(answer.is_ok() || answer == Err(ErrorCode::SystemError));
            assert_eq!(machine.write(create("/more", 1, CreateKind::Persistent)), Err(ErrorCode::SystemError));
            return;
        }
    }
    panic!("the disk never was full");
}
