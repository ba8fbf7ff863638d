//! The exit codes of every command, as docs/reference/exit-codes.md lists them.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use crate::support::*;
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Returns the command, the files that are there, and the code of each row.
fn rows() -> Vec<[&'static str; 3]> {
    let (_, table) = manual::page("reference/exit-codes.md")
        .split_once("| command | what is there | code |\n|---|---|---|\n")
        .unwrap();
    let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    table.lines().take_while(|line| line.starts_with('|')).map(|row| cells(row).try_into().unwrap()).collect()
}

/// Returns the code spans of a cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn each_command_exits_with_its_documented_code() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().port().to_string();
    let [free] = free_ports().map(|port: u16| port.to_string());
    for [command, there, code] in rows() {
        let scratch = Scratch::new();
        quoted(there).for_each(|file| std::fs::write(scratch.join(file), "").unwrap());
        let words = quoted(command).next().unwrap().replace("TAKEN", &taken).replace("FREE", &free);
        // Without a refusal it would serve for ever.
        let mut ended = Command::new("timeout");
        ended.args(["60", env!("CARGO_BIN_EXE_zoolet")]).args(words.split(' ').skip(1));
        let output = ended.current_dir(scratch.path()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code().unwrap().to_string(), code, "{command}, {there}: {said}");
    }
}

#[test]
fn each_command_has_a_row_in_the_exit_code_table() {
    let help = run(&Scratch::new(), &["--help"]).stdout;
    let help = String::from_utf8(help).unwrap();
    let commands: Vec<_> = help.lines().filter_map(|line| line.strip_prefix("zoolet ")?.split(' ').next()).collect();
    assert!(commands.len() > 8, "{commands:?}");
    for command in commands {
        let is_tried = rows().iter().any(|[row, ..]| row.starts_with(&format!("`zoolet {command}")));
        assert!(is_tried, "zoolet {command} has no row");
    }
}

/// A full disk truncates the text, and the exit code must report that.
#[test]
fn printing_to_a_full_disk_fails_with_exit_code_1() {
    for words in [&["config", "example"][..], &["unit", "systemd"], &["keygen"], &["licences"], &["--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = zoolet(words).stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.starts_with("zoolet: standard output: "), "{words:?}: {said}");
    }
}
