//! kill -9 under load: no acknowledged write is lost, and every restart serves.
//!
//! Load and oracle are those of the power cuts (`tests/powercut`). `ZOOLET_KILLS` sets the number
//! of kills; the default is 20.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use crate::support::Scratch;
use std::path::Path;
use std::time::Duration;
use zoolet_powercut::digest;
use zoolet_powercut::load::LoadShape;
use zoolet_powercut::random::Random;
use zoolet_powercut::rounds::{PATIENCE, Rounds};
use zoolet_powercut::server_process::Server;

const WRITERS: u64 = 4;

/// Small enough that checkpoints and full turns of the ring happen between kills.
const CONFIG: &str = "four_letter_words = [\"*\"]\n[limits]\nframe_bytes_max = 100000\nlog_segment_bytes = 262144\n\
                      log_segments = 8\nmemtable_bytes = 131072\nrecord_cache_bytes = 65536\n\
                      [settings]\nsession_timeout_max_ms = 3600000\n";

#[test]
fn kill_9_under_load_keeps_every_acknowledged_write() {
    let kills = std::env::var("ZOOLET_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20);
    let scratch = Scratch::new();
    let (config, data) = (scratch.join("zoolet.toml"), scratch.join("data"));
    std::fs::write(&config, CONFIG).unwrap();
    let start = || Server::start(&[], Path::new(env!("CARGO_BIN_EXE_zoolet")), &config, &data).unwrap();

    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    let shape = LoadShape { window: 32, znodes: 200, big_per_cent: 2, bytes_max: 50_000 };
    let mut rounds = Rounds::new(WRITERS, shape, &mut random);
    for kill in 0..=kills {
        if random.chance(15) {
            // A kill during the start.
            let server = start();
            std::thread::sleep(Duration::from_millis(random.below(40)));
            drop(server);
        }
        let expected = digest_of(&data);
        let mut server = start();
        let address = server
            .address(PATIENCE, || false)
            .unwrap_or_else(|what| panic!("seed {seed}, kill {kill}: {what}"))
            .unwrap();
        assert_eq!(Rounds::check_digest(address, expected), Ok(true), "seed {seed}, kill {kill}");
        assert_eq!(rounds.check(address), Ok(true), "seed {seed}, kill {kill}");
        if kill == 0 {
            assert_eq!(Rounds::prepare(address), Ok(true));
        }
        if kill < kills {
            let working = rounds.work(address, usize::MAX);
            std::thread::sleep(Duration::from_millis(10 + random.below(150)));
            assert!(server.is_running(), "it ended under load");
            server.kill();
            rounds.gather(working).unwrap();
            server.wait();
        }
    }
    assert!(rounds.acknowledged > 100 * kills, "{} acknowledged writes are no load", rounds.acknowledged);
}

/// Returns the digest of the state in the files of a stopped server.
fn digest_of(data: &Path) -> Option<u128> {
    let entries = std::fs::read_dir(data).into_iter().flatten().map(Result::unwrap);
    let files: Vec<_> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect();
    digest::recompute(files.iter().map(|(name, content)| (name.as_str(), content.as_slice()))).unwrap()
}
