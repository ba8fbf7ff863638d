//! A subtree that a node keeps in a file, and that a process reads without a node.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

mod scratch;

use scratch::Scratch;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use zoolet::config::KeptImage;
use zoolet::{
    Bytes, Config, CreateOptions, LastKnownGood, LastKnownGoodError, Node, Session, StartError, Version, Wait,
    last_known_good, path,
};
use zoolet_machine::status::Cause;

const PATIENCE: Duration = Duration::from_secs(20);
const MIN_INTERVAL: Duration = Duration::from_secs(1);

fn file(scratch: &Scratch) -> PathBuf {
    scratch.join("conf.image")
}

fn kept(scratch: &Scratch) -> KeptImage {
    let mut kept = KeptImage::new(path!("/conf").clone(), file(scratch));
    kept.min_interval = MIN_INTERVAL;
    kept
}

fn config(scratch: &Scratch) -> Config {
    let mut config = Config::new(scratch.join("data"));
    config.limits.log_segment_bytes = 256 << 10;
    config.limits.log_segments = 8;
    config.limits.frame_bytes_max = 100_000;
    config.last_known_good = Some(kept(scratch));
    config
}

fn start(scratch: &Scratch) -> (Node, Session) {
    let node = Node::start(config(scratch)).unwrap();
    let session = node.session().wait_timeout(PATIENCE).unwrap().unwrap();
    (node, session)
}

