//! Flipped bits: every answer is the truth or "damaged".
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

mod base_support;

use base_support::{BASE_ID, Model, Records, create, open};
use bytes::Bytes;
use zoolet_engine::{
    action::{BaseRead, Changes},
    event::BaseFailure,
    store::{
        base::{Base, BaseError, Scrubbed},
        disk::Disk,
        key,
    },
};
use zoolet_sim::disk::{Random, SimDisk};

/// Both tables, several levels: branch pages in each.
fn model_and_disk() -> (Model, SimDisk) {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let mut model = Model::default();
    for round in 0..4_u8 {
        let mut changes = Changes::default();
        for at in 0..400 {
            let path = format!("/app/{at:03}/a-name-that-makes-branch-pages-wide/{:02}", at % 7);
            changes.insert(key::znode(&path).unwrap(), Some(Bytes::from(vec![round; 150 + at % 90])));
            if at % 6 == 0 {
                changes.insert(key::data(&path).unwrap(), Some(Bytes::from(vec![round; 1100 + at])));
            }
        }
        base.checkpoint(&model.checkpoint(changes)).unwrap();
    }
    (model, disk)
}

struct Questions {
    lookups: Vec<(key::Key, Option<Bytes>)>,
    scans: Vec<(key::Key, Vec<key::Key>)>,
}

impl Questions {
    /// Records that are there, neighbours that are not, children of some znodes and of none.
    fn of(records: &Records) -> Self {
        let mut lookups: Vec<(key::Key, Option<Bytes>)> = Vec::new();
        for (key, value) in records.iter().step_by(3) {
            lookups.push((key.clone(), Some(value.clone())));
            let mut absent = key.to_vec();
            absent.push(b'!');
            lookups.push((absent.into(), None));
        }
        let mut prefixes: Vec<key::Key> = (0..400)
            .step_by(5)
            .map(|at| key::children_prefix(&format!("/app/{at:03}/a-name-that-makes-branch-pages-wide")))
            .collect();
        prefixes.extend([key::children_prefix("/absent"), Box::from(&b"n"[..]), Box::from(&b"d"[..])]);
        let keys_under = |prefix: &key::Key| records.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let scans = prefixes.into_iter().map(|prefix| (prefix.clone(), keys_under(&prefix))).collect();
        Self { lookups, scans }
    }

    /// Asks everything; the number of answers that were "damaged".
    fn ask(&self, base: &Base, context: &str) -> usize {
        let reader = base.reader();
        let mut damaged = 0;
        for (key, truth) in &self.lookups {
            match reader.record(key) {
                Ok(found) => assert!(found == *truth, "{context}: wrong answer for {}", key.escape_ascii()),
                Err(BaseFailure::Damaged(_)) => damaged += 1,
                Err(failure) => panic!("{context}: {failure:?}"),
            }
        }
        for (prefix, truth) in &self.scans {
            let mut found: Vec<key::Key> = Vec::new();
            let end = key::end_of_prefix(prefix);
            let outcome = reader.keys(prefix, end.as_deref(), &mut |key| {
                found.push(key.into());
                true
            });
            match outcome {
                Ok(()) => assert!(found == *truth, "{context}: wrong keys under {}", prefix.escape_ascii()),
                Err(BaseFailure::Damaged(_)) => {
                    assert!(truth.starts_with(&found), "{context}: wrong keys before the damage");
                    damaged += 1;
                }
                Err(failure) => panic!("{context}: {failure:?}"),
            }
        }
        damaged
    }
}

fn base_file() -> String {
    format!("base-{BASE_ID}.redb")
}

fn side_file() -> String {
    format!("base-{BASE_ID}.crc")
}

#[test]
fn flipped_bit_in_any_live_page_is_never_served() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let blocks = disk.contents(&base_file()).unwrap().len() as u64 / 4096;
    let mut random = Random::new(9);
    let (mut damaged_blocks, mut refused) = (0, 0);
    for block in 0..blocks {
        let disk = disk.after_process_crash();
        assert!(disk.corrupt(&base_file(), block * 4096 + random.below(4096), 1 << random.below(8)));
        match open(&disk) {
            Ok(base) => damaged_blocks += u64::from(questions.ask(&base, &format!("block {block}")) > 0),
            Err(BaseError::Damaged(_)) => refused += 1,
            Err(error) => panic!("block {block}: {error}"),
        }
    }
    // The flips must have met what is being asked for, and most of the file is free space.
    assert!(damaged_blocks > 40 && refused > 0, "{damaged_blocks} blocks gave damage, {refused} refused to open");
}

