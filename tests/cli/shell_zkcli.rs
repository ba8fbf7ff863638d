//! zkCli's commands and options at real servers, with the answers of zkCli 3.9.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use crate::proxy::{Fate, Proxy};
use crate::support::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Opcodes of the protocol.
const DELETE: i32 = 2;
const MULTI: i32 = 14;
const RECONFIG: i32 = 16;

fn shell(server: &str, options: &str) -> Command {
    let mut command = zoolet(&["shell", "-server", server]);
    command.args(options.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end; returns the exit code and both streams.
fn ended(child: Child) -> (i32, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Carries out a script.
fn script(server: &str, lines: &[&str]) -> (i32, String, String) {
    let mut child = shell(server, "").spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
    ended(child)
}

/// Carries out a script without a failure; returns its results.
fn well(server: &str, lines: &[&str]) -> String {
    let (code, out, err) = script(server, lines);
    assert_eq!(code, 0, "{lines:?}: {out}{err}");
    out
}

/// Returns the events of an output, with the zxids left out.
fn events(out: &str) -> Vec<&str> {
    let events = out.lines().filter_map(|line| line.strip_prefix("WatchedEvent state:SyncConnected "));
    events.map(|event| event.split(" zxid: ").next().unwrap()).collect()
}

#[test]
fn connect_ends_the_session_and_opens_one_at_other_servers() {
    let scratches = [Scratch::new(), Scratch::new()];
    let [one, two] = [0, 1].map(|at| Server::start(&scratches[at]));
    let addresses = [&one, &two].map(|server| server.address.to_string());
    well(&addresses[1], &["create /app x", "create /app/two x"]);
    let there = format!("connect {}/app", addresses[1]);
    let back = format!("connect {}", addresses[0]);
    let lines = ["create -e /mine x", "ls /", &there, "ls /", &back, "ls /", "create -e /mine x", "connect", "ls /"];
    let expected = "[mine, zookeeper]\n[two]\n[zookeeper]\n[zookeeper]\n";
    assert_eq!(well(&addresses[0], &lines), expected);
    // After `close` it opens a session again.
    let (code, out, err) = script(&addresses[0], &["close", "ls /", "connect", "ls /"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "[zookeeper]\n", "Not connected\n"));
    let (code, out, err) = script(&addresses[0], &["connect nowhere:x", "ls /"]);
    assert!(code == 0 && out == "[zookeeper]\n" && err.starts_with("nowhere:x: "), "{out}{err}");
}

#[test]
fn version_names_the_shell_and_the_zkcli_whose_commands_it_has() {
    let expected = format!("zoolet shell {}, commands of ZooKeeper CLI 3.9\n", env!("CARGO_PKG_VERSION"));
    let (code, out, err) = ended(shell("127.0.0.1:1", "version").spawn().unwrap());
    assert_eq!((code, out, err.as_str()), (0, expected, ""));
}

#[test]
fn waitforconnection_waits_for_the_session_timeout_before_the_first_command() {
    let begin = Instant::now();
    let (code, out, err) = ended(shell("127.0.0.1:1", "-waitforconnection -timeout 700 ls /").spawn().unwrap());
    // The path of the command would stand behind the code, as without the option.
    assert!(err.starts_with("KeeperErrorCode = ConnectionLoss\nno server at 127.0.0.1:1"), "{err}");
    assert!((code, out.as_str()) == (1, "") && begin.elapsed() >= Duration::from_millis(700));
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let (code, out, _) = ended(shell(&server.address.to_string(), "-waitforconnection ls /").spawn().unwrap());
    assert_eq!((code, out.as_str()), (0, "[zookeeper]\n"));
}

#[test]
fn timeout_is_the_session_timeout_in_milliseconds() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut child = shell(&server.address.to_string(), "-timeout 1700").spawn().unwrap();
    eventually("a session with this timeout", || server.word("cons").contains(",to=1700,"));
    drop(child.stdin.take());
    assert_eq!(ended(child).0, 0);
}

#[test]
fn server_without_a_leader_serves_with_r_alone() {
    let scratch = Scratch::new();
    let [here, other, third] = free_ports();
    let members: String = [here, other, third]
        .iter()
        .enumerate()
        .map(|(at, port)| format!("[[server]]\nid = {}\nhost = \"127.0.0.1:{port}\"\n", at + 1))
        .collect();
    let alone = SMALL.replace("session_timeout_min_ms = 200\n", &members);
    let server = Server::start_with(&scratch, &format!("id = 1\nread_only = true\n{alone}"));
    eventually("a read-only server", || server.word("isro") == "ro");
    let address = server.address.to_string();
    let mut child = shell(&address, "-r").spawn().unwrap();
    let lines = b"ls /\ncreate /x y\nsync /\n";
    child.stdin.take().unwrap().write_all(lines).unwrap();
    let refused = "Not a read-only call: /x\nSync has failed. rc=-119\nNot a read-only call: /\n";
    assert_eq!(ended(child), (1, "[zookeeper]\n".to_owned(), refused.to_owned()));
    let (code, out, err) = ended(shell(&address, "ls /").spawn().unwrap());
    assert!((code, out.as_str()) == (1, "") && err.starts_with("KeeperErrorCode = ConnectionLoss for /\n"), "{err}");
}

#[test]
fn config_sets_a_watch_with_w() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    well(&server.address.to_string(), &["create /app x"]);
    // The configuration is outside of the root of an address.
    for root in ["", "/app"] {
        let address = format!("{}{root}", server.address);
        let mut child = shell(&address, "").spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"config\nconfig -w\n").unwrap();
        eventually("the watch", || server.figure("watch_count") == 1);
        drop(input);
        assert_eq!(ended(child).0, 0);
        eventually("the end of the watch", || server.figure("watch_count") == 0);
    }
    let out = well(&server.address.to_string(), &["config -w", "removewatches /zookeeper/config -d"]);
    assert_eq!(events(&out), ["type:DataWatchRemoved path:/zookeeper/config"]);
}

