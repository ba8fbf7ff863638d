//! A whole node, with all its threads, over a disk that fails in a checkpoint or merge.
//!
//! The tests let the disk fail at each step in turn.

use super::read_only::Readers;
use super::{Failure, Node, StartError};
use crate::{Bytes, Config, Error, ErrorCode, Path, Session, SessionOptions, SessionState, Version, Wait};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use zoolet_machine::status::DATA_DIRECTORY_GONE;
use zoolet_machine::{Limits, Status};
use zoolet_model::Text;
use zoolet_sim::disk::{Operation, OperationKind, SimDisk};
use zoolet_store::disk::Disk;
use zoolet_store::{MARKER, MARKER_UNFINISHED};

const PATIENCE: Duration = Duration::from_secs(20);
const KEYS: usize = 20;
/// Enough for several checkpoints, and a merge of them.
const WRITES: usize = 300;

/// How the disk fails, from a chosen step of the base on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// It is mounted read-only.
    ReadOnly,
    /// The device fails once, and its file system turns read-only because of that.
    FailsFirst,
    /// Like `FailsFirst`, but the file system notices late.
    ///
    /// It notices when it must make a name durable. Overwriting blocks in place does not tell it.
    NoticedLate,
    /// It is full.
    Full,
    /// The device fails, and goes on failing.
    Fails,
}

impl Fault {
    /// Returns the error of an operation. `is_first`: the fault begins with this operation.
    fn answer(self, operation: &Operation<'_>, is_first: bool, is_noticed: &AtomicBool) -> Option<ErrorKind> {
        use OperationKind::{Allocate, Create, Open, Read, Rename, SetLen, Sync, SyncDirectory, Write};
        match (self, operation.kind) {
            (Self::NoticedLate, kind) if kind != Read && is_noticed.load(Relaxed) => {
                Some(ErrorKind::ReadOnlyFilesystem)
            }
            (Self::NoticedLate, Sync | SyncDirectory) => {
                is_noticed.store(operation.name == MARKER_UNFINISHED || operation.kind == SyncDirectory, Relaxed);
                Some(ErrorKind::Other)
            }
            (Self::NoticedLate, _) => None,
            (_, Read) | (Self::Full | Self::Fails, Open) => None,
            (Self::FailsFirst, _) if is_first => Some(ErrorKind::Other),
            // Every open is for writing.
            (Self::ReadOnly | Self::FailsFirst, _) => Some(ErrorKind::ReadOnlyFilesystem),
            (Self::Full, Write | SetLen | Allocate | Create | Rename) => Some(ErrorKind::StorageFull),
            (Self::Full, _) => None,
            (Self::Fails, _) => Some(ErrorKind::Other),
        }
    }
}

/// Returns whether an operation is a step of the base, which opens and reads are not.
///
/// Every sync of the directory counts as a step.
fn is_of_the_base(operation: &Operation<'_>) -> bool {
    use OperationKind::{Open, Read, SyncDirectory};
    let changes = !matches!(operation.kind, Open | Read);
    changes && (operation.name.starts_with("base-") || operation.kind == SyncDirectory)
}

/// Makes the disk fail from the base's step `from` on, counted from now. Returns the count of
/// steps.
fn fail_from(disk: &SimDisk, from: u64, fault: Fault) -> Arc<AtomicU64> {
    let steps = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&steps);
    let is_noticed = AtomicBool::new(false);
    disk.fail_with(move |operation| {
        let before = if is_of_the_base(operation) { seen.fetch_add(1, Relaxed) } else { seen.load(Relaxed) };
        let has_begun = before > from || (before == from && is_of_the_base(operation));
        has_begun.then(|| fault.answer(operation, before == from, &is_noticed)).flatten()
    });
    steps
}

