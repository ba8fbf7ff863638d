//! Messages of a server to the init system, and the units that start it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, and tell what they could not do")]

use crate::support::*;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The init system's end of the notification socket.
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

    /// Waits until `times` messages contain `what`.
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

/// A server, killed when its test ends without [`Served::terminate`].
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
fn server_notifies_readiness_status_watchdog_and_stop() {
    let scratch = Scratch::new();
    let mut init = Init::listen(&scratch);
    let server = serve(&scratch, "clients = \"127.0.0.1:0\"\n");
    init.hears("READY=1", 1);
    init.hears("STATUS=standalone, 0 sessions", 1);
    init.hears("WATCHDOG=1", 3);
    server.terminate();
    init.hears("STOPPING=1", 1);
}

/// A server that waited for a quorum would wait for boxes that wait for it.
#[test]
fn server_without_a_quorum_is_ready_and_names_missing_voters() {
    let scratch = Scratch::new();
    let mut init = Init::listen(&scratch);
    let servers: String =
        (1..=3).map(|id| format!("[[server]]\nid = {id}\nhost = \"127.0.0.1:{}\"\n", 2900 + id)).collect();
    let server = serve(&scratch, &format!("id = 1\npeers = \"127.0.0.1:0\"\nclients = \"127.0.0.1:0\"\n{servers}"));
    init.hears("READY=1", 1);
    init.hears("STATUS=no leader: the ensemble begins when all 3 voters have met once; not reached: 2, 3", 1);
    server.terminate();
}

/// Returns a loopback address that belongs to this test alone, so its port is free.
fn own_address(test: u8) -> String {
    let process = std::process::id();
    format!("127.{}.{}.{}:2181", 100 + test, process >> 8 & 0xff, process & 0xff | 1)
}

/// An init system would log each restart, and might give up.
///
/// Only the server itself can tell a passing obstacle from a lasting one.
#[test]
fn keep_trying_server_retries_its_start_and_logs_each_cause_once() {
    let scratch = Scratch::new();
    let mut init = Init::listen(&scratch);
    let (log, address) = (scratch.join("log"), own_address(1));
    let occupied = std::net::TcpListener::bind(&address).unwrap();
    std::fs::write(scratch.join("zoolet.toml"), "data = \"d\"\nclents = 1\n").unwrap();
    let server = zoolet(&["serve", "--keep-trying", "--create", "--config", "zoolet.toml"])
        .current_dir(scratch.path())
        .env("NOTIFY_SOCKET", scratch.join("notify"))
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn();
    let server = Served(server.unwrap());
    init.hears("READY=1", 1);
    init.hears("STATUS=zoolet.toml:2: clents: no such key; did you mean clients?", 3);
    let clients = format!("data = \"d\"\nclients = \"{address}\"\n");
    std::fs::write(scratch.join("zoolet.toml"), clients).unwrap();
    init.hears("another process has this port", 1);
    drop(occupied);
    init.hears("STATUS=standalone, 0 sessions", 1);
    server.terminate();
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.matches("this server waits, then retries").count() == 2, "{said}");
}

/// Returns whether a process handles this signal, as the first process of a container must.
fn handles(process: &Child, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (signal - 1) != 0
}

/// Otherwise a waiting server could not be stopped as the first process of a container.
#[test]
fn server_waiting_to_start_handles_signals() {
    const INTERRUPT_AND_TERMINATE: [u32; 2] = [2, 15];
    let scratch = Scratch::new();
    let mut init = Init::listen(&scratch);
    std::fs::write(scratch.join("zoolet.toml"), "clents = 1\n").unwrap();
    let server = zoolet(&["serve", "--keep-trying", "--config", "zoolet.toml"])
        .current_dir(scratch.path())
        .env("NOTIFY_SOCKET", scratch.join("notify"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let server = Served(server.unwrap());
    init.hears("STATUS=zoolet.toml:1: clents: no such key", 1);
    assert!(INTERRUPT_AND_TERMINATE.iter().all(|signal| handles(&server.0, *signal)));
    server.terminate();
}

/// A caller of `serve --create` waits until the server serves with its new data, so a signal before
/// that is a failure. Without `--create` a signal is a normal end.
#[test]
fn signal_before_serving_fails_only_with_create() {
    for (create, code) in [(&["--create"][..], 1), (&[], 0)] {
        let scratch = Scratch::new();
        let mut init = Init::listen(&scratch);
        std::fs::write(scratch.join("zoolet.toml"), "clents = 1\n").unwrap();
        let mut server = zoolet(&[&["serve", "--keep-trying", "--config", "zoolet.toml"], create].concat())
            .current_dir(scratch.path())
            .env("NOTIFY_SOCKET", scratch.join("notify"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        init.hears("STATUS=zoolet.toml:1: clents: no such key", 1);
        rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM)
            .unwrap();
        assert_eq!(server.wait().unwrap().code(), Some(code), "{create:?}");
    }
}

#[test]
fn end_of_input_before_serving_fails() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("zoolet.toml"), "clents = 1\n").unwrap();
    let output = zoolet(&["serve", "--keep-trying", "--until-eof", "--config", "zoolet.toml"])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().last().unwrap().ends_with("; standard input ended before this server could start"), "{said}");
}

