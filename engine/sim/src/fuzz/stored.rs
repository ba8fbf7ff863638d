//! Files of the store, damaged by a disk or crafted with contents that no release ever wrote.
//!
//! There are two kinds of hostile bytes. In damaged files checksums do not match, and nothing
//! damaged may be believed. In sealed files checksums match. They are computed here from
//! docs/reference/formats.md, without the engine, so that the code behind the checks is reached.
//! Sealed contents may be refused or believed, but must not cause a panic, a hang or unbounded
//! growth.

use super::{Target, damage, script};
use crate::disk::SimDisk;
use crate::entries::Entries;
use crate::workload::Random;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::record::key::{self, Key};
use zoolet_machine::seam::action::{Append, BaseRead, Checkpoint, CheckpointMeta, LogRecord};
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::state::Changes;
use zoolet_model::Zxid;
use zoolet_store::Strategy;
use zoolet_store::base::{Base, BaseError, Options};
use zoolet_store::disk::Disk;
use zoolet_store::image::{self, Image};
use zoolet_store::log::{AppendError, Facts, Log, LogError, LogOptions};
use zoolet_zab::{AppendSeq, Epoch};

const BLOCK: usize = 4096;
const OPTIONS: LogOptions = LogOptions { segment_bytes: 16 << 10, segments: 4, strategy: Strategy::Recycle };
const DISK_INCARNATION: u128 = 0x0123_4567_89ab_cdef;

fn put_file(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let _ = disk.remove(name);
    disk.create(name).and_then(|file| file.write_at(0, bytes)).expect("the disk has room");
}

fn open_log(disk: &SimDisk) -> Result<Log, LogError> {
    Log::open(Arc::new(disk.clone()), OPTIONS).map(|(log, _)| log)
}

type History = Vec<(Zxid, Bytes)>;

fn history(log: &Log, after: Zxid) -> Result<History, LogError> {
    let mut entries = Vec::new();
    log.replay(after, &mut |zxid, payload| {
        entries.push((zxid, payload));
        Ok::<(), Infallible>(())
    })?;
    Ok(entries)
}

/// A log while it is written, and its expected contents.
struct Writing {
    disk: SimDisk,
    log: Log,
    /// The history before the first append, and after each append.
    states: Vec<History>,
    /// The log was told that the base holds everything up to here.
    checkpoint: Zxid,
}

impl Writing {
    fn new() -> Self {
        let disk = SimDisk::new(1);
        let log =
            Log::create(Arc::new(disk.clone()), OPTIONS, Facts::birth(7, DISK_INCARNATION)).expect("an empty disk");
        Self { disk, log, states: vec![History::new()], checkpoint: Zxid::ZERO }
    }

    /// Appends records as one voter does, or as the protocol may.
    fn append(&mut self, random: &mut Random, payloads: &mut Entries) {
        let last = self.log.facts().last;
        let mut history = self.states.last().cloned().unwrap_or_default();
        let mut records = Vec::new();
        if last != Zxid::ZERO && random.one_in(12) {
            let to = history.iter().rev().map(|(zxid, _)| *zxid).nth(random.below(3) as usize).unwrap_or(last);
            let to = to.max(self.log.facts().watermark).max(self.checkpoint);
            records.push(LogRecord::Truncate { to });
            history.retain(|(zxid, _)| *zxid <= to);
        } else {
            let mut next = last.next();
            if last == Zxid::ZERO || random.one_in(8) {
                let Some(epoch) = self.log.facts().accepted.next() else { return };
                records.extend([LogRecord::Promise(epoch), LogRecord::Epoch(epoch)]);
                next = Some(Zxid::first_of(epoch));
            }
            for _ in 0..=random.below(4) {
                let Some(zxid) = next else { break };
                let payload = payloads.payload();
                let payload = payload.slice(..payload.len().min(OPTIONS.payload_bytes_max() as usize));
                records.push(LogRecord::Entry { zxid, payload: payload.clone() });
                history.push((zxid, payload));
                next = zxid.next();
            }
            if random.one_in(10) {
                let config = Bytes::from(vec![b'c'; random.below(50) as usize]);
                records.push(LogRecord::Config { committed: config.clone(), last_seen: config });
            }
        }
        let watermark = if random.one_in(2) { last.min(self.log.facts().last) } else { Zxid::ZERO };
        let watermark = history.last().map_or(Zxid::ZERO, |(zxid, _)| watermark.min(*zxid));
        let seq = AppendSeq(self.log.appended().0 + records.len() as u64);
        match self.log.append(&[Append { seq, records: records.into(), watermark, expect: None }]) {
            Ok(_) => self.states.push(history),
            Err(AppendError::Stalled(_)) => {
                // The ring is full. A leading part of the append may be in the log, but a
                // truncation is never part of it. Tell the log that the base holds everything, so
                // that it can recycle segments.
                let held = self.log.facts().last;
                if held > last {
                    history.retain(|(zxid, _)| *zxid <= held);
                    self.states.push(history);
                }
                self.checkpoint = held;
                self.log.recycle(held);
            }
            Err(error @ AppendError::Fatal(_)) => panic!("{error}"),
        }
    }