/// Waits until the image satisfies `is_so`.
fn until(scratch: &Scratch, is_so: impl Fn(&LastKnownGood) -> bool) -> LastKnownGood {
    let began = Instant::now();
    loop {
        match last_known_good(file(scratch)) {
            Ok(kept) if is_so(&kept) => return kept,
            Ok(_) | Err(LastKnownGoodError::Missing(_)) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(began.elapsed() < PATIENCE, "the image does not follow");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn image_is_world_readable_under_any_server_umask() {
    // The umask of the systemd unit.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let scratch = Scratch::new();
    let (_node, session) = start(&scratch);
    session.create(path!("/conf"), "1").wait().unwrap();
    until(&scratch, |kept| kept.get(path!("/conf")).is_some());
    assert_eq!(std::fs::metadata(file(&scratch)).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn image_follows_its_subtree_and_can_be_read_without_a_node() {
    let scratch = Scratch::new();
    let (node, session) = start(&scratch);
    let image_bytes = || node.status().wait().unwrap().server.flash.unwrap().written.of(Cause::Image);
    session.create(path!("/elsewhere"), "x").wait().unwrap();
    assert_eq!(image_bytes(), 0, "there is nothing to be kept yet");
    session.create(path!("/conf"), None).wait().unwrap();
    session.create(path!("/conf/interval"), "5").wait().unwrap();
    let large = Bytes::from(vec![3; 50_000]);
    session.create(path!("/conf/large"), large.clone()).wait().unwrap();
    session.create_with(path!("/conf/alive"), None, &CreateOptions::ephemeral()).wait().unwrap();
    let created = session.create(path!("/conf/deep/er"), None).wait();
    assert!(created.is_err(), "it has no parent");
    let kept = until(&scratch, |kept| kept.children(path!("/conf")).len() == 2);
    assert_eq!(kept.children(path!("/conf")), ["interval", "large"], "nobody is there to be alive");
    assert_eq!((kept.get(path!("/conf")), kept.znode(path!("/conf")).unwrap().data), (Some(Bytes::new()), None));
    assert_eq!(kept.get(path!("/conf/large")).unwrap(), large);
    assert!(image_bytes() >= std::fs::metadata(file(&scratch)).unwrap().len(), "it wears the flash like all else");
    assert_eq!((kept.get(path!("/conf/alive")), kept.get(path!("/elsewhere"))), (None, None));

    let stat = session.set(path!("/conf/interval"), "6", Version::Any).wait().unwrap();
    let newer = until(&scratch, |kept| kept.get(path!("/conf/interval")).as_deref() == Some(b"6"));
    assert_eq!(newer.zxid().as_i64(), stat.mzxid);
    assert_eq!(kept.get(path!("/conf/interval")).unwrap(), "5", "what is open stays what it is");
    session.delete(path!("/conf/large"), Version::Any).wait().unwrap();
    until(&scratch, |kept| kept.get(path!("/conf/large")).is_none());

    // The whole subtree is deleted, perhaps by mistake.
    session.delete(path!("/conf/alive"), Version::Any).wait().unwrap();
    session.delete(path!("/conf/interval"), Version::Any).wait().unwrap();
    session.delete(path!("/conf"), Version::Any).wait().unwrap();
    node.shutdown(PATIENCE).unwrap();
    let kept = last_known_good(file(&scratch)).unwrap();
    assert!(kept.get(path!("/conf")).is_some());
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the data and the image: {left:?}");
}

#[test]
fn image_is_written_on_change_and_at_most_once_per_interval() {
    let scratch = Scratch::new();
    let (node, session) = start(&scratch);
    session.create(path!("/conf"), "0").wait().unwrap();
    until(&scratch, |_| true);
    let identity = || std::fs::metadata(file(&scratch)).unwrap().ino();
    let began = Instant::now();
    let (mut images, mut last) = (1, identity());
    while began.elapsed() < MIN_INTERVAL * 5 / 2 {
        session.set(path!("/conf"), "again", Version::Any).wait().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        images += u64::from(std::mem::replace(&mut last, identity()) != last);
    }
    let allowed = 1 + began.elapsed().as_secs() / MIN_INTERVAL.as_secs() + 1;
    assert!((2..=allowed).contains(&images), "{images} images, {allowed} allowed");

    // Writes elsewhere, short-lived ephemerals and the start of a node are no changes.
    let stat = session.set(path!("/conf"), "last", Version::Any).wait().unwrap();
    until(&scratch, |kept| kept.zxid().as_i64() == stat.mzxid);
    let last = identity();
    session.create(path!("/elsewhere"), None).wait().unwrap();
    node.shutdown(PATIENCE).unwrap();
    let (node, session) = start(&scratch);
    session.create_with(path!("/conf/alive"), None, &CreateOptions::ephemeral()).wait().unwrap();
    session.delete(path!("/conf/alive"), Version::Any).wait().unwrap();
    std::thread::sleep(MIN_INTERVAL * 3 / 2);
    assert_eq!(identity(), last);
    // The image still follows the subtree.
    let stat = session.set(path!("/conf"), "new", Version::Any).wait().unwrap();
    until(&scratch, |kept| kept.znode(path!("/conf")).is_some_and(|kept| kept.stat.mzxid == stat.mzxid));
    drop(node);
}

#[test]
fn missing_damaged_or_unreadable_image_gives_a_distinct_error() {
    let scratch = Scratch::new();
    let (node, session) = start(&scratch);
    session.create(path!("/conf"), "0").wait().unwrap();
    until(&scratch, |_| true);
    drop(node);
    let whole = std::fs::read(file(&scratch)).unwrap();
    let other = scratch.join("other.image");
    let opened = |bytes: &[u8]| {
        std::fs::write(&other, bytes).unwrap();
        last_known_good(&other).map(drop)
    };
    assert_eq!(opened(&whole), Ok(()));
    for (at, bits) in [(0, 1), (100, 1), (4096, 1), (whole.len() / 2, 4), (whole.len() - 1, 128)] {
        let mut flipped = whole.clone();
        flipped[at] ^= bits;
        let damaged = opened(&flipped);
        assert!(matches!(damaged, Err(LastKnownGoodError::Damaged(..)) | Ok(())), "byte {at}: {damaged:?}");
        assert!(damaged.is_err() || flipped[..4096] == whole[..4096], "byte {at} is in no block that is used");
    }
    for length in [0, 1, 4095, 4096, whole.len() - 1] {
        assert!(matches!(opened(&whole[..length]), Err(LastKnownGoodError::Damaged(..))), "{length} bytes");
    }
    let said = opened(b"").unwrap_err().to_string();
    assert!(said.ends_with("other.image: the image is damaged: it is empty"), "{said}");
    std::fs::remove_file(&other).unwrap();
    assert_eq!(last_known_good(&other).unwrap_err(), LastKnownGoodError::Missing(other.clone()));
    assert!(matches!(last_known_good(scratch.path()), Err(LastKnownGoodError::Unreadable(..))));
    // A node replaces a damaged image by a sound one.
    std::fs::write(file(&scratch), &whole[..4096]).unwrap();
    let (_node, _) = start(&scratch);
    let began = Instant::now();
    while last_known_good(file(&scratch)).is_err() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn invalid_image_path_or_interval_is_refused_at_the_start() {
    let scratch = Scratch::new();
    let refused = |change: &dyn Fn(&mut KeptImage)| {
        let mut config = config(&scratch);
        change(config.last_known_good.as_mut().unwrap());
        match Node::start(config) {
            Err(StartError::Config(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let said = refused(&|kept| kept.path = "/nowhere-at-all/conf.image".into());
    assert!(said.ends_with("conf.image\": allowed is a file in an existing directory"), "{said}");
    let said = refused(&|kept| kept.path = scratch.path().into());
    assert!(said.ends_with("allowed is a file, not a directory"), "{said}");
    assert!(refused(&|kept| kept.path = "/".into()).ends_with("allowed is the name of a file"));
    let said = refused(&|kept| kept.min_interval = Duration::from_millis(999));
    assert_eq!(said, "last_known_good.min_interval = 0.999 s: allowed is 1 s to 7 days");
    assert!(refused(&|kept| kept.min_interval = Duration::MAX).contains("allowed is 1 s to 7 days"));
}

/// Only the server may enter the data directory, and the space that a base needs is computed
/// without foreign files.
#[test]
fn image_path_into_the_data_directory_is_refused_by_any_route() {
    let scratch = Scratch::new();
    drop(start(&scratch));
    std::os::unix::fs::symlink(scratch.join("data"), scratch.join("link")).unwrap();
    std::fs::create_dir_all(scratch.join("data-images")).unwrap();
    let start_with = |data: &str, path: &str| {
        let mut config = config(&scratch);
        config.data = scratch.join(data);
        config.last_known_good.as_mut().unwrap().path = scratch.join(path);
        Node::start(config)
    };
    for (data, path) in [
        ("data", "data/conf.image"),
        ("data", "link/conf.image"),
        ("link", "data/conf.image"),
        ("data", "data-images/../data/conf.image"),
        // These paths do not exist before the first start.
        ("new", "new/conf.image"),
        ("new", "new/images/conf.image"),
        ("new", "new"),
    ] {
        match start_with(data, path) {
            Err(error @ StartError::Config(_)) => {
                let said = error.to_string();
                assert!(error.is_for_the_operator() && said.contains("allowed is a file outside the data"), "{said}");
            }
            other => panic!("{data}, {path}: {other:?}"),
        }
    }
    drop(start_with("data", "data-images/conf.image").unwrap());
}

/// Regression: the first write deleted `conf.image.tmp`, which may be another program's file.
#[test]
fn foreign_files_beside_the_image_stay() {
    let scratch = Scratch::new();
    let beside = scratch.join("conf.image.tmp");
    std::fs::write(&beside, "Dear Sir").unwrap();
    // A crash left a part of an image.
    let unfinished = scratch.join(".conf.image.zoolet-tmp");
    std::fs::write(&unfinished, [0; 5000]).unwrap();
    let (node, session) = start(&scratch);
    session.create(path!("/conf"), "0").wait().unwrap();
    until(&scratch, |_| true);
    node.shutdown(PATIENCE).unwrap();
    assert_eq!(std::fs::read_to_string(&beside).unwrap(), "Dear Sir");
    assert!(!unfinished.exists(), "its own file of a crash takes space for ever");
    // A directory of that name kept the image from being written.
    std::fs::remove_file(&beside).unwrap();
    std::fs::create_dir(&beside).unwrap();
    let (node, session) = start(&scratch);
    let stat = session.set(path!("/conf"), "1", Version::Any).wait().unwrap();
    until(&scratch, |kept| kept.zxid().as_i64() == stat.mzxid);
    node.shutdown(PATIENCE).unwrap();
    assert!(beside.is_dir());
}

/// Whatever the file was, a configuration, a device or letters, it would be lost without a warning.
#[test]
fn foreign_file_at_the_image_path_is_refused_and_not_replaced() {
    let scratch = Scratch::new();
    drop(start(&scratch));
    std::fs::create_dir_all(scratch.join("images")).unwrap();
    let start_with = |name: &str| {
        let mut config = config(&scratch);
        config.last_known_good.as_mut().unwrap().path = scratch.join("images").join(name);
        Node::start(config)
    };
    std::fs::write(scratch.join("images/letters"), "Dear Sir").unwrap();
    std::os::unix::fs::symlink(scratch.join("images/letters"), scratch.join("images/link")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(scratch.join("images/socket")).unwrap());
    for name in ["letters", "link", "socket"] {
        match start_with(name) {
            Err(error @ StartError::Config(_)) => {
                assert!(error.to_string().contains("allowed is a new file, an empty one or an image"), "{error}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    // An image cut short by a crash, and an empty file created in advance for its permissions.
    std::fs::write(scratch.join("images/cut"), b"zltimg\0\x01").unwrap();
    std::fs::write(scratch.join("images/empty"), "").unwrap();
    for name in ["cut", "empty"] {
        drop(start_with(name).unwrap());
    }
}
