//! Flipped bits: every answer is the truth or reports damage.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{BASE_ID, Model, Records, create, merge, open};
use bytes::Bytes;
use zoolet_machine::record::key;
use zoolet_machine::seam::action::BaseRead;
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::state::Changes;
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::base::{Base, BaseError, Scrubbed};
use zoolet_store::disk::Disk;

/// Returns a base with runs above both tables of redb.
///
/// Each table has branch pages.
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
        if round == 1 {
            assert!(merge(&base, true).unwrap() > 3);
        }
    }
    let counters = base.counters();
    assert_eq!(counters.runs, 2, "{counters:?}");
    (model, disk)
}

struct Questions {
    lookups: Vec<(key::Key, Option<Bytes>)>,
    scans: Vec<(key::Key, Vec<key::Key>)>,
}

impl Questions {
    /// Returns lookups and scans of present and absent records.
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
        prefixes.extend([key::children_prefix("/absent"), key::Key::from(&b"n"[..]), key::Key::from(&b"d"[..])]);
        let keys_under = |prefix: &key::Key| records.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let scans = prefixes.into_iter().map(|prefix| (prefix.clone(), keys_under(&prefix))).collect();
        Self { lookups, scans }
    }

    /// Asks every question; returns the number of answers that report damage.
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

fn manifest() -> String {
    format!("base-{BASE_ID}.manifest")
}

fn runs(disk: &SimDisk) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| name.ends_with(".run")).collect()
}

fn home() -> String {
    format!("base-{BASE_ID}.redb")
}

fn side() -> String {
    format!("base-{BASE_ID}.crc")
}

/// Returns each block of the runs and of redb's file.
fn blocks(disk: &SimDisk) -> Vec<(String, u64)> {
    let blocks_of = |name: String| {
        let blocks = disk.contents(&name).unwrap().len().div_ceil(4096) as u64;
        (0..blocks).map(move |block| (name.clone(), block))
    };
    runs(disk).into_iter().chain([home()]).flat_map(blocks_of).collect()
}

/// Flips a random bit of a block; returns its offset and mask.
fn corrupt(disk: &SimDisk, name: &str, block: u64, random: &mut Random) -> (u64, u8) {
    let bytes = disk.contents(name).unwrap().len() as u64;
    let (at, mask) = (block * 4096 + random.below((bytes - block * 4096).min(4096)), 1 << random.below(8));
    assert!(disk.corrupt(name, at, mask));
    (at, mask)
}

#[test]
fn record_with_a_flipped_bit_in_any_block_is_never_served() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let mut random = Random::new(9);
    let (mut damaged_blocks, mut refused) = (0, 0);
    for (name, block) in blocks(&disk) {
        let disk = disk.after_process_crash();
        corrupt(&disk, &name, block, &mut random);
        let context = format!("block {block} of {name}");
        match open(&disk) {
            Ok(base) => damaged_blocks += u64::from(questions.ask(&base, &context) > 0),
            Err(BaseError::Damaged(_)) => refused += 1,
            Err(error) => panic!("{context}: {error}"),
        }
    }
    // The flips must have hit blocks that the questions read.
    assert!(damaged_blocks > 40 && refused > 10, "{damaged_blocks} blocks gave damage, {refused} refused to open");
}

/// Few seeds of the simulator read a flipped block before a merge or a scrub finds it.
#[cfg(feature = "mutations")]
#[test]
#[should_panic(expected = "wrong ")]
fn page_unverified_mutation_serves_a_flipped_bit() {
    zoolet_zab::mutation::set(Some(zoolet_zab::Mutation::PageUnverified));
    record_with_a_flipped_bit_in_any_block_is_never_served();
}

#[test]
fn record_flipped_under_an_open_base_is_never_served() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let mut random = Random::new(10);
    let mut damaged_blocks = 0;
    for (name, block) in blocks(&disk) {
        let disk = disk.after_process_crash();
        let base = open(&disk).unwrap();
        let (at, mask) = corrupt(&disk, &name, block, &mut random);
        damaged_blocks += u64::from(questions.ask(&base, &format!("block {block} of {name}, open")) > 0);
        // One bad answer must not prevent later good ones. With the bit restored, every answer is
        // right again.
        assert!(disk.corrupt(&name, at, mask));
        assert_eq!(questions.ask(&base, &format!("block {block} of {name}, repaired")), 0);
    }
    assert!(damaged_blocks > 40);
}

#[test]
fn flipped_bit_in_the_manifest_is_reported_as_damage() {
    let (_, disk) = model_and_disk();
    let bytes = disk.contents(&manifest()).unwrap().len() as u64;
    for at in 0..bytes {
        let disk = disk.after_process_crash();
        assert!(disk.corrupt(&manifest(), at, 1 << (at % 8)));
        assert!(matches!(open(&disk), Err(BaseError::Damaged(_))), "byte {at}");
    }
}

