//! `zoolet shell` against real servers: exit codes, streams, roots and JSON.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use crate::support::*;
use std::io::Write;
use std::process::Stdio;

/// Runs a command line; returns exit code, standard output and standard error.
fn shell(server: &str, line: &str) -> (i32, String, String) {
    let output = zoolet(&["shell", "--server", server]).args(line.split(' ')).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Types lines; returns exit code and all that is printed.
fn typed(server: &str, options: &[&str], lines: &str) -> (i32, String) {
    typed_bytes(server, options, lines.as_bytes())
}

fn typed_bytes(server: &str, options: &[&str], lines: &[u8]) -> (i32, String) {
    let mut command = zoolet(&["shell", "--server", server]);
    let command = command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap() + &errors)
}

#[test]
fn one_command_prints_its_result_alone_and_has_zkclis_exit_code() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    let (none, text) = (String::new(), str::to_owned);
    for (line, expected) in [
        ("create /a hello", (0, none.clone(), text("Created /a\n"))),
        ("get /a", (0, text("hello\n"), none.clone())),
        ("ls /", (0, text("[a, zookeeper]\n"), none.clone())),
        ("create /a again", (1, none.clone(), text("Node already exists: /a\n"))),
        ("nosuch", (127, none.clone(), text("Command not found: Command not found nosuch\n"))),
        ("get", (1, none.clone(), text("get [-s] [-w] [-b] [-x] path\n"))),
    ] {
        assert_eq!(shell(&address, line), expected, "{line}");
    }
    let (code, _, errors) = shell("127.0.0.1:1", "ls /");
    assert!(
        code == 1 && errors.starts_with("KeeperErrorCode = ConnectionLoss for /\nno server at 127.0.0.1:1"),
        "{errors}"
    );
}

#[test]
fn quit_ends_with_the_code_of_the_command_before() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    for (lines, code) in [
        ("get /missing\nquit\n", 1),
        ("get /missing\nexit\n", 1),
        ("nosuch\nquit\nls /\n", 127),
        ("get /missing\nls /\nquit\n", 0),
        ("quit\n", 0),
    ] {
        assert_eq!(typed(&address, &[], lines).0, code, "{lines}");
    }
}

#[test]
fn redo_repeats_a_line_and_takes_its_place_in_the_history() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    let (code, printed) = typed(&address, &[], "create /a x\nget /a\nredo 1\nset /a y\nredo 2\nhistory\n");
    let history = "0 - create /a x\n1 - get /a\n2 - get /a\n3 - set /a y\n4 - get /a\n5 - history\n";
    assert_eq!((code, printed), (0, format!("x\nx\ny\n{history}Created /a\n")));
    let usage = "get [-s] [-w] [-b] [-x] path\n";
    for (lines, expected) in [
        // The usage is that of the repeated command.
        ("get\nredo 0\n", usage.repeat(2)),
        ("redo 9\nredo 0\n", "Command index out of range\nNo redoing redos\n".to_owned()),
        ("redo 0\n", "Command index out of range\n".to_owned()),
        ("redo x\n", "redo cmdno\n".to_owned()),
        ("nosuch\nredo 0\n", "Command not found: Command not found nosuch\n".repeat(2)),
    ] {
        let code = if lines.starts_with("nosuch") { 127 } else { 1 };
        assert_eq!(typed(&address, &[], lines), (code, expected), "{lines}");
    }
}

#[test]
fn line_that_is_no_text_fails_alone() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    let lines = b"# caf\xe9\ncreate /a x\r\ncreate /caf\xe9 x\n  # \xff\ncreate /b x\nls /\nset /a \xff";
    let (code, printed) = typed_bytes(&address, &[], lines);
    assert_eq!((code, shell(&address, "get /a").1.as_str()), (1, "x\n"), "{printed}");
    let mistake = |line| format!("standard input, line {line}: it is not UTF-8; it was not carried out\n");
    let expected = format!("[a, b, zookeeper]\nCreated /a\n{}Created /b\n{}", mistake(3), mistake(7));
    assert_eq!(printed, expected);
}

