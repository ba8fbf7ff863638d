//! Hostile bytes for every decoder of the engine.
//!
//! No decoder panics or accepts data that its checksum denies, and encoded values decode to the
//! same values.

use zoolet_sim::fuzz::{TARGETS, exercise};

fn all_of(name: &str, rounds: u64) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    exercise(target, 1, rounds);
}

#[test]
fn arbitrary_text_is_a_path_with_a_unique_key_or_refused() {
    all_of("path", 20_000);
}

#[test]
fn arbitrary_bytes_are_a_canonical_acl_or_refused() {
    all_of("acl", 20_000);
}

#[test]
fn arbitrary_bytes_are_an_entry_or_refused() {
    all_of("entry", 20_000);
}

#[test]
fn arbitrary_bytes_are_a_record_or_refused() {
    all_of("record", 20_000);
}

#[test]
fn arbitrary_auth_proofs_are_bounded_and_prove_only_their_identity() {
    all_of("auth", 5_000);
}

#[test]
fn arbitrary_file_is_a_log_segment_or_refused() {
    all_of("log_bytes", 300);
}

#[test]
fn arbitrary_records_with_valid_checksums_are_a_log_or_refused() {
    all_of("log_records", 1_000);
}

#[test]
fn damaged_log_returns_only_records_that_were_written() {
    all_of("log_damage", 500);
}

#[test]
fn arbitrary_file_is_an_image_or_refused() {
    all_of("image", 500);
}

#[test]
fn damaged_base_returns_only_records_that_were_written() {
    all_of("base_damage", 200);
}

#[test]
fn arbitrary_files_with_valid_checksums_are_a_base_or_refused() {
    all_of("base_sealed", 200);
}
