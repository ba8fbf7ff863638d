//! Formats the status of servers for people.

use super::Answer;
use serde_json::Value;
use std::fmt::Write;
use zoolet_machine::status::Cause;
use zoolet_machine::wear::shown_bytes;

/// Minimum bytes of entries for a meaningful write amplification: some hundred log blocks.
const ENTRY_BYTES_MIN: u64 = 64 << 10;

/// Formats one paragraph per server: its own line, a line per peer, and the alarms.
pub(super) fn text(answers: &[Answer]) -> String {
    let mut out = String::new();
    for answer in answers {
        match &answer.status {
            Ok(status) => server(&mut out, &answer.address, status),
            Err(why) => {
                let _ = writeln!(out, "{}: {why}", answer.address);
            }
        }
    }
    out
}

fn server(out: &mut String, address: &str, status: &Value) {
    let disk = &status["disk"];
    // A maximum of 0 means that no sync has happened yet.
    let has_synced = disk["fdatasync_max_us"] != 0;
    let ms = |name: &str| if has_synced { milliseconds(&disk[name]) } else { "-".to_owned() };
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{address}: server {}, {}{}; epoch {}, zxid {}, {} behind; {} sessions, {} connections, {} znodes; fdatasync p50 {} p99 {} max {} ms",
        status["server"],
        word(&status["role"]),
        leader(status),
        shown(&status["epoch"]),
        word(&status["zxid"]),
        shown(&status["behind"]),
        shown(&status["sessions"]),
        shown(&status["connections"]),
        shown(&status["znodes"]),
        ms("fdatasync_p50_us"),
        ms("fdatasync_p99_us"),
        ms("fdatasync_max_us"),
    );
    flash(out, &status["flash"]);
    for one in items(&status["peers"]) {
        peer(out, status, one);
    }
    for alarm in items(&status["alarms"]) {
        let _ = writeln!(out, "  ALARM: {}\n    {}", word(&alarm["what"]), word(&alarm["remedy"]));
    }
}

/// Formats the bytes written to the medium and its life, if the server reports them.
fn flash(out: &mut String, flash: &Value) {
    let Some(written) = flash["written_bytes"].as_object() else { return };
    let of = |cause: Cause| written.get(cause.name()).and_then(Value::as_u64).filter(|bytes| *bytes > 0);
    let by_cause =
        Cause::ALL.into_iter().filter_map(|cause| Some(format!("{} {}", cause.name(), shown_bytes(of(cause)?))));
    let by_cause = by_cause.collect::<Vec<_>>().join(", ");
    let _ = write!(out, "  flash: {}", if by_cause.is_empty() { "nothing written yet" } else { &by_cause });
    let number = |name: &str| flash[name].as_u64();
    // With few entries the figure is meaningless: each had a block for itself.
    let is_much = number("entry_bytes").is_some_and(|bytes| bytes >= ENTRY_BYTES_MIN);
    if let Some(percent) = number("amplification_percent").filter(|_| is_much) {
        let _ = write!(out, "; write amplification {}.{}", percent / 100, percent / 10 % 10);
    }
    if let Some(bytes) = number("bytes_per_day") {
        let minutes = number("window_ms").unwrap_or(0) / 60_000;
        let _ = write!(out, "; {} a day, from the last {} h {} min", shown_bytes(bytes), minutes / 60, minutes % 60);
    }
    if let Some(days) = number("life_days") {
        let _ = match days {
            0..365_250 => write!(out, ": a new medium lasts {}.{} years", days * 4 / 1461, days * 40 / 1461 % 10),
            _ => write!(out, ": a new medium lasts 1,000 years or more"),
        };
    }
    if let Some(budget) = number("budget_bytes_per_day").filter(|budget| *budget > 0) {
        let _ = write!(out, "; budget {} a day", shown_bytes(budget));
    }
    let device = &flash["device"];
    if let Some(name) = device["name"].as_str() {
        let used = device["used_percent"].as_u64().map_or("unknown".to_owned(), |used| format!("{used} %"));
        let _ = write!(out, "; {name}: life used {used}, spare blocks {}", word(&device["spare"]));
    }
    out.push('\n');
}

