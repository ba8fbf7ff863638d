//! Wear of the medium, as an operator sees it.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::support::*;
use zoolet_model::CreateKind;

/// A budget that the first writes of a test exceed; the medium would last ten years with it.
const TINY: &str = "title = \"a small one\"\nmedia = \"emmc\"\nmemory = \"128m\"\nnetwork = \"lan\"\n\
    [overrides.flash_bytes_per_day]\nvalue = \"1 MB\"\nreason = \"a test\"\nevidence = \"modelled\"\nsource = \"nowhere\"\n";

fn status(server: &Server) -> serde_json::Value {
    serde_json::from_str(&server.word("zool")).unwrap()
}

fn alarms(status: &serde_json::Value) -> Vec<String> {
    let alarms = status["alarms"].as_array().unwrap().iter();
    let what = alarms.map(|alarm| alarm["what"].as_str().unwrap().to_owned());
    // Ignores alarms about the speed of the test machine's disk.
    what.filter(|what| what.contains("flash")).collect()
}

#[test]
fn flash_budget_overrun_alarms_in_all_reports_and_blocks_no_write() {
    let scratch = Scratch::new();
    let profile = scratch.join("box.toml");
    std::fs::write(&profile, TINY).unwrap();
    let toml = format!("profile = \"{}\"\nfour_letter_words = [\"*\"]\n", profile.display());
    let server = Server::start_logging(&scratch, &toml);
    assert!(server.word("conf").contains("zoolet.flash_bytes_per_day=1 MB (modelled, "), "{}", server.word("conf"));
    let before = status(&server);
    assert_eq!((alarms(&before), &before["flash"]["over_budget"]), (vec![], &false.into()));
    assert_eq!(before["flash"]["budget_bytes_per_day"], 1_000_000);

    let mut client = server.client();
    for number in 0..80 {
        client.ask(&create(&format!("/{number}"), b"data", CreateKind::Persistent)).unwrap();
    }
    let after = status(&server);
    let flash = &after["flash"];
    assert_eq!(flash["over_budget"], true);
    let alarms = alarms(&after);
    assert!(alarms.len() == 1 && alarms[0].starts_with("flash writes exceed the budget: "), "{alarms:?}");
    assert!(alarms[0].contains("budget 1.00 MB a day; largest cause since the start: "), "{alarms:?}");
    // The writes came one at a time, so each took a block, and the log's count covers all of it.
    let log_bytes = |status: &serde_json::Value| status["flash"]["written_bytes"]["log"].as_u64().unwrap();
    assert!(log_bytes(&after) - log_bytes(&before) >= 80 * 4096, "{before}, {after}");
    let figures = ["log_entry_bytes", "log_fact_bytes", "log_padding_bytes"].map(|name| server.figure(name));
    assert_eq!(server.figure("flash_log_bytes"), figures.iter().sum::<u64>());
    assert_eq!(server.figure("flash_prepared_bytes"), server.figure("log_prepared_bytes"));
    assert!(flash["amplification_percent"].as_u64().unwrap() > 1000, "{flash}");
    assert_eq!((server.figure("flash_over_budget"), &flash["bytes_per_day"]), (1, &serde_json::Value::Null));

    // The alarm is logged once for any number of queries, and writes go on.
    for _ in 0..3 {
        status(&server);
    }
    client.ask(&create("/more", b"", CreateKind::Persistent)).unwrap();
    let log = server.log();
    assert_eq!(log.matches("flash writes exceed the budget").count(), 1, "{log}");
    let asked = run(&scratch, &["status", "--server", &server.address.to_string()]);
    let shown = String::from_utf8_lossy(&asked.stdout);
    assert!(shown.contains("\n  flash: log ") && shown.contains("; budget 1.00 MB a day"), "{shown}");
    assert!(shown.contains("\n  ALARM: flash writes exceed the budget"), "{shown}");
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
}
