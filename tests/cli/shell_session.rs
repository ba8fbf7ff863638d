//! The session of `zoolet shell`: Ctrl-C, lost readers, watches, and servers of other kinds.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use crate::support::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

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

/// Returns whether a process has read all that was written to its pipe.
fn is_read(pipe: &ChildStdin) -> bool {
    rustix::io::ioctl_fionread(pipe).unwrap() == 0
}

/// Returns whether a process has opened a file.
fn has_open(child: &Child, file: &str) -> bool {
    let opened = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    opened.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == Path::new(file)))
}

/// Returns whether a server has an open connection with bytes that it has not read.
fn has_unread(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, "01", queues, ..] = words.as_slice() else { return false };
        local.ends_with(&format!(":{port:04X}")) && !queues.ends_with(":00000000")
    })
}

fn interrupt(child: &Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Waits for the end of a shell; returns its exit code, output and errors.
///
/// The code is the one that a calling script sees: 128 and its number for the end by a signal.
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
    let status = child.wait().unwrap();
    (status.code().or(status.signal().map(|signal| 128 + signal)), out, err)
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
        if words.contains(&fifo) {
            eventually("the open FIFO", || has_open(&child, &fifo));
        } else {
            eventually("the read of standard input", || is_read(&input));
        }
        interrupt(&child);
        let (code, out, err) = ended(child);
        assert_eq!((code, out.as_str(), err.as_str()), (Some(130), "", "Interrupted\n"), "{words}");
    }
    assert_eq!(well(&server, "get /a"), "old\n");
    // It is read more than once, which a FIFO does not offer.
    let child = shell(&server.address.to_string(), &format!("import {fifo} /b")).spawn().unwrap();
    let (code, _, err) = ended(child);
    assert!(code == Some(1) && err.contains("import reads it more than once"), "{err}");
}

#[test]
fn ctrl_c_of_a_write_says_that_the_change_may_have_happened() {
    let scratch = Scratch::new();
    // With the short timeout of `SMALL`, a ping could be taken for the request.
    let server = Server::start_with(&scratch, &format!("{SMALL}session_timeout_max_ms = 60000\n"));
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
        eventually("the request", || is_read(&input) && has_unread(server.address.port()));
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

#[test]
fn watch_shows_its_own_subtree_alone() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut client = server.client();
    for path in ["/app", "/apple", "/other"] {
        client.create(path, b"x").unwrap();
    }
    let mut child = shell(&server.address.to_string(), "").spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    input.write_all(b"get -w /other\nget -w /apple\nls -w /app\nwatch /app\n").unwrap();
    while server.figure("watch_count") < 4 {
        thread::sleep(Duration::from_millis(10));
    }
    for words in ["set /other y", "set /apple y", "create /app/new y", "set /app/new z"] {
        well(&server, words);
    }
    let mut changes = Vec::new();
    let mut events = Vec::new();
    while changes.last().is_none_or(|change| change != "changed /app/new") {
        let line = lines.next().unwrap();
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            ["WatchedEvent", _, kind, path, ..] => events.push(format!("{kind} {path}")),
            [time, what, path, ..] if time.ends_with('Z') => changes.push(format!("{what} {path}")),
            _ => {}
        }
    }
    assert_eq!(changes, ["created /app/new", "changed /app/new"]);
    let expected =
        ["type:NodeDataChanged path:/other", "type:NodeDataChanged path:/apple", "type:NodeChildrenChanged path:/app"];
    assert_eq!(events, expected);
    interrupt(&child);
    child.wait().unwrap();
}

/// A server that is not zoolet: it notes what it is asked, and answers little.
struct Stranger {
    address: String,
    /// The name of a four-letter word, `session` for a handshake, otherwise the opcode.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Stranger {
    /// Starts one that answers `srvr` alone of all words; it names `version`.
    fn start(version: &'static str) -> Self {
        Self::allowing("srvr", version)
    }

    /// Starts one that answers `word` alone of all words; it names `version`.
    fn allowing(word: &'static str, version: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let notes = notes.clone();
                thread::spawn(move || serve(stream, word, version, &notes));
            }
        });
        Self { address, asked }
    }

    /// Returns how often something was asked.
    fn count(&self, wanted: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == wanted).count()
    }
}

