//! `zoolet ensemble`, `status` and `keygen`, as somebody uses them who tries zoolet for the first time.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use support::ensemble::Ensemble;
use support::*;

#[test]
fn an_ensemble_starts_survives_its_leader_and_finds_its_data_again() {
    let scratch = Scratch::new();
    let mut ensemble = Ensemble::start(&scratch);
    let servers = ensemble.servers();
    let healthy = run(&scratch, &["status", "--server", &servers, "--json"]);
    assert_eq!(healthy.status.code(), Some(0), "{healthy:?}");
    let json = String::from_utf8(healthy.stdout).unwrap();
    for part in [r#""role":"leader""#, r#""linked":true"#, r#""alarms":[]"#, r#""error":null"#] {
        assert!(json.contains(part), "{part} in {json}");
    }
    Client::connect(ensemble.clients[1]).create("/kept", b"yes").unwrap();

    let leader = ensemble.processes.iter().position(|(_, leads)| *leads).unwrap();
    Ensemble::signal(ensemble.processes[leader].0, "KILL");
    let news = ensemble.line().unwrap();
    assert!(news.starts_with("server ") && news.ends_with(" leads now\n"), "{news}");
    let survivor = ensemble.clients[(leader + 1) % 3];
    assert_eq!(Client::connect(survivor).get("/kept").unwrap().as_deref(), Some(&b"yes"[..]));
    let alarmed = run(&scratch, &["status", "--server", &servers]);
    assert_eq!(alarmed.status.code(), Some(1), "{alarmed:?}");
    assert!(String::from_utf8_lossy(&alarmed.stderr).contains("1 server does not answer"), "{alarmed:?}");

    Ensemble::signal(ensemble.child.id(), "TERM");
    assert!(ensemble.child.wait().unwrap().success());
    assert!(ensemble.is_gone(), "it waits for its servers");
    let again = Ensemble::try_start(&scratch, &[]).unwrap();
    assert_eq!(again.servers(), servers);
    assert_eq!(Client::connect(again.clients[leader]).get("/kept").unwrap().as_deref(), Some(&b"yes"[..]));
}

#[test]
fn servers_end_with_the_command_however_it_ends() {
    let scratch = Scratch::new();
    let mut ensemble = Ensemble::start(&scratch);
    ensemble.child.kill().unwrap();
    ensemble.child.wait().unwrap();
    eventually("its servers are gone", || ensemble.is_gone());
}

#[test]
fn what_it_cannot_do_is_one_line() {
    let scratch = Scratch::new();
    let ensemble = Ensemble::start(&scratch);
    for (arguments, code, expected) in [
        (&["ensemble"][..], 1, "is the ensemble running already?"),
        (
            &["ensemble", "--servers", "5"],
            2,
            "holds an ensemble that has 3; leave the option out, or give another --data",
        ),
        (&["ensemble", "--servers", "1", "--data", "one"], 2, "a server alone is zoolet serve"),
        (&["status", "--server", "127.0.0.1:1"], 1, "1 server does not answer"),
        (&["keygen", "--server", "absent"], 2, "allowed is a data directory that exists"),
    ] {
        let output = run(&scratch, arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && line.contains(expected), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    drop(ensemble);
}

/// The two commands that `serve` says are the ones that help.
#[test]
fn a_site_key_is_made_as_serve_says() {
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
