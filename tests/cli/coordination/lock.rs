//! `zoolet lock`: exit codes, environment, signals, and the end of the lock.

use super::{Fixed, is_gone, runs};
use crate::support::*;
use std::io::Write;
use std::process::Stdio;

const ZOOLET: &str = env!("CARGO_BIN_EXE_zoolet");

#[test]
fn exit_code_is_the_commands_or_tells_why_it_did_not_run() {
    let server = Fixed::start();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        assert_eq!(server.run("lock /locks/a", script).0, code, "{script}");
    }
    std::fs::write(server.scratch.join("plain"), "no program").unwrap();
    for (words, code, expected) in [
        ("lock /locks/a -- ./absent", 127, "zoolet: cannot run ./absent: No such file or directory"),
        ("lock /locks/a -- ./plain", 126, "zoolet: cannot run ./plain: Permission denied"),
        ("lock /locks/a", 2, "zoolet: lock: COMMAND is missing"),
    ] {
        let (is, line) = server.run(words, "");
        assert!(is == code && line.starts_with(expected), "{words}: {is}: {line}");
    }
}

/// A recipe has several znodes. The user must learn which one an ACL protects.
#[test]
fn refusal_names_operation_path_and_cause_once() {
    let server = Fixed::start();
    let mut client = server.client();
    for path in ["/ro", "/jobs", "/jobs-receipts"] {
        client.create(path, b"").unwrap();
    }
    for path in ["/ro", "/jobs-receipts"] {
        assert_eq!(server.run(&format!("shell setAcl {path} world:anyone:r"), ""), (0, String::new()), "{path}");
    }
    let cause = "an ACL refuses this change; allow world:anyone there, or on its parent, with setAcl in zoolet shell, \
                 or use another path (NoAuth)";
    for (words, failure) in [
        ("lock /ro -- true", "cannot enter the line /ro"),
        ("lock /ro/door -- true", "cannot create /ro/door"),
        ("barrier close /ro/gate", "/ro/gate: cannot create /ro/gate-receipts"),
    ] {
        assert_eq!(server.run(words, ""), (125, format!("zoolet: {failure}: {cause}\n")), "{words}");
    }
    let (code, line) = server.run("queue put /jobs weld-17", "");
    assert!(line.starts_with("zoolet: /jobs: cannot write the receipt /jobs-receipts/"), "{line}");
    assert!(code == 125 && line.ends_with(&format!(": {cause}\n")), "{code} {line}");
}

#[test]
fn command_finds_token_and_znode_in_its_environment() {
    let server = Fixed::start();
    let script = "echo $ZOOLET_PATH $ZOOLET_SERVER $ZOOLET_SESSION; echo $ZOOLET_ZNODE; echo $ZOOLET_TOKEN; cat";
    let mut child = server.command("lock /locks/a", script);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let printed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].starts_with(&format!("/locks/a 127.0.0.1:{} 0x", server.port)), "{printed}");
    assert!(lines[1].starts_with("/locks/a/") && lines[1].ends_with("-lock-0000000000"), "{printed}");
    assert_eq!(lines[3], "typed");
    let token = |printed: &str| printed.trim().parse::<i64>().unwrap();
    let later = server.run("lock /locks/a", "echo $ZOOLET_TOKEN").1;
    assert!(token(&later) > token(lines[2]), "{later} is not after {}", lines[2]);
}

/// Otherwise a path would name one lock outside of COMMAND, and another one inside.
#[test]
fn commands_inside_the_command_see_the_same_root() {
    let server = Fixed::start();
    server.client().create("/site", b"").unwrap();
    let address = format!("127.0.0.1:{}/site", server.port);
    let inner = format!("{ZOOLET} lock /locks/db --no-wait -- true; echo $?");
    let script = format!("echo $ZOOLET_PATH $ZOOLET_SERVER $ZOOLET_ZNODE; {inner}");
    let printed = server.run(&format!("lock /locks/db --server {address}"), &script).1;
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].starts_with(&format!("/locks/db {address} /locks/db/")), "{printed}");
    assert_eq!(lines[1], "124", "the inner command got another lock: {printed}");
    let meet = format!("barrier meet /all --parties 1 --server {address}");
    let printed = server.run(&meet, "echo $ZOOLET_PATH $ZOOLET_SERVER").1;
    assert_eq!(printed, format!("/all {address}\n"));
}

