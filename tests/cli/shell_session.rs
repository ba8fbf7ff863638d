//! The session of `zoolet shell`: Ctrl-C.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use crate::support::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time in which a shell has reached the wait that a test interrupts.
const UNDER_WAY: Duration = Duration::from_millis(700);

fn shell(server: &str, words: &str) -> Command {
    let mut command = zoolet(&["shell", "--server", server]);
    command.args(words.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Carries out one command; returns its output.
fn well(server: &Server, words: &str) -> String {
    let output = shell(&server.address.to_string(), words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn interrupt(child: &Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Waits for the end of a shell; returns its exit code, output and errors.
fn ended(mut child: Child) -> (Option<i32>, String, String) {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the shell does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().map(|mut stream| stream.read_to_string(&mut out).unwrap());
    child.stderr.take().map(|mut stream| stream.read_to_string(&mut err).unwrap());
    (child.wait().unwrap().code(), out, err)
}

#[test]
fn ctrl_c_while_a_file_is_read_changes_nothing() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    well(&server, "create /a old");
    let fifo = scratch.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = fifo.display().to_string();
    for words in ["set -i - /a".to_owned(), format!("set -i {fifo} /a"), format!("diff file:{fifo} /a")] {
        let mut child = shell(&server.address.to_string(), &words).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"half").unwrap();
        thread::sleep(UNDER_WAY);
        interrupt(&child);
        let (code, out, err) = ended(child);
        assert_eq!((code, out.as_str(), err.as_str()), (Some(130), "", "Interrupted\n"), "{words}");
    }
    assert_eq!(well(&server, "get /a"), "old\n");
    // It is read twice, which a FIFO does not offer.
    let child = shell(&server.address.to_string(), &format!("import {fifo} /b")).spawn().unwrap();
    let (code, _, err) = ended(child);
    assert!(code == Some(1) && err.contains("import reads it twice"), "{err}");
}

#[test]
fn ctrl_c_of_a_write_says_that_the_change_may_have_happened() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    well(&server, "create /a old");
    for (line, says) in [("get /a\n", "Interrupted\n"), ("set /a new\n", "Interrupted\nthe change may have happened\n")]
    {
        let mut child = shell(&server.address.to_string(), "").spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        input.write_all(b"get /a\n").unwrap();
        output.read_line(&mut String::new()).unwrap();
        server.signal("STOP");
        input.write_all(line.as_bytes()).unwrap();
        thread::sleep(UNDER_WAY);
        interrupt(&child);
        let (code, _, err) = ended(child);
        server.signal("CONT");
        assert_eq!((code, err.as_str()), (Some(130), says), "{line}");
    }
}

#[test]
fn commands_go_on_after_the_reader_of_their_output_has_gone() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut child = shell(&server.address.to_string(), "").spawn().unwrap();
    drop(child.stdout.take());
    let lines = "create /one x\nget /one\nls -R /\ncreate /two x\nget /two\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let (code, _, err) = ended(child);
    assert_eq!((code, err.as_str()), (Some(0), "Created /one\nCreated /two\n"));
    assert_eq!(well(&server, "get /two"), "x\n");
    // A remark that finds no reader hinders nothing.
    for words in ["delete /one 0", "rmr /two", "ls / watch"] {
        let mut child = shell(&server.address.to_string(), words).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(ended(child).0, Some(0), "{words}");
    }
    assert_eq!(well(&server, "ls /"), "[zookeeper]\n");
}
