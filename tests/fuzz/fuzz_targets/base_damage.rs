#![no_main]

libfuzzer_sys::fuzz_target!(init: zoolet_fuzz::let_redb_panic(), |input: &[u8]| zoolet_fuzz::run("base_damage", input));
