//! Golden texts: the whole answers to four-letter words, letter for letter.
//!
//! Monitoring programs parse these answers. The files are in `transport/tests/golden/words`.

use crate::ensemble_words::{leading, server};
use crate::fake::alone;
use zoolet_machine::Status;
use zoolet_transport::client_port::metrics::METRICS;

/// Keys whose values differ from run to run.
const VOLATILE: [&str; 5] = [
    "zk_uptime",
    "zk_open_file_descriptor_count",
    "zk_max_file_descriptor_count",
    "zk_budget_connection_bytes",
    "zk_budget_connection_bytes_peak",
];

/// Returns a leader's status with a different number in each field that a word shows.
fn full() -> Status {
    let of_driver = METRICS.iter().filter(|metric| metric.is_of_driver());
    let disk = of_driver.map(|metric| metric.name).zip(1001..).collect();
    Status {
        disk,
        znodes: 101,
        watches: 102,
        ephemerals: 103,
        data_bytes: 104,
        sessions: 105,
        sessions_expired: 106,
        sessions_refused: 107,
        sessions_refused_of_address: 108,
        local_sessions_displaced: 122,
        super_guesses: 109,
        writes_acknowledged: 110,
        quotas: 119,
        quotas_counting: 120,
        quota_refusals: [("app".into(), 121)].into(),
        unapplied: 111,
        checkpoints: 112,
        checkpoints_failed: 113,
        fetches: 114,
        sessions_max: 115,
        behind: 116,
        behind_ms: 117,
        refusing_writes: Some("the disk is full"),
        digest: 0xfeed,
        held: vec![(zoolet_machine::budget::Part::Watches, 118)],
        ..leading()
    }
}

/// Replaces values that differ from run to run by `*`.
fn masked(text: &str) -> String {
    text.split_inclusive('\n').map(masked_line).collect()
}

fn masked_line(line: &str) -> String {
    if let Some((key, _)) = line.split_once('\t').filter(|(key, _)| VOLATILE.contains(key)) {
        return format!("{key}\t*\n");
    }
    let uptime = "\"uptime_ms\":";
    match line.split_once(uptime) {
        Some((before, after)) => format!("{before}{uptime}*{}", after.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => line.to_owned(),
    }
}

fn compare(name: &str, status: Status, word: &str) {
    let said = masked(&server(status).word(word));
    let file = format!("{}/tests/golden/words/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ZOOLET_WRITE").is_some() {
        std::fs::write(&file, &said).unwrap();
    }
    assert_eq!(
        said,
        std::fs::read_to_string(&file).unwrap(),
        "after an intended change, write {file} anew: ZOOLET_WRITE=1 cargo test -p zoolet-transport --test port golden::"
    );
}

#[test]
fn mntr_of_a_leader_has_these_lines() {
    compare("mntr-leader", full(), "mntr");
}

#[test]
fn mntr_of_a_follower_has_these_lines() {
    compare("mntr-follower", Status { role: "follower", learners: Vec::new(), led_ms: None, ..full() }, "mntr");
}

/// The driver leaves out what it does not know, and an idle leader has proposed nothing.
#[test]
fn mntr_of_a_server_that_knows_little_has_these_lines() {
    compare("mntr-standalone", alone(), "mntr");
}

#[test]
fn srvr_and_conf_of_a_leader_have_these_lines() {
    compare("srvr-leader", full(), "srvr");
    compare("conf-leader", full(), "conf");
}

#[test]
fn zool_has_these_fields() {
    compare("zool-leader", full(), "zool");
    compare("zool-standalone", alone(), "zool");
}
