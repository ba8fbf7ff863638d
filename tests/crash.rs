//! kill -9 under load: nothing that was acknowledged is ever lost, and every restart serves.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

mod support;

use std::collections::BTreeSet;
use support::*;
use zoolet_model::CreateKind;

const WRITERS: usize = 4;
/// Requests each writer has under way.
const WINDOW: usize = 16;

/// Creates `/k-ROUND-WRITER-NUMBER` until the server is gone; gives the names that were acknowledged.
fn write_until_the_end(mut client: Client, round: usize, writer: usize) -> Vec<String> {
    let name = |number: usize| format!("k-{round}-{writer}-{number}");
    let mut acknowledged = Vec::new();
    let mut sent = 0;
    loop {
        while sent < acknowledged.len() + WINDOW {
            let request = create(&format!("/{}", name(sent)), &[b'x'; 200], CreateKind::Persistent);
            let mut out = bytes::BytesMut::new();
            zoolet_transport::wire::client::encode_request(sent as i32 + 1, &request, &mut out);
            if std::io::Write::write_all(&mut client.stream, &out).is_err() {
                return drain(client, acknowledged, name);
            }
            sent += 1;
        }
        match client.header() {
            Some(header) => {
                assert_eq!((header.xid as usize, header.error), (acknowledged.len() + 1, 0));
                acknowledged.push(name(acknowledged.len()));
            }
            None => return acknowledged,
        }
    }
}

/// What was answered before the end counts too.
fn drain(mut client: Client, mut acknowledged: Vec<String>, name: impl Fn(usize) -> String) -> Vec<String> {
    while let Some(header) = client.header() {
        assert_eq!(header.error, 0);
        acknowledged.push(name(acknowledged.len()));
    }
    acknowledged
}

#[test]
fn kill_9_under_load_keeps_every_acknowledged_write() {
    let scratch = Scratch::new();
    // Small enough that checkpoints and a full turn of the ring happen between kills.
    let config = SMALL.replace("[settings]", "memtable_bytes = 131072\nrecord_cache_bytes = 65536\n[settings]");
    let mut server = Server::start_with(&scratch, &config);
    let mut acknowledged: BTreeSet<String> = BTreeSet::new();
    for round in 0..6 {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let client = server.client();
                std::thread::spawn(move || write_until_the_end(client, round, writer))
            })
            .collect();
        // Each round dies at another moment: this many entries after it began.
        let until = server.figure("log_entries") + 300 + 400 * round as u64;
        eventually("enough is written", || server.figure("log_entries") > until);
        server.kill_and_restart();
        for writer in writers {
            acknowledged.extend(writer.join().unwrap());
        }
        let there: BTreeSet<String> = server.client().children("/").iter().map(ToString::to_string).collect();
        let lost: Vec<_> = acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "round {round} lost {lost:?}");
        let last = acknowledged.iter().next_back().unwrap();
        assert_eq!(server.client().get(&format!("/{last}")).unwrap().unwrap(), vec![b'x'; 200]);
    }
    assert!(acknowledged.len() > 1000, "{} is no load", acknowledged.len());
}