/// Answers one connection until it ends; ends it itself at an identity.
fn serve(mut stream: TcpStream, allowed: &str, version: &str, notes: &Mutex<Vec<String>>) -> Option<()> {
    let note = |what: String| notes.lock().unwrap().push(what);
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    if let Some(word) = ["srvr", "mntr", "envi"].into_iter().find(|word| head == word.as_bytes()) {
        note(word.to_owned());
        let answer = match word {
            _ if word != allowed => format!("{word} is not executed because it is not in the whitelist.\n"),
            "srvr" => format!("Zookeeper version: {version}, built on x\nMode: standalone\n"),
            "mntr" => format!("zk_version\t{version}, built on x\nzk_server_state\tstandalone\n"),
            _ => format!("Environment:\nzookeeper.version={version}, built on x\n"),
        };
        return stream.write_all(answer.as_bytes()).ok();
    }
    let mut frame = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut frame).ok()?;
    note("session".to_owned());
    // Protocol 0, a timeout of 10 s, session 7, a password of 16 bytes, not read-only.
    let mut reply = [[0, 0, 0, 0], 10_000_i32.to_be_bytes(), [0; 4], [0, 0, 0, 7], [0, 0, 0, 16]].concat();
    reply.extend_from_slice(&[0; 17]);
    send(&mut stream, &reply)?;
    loop {
        stream.read_exact(&mut head).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(head) as usize];
        stream.read_exact(&mut frame).ok()?;
        let opcode = i32::from_be_bytes(frame[4..8].try_into().unwrap());
        note(format!("{opcode:#x}"));
        // An identity that it does not know ends the connection without an answer.
        if opcode == 100 {
            return None;
        }
        let (error, body): (i32, &[u8]) = match opcode {
            3 => (0, &[0; 68]),
            // The path of sync.
            9 => (0, &[0, 0, 0, 1, b'/']),
            _ => (-6, &[]),
        };
        let reply = [&frame[..4], &[0; 8], &error.to_be_bytes(), body].concat();
        send(&mut stream, &reply)?;
    }
}

fn send(stream: &mut TcpStream, body: &[u8]) -> Option<()> {
    let frame = [&u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
    stream.write_all(&frame).ok()
}

fn typed(server: &str, lines: &str) -> (Option<i32>, String, String) {
    let mut child = shell(server, "").spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    ended(child)
}

#[test]
fn stat_asks_once_for_the_kind_of_server_and_tells_only_zoolet_of_times_to_live() {
    for (version, times) in [("3.8.0-abc", 0), ("3.9.5-zoolet-0.1.0", 5)] {
        let stranger = Stranger::start(version);
        let (code, out, err) = typed(&stranger.address, &"stat /a\n".repeat(5));
        assert_eq!((code, out.matches("numChildren").count()), (Some(0), 5), "{out}{err}");
        let asked = ["session", "srvr", "0x3", "0x7a6f0001"].map(|what| stranger.count(what));
        assert_eq!(asked, [1, 1, 5, times], "{version}");
    }
}

#[test]
fn stat_tells_of_times_to_live_if_the_server_allows_any_word_with_its_version() {
    for (word, asked) in [("srvr", [1, 0, 0]), ("mntr", [1, 1, 0]), ("envi", [1, 1, 1])] {
        for (version, times) in [("3.8.0-zoolet", 0), ("3.9.5-zoolet-0.1.0", 2)] {
            let stranger = Stranger::allowing(word, version);
            let (code, _, err) = typed(&stranger.address, "stat /a\nstat /a\n");
            assert_eq!((code, stranger.count("0x7a6f0001")), (Some(0), times), "{word} {version}: {err}");
            assert_eq!(["srvr", "mntr", "envi"].map(|word| stranger.count(word)), asked, "{word}");
        }
        let scratch = Scratch::new();
        let server = Server::start_with(&scratch, &SMALL.replace("[\"*\"]", &format!("[\"{word}\"]")));
        let (_, out, err) = typed(&server.address.to_string(), "create -t 3600000 /t x\nstat /t\n");
        assert!(out.contains("\ntimeToLive = 3600000 ms, "), "{word}: {out}{err}");
    }
}

#[test]
fn identity_at_which_the_server_hangs_up_is_not_sent_again() {
    let stranger = Stranger::start("3.8.0-abc");
    let (_, _, err) = typed(&stranger.address, "addauth digest me:secret\nsync /\nsync /\n");
    assert!(err.contains("ConnectionLoss") && err.contains("the identity is not used"), "{err}");
    assert_eq!(["session", "0x64"].map(|what| stranger.count(what)), [2, 1], "{err}");
}

#[test]
fn watches_of_a_lost_connection_are_forgotten_with_l_alone() {
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch);
    let mut child = shell(&server.address.to_string(), "").spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    input.write_all(b"addWatch /a\nls /\n").unwrap();
    output.read_line(&mut String::new()).unwrap();
    server.kill();
    input.write_all(b"removewatches /a\nremovewatches /a -l\nremovewatches /a -l\n").unwrap();
    drop(input);
    let (code, _, err) = ended(child);
    let mut out = String::new();
    output.read_to_string(&mut out).unwrap();
    let lost = "KeeperErrorCode = ConnectionLoss for /a\n";
    assert!(code == Some(1) && err.starts_with(lost), "{err}");
    assert!(err.ends_with("\nKeeperErrorCode = No such watcher for /a\n") && !err[1..].contains(lost), "{err}");
    assert_eq!(out.matches("type:PersistentWatchRemoved path:/a").count(), 1, "{out}");
}
