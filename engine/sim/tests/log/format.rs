//! The log's bytes, as docs/reference/formats.md specifies them.
//!
//! A release must read the logs of the previous one.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::LogRecord;
use zoolet_model::Zxid;
use zoolet_sim::disk::SimDisk;
use zoolet_store::Strategy;
use zoolet_store::disk::Disk;
use zoolet_store::log::{Facts, Log, Receiving};

/// Returns a part of seg-00.log in hex, 16 bytes a line.
///
/// Trailing zeroes are left out.
fn hex(disk: &SimDisk, at: usize, end: usize) -> String {
    let contents = disk.contents("seg-00.log").unwrap();
    let block = &contents[at..end];
    let used = block.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let lines = block[..used].chunks(16);
    lines.map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n").collect()
}

fn assert_golden(found: &str, golden: &str) {
    let golden: String = golden
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(found, golden, "\n{found}");
}

#[test]
fn golden_bytes_of_the_facts_in_a_segments_first_batch() {
    let disk = SimDisk::new(1);
    let mut facts = Facts {
        accepted: epoch(0x22),
        current: epoch(0x21),
        config_committed: Bytes::from_static(b"one"),
        config_last_seen: Bytes::from_static(b"three"),
        base_id: 0x33,
        receiving: Some(Receiving { zxid: zxid(0x23, 0x44), base_id: 0x34 }),
        watermark: zxid(0x20, 1),
        last: zxid(0x20, 2),
        chain: 0x5555,
        cuts: 0x66,
        ..birth()
    };
    for entry in [zxid(0x11, 0), zxid(0x20, 0), zxid(0x20, 1), zxid(0x20, 2)] {
        facts.spans.push(entry);
    }
    Log::create(Arc::new(disk.clone()), small(Strategy::Append), facts.clone()).unwrap();
    assert_golden(
        &hex(&disk, 0, 4096),
        "
        7a6c6f67b475180b01000100a0000000
        01000000000000000100000000000000
        01000000002000000200000000200000
        55550000000000000000000000000000
        9b0000000121436587a9cbed0ff0debc
        9a785634120700000000000000000000
        00000000002200000021000000330000
        00000000000144000000002300003400
        00000000000001000000002000000200
        00000020000055550000000000000000
        00000000000066000000000000000200
        11000000000000000000000020000000
        0200000000000000030000006f6e6505
        0000007468726565
        ",
    );
    assert_eq!(open(&disk, small(Strategy::Append)).1.facts, facts);
}

#[test]
fn golden_bytes_of_each_log_record_kind() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Append));
    let payload = Bytes::from_static(b"zoolet");
    let records = vec![
        LogRecord::Birth { ensemble: 7 },
        LogRecord::Promise(epoch(0x10)),
        LogRecord::Epoch(epoch(0x10)),
        LogRecord::Entry { zxid: zxid(0x10, 0), payload: payload.clone() },
        LogRecord::Config { committed: Bytes::from_static(b"a"), last_seen: Bytes::from_static(b"bc") },
        LogRecord::SnapBegin { zxid: zxid(0x12, 0x34), base: 2 },
    ];
    append(&mut log, records, zxid(0x10, 0)).unwrap();
    assert_golden(
        &hex(&disk, 4096, 8192),
        "
        7a6c6f672122a855010000005f000000
        01000000000000000100000000000000
        00000000001000000000000000000000
        00000000000000000000000000000000
        10000000090700000000000000000000
        00000000000400000003100000000400
        000004100000000e0000000200000000
        001000007a6f6f6c65740b0000000601
        00000061020000006263100000000734
        0000000012000002
        ",
    );
    let entry = LogRecord::Entry { zxid: zxid(0x10, 1), payload };
    append(&mut log, vec![entry], Zxid::ZERO).unwrap();
    append(&mut log, vec![LogRecord::Truncate { to: zxid(0x10, 0) }], Zxid::ZERO).unwrap();
    assert_golden(
        &hex(&disk, 12288, 16384),
        "
        7a6c6f67bb033774010000001d000000
        01000000000000000800000000000000
        00000000001000000100000000100000
        97aaed4ed39049bada0eec183b16f273
        1800000005000000000010000038aede
        1789ba59cd8cc00b8653745e52
        ",
    );
}