    fn segments(&self) -> Vec<String> {
        let names = self.disk.list().expect("a disk that works");
        names.into_iter().filter(|name| name.starts_with("seg-")).collect()
    }
}

/// A segment's file, with the input as its bytes.
pub(super) const LOG_BYTES: Target = Target { name: "log_bytes", valid: any_segment, check: check_segment };

fn any_segment(random: &mut Random) -> Vec<u8> {
    let mut writing = Writing::new();
    let mut payloads = Entries::new(random.bits());
    for _ in 0..random.below(3) {
        writing.append(random, &mut payloads);
    }
    writing.disk.contents("seg-00.log").unwrap_or_default()
}

fn check_segment(bytes: &[u8]) {
    let disk = SimDisk::new(1);
    put_file(&disk, "seg-00.log", bytes);
    go_on(&disk);
}

/// Checks that a log that opens also works. It must read back the same twice, and take an append.
fn go_on(disk: &SimDisk) {
    let Ok(log) = open_log(disk) else { return };
    let facts = log.facts().clone();
    assert!(facts.watermark <= facts.last && facts.current <= facts.accepted);
    let found = history(&log, Zxid::ZERO);
    if let Ok(entries) = &found {
        assert!(entries.is_sorted_by(|one, other| one.0 < other.0), "a history is in order");
        assert!(entries.last().is_none_or(|(zxid, _)| *zxid <= facts.last));
    }
    drop(log);
    let mut log = open_log(disk).expect("what opened opens again");
    assert_eq!(log.facts(), &facts);
    assert_eq!(history(&log, Zxid::ZERO).ok(), found.ok());
    let Some(zxid) = facts.last.next().filter(|_| facts.last != Zxid::ZERO) else { return };
    let Some(seq) = log.appended().0.checked_add(1) else { return };
    let record = LogRecord::Entry { zxid, payload: Bytes::from_static(b"one more") };
    let appended = log.append(&[Append {
        seq: AppendSeq(seq),
        records: vec![record].into(),
        watermark: facts.watermark,
        expect: None,
    }]);
    if appended.is_ok() {
        drop(log);
        let log = open_log(disk).expect("what took an append opens");
        assert_eq!(log.facts().last, zxid);
    }
}

/// Batches with right checksums, and arbitrary headers and records.
///
/// For each batch, the input holds its length (2 bytes, little-endian) and its bytes from byte 8
/// on.
pub(super) const LOG_RECORDS: Target = Target { name: "log_records", valid: any_batches, check: check_batches };

/// Bytes of a batch's header behind magic and checksum.
const COVERED_HEADER: usize = 56;