/// A frame of more than a megabyte, which a server by default takes from no client.
#[test]
fn lost_connection_of_a_large_write_is_explained_by_its_size() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    shell(&address, "create /a x");
    let (code, printed) = typed(&address, &[], &format!("set /a {}\n", "x".repeat(1 << 20)));
    assert!(code == 1 && printed.starts_with("KeeperErrorCode = ConnectionLoss for /a\n"), "{printed}");
    assert!(
        printed.contains("\nthe request had 10486") && printed.contains("frame_bytes_max or jute.maxbuffer"),
        "{printed}"
    );
    let (_, printed) = typed(&address, &[], &format!("create /b {}\n", "x".repeat(1 << 20)));
    assert!(printed.contains("\nthe request had 10486"), "{printed}");
}

#[test]
fn root_of_an_address_is_the_root_of_all_paths() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let (outer, inner) = (server.address.to_string(), format!("{}/app", server.address));
    shell(&outer, "create /app x");
    let lines = "create -e /e 1\ncreate -s /s- 2\nls /\ngetEphemerals\nget -w /e\nset /e 3\nls -R /\nstat /app\n";
    let (code, printed) = typed(&inner, &[], lines);
    assert_eq!(code, 1, "{printed}");
    for line in ["Created /s-0000000001", "[e, s-0000000001]", "[/e]", "/s-0000000001", "Node does not exist: /app"] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    assert!(printed.contains("WatchedEvent state:SyncConnected type:NodeDataChanged path:/e zxid: "), "{printed}");
    // The session was closed, and its ephemeral is gone at once.
    assert_eq!(shell(&outer, "ls /app").1, "[s-0000000001]\n");
}

#[test]
fn zookeepers_own_znodes_are_those_of_the_server_not_of_the_root() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let (outer, inner) = (server.address.to_string(), format!("{}/app", server.address));
    typed(&outer, &[], "create /app x\ncreate /app/zookeeper own\ncreate /app/zookeeper/x y\n");
    let exported = shell(&inner, "export /");
    assert!(exported.1.contains("{\"data\":\"y\",\"path\":\"/zookeeper/x\"}"), "{exported:?}");
    assert!(!shell(&outer, "export /").1.contains("\"path\":\"/zookeeper"));

    let lines = "setquota -n 100 /zookeeper\nlistquota /zookeeper\nsetquota -n 5 /zookeeper/x\nsetquota -n 9 /\n";
    let (_, printed) = typed(&inner, &[], lines);
    for line in [
        "absolute path is /zookeeper/quota/app/zookeeper/zookeeper_limits",
        "Output quota for /zookeeper count=100,bytes=-1=;byteHardLimit=-1;countHardLimit=-1",
        "/zookeeper/x has a parent /zookeeper which has a quota",
        "/ has a child /zookeeper which has a quota",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    assert!(shell(&outer, "listquota /app/zookeeper").1.contains("Output stat for /app/zookeeper count=2,"));
    let lines = "delquota /zookeeper\nsetquota -n 9 /\nlistquota /\ndelquota /\nlistquota /\ndelquota /\n";
    let (code, printed) = typed(&inner, &[], lines);
    assert!(printed.contains("Output quota for / count=9,") && code == 0, "{printed}");
    assert!(printed.ends_with("quota for / does not exist.\n") && printed.contains("Quota does not exist for /\n"));
    assert_eq!(shell(&outer, "ls /zookeeper/quota").1, "[]\n");

    assert_eq!(shell(&inner, "deleteall /").0, 0);
    assert_eq!((shell(&outer, "ls /app").1, shell(&outer, "deleteall /").0), ("[]\n".to_owned(), 0));
    assert_eq!(shell(&outer, "ls /").1, "[zookeeper]\n");
}

