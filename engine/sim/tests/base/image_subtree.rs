//! The image of a subtree (last-known-good).
//!
//! Its znodes read back as written, and a crash leaves the previous image or the new one.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use zoolet_model::{Path, Stat, Zxid};
use zoolet_sim::disk::SimDisk;
use zoolet_store::image::{Image, Subtree};

const NAME: &str = "conf.image";

fn path(text: &str) -> Path {
    Path::new(text).unwrap()
}

fn zxid(number: u64) -> Zxid {
    Zxid::from_bits(number).unwrap()
}

/// Returns a subtree larger than a block, with data of every kind.
fn subtree(version: i32) -> Subtree {
    let mut subtree = Subtree::default();
    let stat = Stat { czxid: 3, mzxid: i64::from(version), version, num_children: 99, pzxid: 50, ..Stat::default() };
    subtree.add(&path("/conf"), None, &stat, 203);
    subtree.add(&path("/conf/empty"), Some(b""), &stat, 0);
    subtree.add(&path("/conf/large"), Some(&[version as u8; 5000]), &stat, 0);
    subtree.add(&path("/conf/small"), Some(format!("v{version}").as_bytes()), &stat, 0);
    for number in 0..200 {
        subtree.add(&path(&format!("/conf/n{number:03}")), Some(&[7; 100]), &stat, 0);
    }
    subtree
}

fn assert_is(image: &Image, version: i32) {
    let znode = |text| image.znode(&path(text)).unwrap();
    let (data, stat) = znode("/conf").unwrap();
    assert_eq!((data, stat.num_children, stat.version, stat.ephemeral_owner), (None, 203, version, 0));
    assert_eq!(znode("/conf/empty").unwrap().0.unwrap(), "");
    let (large, stat) = znode("/conf/large").unwrap();
    assert_eq!((large.unwrap(), stat.data_length), (vec![version as u8; 5000].into(), 5000));
    assert_eq!(znode("/conf/small").unwrap().0.unwrap(), format!("v{version}"));
    assert_eq!((znode("/"), znode("/conf/none")), (None, None));
    let mut names = Vec::new();
    image
        .children("/conf", &mut |name| {
            names.push(name.to_owned());
            true
        })
        .unwrap();
    assert_eq!((names.len(), names[0].as_str(), names[202].as_str()), (203, "empty", "small"));
}

#[test]
fn subtree_image_returns_the_znodes_written_to_it() {
    let disk = SimDisk::new(1);
    subtree(4).write(&disk, NAME, zxid(77)).unwrap();
    let image = Image::open_pread(&disk, NAME).unwrap();
    image.verify().unwrap();
    assert_is(&image, 4);
    assert_eq!((image.meta().zxid, image.meta().digest), (zxid(77), subtree(4).digest()));
    assert_ne!(subtree(4).digest(), subtree(5).digest());
}

#[test]
fn crash_at_any_subtree_write_step_leaves_old_or_new_image() {
    let disk = SimDisk::new(1);
    subtree(1).write(&disk, NAME, zxid(10)).unwrap();
    let trial = disk.after_process_crash();
    subtree(2).write(&trial, NAME, zxid(20)).unwrap();
    let (mut before, mut after) = (0, 0);
    for step in 0..=trial.steps() {
        let disk = disk.after_process_crash();
        disk.set_crash_at(step);
        let is_done = subtree(2).write(&disk, NAME, zxid(20)).is_ok();
        let losses = (0..6).map(|seed| disk.after_power_loss(seed));
        for disk in losses.chain([disk.after_process_crash()]) {
            let image = Image::open_pread(&disk, NAME).unwrap();
            image.verify().unwrap();
            let version = if image.meta().zxid == zxid(10) { 1 } else { 2 };
            assert_is(&image, version);
            assert!(!is_done || version == 2, "step {step}: it was said to be there");
            *(if version == 1 { &mut before } else { &mut after }) += 1;
            // The next write removes the leftovers.
            subtree(3).write(&disk, NAME, zxid(30)).unwrap();
        }
    }
    assert!(before > 0 && after > 0, "{before} before, {after} after");
}