/// Beyond single bits: a block holds zeroes or the content of another one (a misplaced write), or a
/// file replaces another one.
#[test]
fn misplaced_block_or_swapped_file_is_never_served() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let all = blocks(&disk);
    let content = |(name, block): &(String, u64)| {
        let mut bytes = disk.contents(name).unwrap();
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        bytes[usize::try_from(*block).unwrap() * 4096..][..4096].to_vec()
    };
    let mut damaged_blocks = 0;
    for (at, place) in all.iter().enumerate() {
        for instead in [content(&all[(at + 1) % all.len()]), content(&all[(at + 7) % all.len()]), vec![0; 4096]] {
            let disk = disk.after_process_crash();
            let (name, block) = place;
            let file = Disk::open(&disk, name).unwrap();
            let bytes = file.len().unwrap();
            file.write_at(block * 4096, &instead).unwrap();
            file.set_len(bytes).unwrap();
            match open(&disk) {
                Ok(base) => damaged_blocks += u64::from(questions.ask(&base, &format!("{place:?} replaced")) > 0),
                Err(error) => assert!(matches!(error, BaseError::Damaged(_)), "{place:?}: {error}"),
            }
        }
    }
    assert!(damaged_blocks > 60, "{damaged_blocks}");
    for name in runs(&disk) {
        for other in runs(&disk).into_iter().filter(|other| *other != name) {
            let disk = disk.after_process_crash();
            disk.rename(&other, &name).unwrap();
            assert!(matches!(open(&disk), Err(BaseError::Damaged(_))), "{other} in the place of {name}");
        }
    }
}

#[test]
fn shortened_or_missing_run_or_manifest_is_reported_as_damage() {
    let (_, disk) = model_and_disk();
    for name in runs(&disk).into_iter().chain([manifest()]) {
        let bytes = disk.contents(&name).unwrap().len() as u64;
        for length in (0..bytes).step_by(5001).chain([1, 50]) {
            let disk = disk.after_process_crash();
            Disk::open(&disk, &name).unwrap().set_len(length).unwrap();
            match open(&disk) {
                Ok(_) => panic!("{name} cut to {length} opens"),
                Err(error) => assert!(matches!(error, BaseError::Damaged(_)), "{name} cut to {length}: {error}"),
            }
        }
        let disk = disk.after_process_crash();
        disk.remove(&name).unwrap();
        assert!(matches!(open(&disk), Err(BaseError::Damaged(_))), "{name} gone");
    }
}

#[test]
fn flipped_bit_in_the_checksum_file_never_causes_a_wrong_answer() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let bytes = disk.contents(&side()).unwrap().len() as u64;
    let mut random = Random::new(11);
    for at in (0..bytes).step_by(97) {
        let disk = disk.after_process_crash();
        assert!(disk.corrupt(&side(), at, 1 << random.below(8)));
        let opened = open(&disk);
        if at < 2 * 4096 {
            // Either copy of the header is enough.
            assert_eq!(questions.ask(&opened.unwrap(), &format!("header byte {at}")), 0);
        } else if let Ok(base) = opened {
            questions.ask(&base, &format!("side byte {at}"));
        }
    }
    assert!(disk.corrupt(&side(), 30, 1) && disk.corrupt(&side(), 4096 + 30, 1));
    assert!(matches!(open(&disk), Err(BaseError::Damaged(_))), "both headers gone");
}

