//! Shells complete command lines with the script that `zoolet completions` prints.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests may unwrap, and say what they cannot try here")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::Scratch;

/// Runs the completion as bash does: `$1` is the script, and the words of the line follow.
const ASK_BASH: &str = r#"
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_zoolet
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// Returns a directory that holds a file, a directory and the script of a shell.
fn scratch(shell: &str) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("plant")).unwrap();
    fs::write(scratch.join("plant.toml"), "").unwrap();
    let printed = Command::new(env!("CARGO_BIN_EXE_zoolet")).args(["completions", shell]).output().unwrap();
    assert!(printed.status.success() && printed.stderr.is_empty());
    let script = scratch.join(&format!("zoolet.{shell}"));
    fs::write(&script, printed.stdout).unwrap();
    (scratch, script)
}

/// Returns the completions of the last word of a line.
fn offered(command: &mut Command) -> BTreeSet<String> {
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Lines, and all completions of their last word.
const LINES: [(&str, &[&str]); 19] = [
    ("s", &["semaphore", "serve", "shell", "status"]),
    ("unit ", &["procd", "systemd"]),
    ("profile sh", &["show"]),
    ("completions ", &["--help", "bash", "fish", "zsh"]),
    ("serve --log", &["--log", "--log-format"]),
    ("serve --log ", &["debug", "error", "info", "trace", "warn"]),
    ("serve --check --log-format=", &["json", "text"]),
    ("serve --check --log-format=j", &["json"]),
    ("serve --data p", &["plant"]),
    ("serve --config p", &["plant", "plant.toml"]),
    ("serve --profile raspberry-pi-", &["raspberry-pi-4", "raspberry-pi-5", "raspberry-pi-zero-2-w"]),
    ("profile show nvme/2", &["nvme/256m", "nvme/2g"]),
    ("profile show emmc/512m --n", &["--network"]),
    ("profile list --n", &[]),
    ("unit procd --b", &["--binary"]),
    ("bench --op cr", &["create", "create-delete"]),
    ("serve --id ", &[]),
    ("lock /a --lost-signal U", &["USR1", "USR2"]),
    ("lock /a -- cat p", &["plant", "plant.toml"]),
];

#[test]
fn bash_completes_commands_options_and_values() {
    let (scratch, script) = scratch("bash");
    for (line, expected) in LINES {
        let words = line.replace('=', " = ");
        let offered = offered(
            Command::new("bash")
                .args(["--norc", "-c", ASK_BASH, "bash"])
                .arg(&script)
                .arg("zoolet")
                .args(words.split(' '))
                .current_dir(scratch.path()),
        );
        assert_eq!(offered, expected.iter().map(|&word| word.to_owned()).collect(), "{line}");
    }
}

/// Skipped where fish is not installed.
#[test]
fn fish_completes_commands_options_and_values() {
    let (scratch, script) = scratch("fish");
    if Command::new("fish").arg("--version").output().is_err() {
        eprintln!("there is no fish here");
        return;
    }
    for (line, expected) in LINES {
        let ask = format!("source {}; complete -C 'zoolet {line}'", script.display());
        let offered = offered(
            Command::new("fish")
                .args(["--no-config", "-c", &ask])
                .env("HOME", scratch.path())
                .current_dir(scratch.path()),
        );
        // fish appends a description after a tab. A value may include its option, and a directory
        // its slash.
        let words = offered.iter().map(|line| line.split('\t').next().unwrap());
        let words: BTreeSet<&str> = words.map(|word| word.rsplit('=').next().unwrap().trim_end_matches('/')).collect();
        let expected: BTreeSet<&str> = expected.iter().copied().filter(|&word| word != "--help").collect();
        assert_eq!(words, expected, "{line}");
    }
}
