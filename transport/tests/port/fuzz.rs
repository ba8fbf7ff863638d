//! Hostile bytes for the codec: nothing panics, nothing takes more than was sent, and what is read can be written.

use std::path::Path;
use zoolet_sim::fuzz::{exercise, replay};

#[test]
fn any_bytes_are_a_message_or_refused() {
    for target in crate::targets::TARGETS {
        exercise(target, 1, 3_000);
    }
}

/// Each input is named for what it shows.
#[test]
fn the_corpus_of_the_codec_breaks_nothing() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus");
    for target in crate::targets::TARGETS {
        assert!(replay(target, &corpus) > 0, "nothing in the corpus of {}", target.name);
    }
}