#[test]
fn shortened_or_missing_redb_file_never_causes_a_wrong_answer() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let bytes = disk.contents(&home()).unwrap().len() as u64;
    let (mut damaged, step) = (0, 10_001);
    for length in (0..bytes).step_by(step).chain([1, 4095, 4096, 8192]) {
        let disk = disk.after_process_crash();
        Disk::open(&disk, &home()).unwrap().set_len(length).unwrap();
        match open(&disk) {
            Ok(base) => damaged += u64::from(questions.ask(&base, &format!("cut to {length}")) > 0),
            Err(error) => {
                assert!(matches!(error, BaseError::Damaged(_)), "cut to {length}: {error}");
                // The damage must be found before redb panics over it.
                assert!(!error.to_string().contains("cannot make sense"), "cut to {length}: {error}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 5, "{damaged}");
    for name in [home(), side()] {
        let disk = disk.after_process_crash();
        disk.remove(&name).unwrap();
        assert!(matches!(open(&disk), Err(BaseError::Damaged(_))), "{name} gone");
    }
}

/// Both files of redb from before a merge are intact, but do not match the manifest.
#[test]
fn older_redb_file_is_refused_as_damage() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(1));
    let older = disk.after_process_crash();
    base.checkpoint(&model.random_checkpoint(&mut random, 100, 100)).unwrap();
    merge(&base, true).unwrap();
    drop(base);
    open(&disk.after_process_crash()).unwrap();
    for name in [home(), side()] {
        let file = Disk::open(&disk, &name).unwrap();
        let bytes = older.contents(&name).unwrap();
        file.set_len(0).unwrap();
        file.write_at(0, &bytes).unwrap();
    }
    assert!(matches!(open(&disk), Err(BaseError::Damaged(_))));
}

#[test]
fn merging_a_damaged_base_keeps_the_records_or_fails() {
    let (model, disk) = model_and_disk();
    let questions = Questions::of(&model.records);
    let mut random = Random::new(12);
    let mut failed = 0;
    for (name, block) in blocks(&disk).into_iter().step_by(3) {
        let disk = disk.after_process_crash();
        let base = open(&disk).unwrap();
        corrupt(&disk, &name, block, &mut random);
        match merge(&base, true) {
            Ok(_) => {}
            Err(BaseError::Damaged(_)) => failed += 1,
            Err(error) => panic!("block {block} of {name}: {error}"),
        }
        questions.ask(&base, &format!("block {block} of {name}, after a merge"));
        let mut scrub = base.scrub();
        let end = loop {
            match scrub.step(1 << 20) {
                Ok(Scrubbed::More) => {}
                end => break end,
            }
        };
        assert!(matches!(end, Ok(Scrubbed::Sound { .. }) | Err(BaseFailure::Damaged(_))), "{end:?}");
    }
    assert!(failed > 10, "{failed}");
}

/// Changes a run and corrects every checksum, the manifest's included.
///
/// A release with a bug could have written such a run.
fn rewrite_run(disk: &SimDisk, change: impl FnOnce(&mut [u8])) {
    let name = runs(disk).remove(0);
    let mut file = disk.contents(&name).unwrap();
    let before = file[96..112].to_vec();
    change(&mut file);
    let sums = usize::try_from(u64::from_le_bytes(file[72..80].try_into().unwrap())).unwrap();
    for block in 1..sums / 4096 {
        let sum = crc32c::crc32c(&file[block * 4096..(block + 1) * 4096]);
        file[sums + (block - 1) * 4..sums + block * 4].copy_from_slice(&sum.to_le_bytes());
    }
    let hash = xxhash_rust::xxh3::xxh3_128(&file[4096..]).to_le_bytes();
    file[96..112].copy_from_slice(&hash);
    let sum = crc32c::crc32c(&file[..4092]);
    file[4092..4096].copy_from_slice(&sum.to_le_bytes());
    replace(disk, &name, &file);
    let mut bytes = disk.contents(&manifest()).unwrap();
    let at = bytes.windows(16).position(|window| window == before).unwrap();
    bytes[at..at + 16].copy_from_slice(&hash);
    let end = bytes.len() - 4;
    let sum = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    replace(disk, &manifest(), &bytes);
}

fn replace(disk: &SimDisk, name: &str, bytes: &[u8]) {
    disk.remove(name).unwrap();
    let file = disk.create(name).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    disk.sync_directory().unwrap();
}

/// Returns the offset of table entry `at` in a run's file.
fn table_entry(file: &[u8], at: usize) -> usize {
    let table = usize::try_from(u64::from_le_bytes(file[40..48].try_into().unwrap())).unwrap();
    let place = table + 4 + at * 4;
    table + u32::from_le_bytes(file[place..place + 4].try_into().unwrap()) as usize
}

#[test]
fn run_with_an_unsorted_or_mismatched_table_is_refused_at_open() {
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change); 5] = [
        ("another block", |file| file[table_entry(file, 1)] += 1),
        ("no blocks", |file| file[table_entry(file, 1) + 4] = 0),
        ("beyond the end", |file| file[table_entry(file, 1) + 6] = 1),
        ("another order", |file| {
            let at = table_entry(file, 1) + 12;
            file[at] = 0xff;
        }),
        ("records without end", |file| file[38] = 1),
    ];
    for (what, change) in changes {
        let (_, disk) = model_and_disk();
        rewrite_run(&disk, |_| {});
        assert!(open(&disk).is_ok(), "the rewriting itself");
        rewrite_run(&disk, change);
        assert!(matches!(open(&disk), Err(BaseError::Damaged(_))), "{what}");
    }
}

/// A first key in the table that is slightly too high or too low hides records from lookups, but
/// not from a full scan.
#[test]
fn scrub_and_merge_detect_a_run_table_that_hides_records() {
    for step in [1_u8, 255] {
        let (_, disk) = model_and_disk();
        rewrite_run(&disk, |file| {
            let at = table_entry(file, 1);
            let bytes = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
            let last = &mut file[at + 12 + bytes - 1];
            *last = last.wrapping_add(step);
        });
        let base = open(&disk).unwrap();
        let mut scrub = base.scrub();
        let end = std::iter::repeat_with(|| scrub.step(10_000)).find(|outcome| *outcome != Ok(Scrubbed::More));
        assert!(matches!(end, Some(Err(BaseFailure::Damaged(_)))), "{end:?}");
        assert!(matches!(merge(&base, true), Err(BaseError::Damaged(_))));
    }
}