fn any_batches(random: &mut Random) -> Vec<u8> {
    let segment = any_segment(random);
    let mut input = Vec::new();
    let mut at = 0;
    while segment.get(at..at + 4) == Some(b"zlog") {
        let records = u32::from_le_bytes([segment[at + 12], segment[at + 13], segment[at + 14], segment[at + 15]]);
        let covered = &segment[at + 8..at + 64 + records as usize];
        // The damage starts behind magic and checksum, so that it hits headers and records more
        // often than text.
        let covered = if random.one_in(3) { damage(random, covered.to_vec()) } else { covered.to_vec() };
        input.extend((covered.len() as u16).to_le_bytes());
        input.extend(covered);
        at += (64 + records as usize).next_multiple_of(BLOCK);
    }
    input
}

fn check_batches(bytes: &[u8]) {
    let mut segment = Vec::new();
    let mut disk_incarnation = None;
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (covered, after) = after.split_at(after.len().min(usize::from(u16::from_le_bytes(*length))));
        rest = after;
        if covered.len() < COVERED_HEADER {
            break;
        }
        let mut covered = covered.to_vec();
        let records = (covered.len() - COVERED_HEADER) as u32;
        covered[4..8].copy_from_slice(&records.to_le_bytes());
        // The facts follow the length and kind of their record.
        let claim = covered.get(COVERED_HEADER + 5..COVERED_HEADER + 21).map(Bytes::copy_from_slice);
        let seed = disk_incarnation.get_or_insert(claim.unwrap_or_default());
        let sum = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(seed), &covered[8..16]), &covered);
        segment.extend_from_slice(b"zlog");
        segment.extend(sum.to_le_bytes());
        segment.extend(covered);
        segment.resize(segment.len().next_multiple_of(BLOCK), 0);
    }
    segment.resize(segment.len().max(OPTIONS.segment_bytes as usize), 0);
    let disk = SimDisk::new(1);
    put_file(&disk, "seg-00.log", &segment);
    go_on(&disk);
}

/// A log whose records and damage are chosen by the input.
///
/// Every entry found was written. Only the newest batches are missing, at most as many as were
/// damaged. In the newest batch, damage cannot be told from a torn write.
pub(super) const LOG_DAMAGE: Target = Target { name: "log_damage", valid: script, check: check_damaged_log };

fn check_damaged_log(bytes: &[u8]) {
    let mut random = Random::scripted(bytes);
    let mut writing = Writing::new();
    let mut payloads = Entries::new(random.below(16));
    for _ in 0..2 + random.below(12) {
        writing.append(&mut random, &mut payloads);
    }
    let names = writing.segments();
    let mut damages = 0;
    for _ in 0..=random.below(2) {
        let name = random.pick::<String>(&names).clone();
        let mut file = writing.disk.contents(&name).unwrap_or_default();
        damages += damage_file(&mut random, &mut file);
        put_file(&writing.disk, &name, &file);
    }
    let Writing { disk, states, checkpoint, .. } = writing;
    let Ok(log) = open_log(&disk) else { return };
    let Ok(found) = history(&log, checkpoint) else { return };
    let above = |state: &History| -> History { state.iter().filter(|(zxid, _)| *zxid > checkpoint).cloned().collect() };
    let states: Vec<History> = states.iter().map(above).collect();
    // An append may take several batches. If its beginning is present and its end is torn, the
    // history lies between two states.
    let is_state = |at: usize| {
        let after = &states[at];
        *after == found || after.starts_with(&found) && at > 0 && found.starts_with(&states[at - 1])
    };
    let known = (0..states.len()).rev().find(|&at| is_state(at));
    let shown: Vec<Zxid> = found.iter().map(|(zxid, _)| *zxid).collect();
    let at = known.unwrap_or_else(|| panic!("{shown:?} was never the history"));
    assert!(at + 1 + damages >= states.len(), "state {at} of {} after {damages} damages: {shown:?}", states.len());
}

