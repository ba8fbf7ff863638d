//! Runs every input of the corpus again. Each input is named for the behaviour that it shows.

use std::path::Path;
use zoolet_sim::fuzz::{TARGETS, replay};

#[test]
fn engine_corpus_inputs_break_no_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    for target in TARGETS {
        assert!(replay(target, &corpus) > 0, "nothing in the corpus of {}", target.name);
    }
}
