//! `zoolet probe`, as an operator runs it on a new machine.

use crate::support::*;

#[test]
fn probe_writes_a_valid_profile_and_leaves_no_other_file() {
    let scratch = Scratch::new();
    let words = ["probe", "--data", "not-there-yet", "--peer", "127.0.0.1:1", "--out", "box.toml", "--json"];
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
    // The announced number of bytes is no less than the number written.
    let stderr = String::from_utf8(ran.stderr).unwrap();
    let announced = stderr
        .strip_prefix("zoolet: writes up to ")
        .and_then(|rest| rest.split(' ').next())
        .unwrap_or_else(|| panic!("{stderr}"));
    assert!(number("written_bytes") <= announced.parse().unwrap(), "{stderr}");
    assert!(number("aes_128_gcm_bytes_per_second") > 0 && number("chacha20_poly1305_bytes_per_second") > 0);

    let checked = run(&scratch, &["profile", "check", "box.toml"]);
    assert!(String::from_utf8_lossy(&checked.stdout).starts_with("box.toml: valid: at most "));
    let shown = run(&scratch, &["profile", "show", "box.toml", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["numbers"]["sync_p50_us"]["value"], found["sync_p50_us"]);
    assert_eq!(shown["numbers"]["sync_p50_us"]["evidence"], "measured");

    // A second run, with output for people.
    let ran = run(&scratch, &["probe", "--data", "."]);
    let text = String::from_utf8_lossy(&ran.stdout);
    for row in [
        "data ",
        "sync ",
        "throughput ",
        "life ",
        "memory ",
        "written ",
        "processors ",
        "encryption ",
        "clock ",
        "rtc ",
        "Writes: each waits for one sync",
        "Elections: ",
        "The nearest profile is ",
    ] {
        assert!(text.contains(row), "{row:?} is not in {text}");
    }
}

/// A refused probe prints one line and writes nothing.
#[test]
fn refused_probe_prints_one_line_and_writes_no_file() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("file"), "").unwrap();
    let many: Vec<&str> = std::iter::once("probe").chain(["--peer", "gw-a"].repeat(17)).collect();
    for (words, expected) in [
        (&["probe", "--data", "file"][..], (2, "zoolet: --data = file: is not a directory")),
        (&many, (2, "zoolet: --peer: at most 16 are allowed")),
        // It must be refused before the measurement, not after it.
        (
            &["probe", "--peer", "gw-a:udp"],
            (2, "zoolet: --peer = gw-a:udp: allowed is HOST:PORT, or HOST alone for port 2888"),
        ),
    ] {
        let (code, line) = refusal(&scratch, words);
        assert_eq!((code, line.as_str()), expected);
    }
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
}

/// A probe that is killed leaves nothing behind.
#[test]
fn killed_probe_leaves_no_file() {
    let scratch = Scratch::new();
    let mut probe =
        zoolet(&["probe"]).current_dir(scratch.path()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(probe.stderr.take().unwrap()), &mut line).unwrap();
    assert!(line.starts_with("zoolet: writes up to "), "{line}");
    probe.kill().unwrap();
    probe.wait().unwrap();
    let is_empty = || std::fs::read_dir(scratch.path()).unwrap().next().is_none();
    let patience = std::time::Instant::now() + PATIENCE;
    while !is_empty() {
        assert!(std::time::Instant::now() < patience, "something is left");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// The power failed during a probe, before the first start.
#[test]
fn leftover_probe_file_does_not_prevent_the_first_start() {
    let scratch = Scratch::new();
    let data = scratch.join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("zoolet-probe.tmp"), "noise").unwrap();
    // The start fails the test unless the server reports its address.
    drop(Server::start(&scratch));
    // The next probe removes the file.
    assert!(run(&scratch, &["probe", "--data", "data"]).status.success());
    assert!(!data.join("zoolet-probe.tmp").exists());
}