#[test]
fn flipped_bit_under_an_open_base_is_never_served() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let blocks = disk.contents(&base_file()).unwrap().len() as u64 / 4096;
    let mut random = Random::new(10);
    let mut damaged_blocks = 0;
    for block in 0..blocks {
        let disk = disk.after_process_crash();
        let base = open(&disk).unwrap();
        let at = block * 4096 + random.below(4096);
        let mask = 1 << random.below(8);
        assert!(disk.corrupt(&base_file(), at, mask));
        damaged_blocks += u64::from(questions.ask(&base, &format!("block {block}, open")) > 0);
        // One bad answer must not stop the good ones: with the bit back, everything is answered again.
        assert!(disk.corrupt(&base_file(), at, mask));
        assert_eq!(questions.ask(&base, &format!("block {block}, repaired")), 0);
    }
    assert!(damaged_blocks > 40);
}

#[test]
fn flipped_bit_in_the_side_file_is_mended_or_damage_and_never_an_answer() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let bytes = disk.contents(&side_file()).unwrap().len() as u64;
    let mut random = Random::new(11);
    for at in (0..bytes).step_by(97) {
        let disk = disk.after_process_crash();
        assert!(disk.corrupt(&side_file(), at, 1 << random.below(8)));
        let opened = open(&disk);
        if at < 2 * 4096 {
            // Either copy of the header alone is enough.
            assert_eq!(questions.ask(&opened.unwrap(), &format!("header byte {at}")), 0);
        } else if let Ok(base) = opened {
            questions.ask(&base, &format!("side byte {at}"));
        }
    }
}

/// Not only bits: a block that holds what it held before (a lost write), what another holds (a misplaced one), or zeroes.
#[test]
fn a_block_that_holds_something_else_is_never_served() {
    let (model, disk) = model_and_disk();
    let base = open(&disk).unwrap();
    let older = disk.contents(&base_file()).unwrap();
    let (mut model, mut random) = (model, Random::new(13));
    for _ in 0..3 {
        base.checkpoint(&model.random_checkpoint(&mut random, 100, 300)).unwrap();
    }
    drop(base);
    let questions = Questions::of(&model.records);
    let newer = disk.contents(&base_file()).unwrap();
    let blocks = older.len() / 4096;
    let mut damaged_blocks = 0;
    for block in 1..blocks {
        let other = (block % (blocks - 1) + 1) * 4096;
        for instead in [&older[block * 4096..][..4096], &newer[other..][..4096], &[0; 4096]] {
            let disk = disk.after_process_crash();
            Disk::open(&disk, &base_file()).unwrap().write_at(block as u64 * 4096, instead).unwrap();
            if let Ok(base) = open(&disk) {
                damaged_blocks += u64::from(questions.ask(&base, &format!("block {block} replaced")) > 0);
            }
        }
    }
    assert!(damaged_blocks > 60, "{damaged_blocks}");
}

#[test]
fn a_base_file_cut_anywhere_gives_the_truth_or_damage() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let bytes = disk.contents(&base_file()).unwrap().len() as u64;
    for length in (0..bytes).step_by(20_001).chain([1, 4095, 4096, 8192]) {
        let disk = disk.after_process_crash();
        Disk::open(&disk, &base_file()).unwrap().set_len(length).unwrap();
        match open(&disk) {
            Ok(base) => drop(questions.ask(&base, &format!("cut to {length}"))),
            Err(error) => assert!(matches!(error, BaseError::Damaged(_)), "cut to {length}: {error}"),
        }
    }
    for name in [base_file(), side_file()] {
        let disk = disk.after_process_crash();
        disk.remove(&name).unwrap();
        assert!(matches!(open(&disk), Err(BaseError::Damaged(_))), "{name} gone");
    }
}

#[test]
fn a_base_whose_header_is_gone_twice_is_damaged() {
    let (_, disk) = model_and_disk();
    assert!(disk.corrupt(&side_file(), 30, 1) && disk.corrupt(&side_file(), 4096 + 30, 1));
    assert!(matches!(open(&disk), Err(BaseError::Damaged(_))));
}

#[test]
fn a_damaged_base_fails_its_checkpoint_or_keeps_the_truth() {
    let (model, disk) = model_and_disk();
    let blocks = disk.contents(&base_file()).unwrap().len() as u64 / 4096;
    let mut random = Random::new(12);
    for block in (0..blocks).step_by(5) {
        let disk = disk.after_process_crash();
        let base = open(&disk).unwrap();
        assert!(disk.corrupt(&base_file(), block * 4096 + random.below(4096), 1));
        let mut model = model.clone();
        let checkpoint = model.random_checkpoint(&mut random, 50, 100);
        if base.checkpoint(&checkpoint).is_ok() {
            let mut scrub = base.scrub();
            let end = loop {
                match scrub.step(1 << 20) {
                    Ok(Scrubbed::More) => {}
                    end => break end,
                }
            };
            // Pages the checkpoint did not meet may still be damaged; nothing else may be wrong.
            assert!(matches!(end, Ok(Scrubbed::Sound { .. }) | Err(BaseFailure::Damaged(_))), "{end:?}");
            Questions::of(&model.records).ask(&base, &format!("block {block}, after a checkpoint"));
        }
    }
}