#[test]
fn golden_bytes_of_a_snapshot_end() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Append));
    append(&mut log, vec![LogRecord::SnapBegin { zxid: zxid(0x12, 0x34), base: 2 }], Zxid::ZERO).unwrap();
    let end = LogRecord::SnapEnd { base: 2, zxid: zxid(0x12, 0x34), chain: 0xabcd };
    append(&mut log, vec![end], Zxid::ZERO).unwrap();
    assert_golden(
        &hex(&disk, 8192, 12288),
        "
        7a6c6f678517f6620100000025000000
        01000000000000000200000000000000
        34000000001200000000000000000000
        00000000000000000000000000000000
        20000000080200000000000000340000
        0000120000cdab
        ",
    );
}

#[test]
fn golden_bytes_of_a_segment_end_and_the_recorded_file_size() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(0x10), Zxid::ZERO).unwrap();
    append(&mut log, vec![entry(zxid(0x10, 1), 9000)], zxid(0x10, 0)).unwrap();
    assert_golden(
        &hex(&disk, 16384, 20480),
        "
        7a6c6f67629753f00100020000000000
        01000000000000000400000000000000
        00000000000000000000000000100000
        3d9620cdc1eacbcd22e4ba415fc99e37
        ",
    );
    let next = disk.contents("seg-01.log").unwrap();
    // The file's size is the last of the facts.
    let facts_bytes = u32::from_le_bytes(next[64..68].try_into().unwrap()) as usize;
    assert_eq!(next[69 + facts_bytes - 8..69 + facts_bytes], 20480u64.to_le_bytes());
}

/// A commit from before segments were ended wrote this log. Its facts lack the size of the file,
/// and its only segment holds the first batch alone.
#[test]
fn log_written_before_segment_ends_existed_opens_and_continues() {
    let disk = SimDisk::new(1);
    let old = disk.create("seg-00.log").unwrap();
    let mut batch = Vec::new();
    for line in OLD_BIRTH.lines().map(str::trim).filter(|line| !line.is_empty()) {
        batch.extend((0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()));
    }
    batch.resize(20480, 0);
    old.write_at(0, &batch).unwrap();
    old.sync().unwrap();
    disk.sync_directory().unwrap();
    let (mut log, opened) = open(&disk, small(Strategy::Recycle));
    assert_eq!(opened.facts, birth());
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..12 {
        append(&mut log, vec![entry(zxid(1, counter), 200)], Zxid::ZERO).unwrap();
    }
    let (log, _) = open(&disk, small(Strategy::Recycle));
    assert_eq!(zxids(&log, Zxid::ZERO), counters(1, 0..=11));
}

const OLD_BIRTH: &str = "
    7a6c6f67d4bf12b90100010078000000
    01000000000000000100000000000000
    00000000000000000000000000000000
    00000000000000000000000000000000
    730000000121436587a9cbed0ff0debc
    9a785634120700000000000000000000
    00000000000000000000000000000000
    00000000000000000000000000000000
    00000000000000000000000000000000
    00000000000000000000000000000000
    00000000000000000000000000000000
    0000000000000000
";

#[test]
fn golden_value_of_the_chain_hash() {
    let first = chain_after(0, zxid(1, 0), b"");
    let second = chain_after(first, zxid(1, 1), b"zoolet");
    assert_eq!(format!("{first:032x}"), "d62a6b63edccb576e879c1185d382c1c");
    assert_eq!(format!("{second:032x}"), "961cbdc31c14dd489751ef478e234605");
}
