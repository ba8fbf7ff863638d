//! A directory's marker records that a log was born in it.
//!
//! So a lost log is never mistaken for a log that never existed.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::{BLOCK, Fate, GONE};
use std::collections::BTreeMap;
use zoolet_machine::Limits;
use zoolet_model::{CreateKind, Request};
use zoolet_sim::client::{NOW, create};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, tiny_limits};
use zoolet_store::disk::Disk;

/// Returns limits at which one segment holds everything that a test writes.
fn limits() -> Limits {
    Limits { log_segment_bytes: 32 << 10, ..tiny_limits() }
}

/// Returns a disk with a server's writes in one segment and no checkpoint.
fn written() -> SimDisk {
    let disk = SimDisk::new(1);
    let mut machine = Machine::connected(&disk, limits());
    machine.write(create("/a", 100, CreateKind::Persistent)).unwrap();
    assert_eq!(segments(&disk), ["seg-00.log"]);
    disk
}

fn segments(disk: &SimDisk) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| name.starts_with("seg-")).collect()
}

fn files(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    disk.list().unwrap().into_iter().map(|name| (name.clone(), disk.contents(&name).unwrap())).collect()
}

fn refusal(disk: &SimDisk) -> String {
    Machine::start(disk, limits(), NOW).err().expect("it must not start").0
}

fn write_marker(disk: &SimDisk, text: &str) {
    disk.remove("ZOOLET").unwrap();
    disk.create("ZOOLET").unwrap().write_at(0, text.as_bytes()).unwrap();
}

#[test]
fn start_without_its_only_segment_is_refused_with_a_remedy() {
    let inside_the_first_batch = Fate::Cut(80);
    for fate in GONE.into_iter().chain([inside_the_first_batch]) {
        let disk = written();
        fate.strike(&disk, "seg-00.log");
        let before = files(&disk);
        let line = refusal(&disk);
        assert!(line.contains("the log is gone: ZOOLET records a log, and no readable segment"), "{fate:?}: {line}");
        assert!(line.contains("put its files back"), "{fate:?}: {line}");
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(files(&disk), before, "{fate:?}");
    }
    let disk = written();
    Fate::Cut(3 * BLOCK).strike(&disk, "seg-00.log");
    assert!(refusal(&disk).contains("this file has 12288 bytes instead of 32768"));
}

#[test]
fn missing_log_is_refused_even_when_the_base_has_entries() {
    let disk = SimDisk::new(1);
    let mut machine = Machine::connected(&disk, limits());
    for number in 0..60 {
        machine.write(create(format!("/z{number}"), 300, CreateKind::Persistent)).unwrap();
    }
    assert!(machine.base().meta().zxid.counter() > 0);
    drop(machine);
    for name in segments(&disk) {
        Fate::Removed.strike(&disk, &name);
    }
    assert!(refusal(&disk).contains("the log is gone"));
}

/// The log exists before the marker names it. The marker names it before anything is acknowledged.
#[test]
fn first_start_killed_at_any_step_can_start_again() {
    let first_start = SimDisk::new(1);
    Machine::start(&first_start, limits(), NOW).unwrap();
    for step in 0..first_start.steps() {
        let disk = SimDisk::new(1);
        disk.set_crash_at(step);
        assert!(Machine::start(&disk, limits(), NOW).is_err(), "step {step}");
        for image in [disk.after_power_loss(0), disk.after_power_loss(step + 2), disk.after_process_crash()] {
            // Kill that start once more.
            let steps = {
                let again = image.after_process_crash();
                Machine::start(&again, limits(), NOW).unwrap_or_else(|stopped| panic!("step {step}: {stopped:?}"));
                again.steps()
            };
            for second in (step % 13..steps).step_by(13) {
                let disk = image.after_process_crash();
                disk.set_crash_at(second);
                let _ = Machine::start(&disk, limits(), NOW);
                for image in [disk.after_process_crash(), disk.after_power_loss(second + 7)] {
                    let mut machine = Machine::start(&image, limits(), NOW)
                        .unwrap_or_else(|stopped| panic!("steps {step} and {second}: {stopped:?}"));
                    machine.connect(zoolet_sim::client::CONN, zoolet_model::ConnectRequest::for_new_session(9000));
                    machine.ask(Request::Ping).unwrap();
                    // If the file is lost, the acknowledged writes in it must not disappear
                    // unnoticed.
                    Fate::Removed.strike(&image, "seg-00.log");
                    assert!(refusal(&image).contains("the log is gone"), "steps {step} and {second}");
                }
            }
        }
    }
}

#[test]
fn directory_with_an_old_marker_opens_and_then_records_its_log() {
    let disk = written();
    write_marker(&disk, "zoolet data directory, format 1\n");
    Machine::connected(&disk, limits()).ask(Request::Exists { path: "/a".into(), watch: false }).unwrap();
    Fate::Removed.strike(&disk, "seg-00.log");
    assert!(refusal(&disk).contains("the log is gone"));
}

#[test]
fn log_of_another_directory_is_refused() {
    let disk = written();
    write_marker(&disk, "zoolet data directory, format 1\nlog 00000000000000000000000000000002\n");
    let line = refusal(&disk);
    assert!(line.contains("the log belongs to another directory"), "{line}");
}

#[test]
fn damaged_marker_is_refused_with_a_reason() {
    for text in ["", "\0\0\0", "zoolet data directory, format 1\nlog 00", "zoolet data directory, format 9\n"] {
        let disk = written();
        write_marker(&disk, text);
        let before = files(&disk);
        let line = refusal(&disk);
        let expected = if text.contains('9') { "was made by a later release" } else { "the file ZOOLET is damaged" };
        assert!(line.contains(expected), "{text:?}: {line}");
        assert_eq!(files(&disk), before);
    }
}
