//! Guarantees of an image.
//!
//! It holds the records of the base, all damage to it is found, and it is never incomplete.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{BASE_ID, Model, OPTIONS, Source, assert_holds, contents, create};
use bytes::Bytes;
use std::{borrow::Cow, path::PathBuf, sync::Arc};
use zoolet_machine::record::key;
use zoolet_machine::seam::action::BaseRead;
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::state::Changes;
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::FsDisk;
use zoolet_store::base::Base;
use zoolet_store::image::{self, Image, ImageError};

/// A real directory whose images are read through a memory map.
struct RealDisk {
    path: PathBuf,
    disk: FsDisk,
}

impl RealDisk {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("zoolet-image-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self { disk: FsDisk::open(&path).unwrap(), path }
    }

    fn open(&self, name: &str) -> Result<Image, ImageError> {
        Image::open(&self.path.join(name))
    }
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn model() -> Model {
    let (mut model, mut random) = (Model::default(), Random::new(1));
    for _ in 0..4 {
        model.random_checkpoint(&mut random, 150, 60);
    }
    // A value and a key longer than a block, an empty value, and the root.
    let changes = Changes::from([
        (key::data("/large").unwrap(), Some(Bytes::from(vec![9; 70_000]))),
        (key::znode(&format!("/{}", "n".repeat(9000))).unwrap(), Some(Bytes::from_static(b"long"))),
        (key::reapable("/app"), Some(Bytes::new())),
        (key::znode("/").unwrap(), Some(Bytes::from_static(b"root"))),
    ]);
    model.checkpoint(changes);
    model
}

fn write(disk: &SimDisk, name: &str, model: &Model) -> Result<u64, ImageError> {
    image::write(disk, name, &Source(&model.records), &model.meta())
}

#[test]
fn image_holds_the_records_of_the_base_mapped_or_read() {
    let (model, disk, real) = (model(), SimDisk::new(1), RealDisk::new("holds"));
    let base = create(&disk);
    let mut loaded = Model::default();
    base.checkpoint(&loaded.checkpoint(model.records.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect()))
        .unwrap();
    let bytes = image::write(&real.disk, "tree.img", &base.reader(), &base.meta()).unwrap();

    let (mapped, read) = (real.open("tree.img").unwrap(), Image::open_pread(&real.disk, "tree.img").unwrap());
    for image in [&mapped, &read] {
        image.verify().unwrap();
        assert_eq!(image.meta(), base.meta());
        assert_eq!((image.records(), image.file_bytes()), (model.records.len() as u64, bytes));
        assert!(contents(image).unwrap() == model.records);
        for (key, value) in &model.records {
            assert_eq!(image.get(key).unwrap().as_deref(), Some(&**value));
            let absent = [key, &b"!"[..]].concat();
            assert_eq!(image.get(&absent).unwrap(), model.records.get(&*absent).map(|value| Cow::Borrowed(&**value)));
        }
        assert_eq!(image.get(b"").unwrap(), None);
        assert_eq!(image.get(b"\xff").unwrap(), None);
    }
}

#[test]
fn image_lists_exactly_the_children_of_a_path_in_order() {
    let (model, disk) = (model(), SimDisk::new(1));
    write(&disk, "tree.img", &model).unwrap();
    let image = Image::open_pread(&disk, "tree.img").unwrap();
    for path in ["/app/003", "/app/006", "/app", "/", "/absent"] {
        let prefix = key::children_prefix(path);
        let truth: Vec<&str> = model
            .records
            .keys()
            .filter_map(|key| key.strip_prefix(&*prefix))
            .map(|name| str::from_utf8(name).unwrap())
            .collect();
        let mut found: Vec<String> = Vec::new();
        image
            .children(path, &mut |name| {
                found.push(name.into());
                true
            })
            .unwrap();
        assert_eq!(found, truth, "{path}");
    }
}

#[test]
fn empty_tree_makes_a_valid_image() {
    let (model, disk) = (Model::default(), SimDisk::new(1));
    write(&disk, "tree.img", &model).unwrap();
    let image = Image::open_pread(&disk, "tree.img").unwrap();
    image.verify().unwrap();
    assert_eq!(image.meta(), model.meta());
    assert!(contents(&image).unwrap().is_empty());
    assert_eq!(image.get(b"n\0").unwrap(), None);
    assert_holds(&Base::install(Arc::new(disk), BASE_ID, OPTIONS, &image).unwrap(), &model, "installed");
}

#[test]
fn image_write_refuses_a_source_that_fails_its_digest() {
    let (mut model, disk) = (model(), SimDisk::new(1));
    write(&disk, "tree.img", &model).unwrap();
    let before = disk.contents("tree.img");
    model.digest ^= 1;
    assert!(matches!(write(&disk, "tree.img", &model), Err(ImageError::Source(BaseFailure::Damaged(_)))));
    assert_eq!(disk.contents("tree.img"), before);
    assert_eq!(disk.contents(".tree.img.zoolet-tmp"), None);
}

#[test]
fn image_write_on_a_full_disk_leaves_the_old_image() {
    let (model, disk) = (model(), SimDisk::new(1));
    write(&disk, "tree.img", &Model::default()).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 40_000));
    assert_eq!(write(&disk, "tree.img", &model), Err(ImageError::NoSpace));
    assert_eq!(Image::open_pread(&disk, "tree.img").unwrap().records(), 0);
    assert_eq!(disk.contents(".tree.img.zoolet-tmp"), None);
}

