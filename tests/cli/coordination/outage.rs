//! Servers that do not answer: waits keep to their bounds, and go on after an outage.

use super::{Fixed, Running, code_soon};
use crate::support::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use zoolet_model::{Request, WriteOp};

#[test]
fn wait_bounds_the_connection_too() {
    let scratch = Scratch::new();
    let [port] = free_ports();
    let server = format!("127.0.0.1:{port}");
    for (words, code) in [
        ("lock /a --wait 300ms -- true", 124),
        ("lock /a --no-wait -- true", 124),
        ("lock /a --no-wait --conflict-exit-code 7 -- true", 7),
        ("semaphore /a --permits 2 --no-wait -- true", 124),
        ("elect /a --wait 300ms -- true", 124),
        ("queue take /a --wait 300ms", 124),
        ("barrier wait /a --wait 300ms", 124),
    ] {
        let began = Instant::now();
        let mut given: Vec<_> = words.split(' ').collect();
        let rest = given.iter().position(|word| *word == "--").unwrap_or(given.len());
        given.splice(rest..rest, ["--server", &server, "--session-timeout", "60s"]);
        let (is, line) = refusal(&scratch, &given);
        assert_eq!(is, code, "{words}: {line}");
        assert!(line.contains("/a: no session ") && line.contains("Connection refused"), "{words}: {line}");
        assert!(began.elapsed() < Duration::from_secs(30), "{words}: {:?}", began.elapsed());
    }
}

/// The first server may be the one that is down, and the others have no quorum.
#[test]
fn reason_names_a_server_that_accepts_connections_before_one_that_does_not() {
    let scratch = Scratch::new();
    let [down, other] = free_ports();
    let up = served(|client, _| drop(client));
    for (servers, says) in [
        (format!("127.0.0.1:{down},127.0.0.1:{up}"), format!("127.0.0.1:{up} accepts connections; wait longer")),
        (format!("127.0.0.1:{down},127.0.0.1:{other}"), "and the other servers cannot be reached either".to_owned()),
    ] {
        let (code, line) = refusal(&scratch, &["lock", "/a", "--server", &servers, "--wait", "300ms", "--", "true"]);
        assert!(code == 124 && line.contains(&says), "{servers}: {code} {line}");
    }
}

/// A server that opens sessions and may answer pings, but nothing else.
fn mute_server(answers_pings: bool) -> u16 {
    served(move |client, number| open_only(client, number, answers_pings))
}

/// Serves each connection, with its number, on a thread of its own.
fn served(serve: impl Fn(TcpStream, i64) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (number, client) in (1_i64..).zip(listener.incoming()) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(client.unwrap(), number));
        }
    });
    port
}

/// The number of a ping, and the operation of a create that is answered with the stat.
const PING: [u8; 4] = (-2_i32).to_be_bytes();
const CREATE2: [u8; 4] = 15_i32.to_be_bytes();

/// Opens the session `number` with the timeout that the client asks for, and may answer its pings.
fn open_only(mut client: TcpStream, number: i64, answers_pings: bool) {
    let Some(asked) = frame(&mut client) else { return };
    // Protocol version 0, the timeout, the session, its password, and that it is not read-only.
    let opened = [&[0; 4], &asked[12..16], &number.to_be_bytes(), &[0, 0, 0, 16], &[7; 16], &[0]].concat();
    let mut answer = Some(opened);
    loop {
        if answer.is_some_and(|answer| !send(&client, &answer)) {
            return;
        }
        let Some(request) = frame(&mut client) else { return };
        answer = (answers_pings && request.starts_with(&PING)).then(|| [&PING[..], &[0; 12]].concat());
    }
}

