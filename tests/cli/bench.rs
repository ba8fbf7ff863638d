//! `zoolet bench` against real servers: its numbers add up, it cleans up, it reports failures.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use crate::json::Json;
use crate::support::*;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Output, Stdio};

/// The command with JSON output; adds the server's address and no warm-up unless `words` set them.
fn bench(server: &Server, words: &str) -> std::process::Command {
    let address = server.address.to_string();
    let mut command = zoolet(&["bench", "--json"]);
    for (option, value) in [("--server", address.as_str()), ("--warmup", "0s")] {
        if !words.contains(option) {
            command.args([option, value]);
        }
    }
    command.args(words.split_whitespace());
    command
}

/// Returns its JSON after checking that it is complete and accounts for every request.
fn checked(output: &Output) -> Json {
    let json = Json::parse(std::str::from_utf8(&output.stdout).unwrap());
    assert_eq!(json.number("version"), 1.0);
    assert_eq!(json.number("requests"), json.number("acknowledged") + json.number("errors"), "{json:?}");
    let by_name: f64 = json.at("errors_by_name").fields().map(|(_, count)| count.as_number()).sum();
    assert_eq!(by_name, json.number("errors"));
    for latency in ["latency_us", "read_latency_us", "write_latency_us"] {
        let latency = json.at(latency);
        let steps = ["min", "p50", "p90", "p99", "p999", "max"].map(|name| latency.number(name));
        assert!(steps.is_sorted(), "{latency:?}");
        assert!((steps[0]..=steps[5]).contains(&latency.number("mean")), "{latency:?}");
    }
    let count = |name| json.at(name).number("count");
    assert_eq!(count("latency_us"), json.number("acknowledged"));
    assert_eq!(count("read_latency_us") + count("write_latency_us"), json.number("acknowledged"));
    for name in ["seconds", "per_second", "unsent", "longest_write_gap_us", "reconnects", "sessions_lost", "prepare_s"]
    {
        assert!(json.number(name) >= 0.0, "{name}");
    }
    for name in ["generator_cpu_s", "generator_cpu_us_per_request"] {
        assert!(json.number(name) >= 0.0, "{name}");
    }
    json
}

fn run_well(server: &Server, words: &str) -> Json {
    let output = bench(server, words).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    let json = checked(&output);
    assert_eq!((json.number("errors"), json.at("failure")), (0.0, &Json::Null), "{words}: {json:?}");
    json
}

#[test]
fn every_bench_op_sends_the_given_requests_and_deletes_its_znodes() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    for (words, requests, reads) in [
        ("--op set --requests 1000 --keys 600", 1000, Some(0)),
        ("--op get --requests 1000 --distribution zipf", 1000, Some(1000)),
        ("--op exists --requests 1000 --distribution sequential", 1000, Some(1000)),
        ("--op children --requests 50 --outstanding 2", 50, Some(50)),
        ("--op mix --requests 1000 --read-percent 50", 1000, None),
        ("--op mix --requests 100 --read-percent 0", 100, Some(0)),
        ("--op create --requests 600", 600, Some(0)),
        ("--op create --requests 300 --sequential", 300, Some(0)),
        ("--op create --requests 300 --sequential --ephemeral --connections 1", 300, Some(0)),
        ("--op create-delete --requests 301", 301, Some(0)),
        ("--op watch --requests 5 --connections 10", 5, Some(0)),
        ("--op lock --requests 20 --connections 4", 20, Some(0)),
        ("--op lock --requests 20 --connections 4 --locks 3", 20, Some(0)),
        ("--op set --requests 200 --rate 2000 --size 0", 200, Some(0)),
        // All are due at once: the last connections find no request left while their own are in
        // flight.
        ("--op set --requests 200 --rate 10000000", 200, Some(0)),
        ("--op set --requests 5 --connections 1 --outstanding 1 --size 90000 --keys 5", 5, Some(0)),
    ] {
        let json = run_well(&server, words);
        assert_eq!(json.number("requests"), f64::from(requests), "{words}");
        if let Some(reads) = reads {
            assert_eq!(json.at("read_latency_us").number("count"), f64::from(reads), "{words}");
        }
        assert!(!server.client().exists("/bench"), "{words}");
    }
    assert_eq!(server.client().children("/").len(), 1, "only /zookeeper");
}

#[test]
fn event_and_acquire_latencies_are_measured_separately() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let json = run_well(&server, "--op watch --requests 3 --connections 7");
    assert_eq!(json.at("event_latency_us").number("count"), 21.0);
    assert!(json.at("event_latency_us").number("max") <= json.at("latency_us").number("max"));
    let json = run_well(&server, "--op lock --requests 9 --connections 3");
    assert_eq!(json.at("acquire_latency_us").number("count"), 9.0);
    assert!(json.at("acquire_latency_us").number("max") <= json.at("latency_us").number("max"));
}

#[test]
fn duration_ends_a_run_and_an_open_loop_keeps_its_rate() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let json = run_well(&server, "--op get --duration 300ms --rate 1000");
    assert_eq!(json.number("requests") + json.number("unsent"), 300.0);
    assert!(json.number("seconds") >= 0.3);
    assert_eq!(json.at("options").number("duration_s"), 0.3);
}

