//! What an init system hears of a server that it started, and what it is given to start it.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod support;

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::*;

/// The other end of what an init system listens to.
struct Init {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Init {
    fn listen(scratch: &Scratch) -> Self {
        let socket = UnixDatagram::bind(scratch.join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self { socket, heard: Vec::new() }
    }

    /// Waits until something was heard so often.
    fn hears(&mut self, what: &str, times: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        let mut buffer = [0; 4096];
        while self.heard.iter().filter(|line| line.contains(what)).count() < times {
            assert!(
                Instant::now() < until,
                "{what:?} was not heard {times} times, but at last {:?}",
                self.heard.last()
            );
            if let Ok(length) = self.socket.recv(&mut buffer) {
                self.heard.extend(String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned));
            }
        }
    }
}

/// Killed when its test ends otherwise than by [`Served::terminate`].
struct Served(Child);

impl Served {
    fn terminate(mut self) {
        Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(scratch: &Scratch, toml: &str) -> Served {
    std::fs::write(scratch.join("zoolet.toml"), toml).unwrap();
    let child = zoolet(&["serve", "--config", "zoolet.toml", "--create", "--log", "error"])
        .current_dir(scratch.path())
        .env("NOTIFY_SOCKET", scratch.join("notify"))
        .env("WATCHDOG_USEC", "400000")
        .stdout(Stdio::null())
        .spawn();
    Served(child.unwrap())
}

#[test]
fn a_server_says_that_it_serves_how_it_is_and_that_it_lives() {
    let scratch = Scratch::new();
    let mut init = Init::listen(&scratch);
    let server = serve(&scratch, "clients = \"127.0.0.1:0\"\n");
    init.hears("READY=1", 1);
    init.hears("STATUS=standalone, 0 sessions", 1);
    init.hears("WATCHDOG=1", 3);
    server.terminate();
    init.hears("STOPPING=1", 1);
}

/// Whoever waited for a quorum would wait for boxes that wait for this one.
#[test]
fn a_server_without_a_quorum_is_ready_and_says_who_is_missing() {
    let scratch = Scratch::new();
    let mut init = Init::listen(&scratch);
    let servers: String =
        (1..=3).map(|id| format!("[[server]]\nid = {id}\nhost = \"127.0.0.1:{}\"\n", 2900 + id)).collect();
    let server = serve(&scratch, &format!("id = 1\npeers = \"127.0.0.1:0\"\nclients = \"127.0.0.1:0\"\n{servers}"));
    init.hears("READY=1", 1);
    init.hears("STATUS=no leader: the ensemble begins when all 3 voters have met once; not reached: 2, 3", 1);
    server.terminate();
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("zoolet.toml"), "data = \"d\"\nprofile = \"sd-a1/128m\"\n").unwrap();
    let checked = run(&scratch, &["serve", "--check", "--config", "zoolet.toml"]);
    assert!(checked.status.success());
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(said, "nothing is wrong with it: data in d, profile sd-a1/128m\n");
    assert!(!scratch.join("d").exists());
    let (code, line) = {
        std::fs::write(scratch.join("zoolet.toml"), "profile = \"sd-a1\"\n").unwrap();
        refusal(&scratch, &["serve", "--check", "--config", "zoolet.toml"])
    };
    assert!(code == 2 && line.contains("zoolet.toml:1: profile = sd-a1: allowed is media/memory"), "{code} {line}");
}

#[test]
fn what_a_start_would_refuse_is_found_by_the_check() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("site.key"), "not a key\n").unwrap();
    let servers = "id = 1\n[[server]]\nid = 1\nhost = \"gw-a\"\n[[server]]\nid = 2\nhost = \"gw-b\"\n[[server]]\nid = 3\nhost = \"gw-c\"\n";
    for (toml, expected) in [
        (
            "last_known_good = { subtree = \"/conf\", path = \"/nowhere/conf.image\" }\n".to_owned(),
            "/nowhere/conf.image",
        ),
        (format!("site_key_file = \"site.key\"\n{servers}"), "site.key"),
    ] {
        std::fs::write(scratch.join("zoolet.toml"), toml).unwrap();
        let checked = refusal(&scratch, &["serve", "--check", "--config", "zoolet.toml"]);
        assert!(checked.0 == 2 && checked.1.contains(expected), "{checked:?}");
        let started = refusal(&scratch, &["serve", "--create", "--data", "d", "--config", "zoolet.toml"]);
        assert_eq!(checked, started, "the start says it in other words");
    }
}

#[test]
fn what_init_systems_are_given_starts_this_binary() {
    let scratch = Scratch::new();
    let printed = run(&scratch, &["unit", "systemd", "--binary", "/usr/bin/zoolet"]);
    let unit = String::from_utf8(printed.stdout).unwrap();
    let has = |line: &str| assert!(unit.lines().any(|said| said == line), "{line} is not in {unit}");
    has("ExecStart=/usr/bin/zoolet serve --config /etc/zoolet/zoolet.toml");
    has("Type=notify");
    has("Restart=always");
    let printed = run(&scratch, &["unit", "procd", "--binary", "/usr/bin/zoolet", "--config", "/etc/z.toml"]);
    std::fs::write(scratch.join("zoolet.sh"), &printed.stdout).unwrap();
    let script = String::from_utf8(printed.stdout).unwrap();
    assert!(script.contains("procd_set_param command /usr/bin/zoolet serve --config /etc/z.toml\n"), "{script}");
    // It is a script.
    assert!(Command::new("sh").arg("-n").arg(scratch.join("zoolet.sh")).status().unwrap().success());
}
