//! Hostile bytes for the codec.
//!
//! Nothing panics, memory is bounded by the input, and every decoded message can be encoded again.

use std::path::Path;
use zoolet_sim::fuzz::{exercise, replay};

#[test]
fn arbitrary_client_bytes_decode_or_are_refused() {
    for target in crate::targets::TARGETS {
        exercise(target, 1, 3_000);
    }
}

/// The name of each corpus file describes its case.
#[test]
fn client_fuzz_corpus_decodes_or_is_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus");
    for target in crate::targets::TARGETS {
        assert!(replay(target, &corpus) > 0, "nothing in the corpus of {}", target.name);
    }
}