#[test]
fn kept_keys_are_reused_until_a_run_without_keep_deletes_them() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    run_well(&server, "--path /a/b --keys 700 --size 10 --requests 1 --keep");
    let mut client = server.client();
    assert_eq!(client.children("/a/b/keys").len(), 700);
    assert_eq!(client.get("/a/b/keys/k00000699").unwrap().unwrap().len(), 10);
    run_well(&server, "--path /a/b --op get --keys 700 --size 10 --requests 1 --keep");
    let version = |client: &mut Client| match client.ask(&get("/a/b/keys/k00000699")).unwrap() {
        zoolet_model::Reply::Data(data, stat) => (data.unwrap().len(), stat.version),
        other => panic!("{other:?}"),
    };
    assert_eq!(version(&mut client), (10, 0), "left as they were");
    run_well(&server, "--path /a/b --op get --keys 800 --size 20 --requests 1 --keep");
    assert_eq!(version(&mut client), (20, 1), "set to the new size");
    run_well(&server, "--path /a/b --op get --keys 1 --size 20 --requests 1");
    assert!(!client.exists("/a/b"), "all of them, also those that this run did not need");
    assert!(client.exists("/a"), "made by another run");
}

#[test]
fn existing_znode_at_the_bench_path_is_kept() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut client = server.client();
    client.create("/mine", b"data").unwrap();
    run_well(&server, "--path /mine --requests 5 --keys 5");
    assert_eq!(client.get("/mine").unwrap().unwrap(), "data");
    assert!(client.children("/mine").is_empty());
    client.create("/theirs", b"").unwrap();
    run_well(&server, "--path /theirs/bench --requests 5 --keys 5");
    assert!(client.children("/theirs").is_empty());
}

#[test]
fn errors_are_counted_by_name_and_a_run_without_any_success_fails() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    run_well(&server, "--op create --requests 10 --keep");
    let output = bench(&server, "--op create --requests 10").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr.clone()).unwrap(), "zoolet: no request was acknowledged\n");
    assert_eq!(checked(&output).at("errors_by_name").number("NodeExists"), 10.0);
    assert!(!server.client().exists("/bench"));
}

#[test]
fn text_report_names_workload_latency_and_errors() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let output = run(
        &scratch,
        &["bench", "--server", &server.address.to_string(), "--op", "mix", "--requests", "100", "--warmup", "0s"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(text.starts_with("mix at 127.0.0.1:"), "{text}");
    for part in
        [": 8 connections x 64, 100 bytes, 1000 keys, uniform, 90% reads\n", "\nlatency  p50 ", "\nreads    p50 "]
    {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains("/s: 100 acknowledged in ") && text.contains(", 0 errors\n"), "{text}");
}

#[test]
fn invalid_usage_gives_one_line_and_exit_code_2() {
    let scratch = Scratch::new();
    for words in [&["--op", "frob"][..], &["--keys", "0"], &["--locks", "2"], &["--server", "here:"], &["--frob"]] {
        let (code, line) = refusal(&scratch, &[&["bench"], words].concat());
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(words[0]), "{line}");
    }
}

#[test]
fn missing_server_gives_one_line_and_exit_code_1() {
    let scratch = Scratch::new();
    // The port was bound and is closed again, so nothing listens there.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    drop(taken);
    let (code, line) = refusal(&scratch, &["bench", "--server", &address]);
    assert_eq!(code, 1);
    assert!(line.starts_with(&format!("zoolet: no server at {address}: Connection refused")), "{line}");
    assert!(line.ends_with("; start one there, or name another with --server"), "{line}");
    let (code, line) = refusal(&scratch, &["bench", "--server", "no-such-host.invalid:2181"]);
    assert_eq!(code, 1);
    assert!(line.starts_with("zoolet: no-such-host.invalid:2181: "), "{line}");
}

/// Runs cases in parallel: each takes seconds, most of which it waits.
fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| test(case));
        }
    });
}

/// A run that continues until the test disturbs it.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    /// Returns once requests are being answered.
    fn start(server: &Server, words: &str) -> Self {
        let mut command = bench(server, words);
        command.args(["--progress", "--duration", "60s"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut running = Self { child, stderr };
        running.wait_for(|line| line.contains("/s ") && !line.contains(" 0/s "));
        running
    }

    /// Reads lines of progress up to the first one that `is_it`.
    fn wait_for(&mut self, is_it: impl Fn(&str) -> bool) {
        let mut line = String::new();
        while line.is_empty() || !is_it(&line) {
            line.clear();
            assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended before this line");
        }
    }

    fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    fn end(mut self) -> Output {
        let mut stderr = Vec::new();
        self.stderr.read_to_end(&mut stderr).unwrap();
        Output { stderr, ..self.child.wait_with_output().unwrap() }
    }
}

/// Returns the total of errors in a line of progress.
fn errors(line: &str) -> Option<u64> {
    line.strip_suffix(" errors in total\n")?.rsplit(' ').next()?.parse().ok()
}

#[test]
fn interrupt_prints_the_results_and_deletes_the_znodes() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    side_by_side(["set", "watch --connections 3", "lock"], |op| {
        let path = format!("/{}", &op[..3]);
        let running = Running::start(&server, &format!("--op {op} --path {path}"));
        running.interrupt();
        let output = running.end();
        assert!(output.status.success(), "{op}");
        let json = checked(&output);
        assert_eq!(json.at("interrupted"), &Json::Truth(true));
        assert!(json.number("acknowledged") > 0.0 && json.number("seconds") < 60.0);
        assert!(!server.client().exists(&path), "{op}");
    });
}

