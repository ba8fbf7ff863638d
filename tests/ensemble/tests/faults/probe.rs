//! `zoolet probe` on a disk whose syncs hang: it ends during the hang, and reports what it knows.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::process::Command;
use std::time::Duration;
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::slow::SlowDisk;
use zoolet_powercut::mount::SyncTimes;

/// Longer than a probe may take. A probe that waited for the sync would see it return.
const HANG: Duration = Duration::from_secs(45);

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn probe_reports_a_disk_while_it_hangs() {
    let scratch = std::env::temp_dir().join(format!("zoolet-probe-{}", std::process::id()));
    let disk = SlowDisk::mount(&scratch, 1).unwrap();
    let Product::Zoolet(binary) = Product::zoolet().unwrap() else { unreachable!("it is ours") };
    disk.slow_down(SyncTimes { tail_per_mille: 1000, tail: HANG, ..SyncTimes::default() });
    let out = scratch.join("box.toml");
    let ran = Command::new(binary)
        .args(["probe", "--json", "--data"])
        .arg(disk.path())
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert_eq!(ran.status.code(), Some(1), "{stderr}");
    assert!(stdout.contains("\"stuck\": {") && stdout.contains("\"file_system\": \"fuse\""), "{stdout}");
    assert!(stderr.contains("a sync has not returned for 2"), "{stderr}");
    assert!(!out.exists(), "a profile without figures");
    // The process that writes for the probe removes its file once the disk answers.
    disk.slow_down(SyncTimes::default());
    while std::fs::read_dir(disk.path()).unwrap().next().is_some() {
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(disk);
    let _ = std::fs::remove_dir(scratch);
}