/// Directory for a server's files that are not on the simulated disk; removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("zoolet-failing-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Starts a node with small bounds: a few writes make a checkpoint, a few checkpoints a merge.
    fn start(&self, disk: &SimDisk) -> Node {
        self.start_with(disk, |_| {})
    }

    fn start_with(&self, disk: &SimDisk, change: fn(&mut Limits)) -> Node {
        Node::start_on(disk.clone(), None, self.0.clone(), self.config_with(change)).unwrap()
    }

    /// Starts a server of readers on a disk that takes no writes.
    fn start_reading(&self, disk: &SimDisk, change: fn(&mut Limits)) -> Result<Readers, StartError> {
        use OperationKind::{Open, Read, Sync, SyncDirectory};
        let changes = |kind| !matches!(kind, Open | Read | Sync | SyncDirectory);
        disk.fail_with(move |operation| changes(operation.kind).then_some(ErrorKind::ReadOnlyFilesystem));
        let mut config = self.config_with(change);
        config.settings.read_only = true;
        Readers::start_on(disk.clone(), None, self.0.clone(), &config)
    }

    fn config_with(&self, change: fn(&mut Limits)) -> Config {
        let mut config = Config::new(&self.0);
        let limits = &mut config.limits;
        (limits.frame_bytes_max, limits.log_segment_bytes, limits.log_segments) = (8 << 10, 16 << 10, 8);
        (limits.memtable_bytes, limits.record_cache_bytes, limits.base_cache_bytes) = (4 << 10, 2 << 10, 64 << 10);
        limits.disk_reserve_bytes = 64 << 10;
        change(limits);
        config
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn session(node: &Node) -> Session {
    node.session().wait_timeout(PATIENCE).unwrap().unwrap()
}

fn reading_session(readers: &Readers) -> Session {
    let options = SessionOptions { read_only: true, ..SessionOptions::default() };
    readers.node().unwrap().session_with(&options).wait_timeout(PATIENCE).unwrap().unwrap()
}

fn key(number: usize) -> Path {
    Path::new(Text::from(format!("/{}", number % KEYS))).unwrap()
}

fn value(number: usize) -> Bytes {
    Bytes::from(format!("{number:0200}"))
}

fn write(session: &Session, number: usize) -> Result<(), Error> {
    let key = key(number);
    let set = session.set(&key, value(number), Version::Any);
    set.wait_timeout(PATIENCE).expect("an answer").map(drop)
}

/// Returns the number of the write that is visible at this write's key.
fn seen(session: &Session, number: usize) -> usize {
    let key = key(number);
    let read = session.get(&key).wait_timeout(PATIENCE).expect("an answer");
    read.unwrap_or_else(|error| panic!("{error}")).text().unwrap().parse().unwrap()
}

/// Asserts that each key shows the last acknowledged write.
///
/// The outcome of the write after these is unknown, so its key may show it.
fn assert_whole(session: &Session, acknowledged: usize, context: &str) {
    for newest in (acknowledged + 1).saturating_sub(KEYS)..=acknowledged {
        let found = seen(session, newest);
        let is_unknown = found == acknowledged + 1 && key(found) == key(newest);
        assert!(found == newest || is_unknown, "{context}: {found} in the place of {newest}");
    }
}

fn status(node: &Node) -> Option<Status> {
    node.status().wait_timeout(PATIENCE).expect("an answer").map(|status| status.server)
}

fn wait_until(context: &str, holds: impl FnMut() -> bool) {
    assert!(holds_in_time(holds), "{context}: it does not come");
}

/// Waits for a condition. Returns false if it does not hold in time.
fn holds_in_time(mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Returns a working disk with a node's data, in redb and in runs.
fn begun(directory: &Directory) -> SimDisk {
    let disk = SimDisk::new(1);
    let node = directory.start(&disk);
    let writer = session(&node);
    for number in 0..KEYS {
        writer.create(&key(number), Some(value(number))).wait_timeout(PATIENCE).unwrap().unwrap();
    }
    (KEYS..5 * KEYS).for_each(|number| write(&writer, number).unwrap());
    drop(node);
    disk
}

/// Runs a node into the fault at each `stride`-th step, until there are no more steps.
///
/// `judge` then sees the node, a session without a write in flight, and the number of the last
/// acknowledged write.
fn at_steps(name: &str, fault: Fault, stride: u64, judge: impl Fn(&SimDisk, &Node, &Session, usize, &str)) {
    let directory = Directory::new(name);
    let begun = begun(&directory);
    let mut from = 0;
    loop {
        let disk = begun.after_process_crash();
        let node = directory.start(&disk);
        let (writer, reader) = (session(&node), session(&node));
        let steps = fail_from(&disk, from, fault);
        let first = 5 * KEYS;
        let refused = (first..first + WRITES).find(|&number| write(&writer, number).is_err());
        if steps.load(Relaxed) <= from {
            break;
        }
        let acknowledged = refused.unwrap_or(first + WRITES) - 1;
        let context = format!("{fault:?} from step {from} on, {acknowledged} acknowledged");
        judge(&disk, &node, &reader, acknowledged, &context);
        drop((node, writer, reader));
        for found in [disk.after_process_crash(), disk.after_power_loss(0)] {
            let node = directory.start(&found);
            assert_whole(&session(&node), acknowledged, &format!("{context}, started again"));
        }
        from += stride;
    }
    assert!(from > 100, "only {from} steps");
}

fn reads_on(_: &SimDisk, node: &Node, reader: &Session, acknowledged: usize, context: &str) {
    wait_until(context, || status(node).expect(context).is_read_only);
    assert_whole(reader, acknowledged, context);
    assert_eq!(write(reader, 0).unwrap_err().code(), Some(ErrorCode::SystemError), "{context}");
    let status = status(node).expect(context);
    assert_eq!(status.refusing_writes, Some("the disk is read-only"), "{context}");
    assert!(status.alarms.iter().any(|alarm| format!("{alarm:?}").contains("disk read-only")), "{:?}", status.alarms);
    assert_eq!(node.failed(), None, "{context}");
}

#[test]
fn node_reads_on_when_a_checkpoint_finds_its_disk_read_only() {
    at_steps("read-only", Fault::ReadOnly, 1, reads_on);
}

#[test]
fn node_reads_on_when_a_failure_turns_its_disk_read_only() {
    at_steps("fails-first", Fault::FailsFirst, 1, reads_on);
}

#[test]
fn node_reads_on_when_its_file_system_turns_read_only_late() {
    at_steps("noticed-late", Fault::NoticedLate, 1, reads_on);
}

/// A start on a read-only disk repairs nothing, whichever step of the base a crash interrupted.
#[test]
fn readers_find_every_acked_write_after_a_crash_without_a_repair() {
    let elsewhere = Directory::new("readers-found");
    at_steps("readers", Fault::Fails, 5, |disk, _, _, acknowledged, context| {
        for found in [disk.after_process_crash(), disk.after_power_loss(0)] {
            let readers = elsewhere.start_reading(&found, |_| {}).unwrap_or_else(|error| panic!("{context}: {error}"));
            let reader = reading_session(&readers);
            assert_eq!(reader.state(), SessionState::ReadOnly, "{context}");
            assert_whole(&reader, acknowledged, context);
            assert_eq!(write(&reader, 0).unwrap_err().code(), Some(ErrorCode::NotReadOnly), "{context}");
            let status = status(readers.node().unwrap()).expect(context);
            assert!(status.is_read_only && status.read_only_ms.is_some() && status.role.is_empty(), "{context}");
        }
    });
}

#[test]
fn readers_are_refused_when_the_log_does_not_fit_into_memory() {
    let directory = Directory::new("readers-memory");
    let disk = SimDisk::new(1);
    let much = |limits: &mut Limits| (limits.memtable_bytes, limits.log_segments) = (256 << 10, 256);
    let node = directory.start_with(&disk, much);
    let writer = session(&node);
    // They take less than half of the ring, so no checkpoint begins.
    for number in 0..100 {
        let path = Path::new(Text::from(format!("/n{number}"))).unwrap();
        writer.create(&path, Some(value(number))).wait_timeout(PATIENCE).unwrap().unwrap();
    }
    drop(node);
    let little = |limits: &mut Limits| (limits.outstanding_bytes_max, limits.log_segments) = (8 << 10, 256);
    let refused = directory.start_reading(&disk.after_process_crash(), little).unwrap_err();
    assert!(refused.to_string().contains("more changes than fit into memory"), "{refused}");
    assert!(directory.start_reading(&disk.after_process_crash(), much).is_ok());
}

/// A disk that hangs returns no error. Without an alarm, a server that acknowledges nothing would
/// seem healthy.
#[test]
fn node_raises_an_alarm_while_its_disk_hangs() {
    let directory = Directory::new("hangs");
    let begun = begun(&directory);
    // First the log hangs, then the base.
    for (kind, prefix) in [(OperationKind::Sync, "seg-"), (OperationKind::Read, "base-")] {
        let disk = begun.after_process_crash();
        let node = directory.start(&disk);
        let writer = session(&node);
        let is_alarmed = || {
            let status = status(&node).unwrap();
            status.alarms.iter().any(|alarm| alarm.what.starts_with("the disk has not answered") && alarm.holds_up)
        };
        assert!(!is_alarmed());
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = Mutex::new(hangs);
        disk.fail_with(move |operation| {
            if operation.kind == kind && operation.name.starts_with(prefix) {
                // Until the other end is dropped.
                let _ = hangs.lock().unwrap().recv();
            }
            None
        });
        std::thread::scope(|threads| {
            threads.spawn(|| (0..KEYS).for_each(|number| write(&writer, number).unwrap()));
            let is_raised = holds_in_time(is_alarmed);
            let status = status(&node).unwrap();
            drop(release);
            assert!(is_raised, "{kind:?}: no alarm: {:?}, {:?}", status.alarms, status.disk);
        });
        wait_until("no alarm", || !is_alarmed());
    }
}

/// The log of a young server needs space for its next segment before any checkpoint does.
#[test]
fn node_with_a_young_log_on_a_full_disk_accepts_deletes() {
    let directory = Directory::new("young");
    let disk = SimDisk::new(1);
    let node = directory.start_with(&disk, |limits| (limits.memtable_bytes, limits.log_segments) = (256 << 10, 64));
    let writer = session(&node);
    let path = |number: usize| Path::new(Text::from(format!("/n{number}"))).unwrap();
    let create =
        |number: usize| writer.create(&path(number), Some(value(number))).wait_timeout(PATIENCE).expect("an answer");
    wait_until("a reserve", || disk.contents("reserve").is_some());
    disk.set_capacity(Some(disk.used_bytes()));
    let end = (0..1000).find(|&number| create(number).is_err()).expect("the disk never was full");
    let is_alarmed = |what: &str| status(&node).unwrap().alarms.iter().any(|alarm| alarm.what.starts_with(what));
    assert!(is_alarmed("writes are refused: the disk is full"), "{:?}", status(&node).unwrap().alarms);
    for number in 0..end {
        let deleted = writer.delete(&path(number), Version::Any).wait_timeout(PATIENCE).expect("an answer");
        assert!(deleted.is_ok(), "{deleted:?}: delete {number} of {end}");
    }
    disk.set_capacity(None);
    wait_until("writes are taken", || create(end).is_ok());
}

/// The server's files stay open. Without an alarm it would seem healthy, but its next start would
/// find nothing.
#[test]
fn node_raises_an_alarm_while_its_data_directory_is_missing() {
    let directory = Directory::new("gone");
    let disk = begun(&directory).after_process_crash();
    let node = directory.start(&disk);
    let is_alarmed = || {
        let status = status(&node).unwrap();
        status.alarms.iter().any(|alarm| alarm.what == DATA_DIRECTORY_GONE && alarm.holds_up)
    };
    assert!(!is_alarmed());
    disk.rename(MARKER, "elsewhere").unwrap();
    wait_until("an alarm", is_alarmed);
    disk.rename("elsewhere", MARKER).unwrap();
    wait_until("no alarm", || !is_alarmed());
}

#[test]
fn node_resumes_writes_once_its_full_disk_has_space() {
    // Each step takes a while, because the node looks for space once a second.
    at_steps("full", Fault::Full, 29, |disk, node, reader, acknowledged, context| {
        assert_whole(reader, acknowledged, context);
        disk.heal();
        wait_until(context, || write(reader, acknowledged).is_ok());
        assert_eq!(node.failed(), None, "{context}");
    });
}

#[test]
fn node_with_a_failed_checkpoint_loses_no_acked_write() {
    // The node ends when a sync fails, sooner or later.
    at_steps("fails", Fault::Fails, 1, |_, node, _, _, context| {
        assert!(!matches!(node.failed(), Some(Failure::Bug(_))), "{context}: {:?}", node.failed());
    });
}
