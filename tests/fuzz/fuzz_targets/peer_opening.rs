#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zoolet_fuzz::run("peer_opening", input));
