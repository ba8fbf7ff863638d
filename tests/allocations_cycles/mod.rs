//! What is counted, in `allocations.rs` over all threads and in `allocations_caller.rs` on one.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test file uses a part of it, and tests may unwrap"
)]

use super::scratch::Scratch;
use zoolet::{
    Bytes, Config, Create, CreateKind, CreateMode, Node, Reply, Request, RequestedAcl, Session, Text, Version, Wait,
    WriteOp, path,
};

/// A node, and two of its sessions.
pub(crate) struct Cycles {
    pub(crate) session: Session,
    other: Session,
    node: Node,
    scratch: Scratch,
}

const LOCK: Text = Text::from_static("/locks/door");
const IN_LINE: Text = Text::from_static("/locks/door/0123456789abcdef-lock-");

impl Cycles {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        let node = Node::start(Config::new(scratch.join("data"))).unwrap();
        let session = node.session().wait().unwrap();
        session.create(path!("/config"), Bytes::from(vec![7; 1024])).wait().unwrap();
        session.create(path!("/locks"), None).wait().unwrap();
        session.create(path!("/locks/door"), None).wait().unwrap();
        let other = node.session().wait().unwrap();
        Self { session, other, node, scratch }
    }

    pub(crate) fn get(&self) {
        let sum = |data: &[u8]| data.iter().map(|byte| u64::from(*byte)).sum();
        let read = self.session.get_with(path!("/config"), |znode| znode.data.map_or(0, sum));
        assert_eq!(read.wait().unwrap() % 7, 0);
    }

    pub(crate) fn exists(&self) {
        assert!(self.session.exists(path!("/config")).wait().unwrap().is_some());
    }

    /// By the other session.
    pub(crate) fn set(&self) {
        self.other.set(path!("/config"), Bytes::from_static(b"\x07\x07"), Version::Any).wait().unwrap();
    }

    /// A lock that nobody else wants, as the recipe takes and releases it: who is in line alone has it, and nobody waits for the end of the release.
    pub(crate) fn lock(&self) {
        let create = self.session.submit(Request::Write(WriteOp::Create(Create {
            path: IN_LINE.clone(),
            data: Some(Bytes::from_static(b"who holds it")),
            acl: Some(RequestedAcl::open()),
            mode: CreateMode::Valid { kind: CreateKind::Ephemeral, sequential: true },
            with_stat: true,
        })));
        let parent = self.session.submit(Request::Exists { path: LOCK.clone(), watch: false }).unwrap();
        let Ok(Reply::PathStat(path, _)) = create.unwrap().wait() else { panic!("nothing was created") };
        let Ok(Reply::Stat(stat)) = parent.wait() else { panic!("the parent is not there") };
        assert_eq!(stat.num_children, 1, "who is alone has it");
        drop(self.session.submit(Request::Write(WriteOp::Delete { path, version: -1 })).unwrap());
    }

    /// A watch for the next change, and that change.
    pub(crate) fn one_shot(&self) {
        let (_, watch) = self.session.get_and_watch(path!("/config")).wait().unwrap();
        self.set();
        assert!(watch.wait().is_some());
    }
}