/// Damages a file in one place; returns the number of batches that may be affected.
fn damage_file(random: &mut Random, file: &mut Vec<u8>) -> usize {
    let at = random.below(file.len().max(1) as u64) as usize;
    let block = at / BLOCK * BLOCK;
    match random.below(6) {
        0..=3 => {
            if let Some(byte) = file.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
            1
        }
        // Everything from here on is lost, in any number of batches.
        4 => {
            file.truncate(at);
            usize::MAX / 4
        }
        // A block was never written, or was lost.
        _ => {
            file.iter_mut().skip(block).take(BLOCK).for_each(|byte| *byte = 0);
            1
        }
    }
}

/// A whole image. If the first byte is odd, the image is sealed: every checksum is corrected first.
pub(super) const IMAGE: Target = Target { name: "image", valid: any_image, check: check_image };

fn any_image(random: &mut Random) -> Vec<u8> {
    let mut records: BTreeMap<Key, Bytes> = BTreeMap::new();
    for number in 0..random.below(12) {
        let path = format!("/{}", ["a", "a/b", "c", "dddd", "e/f"][random.below(5) as usize]);
        let length = *random.pick(&[0, 10, 300, 5000]);
        if let Some(key) = key::znode(&format!("{path}{number}")) {
            records.insert(key, Bytes::from(vec![number as u8; length]));
        }
    }
    let digest = records.iter().fold(0u128, |sum, (key, record)| sum.wrapping_add(record_hash(key, record)));
    let meta = CheckpointMeta { zxid: Zxid::ZERO, digest, totals: Bytes::from_static(b"totals") };
    let disk = SimDisk::new(1);
    image::write(&disk, "tree.img", &Source(&records), &meta).expect("the disk has room");
    let file = disk.contents("tree.img").unwrap_or_default();
    let sealed = random.one_in(2);
    let file = if sealed && random.one_in(2) { damage(random, file) } else { file };
    [&[u8::from(sealed)][..], &file].concat()
}

fn check_image(bytes: &[u8]) {
    let Some((mode, file)) = bytes.split_first() else { return };
    let mut file = file.to_vec();
    if mode & 1 == 1 {
        seal_image(&mut file);
    }
    let disk = SimDisk::new(1);
    put_file(&disk, "tree.img", &file);
    let Ok(image) = Image::open_pread(&disk, "tree.img") else { return };
    let verified = image.verify().is_ok();
    let verifying = disk.counters().read_bytes;
    assert!(verifying <= 8 * file.len() as u64 + (64 << 10), "verifying {} bytes read {verifying}", file.len());
    if verified {
        let mut same = file.clone();
        seal_image(&mut same);
        assert!(same == file, "what is verified is sealed");
    }
    let mut found = Vec::new();
    // An image that was not verified may contain cycles. A reader that does not verify must limit
    // its reading itself.
    let scanned = image.scan(b"", None, &mut |key, record| {
        found.push((Key::from(key), record.len()));
        verified || found.len() < 100
    });
    if verified {
        assert_eq!(scanned, Ok(()), "what is verified can be read");
        assert_eq!(found.len() as u64, image.records());
    }
    for (key, length) in found.iter().take(20) {
        let again = image.get(key);
        if verified {
            assert_eq!(again.map(|record| record.map(|record| record.len())), Ok(Some(*length)));
        }
    }
    let mut names = 0;
    let _ = image.children("/", &mut |_| {
        names += 1;
        names < 100
    });
    let _ = (image.get(b""), image.get(b"n\xff"), image.meta(), image.record(b"n\0"));
}

/// Corrects every checksum of an image, at the places given by docs/reference/formats.md.
fn seal_image(file: &mut [u8]) {
    if file.len() < BLOCK {
        return;
    }
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes")) as usize;
    let (start, bytes) = (word(72), word(80));
    let checksums = start.checked_add(bytes).filter(|&end| start >= BLOCK && end <= file.len());
    if checksums.is_some() {
        let sums: Vec<u8> =
            file[BLOCK..start].chunks(BLOCK).flat_map(|block| crc32c::crc32c(block).to_le_bytes()).collect();
        let bytes = bytes.min(sums.len());
        file[start..start + bytes].copy_from_slice(&sums[..bytes]);
    }
    let hash = xxh3_128(&file[BLOCK..]);
    file[96..112].copy_from_slice(&hash.to_le_bytes());
    let sum = crc32c::crc32c(&file[..BLOCK - 4]);
    file[BLOCK - 4..BLOCK].copy_from_slice(&sum.to_le_bytes());
}