/// Returns the leader of a follower or an observer; empty for other roles.
fn leader(status: &Value) -> String {
    match (word(&status["role"]), &status["leader"]) {
        ("follower" | "observer", leader) if !leader.is_null() => format!(" of server {leader}"),
        _ => String::new(),
    }
}

/// Age in milliseconds above which a round trip is hidden, and a zxid is shown with its age.
///
/// Either may no longer hold.
const FRESH_MS: u64 = 1_000;

/// Formats a peer: its reported state, its link, and its lag.
fn peer(out: &mut String, status: &Value, peer: &Value) {
    let of_peer = |list: &str| items(&status[list]).iter().find(|one| one["id"] == peer["id"]);
    let link = if peer["linked"] == true {
        let round_trip = format!("round trip {} ms", milliseconds(&peer["round_trip_us"]));
        match peer["heard_ms"].as_u64() {
            // An older release does not report `heard_ms`.
            None => round_trip,
            Some(ms @ ..=FRESH_MS) => format!("heard {} s ago, {round_trip}", tenths(ms)),
            Some(ms) => format!("heard {} s ago", tenths(ms)),
        }
    } else {
        match peer["refusal"].as_str() {
            Some(why) => format!("no link: {why}"),
            None => "no link".to_owned(),
        }
    };
    let is_heard = |within_ms| peer["linked"] == true && peer["heard_ms"].as_u64().is_none_or(|ms| ms <= within_ms);
    let lag = match of_peer("learners").filter(|_| is_heard(2_000)) {
        Some(learner) if learner["synced"] == true => format!(", {} behind", learner["behind"]),
        Some(_) => ", catching up".to_owned(),
        None => String::new(),
    };
    // Learners exchange messages only every 2 s, so a state of 3.5 s ago is recent.
    let said = of_peer("site").filter(|_| is_heard(3_500)).map_or(String::new(), |said| {
        let refusal = said["refusal"].as_str().map_or(String::new(), |why| format!(", {why}"));
        let disk: String = items(&said["disk"]).iter().map(|trouble| format!(", {}", word(trouble))).collect();
        // The report may be older than the loss of that leader.
        let is_not_followed = said["role"] == "leader" && status["leader"] != peer["id"];
        // While nothing changes, a server says nothing new.
        let is_old = |ms: &u64| *ms > FRESH_MS && said["zxid"] != status["zxid"];
        let age = said["said_ms"].as_u64().filter(|ms| is_not_followed || is_old(ms));
        let age = age.map_or(String::new(), |ms| format!(" ({} s old)", tenths(ms)));
        format!("{}, zxid {}{age}{refusal}{disk}; ", word(&said["role"]), word(&said["zxid"]))
    });
    let _ = writeln!(out, "  server {} {}: {said}{link}{lag}", peer["id"], word(&peer["address"]));
}

/// Formats milliseconds as seconds with one decimal.
fn tenths(ms: u64) -> String {
    format!("{}.{}", ms / 1000, ms / 100 % 10)
}

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// Formats a number; a stuck server reports null.
fn shown(value: &Value) -> String {
    if value.is_null() { "-".to_owned() } else { value.to_string() }
}

