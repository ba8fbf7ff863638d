//! `zoolet queue`: no item is lost, and none is processed twice except as documented.

use super::{Fixed, Running, is_gone};
use crate::support::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;

#[test]
fn items_are_taken_once_in_the_order_in_which_they_were_put() {
    let server = Fixed::start();
    assert_eq!(server.run("queue put /jobs weld-17", ""), (0, String::new()));
    let mut put = server.command("queue put /jobs -", "");
    let mut put = put.stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"two\nlines\n").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(server.run("queue take /jobs", ""), (0, "weld-17".to_owned()));
    assert_eq!(server.run("queue take /jobs", ""), (0, "two\nlines\n".to_owned()));
    let (code, line) = server.run("queue take /jobs --wait 1s", "");
    assert_eq!((code, line.as_str()), (124, "zoolet: /jobs: no item came within 1 s\n"));
}

#[test]
fn item_stays_if_it_cannot_be_printed() {
    let server = Fixed::start();
    server.run("queue put /jobs a", "");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = server.command("queue take /jobs", "").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(server.run("queue take /jobs", ""), (0, "a".to_owned()));
}

#[test]
fn item_of_a_failed_command_returns_and_is_moved_away_after_its_attempts() {
    let server = Fixed::start();
    server.run("queue put /jobs a", "");
    server.run("queue put /jobs b", "");
    let script = "echo $(cat) $ZOOLET_ATTEMPT >> log; exit 3";
    assert_eq!(server.run("queue take /jobs --attempts 2", script).0, 3);
    let (code, line) = server.run("queue take /jobs --attempts 2", script);
    assert_eq!(code, 3);
    assert!(line.contains("was taken 2 times: moved it below /jobs-dead"), "{line}");
    assert_eq!(server.lines("log"), ["a 1", "a 2"]);
    assert_eq!(server.run("queue take /jobs", "cat"), (0, "b".to_owned()));
    let mut client = server.client();
    let name = client.children("/jobs-dead").remove(0);
    assert_eq!(client.get(&format!("/jobs-dead/{name}")).unwrap().unwrap(), "a");
    assert!(client.children("/jobs").is_empty() && client.children("/jobs-claims").is_empty());
}

#[test]
fn each_item_is_processed_once_although_a_consumer_and_the_server_are_killed() {
    let mut server = Fixed::start();
    const ITEMS: usize = 24;
    // This consumer dies with its item, which returns once its session ends.
    server.run("queue put /jobs item-0", "");
    let script = "cat > /dev/null; echo $$ > victim; exec sleep 1000";
    let mut victim = server.start_command("queue take /jobs --session-timeout 1s", script);
    let pid = server.pid("victim");
    victim.signal("KILL");
    victim.status();
    is_gone(pid);
    std::thread::scope(|threads| {
        let server = &server;
        threads.spawn(move || {
            for item in 1..ITEMS {
                assert_eq!(server.run(&format!("queue put /jobs item-{item}"), ""), (0, String::new()));
            }
        });
        for _ in 0..4 {
            threads.spawn(move || {
                // The others have taken the rest if none comes.
                while server.lines("done").len() < ITEMS {
                    let (code, line) = server.run("queue take /jobs --wait 100ms", "echo $(cat) >> done");
                    assert!(code == 0 || code == 124, "{code}: {line}");
                }
            });
        }
    });
    server.restart("KILL");
    assert_eq!(server.run("queue take /jobs --wait 1s", "").0, 124, "an item came back");
    let done = server.lines("done");
    assert_eq!((done.len(), done.iter().collect::<BTreeSet<_>>().len()), (ITEMS, ITEMS), "{done:?}");
}

/// A consumer that is asked to stop, or has no such COMMAND, says nothing about the item.
#[test]
fn item_is_not_moved_away_unless_its_command_failed_by_itself() {
    let server = Fixed::start();
    server.run("queue put /jobs a", "");
    let words = "queue take /jobs --attempts 1";
    assert_eq!(server.run(&format!("{words} -- ./absent"), "").0, 127);
    for signal in ["TERM", "HUP"] {
        let mut consumer = server.start_command(words, "echo $$ > pid; exec sleep 1000");
        server.pid("pid");
        consumer.signal(signal);
        assert!(consumer.code() > 128);
        std::fs::remove_file(server.scratch.join("pid")).unwrap();
    }
    assert_eq!(server.client().children("/jobs").len(), 1);
    assert_eq!(server.run(words, "exit 3").0, 3);
    assert!(server.client().children("/jobs").is_empty());
}

#[test]
fn signal_ends_a_put_that_reads_standard_input() {
    let server = Fixed::start();
    let mut put = server.command("queue put /jobs", "");
    let mut put = Running(put.stdin(Stdio::piped()).spawn().unwrap());
    eventually("the handlers of signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", put.0.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> 14 & 1 == 1
    });
    put.signal("TERM");
    assert_eq!(put.code_soon(), 143);
}

/// The item is larger than the pipe, whose reader does not read.
#[test]
fn blocked_reader_keeps_its_claim_and_a_signal_ends_the_take() {
    let server = Fixed::start();
    let item = "x".repeat(90_000);
    let mut put = server.command("queue put /jobs", "").stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(item.as_bytes()).unwrap();
    assert!(put.wait().unwrap().success());
    let mut take = server.command("queue take /jobs --session-timeout 2s", "");
    let mut take = Running(take.stdout(Stdio::piped()).spawn().unwrap());
    let mut client = server.client();
    eventually("a claim", || {
        client.children("/").contains(&"jobs-claims".into()) && client.children("/jobs-claims").len() == 1
    });
    // Longer than the session of a process that does not run.
    assert_eq!(server.run("queue take /jobs --wait 6s", "").0, 124);
    take.signal("TERM");
    assert_eq!(take.code_soon(), 143);
    assert_eq!(server.run("queue take /jobs", ""), (0, item));
}