#[test]
fn verify_finds_each_flipped_bit_and_unverified_reads_never_panic() {
    let (model, disk, real) = (model(), SimDisk::new(1), RealDisk::new("flips"));
    let bytes = write(&disk, "tree.img", &model).unwrap();
    let mut random = Random::new(5);
    for at in (0..bytes).step_by(1499).chain(bytes - 100..bytes).chain(0..120) {
        let disk = disk.after_process_crash();
        assert!(disk.corrupt("tree.img", at, 1 << random.below(8)));
        let path = real.path.join("flipped.img");
        std::fs::write(&path, disk.contents("tree.img").unwrap()).unwrap();
        for image in [Image::open_pread(&disk, "tree.img"), Image::open(&path)] {
            let Ok(image) = image else { continue };
            assert!(matches!(image.verify(), Err(ImageError::Damaged(_))), "byte {at}");
            for (key, value) in model.records.iter().step_by(17) {
                match image.get(key) {
                    // Absence from an unverified image proves nothing.
                    Ok(found) => assert!(found.is_none_or(|found| *found == **value), "byte {at}"),
                    Err(error) => assert!(matches!(error, ImageError::Damaged(_)), "byte {at}: {error}"),
                }
            }
            let _ = image.keys(b"", None, &mut |key| image.record(key).is_ok());
        }
        let Ok(image) = Image::open_pread(&disk, "tree.img") else { continue };
        let installed = Base::install(Arc::new(disk.clone()), BASE_ID, OPTIONS, &image);
        match installed {
            // The flipped bit was outside all records.
            Ok(base) => assert_holds(&base, &model, &format!("byte {at}")),
            Err(error) => {
                assert!(matches!(error, ImageError::Damaged(_)), "byte {at}: {error}");
                assert!(Base::list(&disk).unwrap().is_empty());
            }
        }
    }
}

#[test]
fn shortened_image_file_is_reported_as_damage() {
    let (model, disk) = (model(), SimDisk::new(1));
    let bytes = write(&disk, "tree.img", &model).unwrap();
    for length in (0..bytes).step_by(1009) {
        let disk = disk.after_process_crash();
        zoolet_store::disk::Disk::open(&disk, "tree.img").unwrap().set_len(length).unwrap();
        assert!(matches!(Image::open_pread(&disk, "tree.img"), Err(ImageError::Damaged(_))), "{length} bytes");
    }
}

#[test]
fn crash_at_any_image_write_step_leaves_the_old_or_new_image() {
    let (old, new) = (Model::default(), model());
    let disk = SimDisk::new(1);
    write(&disk, "tree.img", &old).unwrap();
    let trial = disk.after_process_crash();
    write(&trial, "tree.img", &new).unwrap();
    for step in 0..=trial.steps() {
        let disk = disk.after_process_crash();
        disk.set_crash_at(step);
        let done = write(&disk, "tree.img", &new).is_ok();
        let losses = (0..6).map(|seed| (format!("step {step}, power loss {seed}"), disk.after_power_loss(seed)));
        let crash = (format!("step {step}, process crash"), disk.after_process_crash());
        for (context, disk) in losses.chain([crash]) {
            let image = Image::open_pread(&disk, "tree.img").unwrap_or_else(|error| panic!("{context}: {error}"));
            image.verify().unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(
                !done || image.meta() == new.meta(),
                "{context}: an old image after the new one was said to be there"
            );
            assert!(image.meta() == old.meta() || contents(&image).unwrap() == new.records, "{context}");
            write(&disk, "tree.img", &new).unwrap_or_else(|error| panic!("{context}: again: {error}"));
        }
    }
}

#[test]
fn crash_at_any_image_install_step_leaves_no_partial_base() {
    let model = model();
    let disk = SimDisk::new(1);
    write(&disk, "tree.img", &model).unwrap();
    let install = |disk: &SimDisk| {
        let image = Image::open_pread(disk, "tree.img")?;
        Base::install(Arc::new(disk.clone()), BASE_ID, OPTIONS, &image).map(drop)
    };
    let trial = disk.after_process_crash();
    install(&trial).unwrap();
    for step in 0..=trial.steps() {
        let disk = disk.after_process_crash();
        disk.set_crash_at(step);
        let done = install(&disk).is_ok();
        let losses = (0..5).map(|seed| (format!("step {step}, power loss {seed}"), disk.after_power_loss(seed)));
        let crash = (format!("step {step}, process crash"), disk.after_process_crash());
        for (context, disk) in losses.chain([crash]) {
            if done {
                let base = crate::base_support::open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_holds(&base, &model, &context);
            } else {
                Base::remove(&disk, BASE_ID).unwrap();
                install(&disk).unwrap_or_else(|error| panic!("{context}: again: {error}"));
            }
        }
    }
}
