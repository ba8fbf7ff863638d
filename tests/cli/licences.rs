//! `zoolet licences` agrees with Cargo's list of the crates in the binary.

use std::collections::BTreeSet;
use std::process::Command;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/licences.txt");

/// Licences that a crate's manifest omits: those of another project's sources in the crate.
const BUNDLED: [(&str, &str); 1] = [("tikv-jemalloc-sys", "BSD-2-Clause")];

/// After a change of dependencies: `ZOOLET_WRITE=1 cargo test --test cli licences`.
#[test]
fn list_of_licences_matches_the_dependencies() {
    // The binary for x86-64 and musl has all crates of the other binaries.
    let tree = ["tree", "--locked", "-p", "zoolet", "-F", "jemalloc", "--target", "x86_64-unknown-linux-musl"];
    let tree = tree.into_iter().chain(["-e", "normal", "--prefix", "none", "--format", "{p}\t{l}"]);
    let output = Command::new(env!("CARGO")).args(tree).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // zoolet's crates come with their directory, which does not belong in the list.
    let crates: BTreeSet<String> = text.lines().filter(|line| !line.contains("(/")).filter_map(line).collect();
    let mut list = String::from(
        "zoolet is licensed under MIT OR Apache-2.0, at your choice. It is built from these crates, each under its own\n\
         licence; their texts come with their sources, in the registry of Rust packages. Each binary contains those\n\
         that its target and features need.\n\n",
    );
    crates.iter().for_each(|line| list.push_str(line));
    if std::env::var_os("ZOOLET_WRITE").is_some() {
        std::fs::write(COMMITTED, &list).unwrap();
    }
    assert_eq!(std::fs::read_to_string(COMMITTED).unwrap(), list, "run ZOOLET_WRITE=1 cargo test --test cli licences");
}

/// Parses `name vVERSION (proc-macro)`, a tab and the licence.
fn line(line: &str) -> Option<String> {
    let (package, licence) = line.trim_end_matches(" (*)").split_once('\t')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.trim_start_matches('v'));
    let licence = licence.trim_end_matches(" (*)");
    Some(match BUNDLED.iter().find(|(bundling, _)| *bundling == name) {
        Some((_, bundled)) => format!("{name} {version}: ({licence}) AND {bundled}\n"),
        None => format!("{name} {version}: {licence}\n"),
    })
}
