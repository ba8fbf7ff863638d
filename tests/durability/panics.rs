//! A panic of redb over its file counts as damage, and ends a server at most once.
//!
//! This holds for binaries whose panics unwind and for binaries that abort.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use crate::support::*;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use zoolet_sim::panicking_base::make_redb_panic;
use zoolet_store::FsDisk;
use zoolet_store::disk::Disk;

const SIGABRT: i32 = 6;
const NOTE: &str = "base-0.panic";

/// Leaves the data of a server over whose redb file redb panics.
fn leave_panicking_base(scratch: &Scratch) {
    let mut server = Server::start(scratch);
    server.client().create("/there", b"was something").unwrap();
    assert!(server.terminate().success());
    let disk: Arc<dyn Disk> = Arc::new(FsDisk::open(&scratch.join("data")).unwrap());
    assert!(make_redb_panic(&disk, 0), "redb panics over none of the changed files");
}

fn serve(binary: &Path, scratch: &Scratch) -> (Output, String) {
    let mut command = Command::new("timeout");
    command.arg("60").arg(binary).args(["serve", "--config"]).arg(scratch.join("zoolet.toml"));
    let output = command.args(["--listen", "127.0.0.1:0", "--data"]).arg(scratch.join("data")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn unreadable_redb_file_is_reported_as_damage_if_panics_unwind() {
    let scratch = Scratch::new();
    leave_panicking_base(&scratch);
    let (output, said) = serve(Path::new(env!("CARGO_BIN_EXE_zoolet")), &scratch);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("redb cannot make sense of its file"), "{said}");
    assert!(!scratch.join("data").join(NOTE).exists());
}

#[test]
#[ignore = "needs a binary of the feature set minimal, which ZOOLET_MINIMAL names: .ci/run minimal"]
fn aborting_redb_panic_is_reported_as_damage_at_the_next_start() {
    let binary = std::env::var_os("ZOOLET_MINIMAL").expect("ZOOLET_MINIMAL names a binary");
    let (binary, scratch) = (Path::new(&binary), Scratch::new());
    leave_panicking_base(&scratch);
    let note = scratch.join("data").join(NOTE);
    let ends_by_a_panic = || {
        let (output, said) = serve(binary, &scratch);
        // The signal, or the code that `timeout` makes of it.
        let signal = output.status.signal().or(output.status.code().map(|code| code - 128));
        assert_eq!(signal, Some(SIGABRT), "{said}");
        assert!(said.contains("panicked at"), "{said}");
        assert!(note.exists(), "no note");
    };
    ends_by_a_panic();
    for _ in 0..2 {
        let (output, said) = serve(binary, &scratch);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("redb cannot make sense of its file") && said.contains(NOTE), "{said}");
    }
    // Without the note the server tries the file again, as the error line says.
    std::fs::remove_file(&note).unwrap();
    ends_by_a_panic();
}