/// A server in front of another one. From the first create on, it answers only pings, although it
/// passes all requests on.
fn front_that_loses_the_answer_to_a_create(server: u16) -> u16 {
    served(move |client, _| {
        let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
        let (mut requests, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let is_mute = Arc::new(AtomicBool::new(false));
        let is_create = Arc::clone(&is_mute);
        std::thread::spawn(move || {
            while let Some(answer) = frame(&mut answers) {
                if (!is_mute.load(SeqCst) || answer.starts_with(&PING)) && !send(&client, &answer) {
                    break;
                }
            }
        });
        while let Some(request) = frame(&mut requests) {
            // Behind the number of the request.
            is_create.fetch_or(request[4..8] == CREATE2, SeqCst);
            if !send(&server, &request) {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    })
}

/// A proxy that refuses the first three writes, as a server with a full disk does.
fn front_that_is_full_at_first(server: u16) -> u16 {
    const WRITES: [i32; 4] = [2, 5, 14, 15];
    let left = Arc::new(AtomicUsize::new(3));
    served(move |client, _| {
        let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
        let (mut requests, refused, mut answers) =
            (client.try_clone().unwrap(), client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || {
            while let Some(answer) = frame(&mut answers) {
                if !send(&client, &answer) {
                    break;
                }
            }
        });
        while let Some(request) = frame(&mut requests) {
            let is_write = WRITES.iter().any(|code| request[4..8] == code.to_be_bytes());
            let is_refused = is_write && left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            // The number of the request, a zxid and SystemError.
            let refusal = [&request[..4], &[0; 8], &(-1_i32).to_be_bytes()].concat();
            if !(if is_refused { send(&refused, &refusal) } else { send(&server, &request) }) {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    })
}

/// Sends a frame; returns whether that was possible.
fn send(mut stream: &TcpStream, frame: &[u8]) -> bool {
    let size = u32::try_from(frame.len()).unwrap().to_be_bytes();
    stream.write_all(&[&size[..], frame].concat()).is_ok()
}

/// Returns the next frame of `client`; `None` once it is gone.
fn frame(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut size = [0; 4];
    client.read_exact(&mut size).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(size) as usize];
    client.read_exact(&mut frame).ok()?;
    Some(frame)
}

#[test]
fn wait_bounds_the_setting_of_the_permits_too() {
    let scratch = Scratch::new();
    let server = format!("127.0.0.1:{}", mute_server(true));
    let late = "no permit was free within 0.3 s";
    for words in
        ["--permits 2 --wait 300ms --session-timeout 300s", "--permits 2 --resize --wait 300ms --session-timeout 300s"]
    {
        let words = format!("semaphore /a --server {server} {words} -- true");
        assert_eq!(refused_soon(&scratch, &words), (124, format!("zoolet: /a: {late}\n")), "{words}");
    }
}

/// Runs the words, which must not run COMMAND; returns the exit code and the line.
fn refused_soon(scratch: &Scratch, words: &str) -> (i32, String) {
    let mut child = zoolet(&words.split(' ').collect::<Vec<_>>());
    let mut child = child.current_dir(scratch.path()).stderr(Stdio::piped()).spawn().unwrap();
    let code = code_soon(&mut child);
    let mut line = String::new();
    child.stderr.take().unwrap().read_to_string(&mut line).unwrap();
    (code, line)
}

/// A leader whose disk hangs answers pings, and a box that is cut off nothing.
#[test]
fn command_that_must_not_wait_gives_up_on_a_server_that_opens_a_session_and_no_more() {
    let scratch = Scratch::new();
    let servers = [mute_server(true), mute_server(false)];
    for words in ["lock /a", "lock /a --conflict-exit-code 0", "semaphore /a", "semaphore /a --permits 2"] {
        for server in servers {
            let words = format!("{words} --no-wait --session-timeout 1s --server 127.0.0.1:{server} -- touch ran");
            let (code, line) = refused_soon(&scratch, &words);
            assert_eq!(code, if words.contains("--conflict") { 0 } else { 124 }, "{words}: {line}");
            assert!(line.starts_with("zoolet: /a: no "), "{words}: {line}");
        }
    }
    assert!(!std::fs::exists(scratch.join("ran")).unwrap());
}

/// The server has created the znode, but zoolet cannot know it.
#[test]
fn lock_that_was_given_up_without_an_answer_is_free_soon() {
    let server = Fixed::start();
    let mut client = server.client();
    client.create("/l", b"").unwrap();
    let front = front_that_loses_the_answer_to_a_create(server.port);
    let words = format!("lock /l --no-wait --session-timeout 4s --server 127.0.0.1:{front}");
    let mut attempt = server.start_command(&words, "echo ran > ran");
    eventually("a znode", || client.children("/l").len() == 1);
    assert_eq!(attempt.code_soon(), 124);
    assert_eq!(server.run("lock /l --wait 20s", "exit 3").0, 3);
    assert!(server.lines("ran").is_empty());
}

/// All boxes that waited in a line gave up after a short outage.
#[test]
fn waiter_without_a_bound_goes_on_after_an_outage() {
    let mut server = Fixed::start();
    let mut client = server.client();
    client.create("/l", b"").unwrap();
    client.create("/l/other-lock-0000000000", b"").unwrap();
    let wait = |words: &str, script: &str| {
        let mut command = server.command(words, script);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    };
    let mut waiters = [
        wait("lock /l --session-timeout 4s", "exit 5"),
        wait("queue take /jobs --session-timeout 4s", "exit 6"),
        wait("elect /l --session-timeout 4s", "exit 7"),
    ];
    eventually("waiters", || client.children("/l").len() == 3 && client.children("/").contains(&"jobs".into()));
    server.signal("KILL");
    for waiter in &mut waiters {
        let mut line = String::new();
        BufReader::new(waiter.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("no session within 4 s") && line.contains("goes on trying"), "{line}");
    }
    server.restart("KILL");
    assert_eq!(server.run("queue put /jobs a", "").0, 0);
    let mut client = server.client();
    let path = "/l/other-lock-0000000000".into();
    client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
    assert_eq!(waiters.each_mut().map(Running::code_soon), [5, 6, 7]);
}

/// A server whose disk was full for a moment ended a candidate that should stand forever.
#[test]
fn waiter_without_a_bound_goes_on_after_a_server_was_full() {
    let server = Fixed::start();
    server.client().create("/l", b"").unwrap();
    for words in ["lock /l", "elect /l --forever", "semaphore /s --permits 1", "barrier meet /b --parties 1"] {
        let front = front_that_is_full_at_first(server.port);
        let given = format!("{words} --session-timeout 6s --server 127.0.0.1:{front}");
        let script = if words.contains("forever") { "kill -TERM $PPID; exec sleep 1000" } else { "exit 5" };
        let mut command = server.command(&given, script);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut waiter = Running(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(waiter.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let expected = ": the server's disk is full, read-only or failing, or a bound is reached; run zoolet status \
                        (SystemError); zoolet goes on trying\n";
        assert!(line.starts_with("zoolet: cannot ") && line.ends_with(expected), "{words}: {line}");
        let code = if words.contains("forever") { 143 } else { 5 };
        assert_eq!(waiter.code_soon(), code, "{words}");
    }
    // No place of a refused attempt stays in the line.
    let mut client = server.client();
    eventually("an empty line", || client.children("/l").is_empty());
    for (bound, code) in [("--no-wait", 125), ("--wait 300ms", 124)] {
        let front = front_that_is_full_at_first(server.port);
        let words = format!("lock /l {bound} --session-timeout 6s --server 127.0.0.1:{front}");
        let (is, printed) = server.run(&words, "exit 5");
        assert!(is == code && printed.contains(": the server's disk is full, read-only"), "{bound}: {is} {printed}");
    }
}

/// The restarted server still has the ephemeral of the session that zoolet has given up.
#[test]
fn party_that_comes_back_with_another_session_does_not_meet_itself() {
    let mut server = Fixed::start();
    let mut client = server.client();
    client.create("/b", b"").unwrap();
    let words = "barrier meet /b --parties 2 --session-timeout 6s";
    let mut command = server.command(words, "echo ran >> ran");
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut first = Running(command.spawn().unwrap());
    let room = "/b/0000000000";
    eventually("a room", || client.children("/b").len() == 1);
    let place = client.children(room);
    server.signal("KILL");
    let mut line = String::new();
    BufReader::new(first.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("no session within 6 s"), "{line}");
    server.restart("KILL");
    let mut client = server.client();
    eventually("the same party again", || client.children(room).iter().any(|name| !place.contains(name)));
    let mut second = server.start_command(words, "echo ran >> ran");
    assert_eq!([&mut first, &mut second].map(Running::code_soon), [0, 0]);
    assert_eq!(server.lines("ran").len(), 2);
}

/// The server cannot confirm that the lock is free, and the user has waited long enough.
#[test]
fn signal_ends_the_wait_for_the_release() {
    let server = Fixed::start();
    let script = format!("kill -STOP {}; exit 4", server.child.id());
    let mut command = server.command("lock /l --session-timeout 60s --grace 0ms", &script);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut holder = Running(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(holder.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("zoolet: /l: no server confirms the release; zoolet waits up to "), "{line}");
    holder.signal("TERM");
    assert_eq!(holder.code_soon(), 4);
    server.signal("CONT");
}

/// HUP and USR1 make a service read its configuration again. A standby has none to read.
#[test]
fn signals_for_the_command_do_not_end_a_standby() {
    let server = Fixed::start();
    let mut client = server.client();
    client.create("/l", b"").unwrap();
    client.create("/l/other-lock-0000000000", b"").unwrap();
    let mut command = std::process::Command::new("setsid");
    let standby = server.command("elect /l --restart --forever", "echo $$ > pid; exec sleep 1000");
    command.arg(standby.get_program()).args(standby.get_args()).current_dir(server.scratch.path());
    command.env("ZOOLET_SERVER", format!("127.0.0.1:{}", server.port)).stdin(Stdio::null());
    let mut standby = Running(command.spawn().unwrap());
    eventually("a standby", || client.children("/l").len() == 2);
    for signal in ["HUP", "USR1", "USR2"] {
        standby.signal(signal);
    }
    let path = "/l/other-lock-0000000000".into();
    client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
    server.pid("pid");
    // Such a signal kills this COMMAND, so its sender wants an end.
    standby.signal("HUP");
    assert_eq!(standby.code_soon(), 129);
}