fn milliseconds(us: &Value) -> String {
    us.as_u64().map_or("-".to_owned(), |us| format!("{}.{}", us / 1000, us / 100 % 10))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{answer, leader};
    use super::*;
    use serde_json::json;

    #[test]
    fn server_is_shown_on_one_line_above_its_peers_and_alarms() {
        let mut status = leader();
        status["alarms"] = json!([{"what": "the disk is slow", "remedy": "another medium"}]);
        let shown = text(&[answer(Ok(status)), answer(Err("refused"))]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                "127.0.0.1:2181: server 2, leader; epoch 3, zxid 0x30000000010, 0 behind; 1 sessions, 2 connections, 5 znodes; \
                 fdatasync p50 0.2 p99 0.9 max 12.0 ms",
                "  server 1 127.0.0.1:2888: follower, zxid 0x3000000000f (9.0 s old), the disk is full, its disk is slow; heard 0.3 s ago, round trip 0.1 ms, 7 behind",
                "  ALARM: the disk is slow",
                "    another medium",
                "127.0.0.1:2181: refused",
            ]
        );
    }

    #[test]
    fn silent_peer_is_shown_without_round_trip_and_lag() {
        let mut status = leader();
        status["peers"][0]["heard_ms"] = json!(4_260);
        let shown = text(&[answer(Ok(status.clone()))]);
        assert!(shown.contains("  server 1 127.0.0.1:2888: heard 4.2 s ago\n"), "{shown}");
        status["peers"][0]["heard_ms"] = json!(300);
        status["site"][0]["zxid"] = status["zxid"].clone();
        let shown = text(&[answer(Ok(status.clone()))]);
        assert!(shown.contains("follower, zxid 0x30000000010, the disk is full"), "of any age: {shown}");
        status["site"][0]["role"] = json!("leader");
        status["site"][0]["said_ms"] = json!(800);
        let shown = text(&[answer(Ok(status.clone()))]);
        assert!(shown.contains("leader, zxid 0x30000000010 (0.8 s old), the disk is full"), "another leads: {shown}");
        status["leader"] = json!(1);
        let shown = text(&[answer(Ok(status.clone()))]);
        assert!(shown.contains("leader, zxid 0x30000000010, the disk is full"), "it leads: {shown}");
        status["peers"][0]["heard_ms"] = Value::Null;
        status["site"] = json!([]);
        let shown = text(&[answer(Ok(status))]);
        assert!(shown.contains("  server 1 127.0.0.1:2888: round trip 0.1 ms, 7 behind\n"), "{shown}");
    }

    #[test]
    fn flash_line_shows_bytes_by_cause_daily_rate_and_projected_life() {
        let mut status = leader();
        status["peers"] = json!([]);
        status["flash"] = json!({
            "written_bytes": {"log": 8192, "prepared": 67_108_864, "base": 0}, "entry_bytes": 102_400, "amplification_percent": 804,
            "window_ms": 5_400_000, "window_bytes": 8192, "bytes_per_day": 131_072, "budget_bytes_per_day": 1_600_000_000,
            "over_budget": false, "life_days": 3653, "device": {"name": "mmcblk0", "used_percent": 10, "spare": "normal"},
        });
        let line = |status: &Value| text(&[answer(Ok(status.clone()))]).lines().nth(1).unwrap().to_owned();
        assert_eq!(
            line(&status),
            "  flash: log 8.19 kB, prepared 67.1 MB; write amplification 8.0; 131 kB a day, from the last 1 h 30 min: a new medium lasts \
             10.0 years; budget 1.60 GB a day; mmcblk0: life used 10 %, spare blocks normal"
        );
        status["flash"]["entry_bytes"] = json!(1024);
        assert!(!line(&status).contains("amplification"), "{}", line(&status));
        for unknown in ["bytes_per_day", "life_days", "device", "amplification_percent"] {
            status["flash"][unknown] = Value::Null;
        }
        assert_eq!(line(&status), "  flash: log 8.19 kB, prepared 67.1 MB; budget 1.60 GB a day");
        status["flash"]["written_bytes"] = json!({"log": 0});
        assert_eq!(line(&status), "  flash: nothing written yet; budget 1.60 GB a day");
    }

    #[test]
    fn peer_without_a_link_is_shown_with_the_reason() {
        let mut status = leader();
        status["role"] = json!("follower");
        status["learners"] = json!([]);
        status["peers"][0]["linked"] = json!(false);
        status["peers"][0]["refusal"] = json!("no UDP reply");
        status["site"] = json!([]);
        let shown = text(&[answer(Ok(status))]);
        assert!(shown.contains(", follower of server 2;"), "{shown}");
        assert!(shown.contains("\n  server 1 127.0.0.1:2888: no link: no UDP reply\n"), "{shown}");
    }

    #[test]
    fn stuck_server_is_shown_with_its_alarms() {
        let stuck = json!({"version": 1, "server": 1, "role": "stuck", "alarms": [{"what": "w", "remedy": "r"}]});
        let shown = text(&[answer(Ok(stuck))]);
        assert!(
            shown.starts_with("127.0.0.1:2181: server 1, stuck; epoch -, zxid -") && shown.contains("ALARM: w"),
            "{shown}"
        );
    }
}
