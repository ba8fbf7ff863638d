//! Golden texts: the whole answers to four-letter words, letter for letter.
//!
//! Monitoring programs parse these answers. The files are in `transport/tests/golden/words`.

use crate::ensemble_words::{leading, server};
use crate::fake::alone;
use zoolet_machine::Status;
use zoolet_model::SessionId;
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

/// Returns the status of a server that has lost its leader and serves a local session.
///
/// Session 1 is the one that the fake engine gives to the first client.
fn read_only() -> Status {
    let global = [(0x10a, 30_000), (0x10b, 4_000)];
    Status {
        role: "",
        leader: None,
        learners: Vec::new(),
        led_ms: None,
        read_only_ms: Some(122),
        local_sessions: 23,
        deadlines: Vec::new(),
        timeouts: Some(global.map(|(session, timeout_ms)| (SessionId(session), timeout_ms)).into()),
        local_deadlines: Some(vec![(4_000, SessionId(1)), (4_000, SessionId(2)), (9_000, SessionId(3))]),
        listed: vec![(SessionId(0x10b), "/a".into()), (SessionId(0x10b), "/b".into())],
        ..full()
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
    for (before, is_value) in
        [("\"uptime_ms\":", is_digit as fn(char) -> bool), ("/127.0.0.1:", is_digit), (" expire at ", is_of_date)]
    {
        if let Some((head, tail)) = line.split_once(before) {
            return format!("{head}{before}*{}", tail.trim_start_matches(is_value));
        }
    }
    line.to_owned()
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Whether a date such as `Sat Nov 21 08:23:51 UTC 2026:` has this character.
fn is_of_date(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ' ' || c == ':'
}

fn compare(name: &str, status: Status, word: &str) {
    compare_answer(name, &server(status).word(word));
}

/// Compares the answer of a server that has a client. The client's handshake has some latency.
fn compare_with_client(name: &str, status: Status, word: &str) {
    const LATENCY: &str = "Latency min/avg/max: ";
    let server = server(status);
    let _client = server.client();
    let mask = |line: &str| if line.starts_with(LATENCY) { format!("{LATENCY}*\n") } else { line.to_owned() };
    compare_answer(name, &server.word(word).split_inclusive('\n').map(mask).collect::<String>());
}

fn compare_answer(name: &str, said: &str) {
    let said = masked(said);
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

#[test]
fn words_of_a_read_only_server_with_local_sessions_have_these_lines() {
    assert_eq!(server(read_only()).word("isro"), "ro");
    compare("mntr-read-only", read_only(), "mntr");
    compare("srvr-read-only", read_only(), "srvr");
    compare("zool-read-only", read_only(), "zool");
    compare_with_client("stat-read-only", read_only(), "stat");
    compare_with_client("dump-read-only", read_only(), "dump");
}

/// A leader knows when sessions expire. It names the kinds of sessions only if it has both.
#[test]
fn dump_of_a_leader_has_these_lines() {
    let leading = |local: bool| {
        let deadlines = vec![(4_000, SessionId(0x10b)), (9_000, SessionId(1)), (9_000, SessionId(0x10a))];
        let local_deadlines = local.then(|| vec![(6_000, SessionId(2))]);
        Status { role: "leader", read_only_ms: None, deadlines, timeouts: None, local_deadlines, ..read_only() }
    };
    compare_with_client("dump-leader", leading(false), "dump");
    compare_with_client("dump-leader-local", leading(true), "dump");
}

/// A follower hears no client of another server, so it does not know when global sessions expire.
#[test]
fn dump_of_a_follower_has_these_lines() {
    let deadlines = vec![(4_000, SessionId(1))];
    let timeouts = Some([1, 0x10b].map(|session| (SessionId(session), 30_000)).into());
    let follower =
        Status { role: "follower", read_only_ms: None, deadlines, timeouts, local_deadlines: None, ..read_only() };
    compare_with_client("dump-follower", follower, "dump");
}
