//! The commands of docs/how-to/scripts.md, as they stand.

use super::Fixed;
use crate::support::manual::executed_by;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

#[test]
fn documented_commands_for_scripts_succeed() {
    let server = Fixed::start();
    symlink(env!("CARGO_BIN_EXE_zoolet"), server.scratch.join("zoolet")).unwrap();
    for program in ["backup.sh", "report.sh", "collector", "weld", "fetch"] {
        let file = server.scratch.join(program);
        std::fs::write(&file, "#!/bin/sh\necho $0 $ZOOLET_TOKEN >> ran\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let address = format!("127.0.0.1:{}", server.port);
    let path = format!("{}:{}", server.scratch.path().display(), std::env::var("PATH").unwrap());
    for (name, text) in executed_by("coordination") {
        let text = text.replace("gw-a:2181,gw-b:2181,gw-c:2181", &address);
        // It would hold the lock for half a minute, or lead for ever.
        let text = text.replace("sleep 30", "sleep 0.01").replace(" --restart --forever", "");
        let mut shell = Command::new("sh");
        shell.args(["-exc", &text]).current_dir(server.scratch.path()).stdin(Stdio::null());
        let output = shell.env("PATH", &path).env("ZOOLET_SERVER", &address).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let ran = server.lines("ran");
    let ran: Vec<_> = ran.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let expected = ["./backup.sh", "./backup.sh", "./backup.sh", "./report.sh", "./collector", "./weld", "./fetch"];
    assert_eq!(ran, expected);
}
