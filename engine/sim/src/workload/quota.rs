//! Requests for quotas: few subtrees, limits around their usage, and znodes in odd places.

use super::{Random, ttl};
use bytes::Bytes;
use zoolet_model::{Create, CreateKind, CreateMode, Request, RequestedAcl, Text, WriteOp};

/// Subtrees with quotas, some inside another. The workload writes below most of them.
const SUBTREES: [&str; 7] = ["/a", "/a", "/a/b", "/c", "/q", "/zookeeper", "/a/zookeeper_stats"];

/// Limits, of which some cannot be parsed.
const LIMITS: [&str; 12] = [
    "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=6",
    "count=-1,bytes=-1=;byteHardLimit=900;countHardLimit=-1",
    "count=2,bytes=2",
    "countHardLimit=3;byteHardLimit=3000",
    "byteHardLimit=40",
    "countHardLimit=0",
    "countHardLimit=12,,;byteHardLimit=",
    "countHardLimit=1,bytes",
    ";countHardLimit=1",
    "countHardLimit==",
    "",
    "no limits",
];

/// Returns a request that sets, changes, shows or deletes a quota.
pub(super) fn request(random: &mut Random) -> Request {
    let subtree = *random.pick(&SUBTREES);
    let place = format!("/zookeeper/quota{subtree}");
    let (limits, stats) = (format!("{place}/zookeeper_limits"), format!("{place}/zookeeper_stats"));
    match random.below(24) {
        0..=3 => Request::Write(create(random, &place)),
        4..=6 => Request::Write(create(random, &limits)),
        7..=9 => Request::Write(create(random, &stats)),
        10..=11 => Request::Multi(vec![create(random, &limits), create(random, &stats)]),
        12 => Request::Multi(vec![delete(&limits), delete(&stats)]),
        13 => Request::Write(delete(&limits)),
        14 => Request::Write(delete(&stats)),
        15 => {
            Request::Multi(vec![below(random, subtree), delete(&stats), create(random, &stats), below(random, subtree)])
        }
        16 => Request::Multi((0..5).map(|_| below(random, subtree)).collect()),
        17..=18 => set(random, &limits),
        19 => set(random, &stats),
        20 => Request::Write(create(random, &format!("{stats}/zookeeper_stats"))),
        21 => Request::Exists { path: stats.into(), watch: random.one_in(2) },
        _ => Request::GetData { path: stats.into(), watch: random.one_in(2) },
    }
}

fn create(random: &mut Random, path: &str) -> WriteOp {
    // A session's end or the reaper may delete a quota, also in the middle of its count.
    let kind = match random.below(8) {
        0 => CreateKind::Ephemeral,
        1 => CreateKind::Container,
        2 => ttl(random),
        _ => CreateKind::Persistent,
    };
    WriteOp::Create(Create {
        path: path.into(),
        data: limits(random),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind, sequential: false },
        with_stat: random.one_in(2),
    })
}

/// Creates a znode somewhere in a subtree.
fn below(random: &mut Random, subtree: &str) -> WriteOp {
    WriteOp::Create(Create {
        path: format!("{subtree}/n-").into(),
        data: Some(vec![7; random.below(20) as usize].into()),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind: CreateKind::Persistent, sequential: true },
        with_stat: false,
    })
}

fn set(random: &mut Random, path: &str) -> Request {
    Request::Write(WriteOp::SetData { path: path.into(), data: limits(random), version: -1 })
}

fn delete(path: &str) -> WriteOp {
    WriteOp::Delete { path: Text::from(path), version: -1 }
}

fn limits(random: &mut Random) -> Option<Bytes> {
    match random.below(20) {
        0 => None,
        // Longer limits than are read.
        1 => Some(format!("countHardLimit=1,{}", "x=1,".repeat(300)).into()),
        _ => Some((*random.pick(&LIMITS)).into()),
    }
}
