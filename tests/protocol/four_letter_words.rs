//! Four-letter words that list the server's state, compared with ZooKeeper 3.8.
//!
//! The expected texts are its answers to the same sessions. Session ids and order are replaced,
//! because ZooKeeper lists sessions and paths in the order of a hash table.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::support::*;
use zoolet_model::{CreateKind, Request};

/// Two sessions with ephemerals and with watches: on data, on children, on a missing znode.
fn watching(server: &Server) -> (Client, Client) {
    let (mut one, mut other) = (server.client(), server.client());
    one.ask(&create("/e1", b"", CreateKind::Ephemeral)).unwrap();
    one.ask(&create("/e2", b"", CreateKind::Ephemeral)).unwrap();
    other.ask(&create("/e3", b"", CreateKind::Ephemeral)).unwrap();
    let exists = |path: &str| Request::Exists { path: path.into(), watch: true };
    one.ask(&Request::GetData { path: "/e1".into(), watch: true }).unwrap();
    let _ = one.ask(&exists("/nothing"));
    other.ask(&Request::GetData { path: "/e1".into(), watch: true }).unwrap();
    other.ask(&Request::GetChildren { path: "/".into(), watch: true, with_stat: false }).unwrap();
    other.ask(&exists("/e3")).unwrap();
    (one, other)
}

#[test]
fn watch_words_list_by_session_and_path_and_count() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    assert_eq!((server.word("wchc"), server.word("wchp")), ("\n".into(), "\n".into()));
    let (one, other) = watching(&server);
    let (one, other) = (one.session.session.0, other.session.session.0);
    assert_eq!(server.word("wchs"), "2 connections watching 3 paths\nTotal watches:4\n");
    assert_eq!(server.word("wchc"), format!("0x{one:x}\n\t/e1\n\t/nothing\n0x{other:x}\n\t/e1\n\t/e3\n\n"));
    let by_path = format!("/e1\n\t0x{one:x}\n\t0x{other:x}\n/nothing\n\t0x{one:x}\n/e3\n\t0x{other:x}\n\n");
    assert_eq!(server.word("wchp"), by_path);
}

#[test]
fn dump_lists_sessions_connections_and_ephemerals_after_a_restart_too() {
    let scratch = Scratch::new();
    let mut server = Server::start_with(&scratch, &SMALL.replace("[\"*\"]", "[\"dump\", \"mntr\"]"));
    let (one, other) = watching(&server);
    let (address, one, other) = (one.stream.local_addr().unwrap(), one.session.session.0, other.session.session.0);
    let owned = format!(
        "ephemeral nodes dump:\nSessions with Ephemerals (2):\n0x{one:x}:\n\t/e1\n\t/e2\n0x{other:x}:\n\t/e3\nConnections dump:\n"
    );
    let dump = server.word("dump");
    let (sessions, connections) = dump.split_once(&owned).unwrap_or_else(|| panic!("{dump}"));
    let lines: Vec<_> = sessions.lines().collect();
    assert_eq!(lines[0], "SessionTracker dump:");
    assert!(lines[1].starts_with("Session Sets (") && lines[1].ends_with(")/(2):"), "{dump}");
    assert!(lines[2].contains(" expire at ") && lines[2].contains(" UTC 20") && lines[2].ends_with(':'), "{dump}");
    for session in [one, other] {
        assert!(lines.contains(&format!("\t0x{session:x}").as_str()), "{dump}");
    }
    assert!(connections.starts_with("Connections Sets ("), "{dump}");
    assert!(connections.contains(&format!("\tip: /{address} sessionId: 0x{one:x}\n")), "{dump}");

    // A restarted server lists the same ephemerals.
    server.kill_and_restart();
    eventually("it serves", || server.word("dump").contains(&owned));
    assert_eq!(server.word("wchc"), "wchc is not executed because it is not in the whitelist.\n");
}

#[test]
fn dirs_reports_the_file_sizes_of_log_and_base() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    // A growing log ring or an unfinished reserve would change the sizes between answer and count.
    let sizes = || (server.word("dirs"), sizes_of_files(&scratch));
    eventually("dirs says what the files say", || {
        let ((before, files), (after, _)) = (sizes(), sizes());
        before == after && files.0 > 0 && before == format!("datadir_size: {}\nlogdir_size: {}\n", files.1, files.0)
    });
}

/// Returns the bytes of the log's segments, and of all other files except the reserve.
fn sizes_of_files(scratch: &Scratch) -> (u64, u64) {
    let (mut log, mut base) = (0, 0);
    for entry in std::fs::read_dir(scratch.path().join("data")).unwrap() {
        let entry = entry.unwrap();
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        match entry.file_name().to_string_lossy() {
            name if name.starts_with("seg-") => log += bytes,
            name if name == "reserve" => {}
            _ => base += bytes,
        }
    }
    (log, base)
}
