//! The real binary serves ZooKeeper's clients, keeps acknowledged writes and ends cleanly.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::support::*;
use std::io::{Read, Write};
use zoolet_model::{CreateKind, ErrorCode, EventKind, Reply, Request, SessionId};

#[test]
fn serve_without_a_configuration_keeps_its_data_in_the_working_directory() {
    // The default port may be in use on this machine, so the test gives a port and nothing else.
    let scratch = Scratch::new();
    let mut child = zoolet(&["serve", "--listen", "127.0.0.1:0"])
        .current_dir(scratch.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let data = scratch.path().canonicalize().unwrap().join("zoolet-data");
    assert!(line.contains("serves ZooKeeper clients of this machine on 127.0.0.1:"), "{line}");
    assert!(line.trim_end().ends_with(&format!("data in {}", data.display())), "{line}");
    assert!(data.is_dir());
}

/// Returns every file of a data directory with its mode.
fn modes(data: &std::path::Path) -> Vec<(String, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let files = std::fs::read_dir(data).unwrap().map(|file| file.unwrap().path());
    let named = files.map(|file| (file.file_name().unwrap().to_string_lossy().into_owned(), mode(&file)));
    let mut all: Vec<_> = named.chain([(".".to_owned(), mode(data))]).collect();
    all.sort();
    all
}

#[test]
fn data_files_are_private_to_their_owner_under_any_umask() {
    for umask in ["0", "022", "077", "0777"] {
        let scratch = Scratch::new();
        let data = scratch.join("data");
        let script =
            format!("umask {umask}; exec \"$0\" serve --listen 127.0.0.1:0 --until-eof --log error --data \"$1\"");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, zoolet(&[]).get_program().to_str().unwrap(), data.to_str().unwrap()]);
        assert!(shell.stdin(std::process::Stdio::null()).output().unwrap().status.success(), "umask {umask}");
        let modes = modes(&data);
        for made in ["ZOOLET", "LOCK", ".log", ".manifest"] {
            assert!(modes.iter().any(|(name, _)| name.ends_with(made)), "there is no {made} in {modes:?}");
        }
        let others: Vec<_> =
            modes.iter().filter(|(name, mode)| *mode != if name == "." { 0o700 } else { 0o600 }).collect();
        assert!(others.is_empty(), "with umask {umask}: {others:?}");
    }
}

/// The running server would go on writing into files without a name, or with another name.
#[test]
fn data_directory_replaced_by_a_copy_raises_an_alarm_until_restored() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let [data, moved] = ["data", "moved"].map(|name| scratch.join(name));
    assert!(data.join("ZOOLET").is_file());
    let is_alarmed = || {
        let output = run(&scratch, &["status", "--server", &server.address.to_string()]);
        let said = String::from_utf8(output.stdout).unwrap();
        let is_alarmed = said.contains("ALARM: the data directory, or a file in it, was removed, moved or replaced");
        // A busy machine may raise other alarms.
        assert!(!is_alarmed || output.status.code() == Some(1), "{said}");
        is_alarmed
    };
    assert!(!is_alarmed());
    std::fs::rename(&data, &moved).unwrap();
    std::fs::create_dir(&data).unwrap();
    for file in std::fs::read_dir(&moved).unwrap().map(|file| file.unwrap()) {
        // The server may have renamed the file meanwhile.
        let _ = std::fs::copy(file.path(), data.join(file.file_name()));
    }
    eventually("an alarm", is_alarmed);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&moved, &data).unwrap();
    eventually("no alarm", || !is_alarmed());
    let (segment, copy) = (data.join("seg-00.log"), scratch.join("copy"));
    std::fs::copy(&segment, &copy).unwrap();
    std::fs::rename(&copy, &segment).unwrap();
    eventually("an alarm of one file", is_alarmed);
}

#[test]
fn unencrypted_port_for_any_machine_is_named_in_the_first_line() {
    let scratch = Scratch::new();
    let mut child = zoolet(&["serve", "--listen", "plain://0.0.0.0:0", "--log", "error"])
        .current_dir(scratch.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.contains("serves ZooKeeper clients of any machine on ") && line.contains(", unencrypted; "), "{line}");
}

