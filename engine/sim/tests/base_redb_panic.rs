//! Files with correct checksums over which redb panics.
//!
//! If redb panics while it opens or reads them, that is damage. If the panic ends the process, the
//! next process reports the damage.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

mod base_support;

use base_support::{BASE_ID, Model, OPTIONS, create, merge};
use std::sync::{Arc, Once};
use zoolet_machine::seam::action::BaseRead;
use zoolet_machine::seam::event::BaseFailure;
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_sim::panicking_base::{change_until, is_redb_panic, make_redb_panic};
use zoolet_store::base::{Base, BaseError, PanicNote};
use zoolet_store::disk::Disk;

const NOTE: &str = "base-7.panic";

/// Leaves a note at the first panic, as an ending process does.
///
/// Hundreds of caught panics are not printed.
fn leave_notes() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match PanicNote::due().or_else(PanicNote::due) {
            // The first note stays.
            Some(note) => drop(note.leave()),
            None => say(panic),
        }));
    });
}

/// Returns a base with all records in redb.
///
/// Both of its tables have records and branch pages.
fn sound() -> (Model, SimDisk) {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(1));
    for _ in 0..4 {
        base.checkpoint(&model.random_checkpoint(&mut random, 300, 100)).unwrap();
        while merge(&base, true).unwrap() > 0 {}
    }
    (model, disk)
}

fn open(disk: &Arc<dyn Disk>) -> Result<Base, BaseError> {
    Base::open(Arc::clone(disk), BASE_ID, OPTIONS)
}

#[test]
fn redb_panic_while_opening_or_reading_is_reported_as_damage() {
    leave_notes();
    let (_, sound) = sound();
    let [mut opening, mut reading] = [0; 2];
    let meet = |changed: &Arc<dyn Disk>| {
        // Each change gets a fresh copy of the disk, so that no change affects the next one.
        let disk = sound.after_process_crash();
        copy_redb(&**changed, &disk);
        let opened = open(&(Arc::new(disk) as Arc<dyn Disk>));
        opening += u32::from(is_redb_panic(&opened));
        let Ok(base) = opened else { return false };
        let read = read_all(&base);
        reading += u32::from(is_redb_panic(&read));
        false
    };
    assert!(!change_until(&(Arc::new(sound.after_process_crash()) as Arc<dyn Disk>), BASE_ID, meet));
    assert!(opening > 0 && reading > 0, "{opening} as it opened, {reading} as it read");
}

fn read_all(base: &Base) -> Result<(), BaseError> {
    let damage = |failure| match failure {
        BaseFailure::Damaged(what) => BaseError::Damaged(what),
        BaseFailure::Io(what) => BaseError::Io(what),
    };
    let (reader, mut keys) = (base.reader(), Vec::new());
    let mut note = |key: &[u8]| {
        keys.push(key.to_vec());
        true
    };
    reader.keys(b"", None, &mut note).map_err(damage)?;
    keys.iter().try_for_each(|key| reader.record(key).map(drop).map_err(damage))
}

/// Copies redb's files, with the change made to them, to another disk.
fn copy_redb(from: &dyn Disk, to: &dyn Disk) {
    for name in ["base-7.redb", "base-7.crc"] {
        let (source, copy) = (from.open(name).unwrap(), to.open(name).unwrap());
        let mut bytes = vec![0; usize::try_from(source.len().unwrap()).unwrap()];
        source.read_at(0, &mut bytes).unwrap();
        copy.write_at(0, &bytes).unwrap();
    }
}

#[test]
fn base_with_a_panic_note_is_refused_without_another_try() {
    leave_notes();
    let disk: Arc<dyn Disk> = Arc::new(sound().1.after_process_crash());
    assert!(PanicNote::due().is_none());
    // The first panic leaves the note, and `make_redb_panic` learns of the panic only afterwards.
    assert!(make_redb_panic(&disk, BASE_ID), "redb panics over none of the changed files");
    assert!(disk.list().unwrap().iter().any(|name| name == NOTE));
    let again = open(&disk);
    assert!(is_redb_panic(&again) && again.unwrap_err().to_string().contains(NOTE));
    disk.remove(NOTE).unwrap();
    assert!(is_redb_panic(&open(&disk)), "it is tried again without");
    Base::remove(&*disk, BASE_ID).unwrap();
    assert_eq!(disk.list().unwrap(), Vec::<String>::new(), "the note goes with its base");
}

/// A crash during the very first start leaves such a base. It is created again, even if the next
/// start ended in a panic over it.
#[test]
fn base_without_a_manifest_is_unfinished_even_with_a_panic_note() {
    leave_notes();
    let disk = SimDisk::new(1);
    drop(create(&disk));
    disk.remove("base-7.manifest").unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    disk.create(NOTE).unwrap();
    assert!(Base::is_unfinished(&disk, BASE_ID).unwrap());
}