#[test]
fn json_has_one_value_a_line_for_results_errors_and_events() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let lines = "create /a x\nset -b /a /w==\nget -w /a\nset /a y\nls /\nget /nope\n";
    let (code, printed) = typed(&server.address.to_string(), &["--json"], lines);
    let expected = [
        r#"{"created":"/a"}"#,
        r#"{"base64":"/w==","path":"/a"}"#,
        r#"{"children":["a","zookeeper"],"path":"/"}"#,
        r#"{"code":-101,"error":"Node does not exist: /nope","path":"/nope"}"#,
    ];
    for line in expected {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    assert!(code == 1 && printed.contains(r#""event":"NodeDataChanged","path":"/a""#), "{printed}");
    assert!(printed.lines().all(|line| line.starts_with('{')), "{printed}");
}

#[test]
fn json_tells_refusals_and_a_missing_quota() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    let closed = "addauth digest me:secret\ncreate /t\ncreate /t/a x auth::cdrwa,world:anyone:r\ncreate /t/b x auth::cdrwa,world:anyone:r\n";
    assert_eq!(typed(&address, &[], closed).0, 0);
    let (code, printed) = typed(&address, &["--json"], "setAcl -R /t world:anyone:r\n");
    assert_eq!((code, printed.lines().count()), (1, 2), "{printed}");
    for path in ["/t/a", "/t/b"] {
        let line = format!("{{\"code\":-102,\"error\":\"Insufficient permission : {path}\",\"path\":\"{path}\"}}");
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    let (code, printed) = typed(&address, &["--json"], "deleteall /t/a\n");
    let refused = "{\"code\":-102,\"error\":\"Insufficient permission : /t/a\",\"path\":\"/t/a\"}\n";
    assert_eq!((code, printed.as_str()), (1, refused));
    let (code, printed) = typed(&address, &["--json"], "create /u x nonsense,world:anyone:r\n");
    assert_eq!(code, 0);
    assert!(printed.contains("{\"error\":\"nonsense does not have the form scheme:id:perm\"}\n"), "{printed}");
    let (_, printed) = typed(&address, &["--json"], "listquota /u\n");
    assert_eq!(printed, "{\"path\":\"/u\",\"quota\":null,\"usage\":null}\n");
}

#[test]
fn refused_acl_of_create_has_two_lines_and_in_json_its_code_and_path() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    for line in ["create /x y digest:a:r", "create /x y ip:a:r,nonsense"] {
        let (code, out, err) = shell(&address, line);
        let expected = "KeeperErrorCode = InvalidACL for /x\nAcl is not valid : /x\n";
        assert!((code, out.as_str()) == (1, "") && err.ends_with(expected), "{line}: {err}");
        let (code, printed) = typed(&address, &["--json"], &format!("{line}\n"));
        let expected = "{\"code\":-114,\"error\":\"Acl is not valid : /x\",\"path\":\"/x\"}\n";
        assert!(code == 1 && printed.ends_with(expected), "{line}: {printed}");
    }
    // No entry is left, so no request is sent, and the refusal has no path.
    let (code, _, err) = shell(&address, "create /x y nonsense");
    let expected =
        "nonsense does not have the form scheme:id:perm\nKeeperErrorCode = InvalidACL\nAcl is not valid : null\n";
    assert_eq!((code, err.as_str()), (1, expected));
}

#[test]
fn stat_tells_how_long_a_znode_with_a_time_to_live_has_left() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let lines = "create /a x\ncreate -t 3600000 /t x\nstat /a\nstat /t\ncreate /t/child x\nstat /t\n";
    let (code, printed) = typed(&format!("{}/", server.address), &[], lines);
    let told: Vec<_> = printed.lines().filter_map(|line| line.strip_prefix("timeToLive = 3600000 ms, ")).collect();
    assert_eq!(
        (code, told.len(), told.last()),
        (0, 2, Some(&"which begin when the last child is deleted")),
        "{printed}"
    );
    let left_ms = told[0].strip_suffix(" ms left").unwrap().parse::<u64>().unwrap();
    assert!(left_ms <= 3_600_000, "{printed}");
}
