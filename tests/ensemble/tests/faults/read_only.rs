//! Disks that become read-only.
//!
//! One is ext4 on a loop device that shuts itself off as after an error. Another is mounted
//! read-only before the server starts. A third refuses writes for a while.
//!
//! The kernel refuses a remount by hand (`mount -o remount,ro`) while the server has files open for
//! writing.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, and tell what they saw")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use zoolet_ensemble_tests::load::{Shape, make_keys, path};
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::site::{Plan, Server, Site};
use zoolet_ensemble_tests::slow::SlowDisk;
use zoolet_ensemble_tests::trial::Trial;
use zoolet_model::{ErrorCode, Reply, Request, Text, WriteOp};
use zoolet_powercut::client::{Client, word};

const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than the permitted lag of a server, and than the delay of a report about a lasting
/// condition.
const LONG: Duration = Duration::from_secs(10);

fn run(program: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(program).args(arguments).arg(path).status();
    assert!(
        status.unwrap().success(),
        "{program} {arguments:?} {}: this test needs root and loop devices",
        path.display()
    );
}

/// An ext4 file system on a loop device. Removed when dropped.
struct Ext4 {
    image: PathBuf,
    path: PathBuf,
}

impl Ext4 {
    fn mount(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("zoolet-read-only-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let image = path.with_extension("img");
        std::fs::File::create(&image).unwrap().set_len(192 << 20).unwrap();
        run("mkfs.ext4", &["-q", "-F"], &image);
        let disk = Self { image, path };
        disk.mount_again();
        disk
    }

    fn mount_again(&self) {
        run("mount", &["-o", "loop,errors=remount-ro", self.image.to_str().unwrap()], &self.path);
    }

    /// Shuts the file system off, as ext4 does by itself when the device fails.
    fn shut_off(&self) {
        run("mount", &["-o", "remount,abort"], &self.path);
    }

    /// Mounts the file system read-only or writable, while no process has a file open for writing.
    fn remount(&self, mode: &str) {
        run("mount", &["-o", &format!("remount,{mode}")], &self.path);
    }

    /// Repairs the file system as an operator does.
    fn repair(&self) {
        run("umount", &["-l"], &self.path);
        // Processes that had files open release the loop device a moment later.
        std::thread::sleep(Duration::from_secs(1));
        let fixed = Command::new("e2fsck").args(["-f", "-p"]).arg(&self.image).status().unwrap();
        assert!(fixed.code().is_some_and(|code| code <= 1), "e2fsck: {fixed}");
        self.mount_again();
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        let _ = std::fs::remove_dir(&self.path);
        let _ = std::fs::remove_file(&self.image);
    }
}

fn disks(count: u8) -> (Vec<Ext4>, Plan) {
    let disks: Vec<Ext4> = (1..=count).map(|id| Ext4::mount(&id.to_string())).collect();
    let mut plan = Plan::new(Trial::product().unwrap(), count);
    plan.data = (1..).zip(&disks).map(|(id, disk)| (id, disk.path.join("data"))).collect();
    (disks, plan)
}

/// Whether `zoolet status` reports the read-only disk, and exits with 1.
fn says_read_only(plan: &Plan, server: &Server) -> bool {
    has_alarm(plan, server, "disk read-only: ")
}

/// Whether `zoolet status` of this server exits with 1 and shows an alarm that begins with `what`.
pub(crate) fn has_alarm(plan: &Plan, server: &Server, what: &str) -> bool {
    let Product::Zoolet(binary) = &plan.product else { panic!("this is about zoolet") };
    let output = Command::new(binary).args(["status", "--server", &server.client().to_string()]).output().unwrap();
    output.status.code() == Some(1) && String::from_utf8_lossy(&output.stdout).contains(&format!("ALARM: {what}"))
}

fn lines_about(server: &Server, what: &str) -> usize {
    server.said().lines().filter(|line| line.contains(what)).count()
}

fn read(client: &mut Client) -> bool {
    value(client, 0).is_some()
}

/// Returns the data of a key; `None` if the connection is gone or the read fails.
fn value(client: &mut Client, key: usize) -> Option<Vec<u8>> {
    let get = Request::GetData { path: Text::from(path(key)), watch: false };
    match client.ask(&get) {
        Ok(Some((_, Ok(Reply::Data(data, _))))) => Some(data.unwrap_or_default().to_vec()),
        _ => None,
    }
}

fn set(key: usize, data: &'static [u8]) -> Request {
    Request::Write(WriteOp::SetData { path: Text::from(path(key)), data: Some(data.into()), version: -1 })
}

fn is_written(client: &mut Client, key: usize, data: &'static [u8]) -> bool {
    matches!(client.ask(&set(key, data)), Ok(Some((_, Ok(_)))))
}

fn is_refused_as_a_write(client: &mut Client) -> bool {
    matches!(client.ask(&set(0, b"refused")), Ok(Some((_, Err(ErrorCode::NotReadOnly)))))
}

/// Waits for a session that asks to read only.
fn reader(site: &Site, address: SocketAddr) -> Client {
    let mut reader = None;
    site.wait("readers are served", || {
        reader = Client::read_only(address, PATIENCE).ok().flatten();
        reader.is_some()
    })
    .unwrap();
    reader.unwrap()
}

/// Returns a server that lets clients read on a read-only disk, with three keys.
fn with_keys(servers: u8) -> (Vec<Ext4>, Site) {
    let (disks, mut plan) = disks(servers);
    plan.settings = "read_only = true".to_owned();
    let site = Site::start(plan).unwrap();
    site.wait("it serves", || is_served(site.server(1).client())).unwrap();
    make_keys(site.server(1).client(), &Shape { keys: 3, ..Shape::default() }).unwrap();
    (disks, site)
}

fn is_served(address: SocketAddr) -> bool {
    matches!(Client::connect(address, None, PATIENCE), Ok(Some(_)))
}

/// Returns the name, length and time of each file.
fn files(directory: &Path) -> Vec<(std::ffi::OsString, u64, std::time::SystemTime)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| {
            let metadata = entry.metadata().unwrap();
            (entry.file_name(), metadata.len(), metadata.modified().unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Shuts off the disk of one of three servers, which then does not vote.
///
/// Another server leads from then on. The server is killed and started again on the read-only disk,
/// and waits. Once the disk is repaired, it starts by itself.
fn a_member_whose_disk_shuts_off(pick: impl FnOnce(&Trial) -> u8, seed: u64) {
    let (disks, plan) = disks(3);
    let shape = Shape { bytes: 400, ..Shape::default() };
    let mut trial = Trial::start(plan, shape, seed).unwrap();
    let id = pick(&trial);
    let disk = &disks[usize::from(id) - 1];
    disk.shut_off();
    trial.wait("it says what is the matter", || says_read_only(&trial.plan, trial.server(id))).unwrap();
    trial.wait("another one leads", || trial.leader().is_some_and(|leader| leader != id)).unwrap();
    trial.progress().unwrap();
    std::thread::sleep(LONG);
    // This server does not vote, so without a second one there is no quorum.
    let other = trial.followers().unwrap().into_iter().find(|&follower| follower != id).unwrap();
    trial.server_mut(other).kill();
    assert!(trial.stands_still(Duration::from_secs(4)), "somebody has acknowledged a write with one disk of three");
    trial.server_mut(other).start().unwrap();
    trial.progress().unwrap();
    assert!(!trial.server(id).has_ended(), "{}", trial.last_words());
    assert_eq!(lines_about(trial.server(id), "cannot write the log"), 1, "{}", trial.server(id).said());
    // Restarts the server, as a supervisor does when it ends.
    trial.server_mut(id).kill();
    trial.server_mut(id).start().unwrap();
    trial.wait("it says so at its start", || says_read_only(&trial.plan, trial.server(id))).unwrap();
    std::thread::sleep(LONG);
    assert!(!trial.server(id).has_ended() && says_read_only(&trial.plan, trial.server(id)), "{}", trial.last_words());
    assert_eq!(lines_about(trial.server(id), "waits until its disk is writable"), 1);
    trial.progress().unwrap();
    disk.repair();
    trial.wait("it has started by itself", || trial.server(id).status().is_some()).unwrap();
    let (site, seen) = trial.finish_and_keep().unwrap();
    println!("{} writes acknowledged, errors {:?}", seen.acknowledged(), seen.errors);
    // Servers end before their disks go.
    drop(site);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn leader_on_a_read_only_disk_steps_down_until_repaired() {
    a_member_whose_disk_shuts_off(|trial| trial.wait_for_leader().unwrap(), 51);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn follower_on_a_read_only_disk_does_not_vote_until_repaired() {
    a_member_whose_disk_shuts_off(|trial| trial.followers().unwrap()[0], 52);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn standalone_server_serves_reads_until_its_disk_is_writable_again() {
    let (disks, plan) = disks(1);
    let mut site = Site::start(plan).unwrap();
    let address: SocketAddr = site.server(1).client();
    make_keys(address, &Shape { keys: 3, ..Shape::default() }).unwrap();
    let connect = || Client::connect(address, None, PATIENCE);
    let (mut reader, mut writer) = (connect().unwrap().unwrap(), connect().unwrap().unwrap());
    disks[0].shut_off();
    let set = |data: &'static [u8]| {
        let op = zoolet_model::WriteOp::SetData { path: Text::from(path(1)), data: Some(data.into()), version: -1 };
        Request::Write(op)
    };
    // The first write is not answered, because its state on the disk is unknown.
    assert!(writer.ask(&set(b"1")).unwrap().is_none());
    site.wait("it says what is the matter", || says_read_only(&site.plan, site.server(1))).unwrap();
    let began = Instant::now();
    while began.elapsed() < LONG {
        assert!(read(&mut reader), "reads go on");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(matches!(reader.ask(&set(b"2")).unwrap(), Some((_, Err(zoolet_model::ErrorCode::SystemError)))));
    assert!(read(&mut reader));
    assert!(!matches!(connect(), Ok(Some(_))), "a new session is a write");
    assert!(!site.server(1).has_ended());

    // Now the disk is mounted read-only from the start.
    site.server_mut(1).kill();
    disks[0].repair();
    disks[0].remount("ro");
    site.server_mut(1).start().unwrap();
    site.wait("it says so at its start", || says_read_only(&site.plan, site.server(1))).unwrap();
    assert!(word(address, "srvr", PATIENCE).unwrap().contains("not currently serving"));
    disks[0].remount("rw");
    site.wait("it has started by itself", || site.server(1).status().is_some()).unwrap();
    assert!(read(&mut connect().unwrap().unwrap()));
    // The server ends before its disk goes.
    drop(site);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn readers_are_served_after_the_disk_becomes_read_only() {
    let (disks, mut site) = with_keys(1);
    let address = site.server(1).client();
    let mut writer = Client::connect(address, None, PATIENCE).unwrap().unwrap();
    assert!(is_written(&mut writer, 1, b"before"));
    let mut early = Client::read_only(address, PATIENCE).unwrap().unwrap();
    assert!(is_written(&mut early, 2, b"as any client"), "the disk accepts writes");
    disks[0].shut_off();
    // This write finds the disk read-only.
    assert!(writer.ask(&set(0, b"unknown")).unwrap().is_none());
    let mut late = reader(&site, address);
    assert_eq!(value(&mut late, 1).as_deref(), Some(&b"before"[..]));
    assert!(is_refused_as_a_write(&mut late));
    assert!(read(&mut early), "a session that exists reads on");
    assert!(!is_served(address), "a new session is a write");
    let srvr = word(address, "srvr", PATIENCE).unwrap();
    assert!(srvr.contains("READ-ONLY mode") && srvr.contains("State age: "), "{srvr}");
    assert_eq!(word(address, "isro", PATIENCE).unwrap(), "ro");

    // The file system cannot sync any more, so the end of the log may be in memory only.
    site.server_mut(1).kill();
    site.server_mut(1).start().unwrap();
    let refused = "clients that ask to read only are not served: ";
    site.wait("it says why it serves no reader", || has_alarm(&site.plan, site.server(1), refused)).unwrap();
    assert!(!matches!(Client::read_only(address, PATIENCE), Ok(Some(_))));
    assert!(site.server(1).said().contains("not even clients that ask to read only"), "{}", site.server(1).said());

    site.server_mut(1).kill();
    disks[0].repair();
    site.server_mut(1).start().unwrap();
    site.wait("it serves", || is_served(address)).unwrap();
    let mut again = Client::connect(address, None, PATIENCE).unwrap().unwrap();
    assert_eq!(value(&mut again, 1).as_deref(), Some(&b"before"[..]));
    assert!(is_written(&mut again, 1, b"after"));
    drop(site);
}

/// No sync has failed here, so the server goes on without a restart.
#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn readers_are_closed_once_the_disk_accepts_writes_again() {
    let scratch = std::env::temp_dir().join(format!("zoolet-refusing-{}", std::process::id()));
    let disk = SlowDisk::mount(&scratch, 1).unwrap();
    let mut plan = Plan::new(Trial::product().unwrap(), 1);
    plan.settings = "read_only = true".to_owned();
    plan.data = [(1, disk.path().to_owned())].into();
    let site = Site::start(plan).unwrap();
    let address = site.server(1).client();
    site.wait("it serves", || is_served(address)).unwrap();
    make_keys(address, &Shape { keys: 3, ..Shape::default() }).unwrap();
    let mut writer = Client::connect(address, None, PATIENCE).unwrap().unwrap();
    assert!(is_written(&mut writer, 1, b"before"));
    disk.set_read_only(true);
    assert!(writer.ask(&set(2, b"unknown")).unwrap().is_none());
    let mut late = reader(&site, address);
    assert_eq!(value(&mut late, 1).as_deref(), Some(&b"before"[..]));
    assert!(is_refused_as_a_write(&mut late) && !is_served(address));
    disk.set_read_only(false);
    site.wait("its connection is closed", || !read(&mut late)).unwrap();
    site.wait("it serves", || is_served(address)).unwrap();
    let mut again = Client::connect(address, None, PATIENCE).unwrap().unwrap();
    // The log keeps the write that the disk refused, and repeats it.
    assert_eq!(value(&mut again, 2).as_deref(), Some(&b"unknown"[..]));
    assert!(is_written(&mut again, 1, b"after"));
    // The server ends before its disk goes.
    drop(site);
    drop(disk);
    let _ = std::fs::remove_dir(scratch);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn server_started_on_a_read_only_disk_serves_readers_until_it_is_writable() {
    let (disks, mut site) = with_keys(1);
    let address = site.server(1).client();
    let mut writer = Client::connect(address, None, PATIENCE).unwrap().unwrap();
    // Acknowledged, and only in the log.
    assert!(is_written(&mut writer, 1, b"last"));
    site.server_mut(1).kill();
    disks[0].remount("ro");
    let before = files(&disks[0].path.join("data"));
    site.server_mut(1).start().unwrap();
    let mut late = reader(&site, address);
    assert_eq!(value(&mut late, 1).as_deref(), Some(&b"last"[..]));
    assert!(is_refused_as_a_write(&mut late));
    assert!(!is_served(address), "only clients that ask to read only");
    assert!(says_read_only(&site.plan, site.server(1)));
    let srvr = word(address, "srvr", PATIENCE).unwrap();
    assert!(srvr.contains("READ-ONLY mode") && srvr.contains("Mode: read-only"), "{srvr}");
    let age = |text: &str| text.split("State age: ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    let first = age(&srvr).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(age(&word(address, "srvr", PATIENCE).unwrap()).unwrap() >= first + 1000, "the state grows older");
    let mntr = word(address, "mntr", PATIENCE).unwrap();
    assert!(mntr.contains("zk_server_state\tread-only") && mntr.contains("zk_read_only_age\t"), "{mntr}");
    assert_eq!(word(address, "isro", PATIENCE).unwrap(), "ro");
    assert!(read(&mut late));
    assert_eq!(files(&disks[0].path.join("data")), before);

    disks[0].remount("rw");
    site.wait("it has started by itself", || is_served(address)).unwrap();
    assert!(!read(&mut late), "its connection is closed");
    let mut again = Client::connect(address, None, PATIENCE).unwrap().unwrap();
    assert_eq!(value(&mut again, 1).as_deref(), Some(&b"last"[..]));
    assert!(is_written(&mut again, 1, b"after"));
    drop(site);
}

/// The leader's log ends with an entry that no other server has.
#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn member_started_on_a_read_only_disk_shows_no_uncommitted_entry() {
    let (disks, mut site) = with_keys(3);
    let leader = site.leader().unwrap();
    let others: Vec<u8> = (1..=3).filter(|&id| id != leader).collect();
    let (address, disk) = (site.server(leader).client(), &disks[usize::from(leader) - 1]);
    let mut writer = Client::connect(address, None, PATIENCE).unwrap().unwrap();
    assert!(is_written(&mut writer, 1, b"committed"));
    others.iter().for_each(|&id| site.server_mut(id).kill());
    writer.queue(&set(1, b"uncommitted"));
    assert!(writer.flush().unwrap());
    // Its log has the entry within milliseconds.
    std::thread::sleep(Duration::from_millis(500));
    site.server_mut(leader).kill();
    disk.remount("ro");
    site.server_mut(leader).start().unwrap();
    let mut late = reader(&site, address);
    assert_eq!(value(&mut late, 1).as_deref(), Some(&b"committed"[..]));
    assert!(is_refused_as_a_write(&mut late) && !is_served(address));
    assert!(says_read_only(&site.plan, site.server(leader)));

    // It was in the log: a quorum with this server commits it.
    disk.remount("rw");
    site.wait("it has started by itself", || !read(&mut late)).unwrap();
    site.server_mut(others[0]).start().unwrap();
    site.wait("a quorum serves", || is_served(address)).unwrap();
    let mut again = Client::connect(address, None, PATIENCE).unwrap().unwrap();
    assert_eq!(value(&mut again, 1).as_deref(), Some(&b"uncommitted"[..]));
    drop(site);
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn damaged_log_on_a_read_only_disk_serves_no_reader() {
    let (disks, mut site) = with_keys(1);
    let address = site.server(1).client();
    site.server_mut(1).kill();
    // The first batch is not the last one, so this is no torn end.
    let log = disks[0].path.join("data/seg-00.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[4096 + 100] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    disks[0].remount("ro");
    site.server_mut(1).start().unwrap();
    let refused = "clients that ask to read only are not served: ";
    site.wait("it says why", || has_alarm(&site.plan, site.server(1), refused)).unwrap();
    assert!(!matches!(Client::read_only(address, PATIENCE), Ok(Some(_))));
    let said = site.server(1).said();
    assert!(said.contains("seg-00.log") && said.contains("not even clients that ask to read only"), "{said}");
    assert_eq!(word(address, "isro", PATIENCE).unwrap(), "null");
    drop(site);
}
