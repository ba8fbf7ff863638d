//! `zoolet ensemble`, `status` and `keygen`, as a first-time user runs them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support::ensemble::Ensemble;
use crate::support::*;

#[test]
fn ensemble_survives_its_leader_and_keeps_data_over_a_restart() {
    let scratch = Scratch::new();
    let mut ensemble = Ensemble::start(&scratch);
    let servers = ensemble.servers();
    let healthy = run(&scratch, &["status", "--server", &servers, "--json"]);
    assert_eq!(healthy.status.code(), Some(0), "{healthy:?}");
    let json = String::from_utf8(healthy.stdout).unwrap();
    for part in [r#""role":"leader""#, r#""linked":true"#, r#""alarms":[]"#, r#""error":null"#] {
        assert!(json.contains(part), "{part} in {json}");
    }
    // All servers share this file, which names no other machine.
    let of_file = run(&scratch, &["status", "--config", "zoolet-ensemble/zoolet.toml"]);
    assert_eq!(of_file.status.code(), Some(0), "{of_file:?}");
    let text = String::from_utf8(of_file.stdout).unwrap();
    assert!(ensemble.clients.iter().all(|client| text.contains(&client.to_string())), "{text}");
    Client::connect(ensemble.clients[1]).create("/kept", b"yes").unwrap();

    let leader = ensemble.processes.iter().position(|(_, leads)| *leads).unwrap();
    Ensemble::signal(ensemble.processes[leader].0, "KILL");
    // The line ends with "serves" or "elects a leader", depending on when the other servers notice.
    let gone = format!("server {} does not answer: 2 of 3 voters answer, a majority, which ", leader + 1);
    let mut news = vec![ensemble.line().unwrap(), ensemble.line().unwrap()];
    // The order of the two lines depends on the moment of the query.
    news.sort_by_key(|line| !line.starts_with(&gone));
    assert!(
        news[0].starts_with(&gone) && news[1].starts_with("server ") && news[1].ends_with(" leads now\n"),
        "{news:?}"
    );
    let survivor = ensemble.clients[(leader + 1) % 3];
    assert_eq!(Client::connect(survivor).get("/kept").unwrap().as_deref(), Some(&b"yes"[..]));
    let alarmed = run(&scratch, &["status", "--server", &servers]);
    assert_eq!(alarmed.status.code(), Some(1), "{alarmed:?}");
    assert!(String::from_utf8_lossy(&alarmed.stderr).contains("1 server did not report its status"), "{alarmed:?}");

    let last = (leader + 1) % 3;
    Ensemble::signal(ensemble.processes[last].0, "KILL");
    let news = ensemble.line().unwrap();
    let expected = format!(
        "server {} does not answer: 1 of 3 voters answer, no majority: the ensemble does not serve\n",
        last + 1
    );
    assert_eq!(news, expected);
    let mut away = [leader + 1, last + 1];
    away.sort_unstable();
    let expected =
        format!("no leader: 1 of 3 voters answer and count, 2 are needed; not reached: {}, {}\n", away[0], away[1]);
    let left = ensemble.clients[(leader + 2) % 3].to_string();
    eventually("the last one says what it lacks", || {
        let output = run(&scratch, &["status", "--server", &left]);
        output.status.code() == Some(1) && String::from_utf8_lossy(&output.stdout).contains(&expected)
    });

    Ensemble::signal(ensemble.child.id(), "TERM");
    assert!(ensemble.child.wait().unwrap().success());
    assert!(ensemble.is_gone(), "it waits for its servers");
    let again = Ensemble::restart(&scratch);
    assert_eq!(again.servers(), servers);
    assert_eq!(Client::connect(again.clients[leader]).get("/kept").unwrap().as_deref(), Some(&b"yes"[..]));
}

#[test]
fn servers_end_when_the_ensemble_command_is_killed() {
    let scratch = Scratch::new();
    let mut ensemble = Ensemble::start(&scratch);
    ensemble.child.kill().unwrap();
    ensemble.child.wait().unwrap();
    eventually("its servers are gone", || ensemble.is_gone());
}

