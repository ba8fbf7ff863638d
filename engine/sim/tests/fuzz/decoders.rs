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
fn any_text_is_a_path_with_its_own_key_or_none() {
    all_of("path", 20_000);
}

#[test]
fn any_bytes_are_an_acl_in_its_only_form_or_none() {
    all_of("acl", 20_000);
}

#[test]
fn any_bytes_are_an_entry_or_none() {
    all_of("entry", 20_000);
}

#[test]
fn any_bytes_are_a_record_or_none() {
    all_of("record", 20_000);
}

#[test]
fn any_proof_is_bounded_and_proves_no_more_than_it_says() {
    all_of("auth", 5_000);
}

#[test]
fn any_file_is_a_segment_of_a_log_or_refused() {
    all_of("log_bytes", 300);
}

#[test]
fn any_records_behind_right_checksums_are_a_log_or_refused() {
    all_of("log_records", 1_000);
}

#[test]
fn a_log_that_a_disk_damaged_shows_nothing_but_what_was_written() {
    all_of("log_damage", 500);
}

#[test]
fn any_file_is_an_image_or_refused() {
    all_of("image", 500);
}

#[test]
fn a_base_that_a_disk_damaged_shows_nothing_but_what_was_written() {
    all_of("base_damage", 200);
}

#[test]
fn any_files_behind_right_checksums_are_a_base_or_refused() {
    all_of("base_sealed", 200);
}