#[test]
fn client_gets_the_watch_event_and_data_written_by_another_client() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let (mut one, mut two) = (server.client(), server.client());
    one.create("/a", b"first").unwrap();
    let watched = two.ask(&Request::GetData { path: "/a".into(), watch: true }).unwrap();
    assert!(matches!(watched, Reply::Data(Some(data), _) if data == "first"));
    one.ask(&set("/a", b"second")).unwrap();
    assert_eq!(two.event().kind, EventKind::NodeDataChanged);
    assert_eq!(two.get("/a").unwrap().unwrap(), "second");
    assert_eq!(one.create("/a", b"").unwrap_err(), ErrorCode::NodeExists);
    assert_eq!(one.ask(&Request::CloseSession).unwrap(), Reply::Empty);
    assert!(one.is_closed());
}

#[test]
fn restart_keeps_data_sessions_and_ephemerals() {
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch);
    let mut client = server.client();
    client.create("/kept", b"data").unwrap();
    client.ask(&create("/mine", b"", CreateKind::Ephemeral)).unwrap();
    for restart in [Server::terminate_and_restart, Server::kill_and_restart] {
        let session = client.session;
        restart(&mut server);
        assert!(client.is_closed());
        client = Client::reconnect(server.address, &session).unwrap();
        assert_eq!(client.session.session, session.session);
        assert_eq!(client.get("/kept").unwrap().unwrap(), "data");
        assert!(client.exists("/mine"));
    }
    client.ask(&Request::CloseSession).unwrap();
    assert!(!server.client().exists("/mine"));
}

#[test]
fn abandoned_session_expires_with_its_ephemerals() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut owner = Client::connect_with(server.address, &hello(SessionId(0), None, 200)).unwrap();
    assert_eq!(owner.session.timeout_ms, 200);
    owner.ask(&create("/mine", b"", CreateKind::Ephemeral)).unwrap();
    let session = owner.session;
    drop(owner);
    let mut witness = server.client();
    eventually("the ephemeral goes", || !witness.exists("/mine"));
    let refused = Client::reconnect(server.address, &session).unwrap();
    assert_eq!((refused.session.timeout_ms, refused.session.session), (0, SessionId(0)));
}

#[test]
fn listed_four_letter_words_are_answered() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    server.client().create("/a", b"").unwrap();
    assert_eq!(server.word("ruok"), "imok");
    assert_eq!(server.word("isro"), "rw");
    let srvr = server.word("srvr");
    assert!(srvr.starts_with("Zookeeper version: 3.") && srvr.contains("Mode: standalone\nNode count: "), "{srvr}");
    let conf = server.word("conf");
    assert!(conf.contains("tickTime=100\n") && conf.contains("dataDir=/"), "{conf}");
    assert!(server.word("envi").contains("zookeeper.version="));
    for word in ["stat", "cons", "wchs"] {
        assert!(!server.word(word).is_empty(), "{word}");
    }
    assert!(server.figure("log_fdatasyncs") > 0 && server.figure("log_entry_bytes") > 0);
    assert!(server.figure("log_appends") > 0 && server.figure("fdatasync_us_max") > 0);
}

#[test]
fn unlisted_four_letter_word_is_not_executed() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch, "");
    assert!(server.word("srvr").contains("Mode: standalone"));
    assert_eq!(server.word("ruok"), "ruok is not executed because it is not in the whitelist.\n");
}

