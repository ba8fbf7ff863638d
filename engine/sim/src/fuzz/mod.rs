//! Hostile bytes for every decoder, and hostile sequences of events for the machine.
//!
//! A [`Target`] takes any bytes and panics when a property does not hold. Some targets decode the
//! bytes directly. In others the bytes drive a generator ([`Random::scripted`]). So one target
//! serves three purposes:
//!
//! - an ordinary test with generated inputs ([`exercise`]),
//! - the replay of a corpus of files ([`replay`]),
//! - a fuzzer that runs for hours (tests/fuzz).

mod codecs;
mod listing;
mod server;
mod state;
mod stored;

pub use server::transcript;

use crate::workload::Random;
use std::path::Path;

/// A decoder or machine that takes hostile bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also the name of its corpus folder and its fuzzer.
    pub name: &'static str,
    /// Generates an input that reaches deep into the target.
    pub valid: fn(&mut Random) -> Vec<u8>,
    /// Checks an input; panics when a property does not hold.
    pub check: fn(&[u8]),
}

/// Every target of the engine.
pub const TARGETS: &[Target] = &[
    codecs::PATH,
    codecs::ACL,
    codecs::ENTRY,
    codecs::RECORD,
    codecs::AUTH,
    state::APPLY,
    stored::LOG_BYTES,
    stored::LOG_RECORDS,
    stored::LOG_DAMAGE,
    stored::IMAGE,
    stored::BASE_DAMAGE,
    stored::BASE_SEALED,
    server::SERVER,
];

/// Runs a target on `rounds` generated inputs.
///
/// Each round also runs it on a damaged input, a splice of two inputs, and noise.
pub fn exercise(target: &Target, seed: u64, rounds: u64) {
    let mut random = Random::new(seed);
    let mut last = Vec::new();
    for _ in 0..rounds {
        let valid = (target.valid)(&mut random);
        let spliced = splice(&mut random, &last, &valid);
        let damaged = damage(&mut random, valid.clone());
        let noise = noise(&mut random);
        for input in [&valid, &spliced, &damaged, &noise] {
            run(target, input);
        }
        last = valid;
    }
}

/// Runs a target on every file of its corpus folder; returns the number of files.
///
/// # Panics
/// If the folder cannot be read, or when a property does not hold.
pub fn replay(target: &Target, corpus: &Path) -> usize {
    let folder = corpus.join(target.name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files.map(|file| file.expect("a folder that can be read").path()).collect();
    files.sort();
    for file in &files {
        // The last name printed before a panic is the failing file.
        eprint_name(file);
        (target.check)(&std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    }
    files.len()
}

#[allow(clippy::print_stderr, reason = "captured by the test harness, and shown when a file fails")]
fn eprint_name(file: &Path) {
    eprintln!("replaying {}", file.display());
}

/// Runs a target. If it panics, the input is saved, so that it can be added to the corpus.
fn run(target: &Target, input: &[u8]) {
    let shown = Shown { name: target.name, input };
    (target.check)(input);
    std::mem::forget(shown);
}

struct Shown<'a> {
    name: &'static str,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    #[allow(clippy::print_stderr, reason = "only when a test fails")]
    fn drop(&mut self) {
        let file = std::env::temp_dir().join(format!("zoolet-fuzz-{}-{}", self.name, std::process::id()));
        let kept = std::fs::write(&file, self.input);
        eprintln!("target {}, {} bytes, kept as {}: {kept:?}", self.name, self.input.len(), file.display());
    }
}

/// Returns random bytes.
pub fn noise(random: &mut Random) -> Vec<u8> {
    let most = *random.pick(&[4, 40, 400]);
    (0..random.below(most)).map(|_| random.bits() as u8).collect()
}

/// Returns the beginning of one input, followed by the end of another.
pub fn splice(random: &mut Random, one: &[u8], other: &[u8]) -> Vec<u8> {
    let (end, start) = (random.below(one.len() as u64 + 1), random.below(other.len() as u64 + 1));
    [&one[..end as usize], &other[start as usize..]].concat()
}

/// Hostile values for length fields.
const LENGTHS: [u32; 8] = [0, 1, u32::MAX, i32::MAX as u32, i32::MIN as u32, 0x00ff_ffff, 0x0010_0000, 0xffff_fffe];

/// Damages an input: flipped bits, missing or extra bytes, and hostile lengths in either byte
/// order.
pub fn damage(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.bits() as u8),
            _ => {
                let length = *random.pick(&LENGTHS);
                let length = if random.one_in(2) { length.to_be_bytes() } else { length.to_le_bytes() };
                // In most formats, fields start at a multiple of four from the front, or follow
                // text of any length.
                let at = if random.one_in(2) { at / 4 * 4 } else { at };
                bytes.iter_mut().skip(at).zip(length).for_each(|(byte, new)| *byte = new);
            }
        }
    }
    bytes
}

/// Returns random choices for targets that are driven by a script.
fn script(random: &mut Random) -> Vec<u8> {
    let most = *random.pick(&[30, 300, 3000]);
    (0..random.below(most)).map(|_| random.bits() as u8).collect()
}
