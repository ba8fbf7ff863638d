//! Cost of the base at a million znodes on a real disk. Prints results; asserts nothing about time.
//!
//! Run the tests in this order:
//!
//! ```text
//! cargo test --release -p zoolet-sim --test base -- --ignored --nocapture --test-threads=1 a_load
//! ... b_updates, c_open, d_image
//! ```
//!
//! `e_set_cost_by_runs_max_and_merge_step`, run after `a_load_of_a_million_znodes`, counts the cost
//! of random sets for given values of ZOOLET_RUNS_MAX and ZOOLET_STEP_KIB.
//! docs/explanation/measurements.md has the results.
#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "measurements are read by people")]

use crate::base_support::Model;
use bytes::Bytes;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use zoolet_machine::record::{digest, key};
use zoolet_machine::seam::action::{BaseRead, Checkpoint, CheckpointMeta};
use zoolet_machine::state::Changes;
use zoolet_sim::disk::Random;
use zoolet_store::FsDisk;
use zoolet_store::base::{Base, Options, Scrubbed};
use zoolet_store::disk::Disk;
use zoolet_store::image::{self, Image};

const ZNODES: u64 = 1_000_000;
const PER_CHECKPOINT: u64 = 10_000;

/// Returns the directory for the base; `ZOOLET_MEASURE_DIR` overrides the default.
///
/// A directory in memory is enough where only counts matter.
fn directory() -> PathBuf {
    let path = std::env::var_os("ZOOLET_MEASURE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = path.join("zoolet-base-measure");
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(FsDisk::open(&directory()).unwrap())
}

fn path_of(at: u64) -> String {
    format!("/app/{at:06}")
}

fn change(random: &mut Random, at: u64) -> (key::Key, Option<Bytes>) {
    let mut value = vec![0; 160];
    value[..8].copy_from_slice(&random.bits().to_le_bytes());
    (key::znode(&path_of(at)).unwrap(), Some(Bytes::from(value)))
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default() / 1024.0
}

/// Returns this thread's CPU time, which other load barely affects.
fn processor_time() -> Duration {
    let status = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(status.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

/// Formats a rate per second of CPU time, system calls included.
fn rate(count: u32, start: Duration) -> String {
    format!("{:.0}/s", f64::from(count) / (processor_time() - start).as_secs_f64())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn checkpoint(base: &Base, changes: Changes, model: &mut Model) -> Duration {
    // The model keeps no records here: a million of them would distort the measured memory.
    model.zxid += 1;
    let meta =
        CheckpointMeta { zxid: zoolet_model::Zxid::from_bits(model.zxid).unwrap(), digest: 0, totals: Bytes::new() };
    let start = Instant::now();
    base.checkpoint(&Checkpoint { changes: Arc::new(changes), meta }).unwrap();
    start.elapsed()
}

fn random_updates(random: &mut Random) -> Changes {
    (0..PER_CHECKPOINT).map(|_| random.below(ZNODES)).map(|at| change(&mut Random::new(at), at)).collect()
}

#[test]
#[ignore = "measures"]
fn a_load_of_a_million_znodes() {
    let disk = disk();
    for id in Base::list(&*disk).unwrap() {
        Base::remove(&*disk, id).unwrap();
    }
    let base = Base::create(disk.clone(), 1, Options::default()).unwrap();
    let (mut model, mut random) = (Model::default(), Random::new(1));
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    for from in (0..ZNODES).step_by(usize::try_from(PER_CHECKPOINT).unwrap()) {
        let changes = (from..from + PER_CHECKPOINT).map(|at| change(&mut random, at)).collect();
        longest = longest.max(checkpoint(&base, changes, &mut model));
    }
    let counters = base.counters();
    eprintln!(
        "load of 1M in 100 checkpoints: {:?}, longest {longest:?}, file {:.1} MiB = {:.0} B/znode, written {:.0} MiB, {} syncs, resident {:.1} MiB",
        start.elapsed(),
        mib(base.file_bytes()),
        base.file_bytes() as f64 / ZNODES as f64,
        mib(counters.base_bytes_written),
        counters.syncs,
        resident_mib()
    );
}

#[test]
#[ignore = "measures"]
fn b_updates_with_concurrent_reads() {
    let base = Base::open(disk(), 1, Options::default()).unwrap();
    let (mut model, mut random) = (Model { zxid: base.meta().zxid.to_bits(), ..Model::default() }, Random::new(2));
    for round in 0..50 {
        let before = base.counters();
        let reader = base.reader();
        let changes = random_updates(&mut random);
        let (done, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let reads = std::thread::spawn({
            let (done, stop, mut random) = (done.clone(), stop.clone(), Random::new(round));
            move || {
                let (mut reads, mut longest) = (0_u64, Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let key = key::znode(&path_of(random.below(ZNODES))).unwrap();
                    let start = Instant::now();
                    assert!(reader.record(&key).unwrap().is_some());
                    longest = longest.max(start.elapsed());
                    reads += 1;
                }
                done.store(true, Ordering::Relaxed);
                (reads, longest)
            }
        });
        let took = checkpoint(&base, changes, &mut model);
        stop.store(true, Ordering::Relaxed);
        let (count, longest) = reads.join().unwrap();
        let after = base.counters();
        if round % 7 == 0 || round == 49 {
            eprintln!(
                "checkpoint {round}: {took:?}, base {:.1} MiB, side {:.2} MiB, {} syncs, file {:.1} MiB; meanwhile {:.0} reads/s, longest {longest:?}, resident {:.1} MiB",
                mib(after.base_bytes_written - before.base_bytes_written),
                mib(after.merge_bytes_written - before.merge_bytes_written),
                after.syncs - before.syncs,
                mib(base.file_bytes()),
                count as f64 / took.as_secs_f64(),
                resident_mib()
            );
        }
    }
}

#[test]
#[ignore = "measures"]
fn c_open_and_random_reads() {
    let disk = disk();
    let before = resident_mib();
    for _ in 0..5 {
        let start = Instant::now();
        let base = Base::open(disk.clone(), 1, Options::default()).unwrap();
        eprintln!("open: {:?}, {:.2} MiB read", start.elapsed(), mib(base.counters().base_bytes_read));
    }
    let base = Base::open(disk, 1, Options::default()).unwrap();
    let (reader, mut random) = (base.reader(), Random::new(3));
    for what in ["cold", "warm", "warm"] {
        let start = processor_time();
        let count = 300_000;
        for _ in 0..count {
            let key = key::znode(&path_of(random.below(ZNODES))).unwrap();
            assert_eq!(reader.record(&key).unwrap().unwrap().len(), 160);
        }
        eprintln!("{what}: {} random reads over all", rate(count, start));
    }
    let start = processor_time();
    let count = 1_000_000;
    for _ in 0..count {
        let key = key::znode(&path_of(random.below(10_000))).unwrap();
        assert_eq!(reader.record(&key).unwrap().unwrap().len(), 160);
    }
    eprintln!("{} random reads over 10,000 of them", rate(count, start));
    eprintln!("resident {:.1} MiB, {:.1} before opening", resident_mib(), before);
    let start = Instant::now();
    let mut keys = 0;
    reader
        .keys(b"n", Some(b"o"), &mut |_| {
            keys += 1;
            true
        })
        .unwrap();
    eprintln!("scan of {keys} keys: {:?}", start.elapsed());
    let start = Instant::now();
    let mut scrub = base.scrub();
    while matches!(scrub.step(1 << 20), Ok(Scrubbed::More)) {}
    eprintln!("scrub: {:?}, resident {:.1} MiB", start.elapsed(), resident_mib());
}

#[test]
#[ignore = "measures"]
fn d_image_write_and_install() {
    let disk = disk();
    let base = Base::open(disk.clone(), 1, Options::default()).unwrap();
    let reader = base.reader();
    let mut meta = base.meta();
    reader
        .keys(b"", None, &mut |key| {
            meta.digest = meta.digest.wrapping_add(digest::record_hash(key, &reader.record(key).unwrap().unwrap()));
            true
        })
        .unwrap();
    let before = resident_mib();
    let start = Instant::now();
    let bytes = image::write(&*disk, "tree.img", &reader, &meta).unwrap();
    eprintln!(
        "image write: {:?}, {:.1} MiB = {:.0} B/znode, resident {before:.1} to {:.1} MiB",
        start.elapsed(),
        mib(bytes),
        bytes as f64 / ZNODES as f64,
        resident_mib()
    );
    drop((reader, base));
    let path = directory().join("tree.img");
    let start = Instant::now();
    let image = Image::open(&path).unwrap();
    eprintln!("image open by mmap: {:?}", start.elapsed());
    let start = Instant::now();
    let pread = Image::open_pread(&*disk, "tree.img").unwrap();
    eprintln!("image open by pread: {:?}", start.elapsed());
    let start = Instant::now();
    image.verify().unwrap();
    eprintln!("image verify: {:?}", start.elapsed());
    for (what, image) in [("mmap", &image), ("pread", &pread)] {
        let (mut random, count) = (Random::new(4), 500_000);
        let keys: Vec<key::Key> = (0..count).map(|_| key::znode(&path_of(random.below(ZNODES))).unwrap()).collect();
        let start = processor_time();
        for key in &keys {
            assert_eq!(image.get(key).unwrap().unwrap().len(), 160);
        }
        eprintln!("image by {what}: {} random look-ups", rate(count, start));
    }
    if Base::list(&*disk).unwrap().contains(&2) {
        Base::remove(&*disk, 2).unwrap();
    }
    let start = Instant::now();
    let installed = Base::install(disk.clone(), 2, Options::default(), &image).unwrap();
    eprintln!(
        "install: {:?}, file {:.1} MiB, written {:.1} MiB, resident {:.1} MiB",
        start.elapsed(),
        mib(installed.file_bytes()),
        mib(installed.counters().base_bytes_written),
        resident_mib()
    );
    assert_eq!(installed.meta(), meta);
    drop(installed);
    Base::remove(&*disk, 2).unwrap();
}

fn choice(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

/// Two million random sets over the data of `a_load_of_a_million_znodes`, in a hundred checkpoints
/// as large as those of an 8 MiB memtable.
#[test]
#[ignore = "measures"]
fn e_set_cost_by_runs_max_and_merge_step() {
    const SETS: u64 = 20_000;
    const ROUNDS: u64 = 100;
    const GETS: u64 = 300;
    let mut options = Options::default();
    options.runs_max = choice("ZOOLET_RUNS_MAX").unwrap_or(options.runs_max);
    options.merge_step_bytes = choice("ZOOLET_STEP_KIB").map_or(options.merge_step_bytes, |kib| (kib as u64) << 10);
    let base = Base::open(disk(), 1, options).unwrap();
    while base.merge(true).unwrap() {}
    let (mut model, mut random) = (Model { zxid: base.meta().zxid.to_bits(), ..Model::default() }, Random::new(5));
    let start = (base.counters(), processor_time());
    let (mut get_bytes, mut memory_bytes, mut reading, mut longest) = (0, 0, Duration::ZERO, Duration::ZERO);
    let (mut run_bytes, mut runs) = (0, 0);
    for _ in 0..ROUNDS {
        let changes = (0..SETS).map(|_| random.below(ZNODES)).map(|at| change(&mut Random::new(at), at)).collect();
        checkpoint(&base, changes, &mut model);
        let (before, reader, began) = (base.counters().base_bytes_read, base.reader(), processor_time());
        for _ in 0..GETS {
            let key = key::znode(&path_of(random.below(ZNODES))).unwrap();
            assert!(reader.record(&key).unwrap().is_some());
        }
        reading += processor_time() - began;
        get_bytes += base.counters().base_bytes_read - before;
        run_bytes = run_bytes.max(base.run_bytes());
        runs = runs.max(base.counters().runs);
        loop {
            let began = processor_time();
            let more = base.merge(false).unwrap();
            longest = longest.max(processor_time() - began);
            memory_bytes = memory_bytes.max(base.memory_bytes());
            if !more {
                break;
            }
        }
    }
    // Merge the remaining runs, so that all merge costs of the counted sets are included.
    while base.merge(true).unwrap() {}
    let (end, sets) = (base.counters(), (SETS * ROUNDS) as f64);
    let merged = (end.merge_bytes_written - start.0.merge_bytes_written) as f64;
    let written = (end.base_bytes_written - start.0.base_bytes_written) as f64;
    eprintln!(
        "runs_max {} step {} KiB: a set writes {:.0} B in checkpoints, {:.0} B in merges, reads {:.0} B, {:.4} syncs, {:.2} us of processor; a get reads {:.2} blocks, {:.1} us; at most {runs} runs of {:.0} MiB, {:.1} MiB of memory, resident {:.1} MiB; a step at most {longest:?}; files {:.0} MiB",
        options.runs_max,
        options.merge_step_bytes >> 10,
        (written - merged) / sets,
        merged / sets,
        (end.base_bytes_read - start.0.base_bytes_read - get_bytes) as f64 / sets,
        (end.syncs - start.0.syncs) as f64 / sets,
        ((processor_time() - start.1 - reading).as_secs_f64() * 1e6) / sets,
        get_bytes as f64 / 4096.0 / (GETS * ROUNDS) as f64,
        reading.as_secs_f64() * 1e6 / (GETS * ROUNDS) as f64,
        mib(run_bytes),
        mib(memory_bytes),
        resident_mib(),
        mib(base.file_bytes())
    );
}