/// A token of the outer lock beside the path of the inner command would pass a store's check.
#[test]
fn command_finds_no_variable_of_another_grant() {
    let server = Fixed::start();
    assert_eq!(server.run("queue put /jobs a", "").0, 0);
    let names = |printed: &str| {
        // The environment of this test may have further variables, such as those of CI.
        let of_a_grant = |name: &str| ["ATTEMPT", "PATH", "SERVER", "SESSION", "TOKEN", "ZNODE"].contains(&name);
        let variables = printed.lines().filter_map(|line| line.strip_prefix("ZOOLET_")?.split_once('='));
        let mut names: Vec<_> = variables.filter(|(name, _)| of_a_grant(name)).collect();
        names.sort_unstable();
        assert!(names.iter().all(|(_, value)| *value != "outer"), "{printed}");
        names.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    };
    for (words, expected) in [
        ("lock /a", "PATH SERVER SESSION TOKEN ZNODE"),
        ("semaphore /b --permits 1", "PATH SERVER SESSION TOKEN ZNODE"),
        ("elect /c", "PATH SERVER SESSION TOKEN"),
        ("queue take /jobs", "ATTEMPT PATH SERVER SESSION TOKEN"),
        ("barrier meet /d --parties 1", "PATH SERVER"),
    ] {
        let mut command = server.command(words, "env | grep ^ZOOLET_");
        for name in ["PATH", "TOKEN", "ZNODE", "SESSION", "ATTEMPT"] {
            command.env(format!("ZOOLET_{name}"), "outer");
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(names(std::str::from_utf8(&output.stdout).unwrap()), expected, "{words}");
    }
    let inner = format!("exec {ZOOLET} barrier meet /d --parties 1 -- sh -c 'env | grep ^ZOOLET_'");
    assert_eq!(names(&server.run("lock /a", &inner).1), "PATH SERVER");
}

#[test]
fn lock_that_is_not_free_ends_the_wait_with_the_conflict_code() {
    let server = with_fifo();
    let mut holder = server.start_command("lock /locks/a", "echo $$ > pid; read x < fifo");
    let pid = server.pid("pid");
    assert_eq!(server.run("lock /locks/a --no-wait", "echo ran"), (124, String::new()));
    assert_eq!(server.run("lock /locks/a --no-wait --conflict-exit-code 0", "echo ran"), (0, String::new()));
    let (code, line) = server.run("lock /locks/a --wait 1s", "echo ran");
    assert_eq!((code, line.as_str()), (124, "zoolet: /locks/a: the lock was not free within 1 s\n"));
    assert!(runs(pid));
    assert_eq!(server.client().children("/locks/a").len(), 1, "a waiter left a znode");
    holder.signal("TERM");
    holder.status();
}

/// Runs with a fifo that nothing writes, so that `read x < fifo` blocks.
fn with_fifo() -> Fixed {
    let server = Fixed::start();
    let made = std::process::Command::new("mkfifo").arg(server.scratch.join("fifo")).status().unwrap();
    assert!(made.success());
    server
}

#[test]
fn signal_is_passed_on_and_the_lock_is_held_until_the_command_has_ended() {
    let server = with_fifo();
    let script = "trap 'echo told; read x < fifo; exit 9' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let mut holder = server.start_command("lock /locks/a", script);
    let pid = server.pid("pid");
    holder.signal("TERM");
    assert_eq!(server.run("lock /locks/a --wait 300ms", "echo ran").0, 124);
    assert!(runs(pid));
    std::fs::write(server.scratch.join("fifo"), "go\n").unwrap();
    assert_eq!(holder.code(), 9);
    assert_eq!(server.run("lock /locks/a --no-wait", "exit 0").0, 0);
}

#[test]
fn signal_ends_a_waiter_and_leaves_nothing_in_the_line() {
    let server = with_fifo();
    let mut holder = server.start_command("lock /locks/a", "echo $$ > pid; read x < fifo");
    server.pid("pid");
    let mut client = server.client();
    let mut waiter = server.start_command("lock /locks/a", "echo ran > ran");
    eventually("a waiter", || client.children("/locks/a").len() == 2);
    waiter.signal("INT");
    assert_eq!(waiter.code(), 130);
    assert_eq!(client.children("/locks/a").len(), 1);
    holder.signal("TERM");
    assert_eq!(holder.code(), 143);
    assert!(server.lines("ran").is_empty());
}

#[test]
fn hangup_that_nohup_ignores_does_not_reach_the_command() {
    let server = with_fifo();
    let mut nohup = std::process::Command::new("sh");
    let line = format!("trap '' HUP; exec {} lock /locks/a -- sh -c 'echo $$ > pid; read x < fifo; exit 3'", ZOOLET);
    nohup.args(["-c", &line]).current_dir(server.scratch.path());
    nohup.env("ZOOLET_SERVER", format!("127.0.0.1:{}", server.port));
    let mut holder = super::Running(nohup.spawn().unwrap());
    let pid = server.pid("pid");
    holder.signal("HUP");
    assert!(runs(pid));
    std::fs::write(server.scratch.join("fifo"), "go\n").unwrap();
    assert_eq!(holder.code(), 3);
}

#[test]
fn processes_that_the_command_leaves_end_before_the_lock() {
    let server = Fixed::start();
    // The second process ignores TERM.
    let script = "sleep 1000 & echo $! > one; (trap '' TERM; exec sleep 1000) & echo $! > two; exit 4";
    assert_eq!(server.run("lock /locks/a --grace 50ms", script).0, 4);
    assert!(!runs(server.pid("one")) && !runs(server.pid("two")));
}

/// The kernel frees a lock of a process that dies, so the command must not outlive it.
#[test]
fn command_and_its_children_die_with_a_killed_zoolet() {
    let server = Fixed::start();
    let script = "sleep 1000 & echo $! > child; echo $$ > pid; wait";
    let mut holder = server.start_command("lock /locks/a --session-timeout 1s", script);
    let (pid, child) = (server.pid("pid"), server.pid("child"));
    holder.signal("KILL");
    holder.status();
    is_gone(pid);
    is_gone(child);
    assert_eq!(server.run("lock /locks/a --wait 20s", "exit 5").0, 5);
}

#[test]
fn failure_to_reach_a_server_names_the_reason_and_a_remedy() {
    let scratch = Scratch::new();
    let [port] = free_ports();
    let server = format!("127.0.0.1:{port}");
    let words = ["lock", "/a", "--server", &server, "--session-timeout", "200ms", "--", "true"];
    let (code, line) = refusal(&scratch, &words);
    assert_eq!(code, 125, "{line}");
    assert!(line.contains("Connection refused") && line.contains("name others with --server"), "{line}");
}
