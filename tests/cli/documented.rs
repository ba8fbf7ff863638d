//! The code blocks of docs/: each has an executor, and the binary accepts the configurations.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use crate::support::manual::{Block, PAGES, blocks, blocks_of, executed_by, page};
use crate::support::*;
use std::collections::BTreeSet;

/// Executors of blocks, with their sources. Each fails if it skips a block that is marked for it.
const EXECUTORS: [(&str, &str); 6] = [
    ("tarball", include_str!("../../cross/tarball-check")),
    ("site", include_str!("../rehearsal/site")),
    ("tutorial", include_str!("../rehearsal/tutorial")),
    ("documented", include_str!("documented.rs")),
    ("certificates", include_str!("certificates.rs")),
    ("coordination", include_str!("coordination/documented.rs")),
];

/// Includes the pages whose Rust blocks are documentation tests.
const LIBRARY: &str = include_str!("../../src/lib.rs");

/// Returns whether the library includes this page. A mention of its path is not enough.
fn is_included(page: &str) -> bool {
    LIBRARY.contains(&format!("(\"../docs/{page}\")"))
}

/// Returns the faults in the marks of these blocks.
fn unexecuted(blocks: &[Block<'_>]) -> Vec<String> {
    let mut names = BTreeSet::new();
    let wrong = blocks.iter().filter_map(|block| {
        let why = match block.mark {
            // Output of a program.
            None if block.language == "text" => return None,
            // The documentation tests of the library compile and execute it.
            None if block.language == "rust" && is_included(block.page) => return None,
            None => "nobody executes it: the line before it is no <!-- EXECUTOR: NAME -->",
            Some((executor, _)) if EXECUTORS.iter().all(|known| known.0 != executor) => "no executor has that name",
            Some(mark) if !names.insert(mark) => "another block has the same name",
            Some(_) => return None,
        };
        Some(format!("{}: line {}: {why}", block.page, block.line))
    });
    wrong.collect()
}

#[test]
fn every_command_block_of_the_manual_has_an_executor() {
    let wrong = unexecuted(&blocks());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (executor, source) in EXECUTORS {
        assert!(!executed_by(executor).is_empty() && source.contains(executor), "{executor} has nothing to execute");
    }
}

/// A page that is not in `PAGES` would have blocks that no check sees.
#[test]
fn every_manual_page_with_commands_is_in_pages() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut there = BTreeSet::from(["tutorial.md".to_owned(), "explanation/daemon.md".to_owned()]);
    for folder in ["how-to", "reference"] {
        let files = std::fs::read_dir(docs.join(folder)).unwrap();
        there.extend(files.map(|file| format!("{folder}/{}", file.unwrap().file_name().to_str().unwrap())));
    }
    assert_eq!(there, PAGES.iter().map(|page| page.0.to_owned()).collect());
}

/// Returns the names of the tests that prove the statements of a page.
fn named_tests(page: &str) -> BTreeSet<&str> {
    let named = page.split("\n\n").filter(|paragraph| paragraph.starts_with("Tested by"));
    named.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2)).collect()
}

/// Removes the tests that this directory of sources has.
fn remove_found(names: &mut BTreeSet<&str>, directory: &std::path::Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            remove_found(names, &path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            names.retain(|name| !text.contains(&format!("fn {name}()")));
        }
    }
}

/// A test that was renamed leaves a statement of the page without a proof.
#[test]
fn tests_named_on_the_daemon_page_exist() {
    let page = page("explanation/daemon.md");
    let mut missing = named_tests(page);
    assert!(missing.len() > 50, "{missing:?}");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    ["engine", "recipes", "src", "tests"].iter().for_each(|name| remove_found(&mut missing, &root.join(name)));
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn block_without_an_executor_is_detected() {
    let wrong = |text: &str| {
        let wrong = unexecuted(&blocks_of("a.md", text));
        wrong.iter().map(|line| line.strip_prefix("a.md: ").unwrap().to_owned()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(wrong("<!-- site: a -->\n```sh\nls\n```\n\n```text\n$ ls\n```\n"), "");
    for (document, expected) in [
        ("```sh\nls\n```\n", "line 1: nobody executes it"),
        ("<!-- site: a -->\n```sh\nls\n```\n```toml\na = 1\n```\n", "line 5: nobody executes it"),
        ("<!-- site: a -->\n\n  ```sh\n  ls\n  ```\n", "line 3: nobody executes it"),
        ("```\nls\n```\n", "line 1: nobody executes it"),
        ("<!-- nobody: a -->\n```sh\nls\n```\n", "line 2: no executor has that name"),
        ("<!-- site: a -->\n```sh\nls\n```\n<!-- site: a -->\n```sh\nls\n```\n", "line 6: another block"),
    ] {
        assert!(wrong(document).starts_with(expected), "{document:?}: {}", wrong(document));
    }
}

#[test]
fn configurations_and_profiles_in_the_manual_are_valid() {
    let scratch = Scratch::new();
    for (name, text) in executed_by("documented") {
        let command: &[&str] = match name {
            "a profile and a network" | "a subtree in a file" | "times and sizes with units" => {
                &["serve", "--check", "--config", "block.toml"]
            }
            "a profile of your own" | "a profile for industrial cards" => &["profile", "check", "block.toml"],
            _ => panic!("no command is known for {name:?}"),
        };
        let place = scratch.path().display().to_string();
        let text = text.replace("/var/lib/zoolet-images", &place).replace("/var/lib/zoolet", &place);
        std::fs::write(scratch.join("block.toml"), &text).unwrap();
        assert!(run(&scratch, command).status.success(), "{name}: {}", said(&scratch, command));
        // The command reads the file: a bad key is an error.
        std::fs::write(scratch.join("block.toml"), format!("nonsense = 1\n{text}")).unwrap();
        assert!(said(&scratch, command).contains("nonsense"), "{name}: {}", said(&scratch, command));
    }
}

fn said(scratch: &Scratch, command: &[&str]) -> String {
    String::from_utf8_lossy(&run(scratch, command).stderr).into_owned()
}
