//! `--naming`: `lock`, `elect` and `semaphore` stand in one line with other libraries.

use super::Fixed;
use crate::support::*;
use zoolet_model::{Create, CreateKind, CreateMode, Reply, Request, RequestedAcl, Text, WriteOp};

/// The parts of a library's names around the marker of the recipe. A number follows.
struct Names {
    naming: &'static str,
    before: &'static str,
}

/// Curator sorts by the number behind its marker, and so sees only names with that marker.
const CURATOR: Names = Names { naming: "curator", before: "_c_0f6a5e3c-9d1b-4c1a-8a52-5d0f5f2f1a11" };
const KAZOO: Names = Names { naming: "kazoo", before: "0f6a5e3c9d1b4c1a8a525d0f5f2f1a11" };

/// Creates the znode of a participant that uses another library.
fn participant(client: &mut Client, path: String) -> Text {
    let create = Create {
        path: path.as_str().into(),
        data: Some(bytes::Bytes::from_static(b"10.0.0.1")),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind: CreateKind::Ephemeral, sequential: true },
        with_stat: false,
    };
    match client.ask(&Request::Write(WriteOp::Create(create))) {
        Ok(Reply::Path(path)) => path,
        other => panic!("{other:?}"),
    }
}

/// Checks that the command waits for a participant of `names` before it, and not for one behind it.
///
/// `held` and `waiting` are the znodes of a holder and of a waiter: the parent, and the marker behind
/// the random part.
fn stands_in_line(words: &str, names: &Names, held: (&str, &str), waiting: (&str, &str)) {
    let server = Fixed::start();
    let mut other = server.client();
    for parent in ["/r", "/r/locks", "/r/leases"] {
        other.create(parent, b"").unwrap();
    }
    other.ask(&set("/r", b"1")).unwrap();
    let path = |(parent, marker): (&str, &str)| format!("{parent}/{}{marker}", names.before);
    let first = participant(&mut other, path(held));
    let before = other.children(held.0);
    let command = format!("{words} --naming {}", names.naming);
    let mut waiter = server.start_command(&command, "echo ran > ran; exit 4");
    let mut own = Text::EMPTY;
    eventually("a waiter", || {
        let new = other.children(held.0).into_iter().find(|name| !before.contains(name));
        own = new.unwrap_or_default();
        !own.is_empty()
    });
    // Only the random part differs.
    let name = first.rsplit('/').next().unwrap();
    let shape = |name: &str| name.replace(|c: char| c.is_ascii_hexdigit(), "x");
    assert_eq!(shape(&own), shape(name), "{command}: {own} is not like {name}");
    assert!(own.ends_with(&format!("{}0000000001", held.1)), "{command}: {own}");

    let behind = participant(&mut other, path(waiting));
    // Only a waiter watches the holder's znode, or the number of permits. A holder watches its own
    // znode.
    let address = ([127, 0, 0, 1], server.port).into();
    let is_awaited = |path: &str| first == path || path == "/r";
    eventually("a watch at the holder", || answer(address, "wchp").lines().any(is_awaited));
    assert!(server.lines("ran").is_empty(), "{command}: ran while another participant held");
    other.ask(&Request::Write(WriteOp::Delete { path: first, version: -1 })).unwrap();
    assert_eq!(waiter.code_soon(), 4, "{command}");
    assert_eq!(server.lines("ran"), ["ran"]);
    assert!(!other.children(held.0).contains(&own), "{command}: {own} stays");
    assert!(other.exists(&behind), "{command}: {behind} is gone");
}

#[test]
fn lock_stands_in_one_line_with_curators_mutex_and_kazoos_lock() {
    for (names, marker) in [(CURATOR, "-lock-"), (KAZOO, "__lock__")] {
        stands_in_line("lock /r/locks", &names, ("/r/locks", marker), ("/r/locks", marker));
    }
}

#[test]
fn elect_stands_in_one_line_with_curators_latch_and_kazoos_election() {
    for (names, marker) in [(CURATOR, "-latch-"), (KAZOO, "__lock__")] {
        stands_in_line("elect /r/locks", &names, ("/r/locks", marker), ("/r/locks", marker));
    }
}

/// Curator's `InterProcessSemaphoreV2` does the same: a lease shows that a permit is out, and the
/// next participant waits in the line of the lock. kazoo's semaphore has another layout, so the
/// last case names only the participants of zoolet.
#[test]
fn semaphore_stands_in_one_line_with_curators_semaphore() {
    for (names, lease, lock) in [(CURATOR, "-lease-", "-lock-"), (KAZOO, "__lease__", "__lock__")] {
        stands_in_line("semaphore /r --permits 1", &names, ("/r/leases", lease), ("/r/locks", lock));
    }
}
