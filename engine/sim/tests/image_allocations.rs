//! Reading from a memory-mapped image allocates nothing.
//!
//! The test has its own file, because the counting allocator sees all threads.

mod base_support;

use base_support::{Model, create};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::FsDisk;
use zoolet_store::image::{self, Image};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn get_from_a_mapped_image_allocates_nothing() {
    let path = std::env::temp_dir().join(format!("zoolet-image-allocations-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let disk = FsDisk::open(&path).unwrap();
    let base = create(&SimDisk::new(1));
    let mut model = Model::default();
    base.checkpoint(&model.random_checkpoint(&mut Random::new(1), 2000, 400)).unwrap();
    image::write(&disk, "tree.img", &base.reader(), &base.meta()).unwrap();
    let image = Image::open(&path.join("tree.img")).unwrap();

    let region = Region::new(ALLOCATOR);
    for (key, value) in &model.records {
        assert_eq!(image.get(key).unwrap().unwrap(), &**value);
    }
    assert_eq!(image.get(b"n/absent\0").unwrap(), None);
    let change = region.change();
    assert_eq!(change.allocations + change.reallocations, 0, "{change:?}");
    drop(image);
    std::fs::remove_dir_all(&path).unwrap();
}