#[test]
fn zoo_cfg_works_unchanged() {
    let scratch = Scratch::new();
    let config = scratch.join("zoo.cfg");
    let data = scratch.join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("myid"), "7\n").unwrap();
    let text = format!(
        "# as it was\ntickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort=23990\n\
         clientPortAddress=127.0.0.1\n4lw.commands.whitelist=*\nserver.7=localhost:2888:3888\n",
        data.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut child = zoolet(&["serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(&config)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let address = line.split_whitespace().find_map(|word| word.trim_end_matches(';').parse().ok()).unwrap();
    let mut stream = std::net::TcpStream::connect::<std::net::SocketAddr>(address).unwrap();
    stream.write_all(b"conf").unwrap();
    let mut conf = String::new();
    stream.read_to_string(&mut conf).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(conf.contains("serverId=7\n") && conf.contains("minSessionTimeout=4000\n"), "{conf}");
}

#[test]
fn sigint_or_sigterm_ends_the_server_cleanly_and_closes_connections() {
    for signal in ["INT", "TERM"] {
        let scratch = Scratch::new();
        let mut server = Server::start(&scratch);
        let mut client = server.client();
        // The answer may be in flight when the signal comes. It must not be lost without a close.
        client.send(&create("/a", b"", CreateKind::Persistent));
        server.signal(signal);
        assert!(server.wait().success());
        while client.frame().is_some() {}
    }
}

#[test]
fn session_in_process_and_tcp_client_share_one_tree() {
    use zoolet::{Config, Node, Version, Wait, path};
    let scratch = Scratch::new();
    let mut config = Config::new(scratch.join("data"));
    config.clients = Some("127.0.0.1:0".parse().unwrap());
    let node = Node::start(config).unwrap();
    node.ready().wait().unwrap();
    let session = node.session().wait().unwrap();
    let mut client = Client::connect(node.client_address().unwrap());
    client.create("/shared", b"client").unwrap();
    let (read, changed) = session.get_and_watch(path!("/shared")).wait().unwrap();
    assert_eq!(read.text(), Some("client"));
    client.ask(&set("/shared", b"again")).unwrap();
    assert_eq!(changed.wait_timeout(PATIENCE).unwrap().unwrap().kind, EventKind::NodeDataChanged);
    client.ask(&Request::GetData { path: "/shared".into(), watch: true }).unwrap();
    session.set(path!("/shared"), "process", Version::Any).wait().unwrap();
    assert_eq!(client.event().kind, EventKind::NodeDataChanged);
    assert_eq!(client.get("/shared").unwrap().unwrap(), "process");
    drop(client.stream);
    node.shutdown(PATIENCE).unwrap();
}

/// Suspended machines and debuggers stop a process for longer than its sessions' timeouts.
///
/// A client that goes on must not be treated as the silent side.
#[test]
fn paused_server_expires_no_healthy_client() {
    let scratch = Scratch::new();
    let server =
        Server::start_with(&scratch, &SMALL.replace("session_timeout_min_ms = 200", "session_timeout_min_ms = 1000"));
    let mut clients: Vec<Client> =
        (0..8).map(|_| Client::connect_with(server.address, &hello(SessionId(0), None, 1000)).unwrap()).collect();
    clients[0].ask(&create("/mine", b"", CreateKind::Ephemeral)).unwrap();
    let mut ping = |times: usize| {
        for _ in 0..times {
            clients.iter_mut().for_each(|client| {
                client.send(&Request::Ping);
            });
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    ping(2);
    server.signal("STOP");
    // A client that waits for an answer before its next request is silent meanwhile.
    std::thread::sleep(std::time::Duration::from_secs(2));
    server.signal("CONT");
    ping(6);
    for client in &mut clients {
        for _ in 0..8 {
            assert!(client.header().is_some(), "closed");
        }
        assert!(client.exists("/mine"));
    }
}

/// The messages of QUIC's crates about a refused packet would mean nothing to an operator.
#[test]
fn unsendable_peer_address_is_logged_without_quic_jargon() {
    let scratch = Scratch::new();
    assert!(run(&scratch, &["keygen", "--out", "site.key"]).status.success());
    let [port] = free_ports();
    let key = scratch.join("site.key");
    // The system sends nothing to the broadcast address, as it does without any network.
    let servers = [(1, format!("127.0.0.1:{port}")), (2, "255.255.255.255:2888".to_owned())]
        .map(|(id, host)| format!("[[server]]\nid = {id}\nhost = \"{host}\"\n"));
    let server = Server::start_logging(&scratch, &format!("id = 1\nsite_key_file = {key:?}\n{}", servers.concat()));
    let until = std::time::Instant::now() + PATIENCE;
    while !server.log().contains("cannot dial server 2 at 255.255.255.255:2888: ") {
        assert!(std::time::Instant::now() < until, "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(!server.log().contains("quinn"), "{}", server.log());
}

/// A full disk, or an ended reader of the log, loses lines and must not affect clients.
#[test]
fn server_keeps_serving_when_its_log_output_is_full() {
    let scratch = Scratch::new();
    let mut serve = zoolet(&["serve", "--listen", "127.0.0.1:0", "--log", "debug", "--data", "data"]);
    serve.current_dir(scratch.path()).stdout(std::process::Stdio::piped());
    serve.stderr(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let mut child = serve.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let address = line.split_whitespace().find_map(|word| word.trim_end_matches([';', ',']).parse().ok());
    let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
    for name in ["/a", "/b"] {
        // Bytes that are no request cause a log line.
        let mut stranger = std::net::TcpStream::connect::<std::net::SocketAddr>(address).unwrap();
        stranger.write_all(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03").unwrap();
        assert!(closes(&mut stranger));
        Client::connect(address).create(name, b"").unwrap();
    }
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}