#[test]
fn servers_that_do_not_stop_are_named_and_killed() {
    let scratch = Scratch::new();
    let mut ensemble = Ensemble::start(&scratch);
    let frozen = ensemble.processes.iter().position(|(_, leads)| !leads).unwrap();
    Ensemble::signal(ensemble.processes[frozen].0, "STOP");
    Ensemble::signal(ensemble.child.id(), "TERM");
    eventually("the command tells what it waits for", || ensemble.errors().contains("zoolet: still running: server"));
    eventually("the two others end", || {
        let ended = |process: u32| !std::path::Path::new(&format!("/proc/{process}")).exists();
        (0..3).all(|server| server == frozen || ended(ensemble.processes[server].0))
    });
    Ensemble::signal(ensemble.child.id(), "TERM");
    assert!(ensemble.child.wait().unwrap().success());
    let errors = ensemble.errors();
    assert!(errors.ends_with(&format!("\nzoolet: killed: server {}\n", frozen + 1)), "{errors}");
}

#[test]
fn refused_ensemble_and_status_commands_print_one_line() {
    let scratch = Scratch::new();
    let ensemble = Ensemble::start(&scratch);
    for (arguments, code, expected) in [
        (&["ensemble"][..], 1, "stop the process that uses it"),
        (&["ensemble", "--servers", "5"], 2, "holds an ensemble with 3; omit the option, or give another --data"),
        (&["ensemble", "--servers", "1", "--data", "one"], 2, "for a standalone server use zoolet serve"),
        (&["status", "--server", "127.0.0.1:1"], 1, "1 server did not report its status"),
        (&["keygen", "--data", "absent"], 2, "allowed is an existing data directory"),
    ] {
        let output = run(&scratch, arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && line.contains(expected), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    drop(ensemble);
}

/// A later release may give its words another meaning, so its answer must not count as healthy.
#[test]
fn status_of_an_unsupported_version_gives_exit_code_2() {
    use std::io::{Read, Write};
    let later = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = later.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = later.accept().unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            stream.write_all(b"{\"version\":2}\n").unwrap();
        }
    });
    let scratch = Scratch::new();
    for json in [&[][..], &["--json"]] {
        let output = run(&scratch, &[&["status", "--server", &address][..], json].concat());
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains("answers with version 2 of its status, but this zoolet understands 1"), "{line}");
    }
    server.join().unwrap();
}

/// The two commands that `serve` prints repair its refusal.
#[test]
fn printed_keygen_command_makes_the_missing_site_key() {
    let scratch = Scratch::new();
    let key = scratch.join("site.key");
    let text = format!(
        "site_key_file = {key:?}\n[[server]]\nid = 1\nhost = \"192.0.2.254\"\n[[server]]\nid = 2\nhost = \"gw-b.invalid\"\n"
    );
    std::fs::write(scratch.join("zoolet.toml"), text).unwrap();
    let refused = run(&scratch, &["serve", "--config", "zoolet.toml", "--id", "1"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    let commands: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert_eq!(commands[1], format!("scp -p {0} gw-b.invalid:{0}", key.display()), "{said}");
    let words: Vec<&str> = commands[0].split(' ').collect();
    assert_eq!(words[0], "zoolet");
    assert!(run(&scratch, &words[1..]).status.success(), "{said}");
    assert!(key.exists());
}

/// The server checks its disk every few seconds, and reports the result with its health.
#[test]
fn disk_trouble_of_a_server_is_an_alarm_on_other_servers() {
    let scratch = Scratch::new();
    let mut ensemble = Ensemble::start(&scratch);
    Ensemble::signal(ensemble.child.id(), "TERM");
    assert!(ensemble.child.wait().unwrap().success());
    let budget = "title = \"a small one\"\nmedia = \"emmc\"\nmemory = \"128m\"\nnetwork = \"lan\"\n\
        [overrides.flash_bytes_per_day]\nvalue = \"1 MB\"\nreason = \"a test\"\nevidence = \"modelled\"\nsource = \"nowhere\"\n";
    let (profile, file) = (scratch.join("box.toml"), scratch.join("zoolet-ensemble/zoolet.toml"));
    std::fs::write(&profile, budget).unwrap();
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("profile = \"{}\"\n{before}", profile.display())).unwrap();
    let ensemble = Ensemble::restart(&scratch);
    let mut client = Client::connect(ensemble.clients[0]);
    // One at a time: each create takes a block of the log.
    for number in 0..80 {
        client.create(&format!("/{number}"), b"data").unwrap();
    }
    let first = ensemble.clients[0].to_string();
    eventually("the first server tells of the second one's disk", || {
        let status = run(&scratch, &["status", "--site", "--server", &first]);
        let text = String::from_utf8(status.stdout).unwrap();
        text.contains("ALARM: server 2: it writes more to its flash than the budget") && status.status.code() == Some(1)
    });
}
