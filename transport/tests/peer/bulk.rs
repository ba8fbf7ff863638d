//! Snapshots between servers.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::servers::{Plan, Server, commit, id};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};
use zoolet_machine::seam::action::CheckpointMeta;
use zoolet_machine::seam::peer::{LinkId, NotReceived, NotSent, ReceivedSnapshot, TransferId};
use zoolet_machine::{BaseState, Event};
use zoolet_model::Zxid;
use zoolet_transport::peer::{Instruction, SnapshotBytes, SnapshotSize, SnapshotTaker};

const BYTES: u64 = 20_000_123;

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A snapshot generated as it is read.
struct Source {
    bytes: u64,
    /// The first offset requested.
    begun_at: Arc<AtomicU64>,
    /// Reads at or above this offset fail.
    fails_at: u64,
}

impl Source {
    fn new() -> (Self, Arc<AtomicU64>) {
        let begun_at = Arc::new(AtomicU64::new(u64::MAX));
        (Self { bytes: BYTES, begun_at: begun_at.clone(), fails_at: u64::MAX }, begun_at)
    }
}

impl SnapshotBytes for Source {
    fn open(&mut self) -> Result<SnapshotSize, String> {
        Ok(SnapshotSize { bytes: self.bytes })
    }

    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, String> {
        let _ = self.begun_at.compare_exchange(u64::MAX, offset, SeqCst, SeqCst);
        if offset >= self.fails_at {
            return Err("a bad sector".to_owned());
        }
        // A disk may return fewer bytes than requested.
        Ok((offset..self.bytes).take(bytes_max.min(100_000)).map(byte_at).collect())
    }
}

/// The received bytes of a snapshot, kept when a transfer breaks off.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Vec<u8>>>);

impl Store {
    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    fn taker(&self, pause: Duration) -> Box<dyn SnapshotTaker> {
        Box::new(Taker { store: self.clone(), pause })
    }

    #[track_caller]
    fn check(&self, bytes: u64) {
        let store = self.0.lock().unwrap();
        assert_eq!(store.len() as u64, bytes);
        assert!(store.iter().copied().eq((0..bytes).map(byte_at)));
    }
}

/// Returns the state of an empty tree; the links do not inspect it.
fn state() -> BaseState {
    let meta = CheckpointMeta { zxid: Zxid::ZERO, digest: 0, totals: vec![0; 44].into() };
    BaseState::read(&meta, []).unwrap()
}

struct Taker {
    store: Store,
    pause: Duration,
}

impl SnapshotTaker for Taker {
    fn open(&mut self) -> Result<u64, String> {
        Ok(self.store.len())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        sleep(self.pause);
        self.store.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ReceivedSnapshot, String> {
        Ok(ReceivedSnapshot { base: 7, state: state() })
    }
}

/// A disk on which every write fails.
struct Full;

impl SnapshotTaker for Full {
    fn open(&mut self) -> Result<u64, String> {
        Ok(0)
    }

    fn write(&mut self, _: &[u8]) -> Result<(), String> {
        Err("no space left".to_owned())
    }

