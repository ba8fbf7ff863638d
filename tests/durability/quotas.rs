//! A quota over many znodes is counted exactly, through writes, checkpoints and `kill -9`.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use crate::support::*;
use std::time::Instant;
use zoolet_model::{ErrorCode, Request, WriteOp};

const ZNODES: usize = 12_000;
const QUOTA: &str = "/zookeeper/quota/many";

/// Sends many requests before the first reply.
fn pipelined(client: &mut Client, requests: impl Iterator<Item = Request>) {
    let requests: Vec<_> = requests.collect();
    for some in requests.chunks(200) {
        for request in some {
            client.send(request);
        }
        for request in some {
            client.receive(request).unwrap().1.unwrap();
        }
    }
}

fn create_new(path: &str, data: &[u8]) -> Request {
    create(path, data, zoolet_model::CreateKind::Persistent)
}

fn usage(client: &mut Client) -> (usize, usize) {
    let text = client.get(&format!("{QUOTA}/zookeeper_stats")).unwrap().unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    let (count, bytes) = text.strip_prefix("count=").unwrap().split_once(",bytes=").unwrap();
    (count.parse().unwrap(), bytes.parse().unwrap())
}

#[test]
fn quota_over_many_znodes_is_counted_exactly_through_writes_and_kills() {
    let scratch = Scratch::new();
    let config = with_limits("memtable_bytes = 262144\nrecord_cache_bytes = 65536")
        .replace("[settings]\n", "[settings]\nenforce_quotas = true\n");
    let mut server = Server::start_with(&scratch, &config);
    let mut client = server.client();
    client.create("/many", b"root").unwrap();
    let path = |number: usize| format!("/many/{number:05}");
    pipelined(&mut client, (0..ZNODES).map(|number| create_new(&path(number), b"123")));
    client.create(QUOTA, b"").unwrap();
    client.create(&format!("{QUOTA}/zookeeper_limits"), b"countHardLimit=1").unwrap();
    client.create(&format!("{QUOTA}/zookeeper_stats"), b"").unwrap();
    assert_eq!(server.figure("quotas_counting"), 1);
    assert!(usage(&mut client).0 < ZNODES);

    // Behind the position, before it, and at it: more, longer and fewer znodes.
    let (mut count, mut bytes) = (1 + ZNODES, 4 + 3 * ZNODES);
    let began = Instant::now();
    for round in 0.. {
        let at = round * 97 % (ZNODES / 3);
        let delete = Request::Write(WriteOp::Delete { path: path(at * 3).into(), version: -1 });
        if client.ask(&delete).is_ok() {
            (count, bytes) = (count - 1, bytes - 3);
        }
        let child = format!("{}/child", path(at * 3 + 1));
        if client.ask(&create_new(&child, b"12")).is_ok() {
            (count, bytes) = (count + 1, bytes + 2);
        }
        if round % 20 == 2 {
            server.kill_and_restart();
            client = server.client();
        }
        if server.figure("quotas_counting") == 0 {
            break;
        }
        assert!(began.elapsed() < 3 * PATIENCE, "{:?} of {count}", usage(&mut client));
    }
    assert_eq!(usage(&mut client), (count, bytes));
    // Now its limits count.
    assert_eq!(client.create("/many/more", b""), Err(ErrorCode::QuotaExceeded));
    assert!(server.figure("many_quota_exceeded_error_per_namespace") >= 1);
    server.kill_and_restart();
    let mut client = server.client();
    assert_eq!(usage(&mut client), (count, bytes));
    assert_eq!(client.create("/many/more", b""), Err(ErrorCode::QuotaExceeded));
    client.ask(&set(&format!("{QUOTA}/zookeeper_limits"), b"countHardLimit=-1")).unwrap();
    client.create("/many/more", b"").unwrap();
}
