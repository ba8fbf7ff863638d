//! Configuration files that an editor, a disk or a person has damaged.
//!
//! One line names the fault, and nothing panics.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops at the first surprise, and says where")]

use crate::support::Scratch;
use std::path::Path;

const TOML: &str = r#"
site = "plant-7"
profile = "emmc/512m"
network = "lan"
data = "/var/lib/zoolet"
clients = "127.0.0.1:2181"
four_letter_words = ["ruok", "mntr", "*"]
[limits]
frame_bytes_max = 1048575
log_segments = 16
[settings]
tick_ms = 2000
super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
skip_acl = false
[[server]]
id = 1
host = ["gw-a", "10.0.3.11:2888"]
"#;

const ZOO: &str = "# a comment\ndataDir=/var/lib/zookeeper\nclientPort=2181\ntickTime: 2000\ninitLimit 10\nsyncLimit=5\\\n  0\n\
maxClientCnxns=60\nminSessionTimeout=4000\nmaxSessionTimeout=40000\nextendedTypesEnabled=true\n4lw.commands.whitelist=srvr, \\u002a\n\
jute.maxbuffer=0xfffff\nserver.1=localhost:2888:3888:participant;2181\nskipACL=yes\nnosuchkey=\\t\\n\\u00e9\n";

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

fn damaged(text: &str, random: &mut Random) -> Vec<u8> {
    const PIECES: [&str; 16] = [
        "\\u12",
        "\\",
        "\u{1f600}",
        "\0",
        "99999999999999999999",
        "-1",
        "\"",
        "\"\"\"",
        "[[",
        "]",
        "=",
        "{",
        "nan",
        "1e400",
        "0x",
        "\r",
    ];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len().max(1));
        match random.below(5) {
            0 => drop(bytes.get_mut(at).map(|byte| *byte ^= 1 << random.below(8))),
            1 => bytes.truncate(at),
            2 => {
                // Repeats a line at another place.
                let lines: Vec<&str> = text.lines().collect();
                let line = format!("\n{}\n", lines[random.below(lines.len())]);
                bytes.splice(at..at, line.bytes());
            }
            3 => drop(bytes.splice(at..(at + random.below(9)).min(bytes.len()), [])),
            _ => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
        }
    }
    bytes
}

/// Reads the bytes as a file of this name.
///
/// Skips a file with a damaged client address: the test would look a made-up host name up in the
/// network.
fn read(scratch: &Path, name: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut addresses = text.lines().filter(|line| line.contains("lient"));
    if addresses.any(|line| !TOML.contains(line) && !ZOO.contains(line)) {
        return;
    }
    let file = scratch.join(name);
    std::fs::write(&file, bytes).unwrap();
    if let Err(error) = zoolet::config::load(&file, &zoolet::config::Overrides::default()) {
        let said = error.to_string();
        assert!(said.contains(name), "{said:?} does not name the file");
        assert!(!said.contains('\n'), "{said:?} is more than one line");
    }
}

#[test]
fn damaged_config_files_are_accepted_or_refused_in_one_line() {
    let scratch = Scratch::new();
    let mut random = Random(1);
    for (name, text) in [("zoolet.toml", TOML), ("zoo.cfg", ZOO)] {
        for _ in 0..3000 {
            let bytes = damaged(text, &mut random);
            read(scratch.path(), name, &bytes);
        }
    }
}

/// Each input is named for what it shows.
#[test]
fn config_fuzz_corpus_is_accepted_or_refused_in_one_line() {
    let scratch = Scratch::new();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (folder, name) in [("config_toml", "zoolet.toml"), ("config_zoo", "zoo.cfg")] {
        for file in std::fs::read_dir(corpus.join(folder)).unwrap() {
            let file = file.unwrap().path();
            eprintln!("replaying {}", file.display());
            read(scratch.path(), name, &std::fs::read(file).unwrap());
        }
    }
}