    fn finish(self: Box<Self>) -> Result<ReceivedSnapshot, String> {
        Ok(ReceivedSnapshot { base: 7, state: state() })
    }
}

fn linked(bulk_bytes_per_second: u64) -> (Server, Server) {
    let mut plan = Plan::new(1).knows(2, &[]);
    plan.bulk_bytes_per_second = bulk_bytes_per_second;
    let one = plan.start();
    let two = Plan::new(2).knows(1, &[&one.address.to_string()]).start();
    (one, two)
}

fn send(link: LinkId, transfer: u64, source: Source) -> Instruction {
    Instruction::SendSnapshot {
        peer: id(2),
        link,
        transfer: TransferId(transfer),
        source: Box::new(source),
        too_late: 0,
    }
}

fn receive(link: LinkId, transfer: u64, taker: Box<dyn SnapshotTaker>) -> Instruction {
    Instruction::ReceiveSnapshot { peer: id(1), link, transfer: TransferId(transfer), taker }
}

#[track_caller]
fn sent(server: &Server, transfer: u64) -> Result<(), NotSent> {
    server.told.wait("SnapshotSent", |events| {
        events.iter().find_map(|event| match event {
            Event::SnapshotSent { transfer: of, result } if of.0 == transfer => Some(result.clone()),
            _ => None,
        })
    })
}

#[track_caller]
fn received(server: &Server, transfer: u64) -> Result<ReceivedSnapshot, NotReceived> {
    server.told.wait("SnapshotReceived", |events| {
        events.iter().find_map(|event| match event {
            Event::SnapshotReceived { transfer: of, result, .. } if of.0 == transfer => Some(result.clone()),
            _ => None,
        })
    })
}

fn ends(server: &Server) -> usize {
    server.told.count(|event| matches!(event, Event::SnapshotSent { .. } | Event::SnapshotReceived { .. }))
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + crate::servers::PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited for {what}");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn snapshot_arrives_whole_and_ends_once_on_each_side() {
    let (one, two) = linked(1 << 30);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let store = Store::default();
    // The receiver may ask before the sender has the snapshot.
    two.push(vec![receive(to_one, 1, store.taker(Duration::ZERO))]);
    sleep(Duration::from_millis(50));
    let (source, begun_at) = Source::new();
    one.push(vec![send(to_two, 1, source)]);
    assert_eq!(received(&two, 1).unwrap().base, 7);
    assert_eq!(sent(&one, 1), Ok(()));
    assert_eq!(begun_at.load(SeqCst), 0);
    store.check(BYTES);
    sleep(Duration::from_millis(100));
    assert_eq!((ends(&one), ends(&two)), (1, 1));
}

#[test]
fn interrupted_snapshot_resumes_at_its_received_bytes() {
    let (one, two) = linked(1 << 30);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let store = Store::default();
    let (source, _) = Source::new();
    one.push(vec![send(to_two, 1, source)]);
    two.push(vec![receive(to_one, 1, store.taker(Duration::from_millis(5)))]);
    until("a part", || store.len() > BYTES / 4);
    one.push(vec![Instruction::Close { peer: id(2), link: to_two, reason: "a test" }]);
    assert!(sent(&one, 1).is_err());
    assert!(received(&two, 1).is_err());
    two.unlinked(1, to_one);
    one.unlinked(2, to_two);

    let here = store.len();
    assert!(here < BYTES);
    let (source, begun_at) = Source::new();
    one.push(vec![send(one.linked(2), 2, source)]);
    two.push(vec![receive(two.linked(1), 2, store.taker(Duration::ZERO))]);
    received(&two, 2).unwrap();
    assert_eq!(sent(&one, 2), Ok(()));
    assert_eq!(begun_at.load(SeqCst), here);
    store.check(BYTES);
    assert_eq!((ends(&one), ends(&two)), (2, 2));
}

#[test]
fn snapshot_dropped_by_its_receiver_ends_only_at_the_sender() {
    let (one, two) = linked(1 << 30);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let store = Store::default();
    let (source, _) = Source::new();
    one.push(vec![send(to_two, 1, source)]);
    // Slow enough to make the sender wait.
    two.push(vec![receive(to_one, 1, store.taker(Duration::from_millis(300)))]);
    until("a part", || store.len() > 0);
    sleep(Duration::from_millis(150));
    two.push(vec![Instruction::DropSnapshot { peer: id(1), transfer: TransferId(1) }]);
    assert_eq!(sent(&one, 1), Err(NotSent::Cancelled));
    // The link is unharmed.
    one.send(2, to_two, commit(1));
    assert_eq!(two.messages(1, to_one, 1), [commit(1)]);
    assert_eq!((ends(&one), ends(&two)), (1, 0));
    assert!(store.len() < BYTES);
}

#[test]
fn slow_receiver_disk_holds_the_snapshot_sender_back() {
    let (one, two) = linked(1 << 30);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let store = Store::default();
    let (source, _) = Source::new();
    let read = source.begun_at.clone();
    let source = Counting { source, read: read.clone() };
    one.push(vec![Instruction::SendSnapshot {
        peer: id(2),
        link: to_two,
        transfer: TransferId(1),
        source: Box::new(source),
        too_late: 0,
    }]);
    two.push(vec![receive(to_one, 1, store.taker(Duration::from_millis(20)))]);
    let mut most = 0;
    until("the end", || {
        // Loaded in this order, so that bytes written in between only reduce the difference.
        let (read, here) = (read.load(SeqCst), store.len());
        if read != u64::MAX {
            most = most.max(read.saturating_sub(here));
        }
        two.told.count(|event| matches!(event, Event::SnapshotReceived { .. })) > 0
    });
    received(&two, 1).unwrap();
    assert!(most > 0 && most <= 2 << 20, "{most} bytes were on the way");
}

/// Records how far the source was read.
struct Counting {
    source: Source,
    read: Arc<AtomicU64>,
}

impl SnapshotBytes for Counting {
    fn open(&mut self) -> Result<SnapshotSize, String> {
        self.source.open()
    }

    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, String> {
        let bytes = self.source.read(offset, bytes_max)?;
        self.read.store(offset + bytes.len() as u64, SeqCst);
        Ok(bytes)
    }
}

#[test]
fn sender_disk_failure_fails_the_snapshot_but_not_the_link() {
    let (one, two) = linked(1 << 30);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let (mut source, _) = Source::new();
    source.fails_at = BYTES / 2;
    one.push(vec![send(to_two, 1, source)]);
    two.push(vec![receive(to_one, 1, Store::default().taker(Duration::ZERO))]);
    assert_eq!(sent(&one, 1), Err(NotSent::Failed("a bad sector".to_owned())));
    assert!(received(&two, 1).is_err());
    one.send(2, to_two, commit(1));
    assert_eq!(two.messages(1, to_one, 1), [commit(1)]);
}

/// When a link breaks, the receiver keeps its bytes. When its disk fails, the transfer starts again
/// from the beginning. So the engine must tell the two apart.
#[test]
fn receiver_disk_failure_is_distinguished_from_a_lost_link() {
    let (one, two) = linked(1 << 30);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    one.push(vec![send(to_two, 1, Source::new().0)]);
    two.push(vec![Instruction::ReceiveSnapshot {
        peer: id(1),
        link: to_one,
        transfer: TransferId(1),
        taker: Box::new(Full),
    }]);
    assert_eq!(received(&two, 1), Err(NotReceived::NotTaken("no space left".to_owned())));
    two.push(vec![receive(LinkId(77), 2, Store::default().taker(Duration::ZERO))]);
    assert!(matches!(received(&two, 2), Err(NotReceived::BrokeOff(_))));
}

#[test]
fn snapshot_fails_if_the_receiver_has_more_bytes_than_it_contains() {
    let (one, two) = linked(1 << 30);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let store = Store::default();
    store.0.lock().unwrap().resize(BYTES as usize + 1, 0);
    let (source, _) = Source::new();
    one.push(vec![send(to_two, 1, source)]);
    two.push(vec![receive(to_one, 1, store.taker(Duration::ZERO))]);
    assert!(sent(&one, 1).is_err());
    assert!(received(&two, 1).is_err());
}

#[test]
fn messages_do_not_wait_for_a_snapshot_in_transfer() {
    let (one, two) = linked(10 << 20);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let store = Store::default();
    let (source, _) = Source::new();
    one.push(vec![send(to_two, 1, source)]);
    two.push(vec![receive(to_one, 1, store.taker(Duration::ZERO))]);
    until("a part", || store.len() > 0);
    for number in 1..=100 {
        one.send(2, to_two, commit(number));
    }
    two.messages(1, to_one, 100);
    assert_eq!(ends(&two), 0);
    received(&two, 1).unwrap();
    store.check(BYTES);
}

#[test]
fn snapshot_stays_within_its_rate_limit() {
    let (one, two) = linked(10_000_000);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let begun = Instant::now();
    let store = Store::default();
    let (source, _) = Source::new();
    one.push(vec![send(to_two, 1, source)]);
    two.push(vec![receive(to_one, 1, store.taker(Duration::ZERO))]);
    received(&two, 1).unwrap();
    // 20 MB at 10 MB/s take two seconds on any host, less the last chunk and the credit of a pause.
    assert!(begun.elapsed() > Duration::from_millis(1900), "{:?}", begun.elapsed());
}

#[test]
fn each_late_snapshot_doubles_the_rate_of_the_next() {
    // 20 MB at 1,000 bytes/s would take five and a half hours. With the rate doubled 15 times they
    // take 0.6 s.
    let (one, two) = linked(1000);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let store = Store::default();
    let source = Box::new(Source::new().0);
    let (peer, transfer) = (id(2), TransferId(1));
    one.push(vec![Instruction::SendSnapshot { peer, link: to_two, transfer, source, too_late: 15 }]);
    two.push(vec![receive(to_one, 1, store.taker(Duration::ZERO))]);
    received(&two, 1).unwrap();
    store.check(BYTES);
}

#[test]
fn snapshot_transfers_without_a_link_fail_at_once() {
    let (one, two) = linked(1 << 30);
    one.linked(2);
    two.linked(1);
    let (source, _) = Source::new();
    one.push(vec![send(LinkId(77), 1, source)]);
    two.push(vec![receive(LinkId(77), 1, Store::default().taker(Duration::ZERO))]);
    assert!(sent(&one, 1).is_err());
    assert!(received(&two, 1).is_err());
}