/// Returns the `unshare` command for this namespace; `None` where the system refuses it.
fn unshared(what: &'static str) -> Option<Vec<&'static str>> {
    let as_root: &[&str] =
        if rustix::process::geteuid().is_root() { &["unshare"] } else { &["unshare", "--user", "--map-root-user"] };
    let own = [as_root, &[what]].concat();
    if Command::new(own[0]).args(&own[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        return Some(own);
    }
    assert!(std::env::var_os("ZOOLET_MOUNTS").is_none(), "{own:?} is refused here");
    println!("NOT MADE, because {own:?} is refused here");
    None
}

/// A box may start before its network has addresses. It finds itself in the file by one of its
/// addresses.
#[test]
fn server_finds_its_entry_once_its_address_appears() {
    let scratch = Scratch::new();
    let mut init = Init::listen(&scratch);
    let Some(own) = unshared("--net") else { return };
    let servers: String = (1..=3).map(|id| format!("[[server]]\nid = {id}\nhost = \"203.0.113.{id}\"\n")).collect();
    let toml = "data = \"d\"\nclients = \"plain://203.0.113.2:2181\"\nsite_key_file = \"site.key\"\n";
    std::fs::write(scratch.join("zoolet.toml"), format!("{toml}{servers}")).unwrap();
    assert!(run(&scratch, &["keygen", "--out", "site.key"]).status.success());
    let server = Command::new(own[0])
        .args(&own[1..])
        .arg(env!("CARGO_BIN_EXE_zoolet"))
        .args(["serve", "--keep-trying", "--create", "--log", "error", "--config", "zoolet.toml"])
        .current_dir(scratch.path())
        .env("NOTIFY_SOCKET", scratch.join("notify"))
        .stdout(Stdio::null())
        .spawn();
    let server = Served(server.unwrap());
    init.hears("STATUS=zoolet.toml: which server is this?", 1);
    let process = server.0.id().to_string();
    let said = |words: &[&str]| {
        let user: &[&str] = if own.contains(&"--user") { &["--user", "--preserve-credentials"] } else { &[] };
        let status = Command::new("nsenter").args(["--target", &process, "--net"]).args(user).args(words).status();
        assert!(status.unwrap().success(), "{words:?}");
    };
    said(&["ip", "link", "set", "lo", "up"]);
    said(&["ip", "address", "add", "203.0.113.2/32", "dev", "lo"]);
    init.hears("STATUS=no leader: the ensemble begins when all 3 voters have met once; not reached: 1, 3", 1);
    server.terminate();
}

/// `install` populates a disk this way, and must not treat a read-only disk as populated.
#[test]
fn populating_a_read_only_disk_fails() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.join("data")).unwrap();
    let Some(own) = unshared("--mount") else { return };
    for keep_trying in [&["--keep-trying"][..], &[]] {
        let output = Command::new(own[0])
            .args(&own[1..])
            .args(["sh", "-c", "mount -t tmpfs -o ro none data && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_zoolet")])
            .args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--create", "--until-eof"])
            .args(keep_trying)
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let last = said.lines().last().unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            last.ends_with(": the disk is read-only; standard input ended before this server could start"),
            "{said}"
        );
    }
}

#[test]
fn status_wait_reports_readiness_or_the_missing_part() {
    let scratch = Scratch::new();
    let toml = |address: &str| format!("data = \"d\"\nclients = \"{address}\"\n");
    let address = own_address(2);
    std::fs::write(scratch.join("zoolet.toml"), toml(&address)).unwrap();
    let wait = |time| run(&scratch, &["status", "--config", "zoolet.toml", "--wait", time]);
    let missing = wait("10ms");
    let said = String::from_utf8(missing.stderr).unwrap();
    let expected = format!("zoolet: not ready after 10ms: {address}: connection refused");
    assert!(missing.status.code() == Some(1) && said.starts_with(&expected), "{said}");
    // A server that accepts and never answers is given up when the time is over.
    let silent = std::net::TcpListener::bind(&address).unwrap();
    let said = String::from_utf8(wait("2s").stderr).unwrap();
    let expected = format!("zoolet: not ready after 2s: {address}: no answer in ");
    let seconds = said.strip_prefix(&expected).unwrap_or_else(|| panic!("{said}"));
    assert!(seconds.starts_with("1 s:") || seconds.starts_with("2 s:"), "{said}");
    drop(silent);
    // Another address: a process that another test starts at this moment may keep the port open.
    let server = serve(&scratch, &toml(&own_address(3)));
    let ready = wait("20s");
    let said = String::from_utf8(ready.stdout).unwrap();
    assert!(ready.status.success() && said.contains("server 1, standalone"), "{said}");
    server.terminate();
}

