//! The bound on the data directory's size.
//!
//! Three servers are filled until they refuse writes. One of them loses its data while they are
//! full. Deletes free space again.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, and tell what they saw")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use zoolet_ensemble_tests::agreement::same_digest;
use zoolet_ensemble_tests::population::{client, transactions, try_write, verify, write};
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::siege::{TOP, create, directory, znode};
use zoolet_ensemble_tests::site::{Plan, Server, Site};
use zoolet_model::{ErrorCode, WriteOp};

/// Bound for each server: the log ring, the reserve, and two bases of 18 MiB.
const BOUND: u64 = 56 << 20;
const SETTINGS: &str = "profile = \"sd-a1/128m\"\n[limits]\nlog_segments = 6\ndisk_bytes_max = 58720256";
/// Interval between two looks at the sizes.
const PERIOD: Duration = Duration::from_millis(20);
/// Time for which three full servers are watched.
const FULL: Duration = Duration::from_secs(5);
/// Znodes deleted in one transaction.
const BATCH: u64 = 100;

/// Returns the bytes that the files of a directory take on the device.
fn taken(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(files) = std::fs::read_dir(directory) else { return 0 };
    // A file that is removed meanwhile takes nothing.
    files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.blocks() * 512).sum()
}

/// Returns the largest size of each directory until `over` is set.
fn watch(directories: &[&Path], over: &AtomicBool) -> Vec<u64> {
    let mut most = vec![0; directories.len()];
    while !over.load(Relaxed) {
        for (most, directory) in most.iter_mut().zip(directories) {
            *most = taken(directory).max(*most);
        }
        std::thread::sleep(PERIOD);
    }
    most
}

fn all(site: &Site) -> Vec<&Server> {
    site.servers().iter().collect()
}

/// Creates directories from number `from` on until the leader refuses a write.
///
/// Returns the first directory that is incomplete.
fn fill(site: &Site, own: &mut zoolet_powercut::client::Client, from: u64) -> u64 {
    for number in from.. {
        for transaction in transactions(number) {
            match try_write(&all(site), own, &transaction).unwrap() {
                None | Some(ErrorCode::NodeExists) => {}
                Some(ErrorCode::SystemError) => return number,
                Some(other) => panic!("{other:?}"),
            }
        }
    }
    unreachable!("there is no last directory")
}

fn delete(path: String) -> WriteOp {
    WriteOp::Delete { path: path.into(), version: -1 }
}

#[test]
#[ignore = "a stage of its own: .ci/run ceiling"]
fn three_full_128_mib_routers_stay_within_disk_bytes_max() {
    let mut plan = Plan::new(Product::zoolet().unwrap(), 3);
    plan.settings = SETTINGS.to_owned();
    let mut site = Site::start(plan).unwrap();
    let data: Vec<_> = site.servers().iter().map(|server| server.place.data.clone()).collect();
    let over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&data.iter().map(|path| &**path).collect::<Vec<_>>(), &over));
        let filled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut own = client(&all(&site), None).unwrap();
            write(&all(&site), &mut own, &[create(TOP, bytes::Bytes::new())]).unwrap();
            let first = fill(&site, &mut own, 0);
            println!("{first},000 znodes of 1,000 bytes, then writes are refused");
            let leader = site.wait_for_leader().unwrap();
            let figures = site.server(leader).figures().unwrap();
            assert_eq!(figures.get("refusing_writes").map(String::as_str), Some("1"), "server {leader} leads");
            assert!(site.server(leader).said().contains("as large as disk_bytes_max allows"), "it says why");

            // A follower with an empty disk gets all data, and has no more room than the others.
            let wiped = site.followers().unwrap()[0];
            site.server_mut(wiped).kill();
            site.server(wiped).wipe().unwrap();
            site.server_mut(wiped).start().unwrap();
            site.wait_for_all().unwrap();
            std::thread::sleep(FULL);
            for server in site.servers() {
                verify(server, 0..first * 1000).unwrap();
            }

            // The second half is deleted, and its room can be used again.
            let half = first / 2;
            for number in (half * 1000..first * 1000).step_by(BATCH as usize) {
                let batch: Vec<_> = (number..number + BATCH).map(|number| delete(znode(number))).collect();
                let refused = try_write(&all(&site), &mut own, &batch).unwrap();
                // NoNode: the answer to an earlier attempt was lost.
                assert!(matches!(refused, None | Some(ErrorCode::NoNode)), "a delete: {refused:?}");
            }
            for number in half..first {
                let refused = try_write(&all(&site), &mut own, &[delete(directory(number * 1000))]).unwrap();
                assert!(matches!(refused, None | Some(ErrorCode::NoNode)), "a delete: {refused:?}");
            }
            for transaction in (half..first - first / 10).flat_map(transactions) {
                write(&all(&site), &mut own, &transaction).unwrap();
            }
            let again = fill(&site, &mut own, first - first / 10);
            println!("deleted down to {half},000, filled again to {again},000");
            assert!(again * 10 >= first * 9, "{first},000 at first, and then {again},000");
            for server in site.servers() {
                verify(server, 0..again * 1000).unwrap();
            }
        }));
        over.store(true, Relaxed);
        let most = watching.join().unwrap();
        filled.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        most
    });
    println!(
        "{:?} KiB were taken at most, of {}",
        most.iter().map(|bytes| bytes >> 10).collect::<Vec<_>>(),
        BOUND >> 10
    );
    for id in site.ids() {
        assert!(!site.server(id).has_ended(), "server {id} ended");
    }
    same_digest(&site).unwrap();
    assert!(most.iter().all(|most| *most <= BOUND), "{most:?} bytes were taken, and {BOUND} are allowed");
    assert!(most.iter().all(|most| *most > BOUND / 2), "{most:?}: nothing was filled");
}