#[test]
fn removewatches_removes_the_watches_of_one_kind() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    well(&address, &["create /a x"]);
    let set = ["ls -w /a", "get -w /a", "addWatch -m PERSISTENT /p", "addWatch /r"];
    for (option, path, removed) in
        [("-c", "/a", "Child"), ("-d", "/a", "Data"), ("-p", "/p", "Persistent"), ("-r", "/r", "Persistent")]
    {
        let line = format!("removewatches {path} {option}");
        let (code, out, err) = script(&address, &[&set[..], &[&line, &line]].concat());
        assert_eq!(events(&out), [format!("type:{removed}WatchRemoved path:{path}")], "{line}: {out}");
        // The second time there is none.
        let expected = format!("KeeperErrorCode = No such watcher for {path}\n");
        assert_eq!((code, err), (1, expected), "{line}");
    }
    // The kinds do not stand for one another.
    for line in ["removewatches /p -r", "removewatches /r -p", "removewatches /p -d", "removewatches /r -c"] {
        let (code, out, err) = script(&address, &[&set[..], &[line]].concat());
        assert!(code == 1 && events(&out).is_empty() && err.contains("No such watcher for /"), "{line}: {out}{err}");
    }
}

#[test]
fn deleteall_deletes_as_many_znodes_in_one_multi_as_b_says() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let znodes = ["create /a", "create /a/1", "create /a/2", "create /a/2/3", "create /a/4"];
    for (option, expected) in
        [("", vec![MULTI]), (" -b 2", vec![MULTI; 3]), (" -b 0", vec![DELETE; 5]), (" -b -1", vec![DELETE; 5])]
    {
        well(&server.address.to_string(), &znodes);
        let (note, noted) = mpsc::channel();
        let proxy = Proxy::start(&server, move |opcode| {
            if matches!(opcode, DELETE | MULTI) {
                note.send(opcode).unwrap();
            }
            Fate::Forwarded
        });
        assert_eq!(well(&proxy.address, &[&format!("deleteall /a{option}"), "ls /"]), "[zookeeper]\n", "{option}");
        assert_eq!(noted.try_iter().collect::<Vec<_>>(), expected, "{option}");
    }
    let (code, _, err) = script(&server.address.to_string(), &["deleteall /zookeeper -b"]);
    assert_eq!((code, err.as_str()), (1, "Missing argument for option: b\n"));
}

#[test]
fn delquota_deletes_one_limit_or_all() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    let limits = ["setquota -n 5 /q", "setquota -b 100 /q", "setquota -N 9 /q", "setquota -B 1000 /q"];
    well(&address, &[&["create /q x"], &limits[..]].concat());
    for (option, quota) in [
        ("-N", "count=5,bytes=100=;byteHardLimit=1000;countHardLimit=-1"),
        ("-B", "count=5,bytes=100=;byteHardLimit=-1;countHardLimit=-1"),
        ("-n", "count=-1,bytes=100=;byteHardLimit=-1;countHardLimit=-1"),
        ("-b", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=-1"),
    ] {
        let out = well(&address, &[&format!("delquota {option} /q"), "listquota /q"]);
        assert_eq!(out.lines().next(), Some(format!("Output quota for /q {quota}").as_str()), "{option}");
    }
    let (code, out, err) = script(&address, &["delquota /q", "listquota /q", "ls /zookeeper/quota", "delquota -N /q"]);
    let expected = "absolute path is /zookeeper/quota/q/zookeeper_limits\nquota for /q does not exist.\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, "[]\nQuota does not exist for /q\n", expected));
}