#[test]
fn check_option_validates_a_configuration_without_starting() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("zoolet.toml"), "data = \"d\"\nprofile = \"sd-a1/128m\"\n").unwrap();
    let checked = run(&scratch, &["serve", "--check", "--config", "zoolet.toml"]);
    assert!(checked.status.success());
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(said, "zoolet.toml: valid: data in d, clients at 127.0.0.1:2181, profile sd-a1/128m\n");
    assert!(!scratch.join("d").exists());
    let (code, line) = {
        std::fs::write(scratch.join("zoolet.toml"), "profile = \"sd-a1\"\n").unwrap();
        refusal(&scratch, &["serve", "--check", "--config", "zoolet.toml"])
    };
    assert!(code == 2 && line.contains("zoolet.toml:1: profile = sd-a1: allowed is media/memory"), "{code} {line}");
}

#[test]
fn check_option_refuses_the_same_configurations_as_a_start() {
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
fn printed_systemd_and_procd_units_start_the_given_binary() {
    let scratch = Scratch::new();
    let printed = run(&scratch, &["unit", "systemd", "--binary", "/usr/bin/zoolet"]);
    let unit = String::from_utf8(printed.stdout).unwrap();
    let has = |line: &str| assert!(unit.lines().any(|said| said == line), "{line} is not in {unit}");
    has("ExecStart=/usr/bin/zoolet serve --keep-trying --config /etc/zoolet/zoolet.toml");
    has("Type=notify");
    has("Restart=always");
    let printed = run(&scratch, &["unit", "procd", "--binary", "/usr/bin/zoolet", "--config", "/etc/z.toml"]);
    std::fs::write(scratch.join("zoolet.sh"), &printed.stdout).unwrap();
    let script = String::from_utf8(printed.stdout).unwrap();
    assert!(
        script.contains("procd_set_param command /usr/bin/zoolet serve --keep-trying --config /etc/z.toml\n"),
        "{script}"
    );
    // `sh` accepts the script.
    assert!(Command::new("sh").arg("-n").arg(scratch.join("zoolet.sh")).status().unwrap().success());
}

#[test]
fn a_configuration_and_a_profile_are_checked_alike() {
    let scratch = Scratch::new();
    let profile = "title = \"t\"\nmedia = \"emmc\"\nmemory = \"512m\"\n[overrides.quorum_ms]\nreason = \"r\"\n\
                   evidence = \"guess\"\nvalue = ";
    for (file, command, text, unit_line, order_line) in [
        (
            "zoolet.toml",
            &["serve", "--check", "--config", "zoolet.toml"],
            "[timing]\nquorum_ms = ",
            "zoolet.toml:2: timing.quorum_ms = \"2 S\": allowed is a time from 200 ms to 10 min, such as \"2 s\" or 2000; \
             did you mean \"2 s\"?",
            "zoolet.toml: timing.quorum_ms = 1000: allowed is at least 1400 (",
        ),
        (
            "box.toml",
            &["profile", "check", "box.toml", "--network=lan"],
            profile,
            "box.toml:7: quorum_ms.value = \"2 S\": allowed is a time, such as \"350 ms\" or 350; did you mean \"2 s\"?",
            "box.toml: quorum_ms = 1 s: allowed is at least 1.4 s (",
        ),
    ] {
        let write = |value: &str| std::fs::write(scratch.join(file), format!("{text}{value}\n")).unwrap();
        write("\"1.9 s\"");
        let checked = run(&scratch, command);
        let said = String::from_utf8(checked.stdout).unwrap();
        assert!(checked.status.success() && said.starts_with(&format!("{file}: valid: ")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        write("\"2 S\"");
        assert_eq!(refusal(&scratch, command), (2, format!("zoolet: {unit_line}")));
        write("1000");
        let (code, line) = refusal(&scratch, command);
        assert!(code == 2 && line.starts_with(&format!("zoolet: {order_line}")), "{code} {line}");
    }
}
