//! `zoolet probe`, as whoever stands before a new box runs it.

mod support;

use support::*;

#[test]
fn a_box_is_measured_nothing_is_left_and_the_profile_that_is_written_is_one() {
    let scratch = Scratch::new();
    let words = ["probe", "--data", "not/there/yet", "--peer", "127.0.0.1:1", "--out", "box.toml", "--json"];
    let ran = run(&scratch, &words);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let found: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let number = |name: &str| found[name].as_u64().unwrap_or_else(|| panic!("{name} in {found}"));
    assert!(number("sync_p50_us") <= number("sync_p99_us") && number("sync_p99_us") <= number("sync_max_us"));
    assert!(number("syncs") >= 100 && number("written_bytes") <= 40 << 20);
    assert!(found.as_object().unwrap().contains_key("device"), "null where the kernel does not say");
    assert!(found["peers"][0]["round_trip_p50_us"].as_u64().is_some());
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["box.toml"]);

    let checked = run(&scratch, &["profile", "check", "box.toml"]);
    assert!(String::from_utf8_lossy(&checked.stdout).starts_with("box.toml: fits together; "));
    let shown = run(&scratch, &["profile", "show", "box.toml", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["numbers"]["sync_p50_us"]["value"], found["sync_p50_us"]);
    assert_eq!(shown["numbers"]["sync_p50_us"]["evidence"], "measured");

    // Once more beside it, for people.
    let ran = run(&scratch, &["probe", "--data", "."]);
    let text = String::from_utf8_lossy(&ran.stdout);
    for row in [
        "data ",
        "sync ",
        "throughput ",
        "life ",
        "memory ",
        "processors ",
        "clock ",
        "A write waits for one sync",
        "The nearest profile is ",
    ] {
        assert!(text.contains(row), "{row:?} is not in {text}");
    }
}