/// A base and its damage, both chosen by the input. Every answer is true, or an error.
pub(super) const BASE_DAMAGE: Target = Target { name: "base_damage", valid: script, check: check_damaged_base };

const BASE_ID: u64 = 3;
/// Parts and runs so small that a few checkpoints make several of each.
const BASE_OPTIONS: Options =
    Options { cache_bytes: 64 << 10, merge_step_bytes: 16 << 10, runs_max: 2, table_bytes_max: 1 << 20 };

fn open_base(disk: &SimDisk) -> Result<Base, BaseError> {
    Base::open(Arc::new(disk.clone()), BASE_ID, BASE_OPTIONS)
}

/// Returns a base after some checkpoints and merges, with its expected contents.
fn any_base(random: &mut Random) -> (SimDisk, BTreeMap<Key, Bytes>) {
    let disk = SimDisk::new(1);
    let base = Base::create(Arc::new(disk.clone()), BASE_ID, BASE_OPTIONS).expect("the disk has room");
    let mut records: BTreeMap<Key, Bytes> = BTreeMap::new();
    for round in 1..=1 + random.below(5) {
        let mut changes: BTreeMap<Key, Option<Bytes>> = BTreeMap::new();
        for _ in 0..random.below(8) {
            let Some(key) = key::znode(&format!("/{}", random.below(9))) else { continue };
            let length = *random.pick(&[20, 0, 900, 5000]);
            let record = (!random.one_in(4)).then(|| Bytes::from(vec![round as u8; length]));
            changes.insert(key, record);
        }
        let changes: Changes = changes.into_iter().collect();
        crate::one_server::apply_changes(&mut records, &changes);
        let digest = records.iter().fold(0u128, |sum, (key, record)| sum.wrapping_add(record_hash(key, record)));
        let meta = CheckpointMeta { zxid: zxid(round), digest, totals: Bytes::from_static(b"totals") };
        base.checkpoint(&Checkpoint { changes: Arc::new(changes), meta }).expect("the disk has room");
        for _ in 0..random.below(3) {
            let eagerly = random.one_in(2);
            base.merge(eagerly).expect("the disk has room");
        }
    }
    (disk, records)
}

fn check_damaged_base(bytes: &[u8]) {
    let mut random = Random::scripted(bytes);
    let (disk, records) = any_base(&mut random);
    let names = disk.list().expect("a disk that works");
    for _ in 0..=random.below(2) {
        let name = random.pick::<String>(&names).clone();
        let mut file = disk.contents(&name).unwrap_or_default();
        if random.one_in(6) {
            // Another file of the same base takes its place.
            file = disk.contents(random.pick::<String>(&names)).unwrap_or_default();
        } else {
            damage_file(&mut random, &mut file);
        }
        put_file(&disk, &name, &file);
    }
    let Ok(base) = open_base(&disk) else { return };
    let reader = base.reader();
    for (key, record) in &records {
        match reader.record(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(record), "{}", key.escape_ascii()),
            Err(BaseFailure::Damaged(_) | BaseFailure::Io(_)) => {}
        }
    }
    let expected: Vec<Key> = records.keys().cloned().collect();
    let (found, listed) = keys_of(&reader, usize::MAX);
    assert!(expected.starts_with(&found), "keys that are not there");
    assert!(listed.is_err() || found == expected, "keys that are missing");
}

