//! The counted cycles: `allocations.rs` counts over all threads, `embedding/allocations_caller.rs`
//! on one.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test file uses a part of it, and tests may unwrap"
)]

use super::scratch::Scratch;
use zoolet::config::BoxMemory;
use zoolet::recipes::{Election, Lock, Queue};
use zoolet::{Bytes, Config, Node, Session, Version, Wait, path};

/// A node, two of its sessions, and recipes without other users.
pub(crate) struct Cycles {
    pub(crate) session: Session,
    other: Session,
    lock: Lock<Session>,
    election: Election<Session>,
    queue: Queue<Session>,
    node: Node,
    scratch: Scratch,
}

impl Cycles {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        // The bounds for which the numbers of allocations were set: smaller ones make more checkpoints.
        let node = Node::start(Config::for_box(scratch.join("data"), BoxMemory::Mib512)).unwrap();
        let session = node.session().wait().unwrap();
        session.create(path!("/config"), Bytes::from(vec![7; 1024])).wait().unwrap();
        let other = node.session().wait().unwrap();
        let lock = Lock::new(session.clone(), path!("/locks/door")).described("gw-a");
        let election = Election::new(session.clone(), path!("/elections/site")).described("gw-a:8080");
        let queue = Queue::new(session.clone(), path!("/jobs"));
        Self { session, other, lock, election, queue, node, scratch }
    }

    pub(crate) fn get(&self) {
        let read = self.session.get(path!("/config")).wait().unwrap();
        assert_eq!(read.bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>() % 7, 0);
    }

    pub(crate) fn exists(&self) {
        assert!(self.session.exists(path!("/config")).wait().unwrap().is_some());
    }

    /// Sets by the other session.
    pub(crate) fn set(&self) {
        self.other.set(path!("/config"), Bytes::from_static(b"\x07\x07"), Version::Any).wait().unwrap();
    }

    /// Takes and releases an uncontended lock.
    pub(crate) fn lock(&self) {
        drop(self.lock.acquire().wait().unwrap());
    }

    /// A term in office: the only candidate stands, is elected, announces it and resigns.
    pub(crate) fn elect(&self) {
        drop(self.election.campaign().wait().unwrap());
    }

    /// Passes an item from its producer to the only consumer.
    pub(crate) fn pass_item(&self) {
        self.queue.put(Bytes::from_static(b"weld 17")).wait().unwrap();
        assert_eq!(self.queue.take().wait().unwrap(), &b"weld 17"[..]);
    }

    /// Watches for the next change, and makes it.
    pub(crate) fn one_shot(&self) {
        let (_, watch) = self.session.get_and_watch(path!("/config")).wait().unwrap();
        self.set();
        assert!(watch.wait().is_some());
    }
}