#[test]
fn get_shows_bytes_as_base64_and_as_a_table() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let address = server.address.to_string();
    well(&address, &["create /a x", "set -b /a MDEyMzQ1Njc4OWFiY2RlZgD/eg==", "create /none"]);
    let table = [
        "         +-------------------------------------------------+",
        "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |",
        "+--------+-------------------------------------------------+----------------+",
        "|00000000| 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66 |0123456789abcdef|",
        "|00000010| 00 ff 7a                                        |..z             |",
        "+--------+-------------------------------------------------+----------------+\n",
    ]
    .join("\n");
    assert_eq!(well(&address, &["get -b /a"]), "MDEyMzQ1Njc4OWFiY2RlZgD/eg==\n");
    assert_eq!(well(&address, &["get -x /a"]), table);
    for (line, data) in [("get -b -s /a", "MDEyMzQ1Njc4OWFiY2RlZgD/eg==\n"), ("get -sx /a", table.as_str())] {
        let out = well(&address, &[line]);
        assert!(out.starts_with(&format!("{data}cZxid = 0x")) && out.contains("\ndataLength = 19\n"), "{line}: {out}");
    }
    assert_eq!(well(&address, &["get -b /none", "get -x /none"]), "null\nnull\n");
}

/// A member of an ensemble that commits every configuration: it notes the bodies of the requests.
fn ensemble(committed: &'static str) -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (note, noted) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            commit(stream, committed, &note);
        }
    });
    (address, noted)
}

/// Serves one connection until it ends.
fn commit(mut stream: TcpStream, committed: &str, note: &mpsc::Sender<Vec<u8>>) -> Option<()> {
    frame(&mut stream)?;
    // Protocol 0, a timeout of 10 s, session 7, a password of 16 bytes, not read-only.
    let mut reply = [[0, 0, 0, 0], 10_000_i32.to_be_bytes(), [0; 4], [0, 0, 0, 7], [0, 0, 0, 16]].concat();
    reply.extend_from_slice(&[0; 17]);
    send(&mut stream, &reply)?;
    loop {
        let request = frame(&mut stream)?;
        let mut reply = [&request[..4], &[0; 12]].concat();
        if request[4..8] == RECONFIG.to_be_bytes() {
            note.send(request[8..].to_vec()).ok()?;
            // The configuration, and a stat of zeros.
            reply.extend_from_slice(&u32::try_from(committed.len()).unwrap().to_be_bytes());
            reply.extend_from_slice(committed.as_bytes());
            reply.extend_from_slice(&[0; 68]);
        }
        send(&mut stream, &reply)?;
    }
}

fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn send(stream: &mut TcpStream, body: &[u8]) -> Option<()> {
    let frame = [&u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
    stream.write_all(&frame).ok()
}

/// The layout is that of ZooKeeper's `ReconfigRequest`: three strings, null without an option, and
/// the version of the configuration, -1 without one.
#[test]
fn reconfig_sends_the_change_and_prints_the_committed_configuration() {
    let committed = "server.1=a:1:2:participant;0.0.0.0:3\nversion=100000003";
    let (address, noted) = ensemble(committed);
    let scratch = Scratch::new();
    let file = scratch.join("members");
    let members =
        "# as in zoo.cfg\ntickTime=2000\nserver.1=A:1:2;3\n  server.2=b:1:2:observer;3\n\ngroup.1=1\nweight.1=2\n";
    std::fs::write(&file, members).unwrap();
    let of_file = format!("reconfig -file {}", file.display());
    let null = b"\xff\xff\xff\xff";
    let unconditional = [0xff; 8];
    for (line, body) in [
        (
            "reconfig -v 1f -add server.4=Host:1:2;3,server.5=h:1:2:observer;3 -remove 2,3",
            [&b"\0\0\0\x2dserver.4=host:1:2;3,server.5=h:1:2:observer;3\0\0\0\x032,3"[..], null, b"\0\0\0\0\0\0\0\x1f"]
                .concat(),
        ),
        ("reconfig -remove 3", [&null[..], b"\0\0\0\x013", null, &unconditional].concat()),
        (
            "reconfig -members server.1=A:1:2;3",
            [&null[..], null, b"\0\0\0\x10server.1=a:1:2;3", &unconditional].concat(),
        ),
        (
            &of_file,
            [
                &null[..],
                null,
                b"\0\0\0\x3fserver.1=a:1:2;3,server.2=b:1:2:observer;3,group.1=1,weight.1=2",
                &unconditional,
            ]
            .concat(),
        ),
    ] {
        assert_eq!(well(&address, &[line]), format!("Committed new configuration:\n{committed}\n"), "{line}");
        let sent = noted.recv().unwrap();
        assert_eq!(sent, body, "{line}: {}", String::from_utf8_lossy(&sent));
    }
    let out = well(&address, &["reconfig -s -remove 3"]);
    let expected =
        format!("Committed new configuration:\n{committed}\ncZxid = 0x0\nctime = Thu Jan 01 00:00:00 UTC 1970\n");
    assert!(out.starts_with(&expected) && out.ends_with("\nnumChildren = 0\n"), "{out}");
}