fn keys_of(reader: &dyn BaseRead, most: usize) -> (Vec<Key>, Result<(), BaseFailure>) {
    let mut found: Vec<Key> = Vec::new();
    let listed = reader.keys(b"", None, &mut |key| {
        found.push(key.into());
        found.len() < most
    });
    (found, listed)
}

/// A manifest and one file that it may name, with every checksum corrected.
///
/// The input holds the manifest's length (2 bytes, little-endian), the manifest without its
/// checksum, and the file.
pub(super) const BASE_SEALED: Target = Target { name: "base_sealed", valid: any_sealed_base, check: check_sealed_base };

fn manifest_name() -> String {
    format!("base-{BASE_ID}.manifest")
}

fn any_sealed_base(random: &mut Random) -> Vec<u8> {
    let (disk, _) = any_base(random);
    let manifest = disk.contents(&manifest_name()).unwrap_or_default();
    let manifest = &manifest[..manifest.len().saturating_sub(4)];
    let names = disk.list().unwrap_or_default();
    let run = names.iter().find(|name| name.ends_with(".run")).and_then(|name| disk.contents(name)).unwrap_or_default();
    let manifest = if random.one_in(2) { damage(random, manifest.to_vec()) } else { manifest.to_vec() };
    let run = if random.one_in(2) { damage(random, run) } else { run };
    [&(manifest.len() as u16).to_le_bytes()[..], &manifest, &run].concat()
}

fn check_sealed_base(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
    let (manifest, run) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
    let (mut manifest, mut run) = (manifest.to_vec(), run.to_vec());
    seal_image(&mut run);
    let disk = SimDisk::new(1);
    // redb's file exists, is empty, and is new enough for the manifest.
    drop(Base::create(Arc::new(disk.clone()), BASE_ID, BASE_OPTIONS).expect("the disk has room"));
    let totals_bytes = manifest.get(40..44).map_or(0, |at| u32::from_le_bytes([at[0], at[1], at[2], at[3]]) as usize);
    if let Some(steps) = manifest.get_mut(totals_bytes.saturating_add(44)..totals_bytes.saturating_add(52)) {
        steps.copy_from_slice(&1_u64.to_le_bytes());
    }
    // Every file that the manifest could name has these contents, and the manifest gets their hash
    // wherever it may hold a file's id.
    let hash = run.get(96..112).unwrap_or(&[0; 16]).to_vec();
    for at in (48..manifest.len().saturating_sub(23)).rev() {
        let number = u64::from_le_bytes(manifest[at..at + 8].try_into().expect("eight bytes"));
        let is_id = number < 16 && manifest[at + 8..at + 24].iter().filter(|byte| **byte != 0).count() > 8;
        if is_id {
            manifest[at + 8..at + 24].copy_from_slice(&hash);
            put_file(&disk, &format!("base-{BASE_ID}-{number}.run"), &run);
        }
    }
    manifest.extend(crc32c::crc32c(&manifest).to_le_bytes());
    put_file(&disk, &manifest_name(), &manifest);
    let Ok(base) = open_base(&disk) else { return };
    let reader = base.reader();
    let (found, _) = keys_of(&reader, 100);
    for key in &found {
        let _ = reader.record(key);
    }
    let _ = (reader.record(b""), reader.record(b"n\xff"), base.meta(), base.file_bytes());
    for _ in 0..4 {
        if !matches!(base.merge(true), Ok(true)) {
            break;
        }
    }
    let _ = keys_of(&base.reader(), 100);
}

fn zxid(counter: u64) -> Zxid {
    Epoch::new(1).and_then(|epoch| Zxid::new(epoch, counter)).expect("a small zxid")
}

/// A map, read like a base.
struct Source<'a>(&'a BTreeMap<Key, Bytes>);

impl BaseRead for Source<'_> {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Ok(self.0.get(key).cloned())
    }

    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        let inside = |key: &&Key| ***key >= *from && to.is_none_or(|to| ***key < *to);
        let _ = self.0.keys().filter(inside).all(|key| visit(key));
        Ok(())
    }
}
