//! The blocks of docs/OPERATIONS.md: none that nobody executes, and the configurations are what the binary takes.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use crate::support::manual::{Block, blocks, blocks_of, executed_by};
use crate::support::*;
use std::collections::BTreeSet;

/// Who executes blocks. Each compares what it executed with what is marked for it, so together they execute all that have a mark.
const EXECUTORS: [(&str, &str); 4] = [
    ("tarball", include_str!("../../cross/tarball-check")),
    ("site", include_str!("../rehearsal/site")),
    ("documented", include_str!("documented.rs")),
    ("certificates", include_str!("certificates.rs")),
];

/// What is wrong with the marks of these blocks.
fn unexecuted(blocks: &[Block<'_>]) -> Vec<String> {
    let mut names = BTreeSet::new();
    let wrong = blocks.iter().filter_map(|block| {
        let why = match block.mark {
            // What a program prints.
            None if block.language == "text" => return None,
            None => "nobody executes it: the line before it is no <!-- WHO: NAME -->",
            Some((who, _)) if EXECUTORS.iter().all(|known| known.0 != who) => "nobody of that name executes blocks",
            Some(mark) if !names.insert(mark) => "another block is called the same",
            Some(_) => return None,
        };
        Some(format!("line {}: {why}", block.line))
    });
    wrong.collect()
}

#[test]
fn each_block_of_the_manual_is_executed_by_somebody() {
    let wrong = unexecuted(&blocks());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (who, source) in EXECUTORS {
        assert!(!executed_by(who).is_empty() && source.contains(who), "{who} has nothing to execute");
    }
}

#[test]
fn a_block_that_nobody_executes_is_found() {
    let wrong = |document: &str| unexecuted(&blocks_of(document)).join(", ");
    assert_eq!(wrong("<!-- site: a -->\n```sh\nls\n```\n\n```text\n$ ls\n```\n"), "");
    for (document, expected) in [
        ("```sh\nls\n```\n", "line 1: nobody executes it"),
        ("<!-- site: a -->\n```sh\nls\n```\n```toml\na = 1\n```\n", "line 5: nobody executes it"),
        ("<!-- site: a -->\n\n  ```sh\n  ls\n  ```\n", "line 3: nobody executes it"),
        ("```\nls\n```\n", "line 1: nobody executes it"),
        ("<!-- nobody: a -->\n```sh\nls\n```\n", "line 2: nobody of that name"),
        ("<!-- site: a -->\n```sh\nls\n```\n<!-- site: a -->\n```sh\nls\n```\n", "line 6: another block"),
    ] {
        assert!(wrong(document).starts_with(expected), "{document:?}: {}", wrong(document));
    }
}

#[test]
fn the_configurations_of_the_manual_are_taken() {
    let scratch = Scratch::new();
    for (name, text) in executed_by("documented") {
        let command: &[&str] = match name {
            "a profile and a network" | "a subtree in a file" => &["serve", "--check", "--config", "block.toml"],
            "a profile of your own" | "a profile for industrial cards" => &["profile", "check", "block.toml"],
            _ => panic!("nobody knows what {name:?} is to be tried with"),
        };
        let place = scratch.path().display().to_string();
        let text = text.replace("/var/lib/zoolet-images", &place).replace("/var/lib/zoolet", &place);
        std::fs::write(scratch.join("block.toml"), &text).unwrap();
        assert!(run(&scratch, command).status.success(), "{name}: {}", said(&scratch, command));
        // What is tried does read it.
        std::fs::write(scratch.join("block.toml"), format!("nonsense = 1\n{text}")).unwrap();
        assert!(said(&scratch, command).contains("nonsense"), "{name}: {}", said(&scratch, command));
    }
}

fn said(scratch: &Scratch, command: &[&str]) -> String {
    String::from_utf8_lossy(&run(scratch, command).stderr).into_owned()
}