#[test]
fn unwritable_result_fails_the_run() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let child = bench(&server, "--op set --requests 10").stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().last().unwrap().starts_with("zoolet: standard output: "), "{said}");
}

#[test]
fn lost_server_ends_the_run_and_is_named() {
    side_by_side(["set", "mix --rate 1000", "watch --connections 3", "lock"], |op| {
        let scratch = Scratch::new();
        let mut server = Server::start(&scratch);
        // Longer than a busy machine stalls. Otherwise the session would time out before the server
        // is killed.
        let running = Running::start(&server, &format!("--session-timeout 3s --op {op}"));
        server.kill();
        let output = running.end();
        assert_eq!(output.status.code(), Some(1), "{op}");
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        let line = stderr.lines().last().unwrap();
        assert!(line.starts_with(&format!("zoolet: lost {}: Connection refused", server.address)), "{line}");
        assert!(line.ends_with("for 3 s"), "{line}");
        let json = checked(&output);
        assert!(matches!(json.at("failure"), Json::Text(_)) && json.number("acknowledged") > 0.0, "{op}");
        // The silence until the end is a gap.
        assert!(op.starts_with("mix") || json.number("longest_write_gap_us") >= 3_000_000.0, "{op}: {json:?}");
    });
}

#[test]
fn open_loop_reports_requests_left_unsent_in_an_outage() {
    // A killed server refuses connections. A frozen server keeps its connections and the requests
    // in flight.
    let freeze = |server: &mut Server| server.signal("STOP");
    side_by_side([Server::kill, freeze], |end| {
        let scratch = Scratch::new();
        let mut server = Server::start(&scratch);
        let words = "--session-timeout 600ms --op set --rate 500 --connections 2 --outstanding 4";
        let running = Running::start(&server, words);
        end(&mut server);
        let json = checked(&running.end());
        assert!(matches!(json.at("failure"), Json::Text(_)), "{json:?}");
        assert!(json.number("unsent") > 0.0, "{json:?}");
        let due = json.number("seconds") * 500.0;
        let told = json.number("acknowledged") + json.number("errors") + json.number("unsent");
        // Seconds have three decimal digits.
        assert!((told - due).abs() <= 2.0, "{due} due: {json:?}");
    });
}

#[test]
fn connections_move_to_the_next_server_and_count_reconnects() {
    let freeze = |server: &mut Server| server.signal("STOP");
    side_by_side([Server::kill, freeze], |end| {
        let (scratch, other) = (Scratch::new(), Scratch::new());
        let (mut server, next) = (Server::start(&scratch), Server::start(&other));
        // Both servers have the keys, but neither knows the other's sessions.
        run_well(&next, "--keep --requests 1");
        // Longer than a busy machine stalls. Otherwise the connections to the other server would
        // break too.
        let both = format!(
            "--session-timeout 3s --connections 8 --outstanding 1 --server {},{}",
            server.address, next.address
        );
        let mut running = Running::start(&server, &both);
        end(&mut server);
        // Each connection to the first server loses its request, then moves on.
        running.wait_for(|line| errors(line) >= Some(4));
        // In the second that follows, the connections move on. Those to the other server go on.
        running.wait_for(|_| true);
        running.interrupt();
        let output = running.end();
        let json = checked(&output);
        assert_eq!(json.at("options").at("servers"), &Json::Text(format!("{},{}", server.address, next.address)));
        // Half of the connections were at the first server.
        assert_eq!((json.number("reconnects"), json.number("sessions_lost")), (4.0, 4.0), "{json:?}");
        assert!(json.at("errors_by_name").number("ConnectionLost") > 0.0 && json.number("acknowledged") > 0.0);
    });
}

#[test]
fn interrupt_during_key_creation_deletes_the_keys() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut child = bench(&server, "--keys 5000000 --progress").stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("created ") && line.ends_with(" of 5000000 znodes\n"), "{line}");
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(rest.lines().last(), Some("zoolet: interrupted before the measurement"));
    assert!(!server.client().exists("/bench"));
}

/// Its kernel accepts connections, but it never answers. The client must go on to the next server
/// of the list.
#[test]
fn bench_moves_on_from_a_frozen_first_server() {
    let frozen = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let servers = format!("{},{}", frozen.local_addr().unwrap(), server.address);
    let words = ["bench", "--server", &servers, "--requests", "100", "--keys", "10", "--warmup", "0s", "--json"];
    let output = run(&scratch, &words);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(checked(&output).number("acknowledged"), 100.0);
}
