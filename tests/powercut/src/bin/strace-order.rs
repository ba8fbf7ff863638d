//! `strace-order --zoolet BINARY [--writes N] [--seed S]`: runs the binary under strace with
//! pipelined load.
//!
//! It checks that no reply left before the fdatasync of its entry had returned. The last line is
//! `N passed, M failed`.
#![allow(clippy::print_stdout, reason = "a program that reports to people")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use zoolet_powercut::load::LoadShape;
use zoolet_powercut::random::Random;
use zoolet_powercut::rounds::{PATIENCE, Rounds};
use zoolet_powercut::server_process::Server;
use zoolet_powercut::strace::{ARGUMENTS, Judged, judge};

const WRITERS: u64 = 4;

fn main() -> ExitCode {
    let options = options();
    let (zoolet, writes, seed) = match options {
        Ok(options) => options,
        Err(what) => {
            println!("{what}");
            return ExitCode::from(2);
        }
    };
    let directory = std::env::temp_dir().join(format!("zoolet-strace-{}", std::process::id()));
    let mut failed = 0;
    for strategy in ["recycle", "append"] {
        match run(&zoolet, &directory.join(strategy), strategy, writes, seed) {
            Ok(line) => println!("{strategy}: {line}"),
            Err(what) => {
                failed += 1;
                println!("{strategy}: FAILED: {what}");
            }
        }
    }
    if failed == 0 {
        let _ = std::fs::remove_dir_all(&directory);
    } else {
        println!("kept in {}", directory.display());
    }
    println!("{} passed, {failed} failed", 2 - failed);
    ExitCode::from(failed)
}

fn options() -> Result<(PathBuf, usize, u64), String> {
    let (mut zoolet, mut writes, mut seed) = (PathBuf::new(), 1000, 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{value} is no number"));
        match argument.as_str() {
            "--zoolet" => zoolet = value.into(),
            "--writes" => writes = number()? as usize,
            "--seed" => seed = number()?,
            _ => return Err(format!("{argument}: allowed are --zoolet, --writes, --seed")),
        }
    }
    if zoolet.is_file() { Ok((zoolet, writes, seed)) } else { Err("--zoolet must name the binary".to_owned()) }
}

fn run(zoolet: &Path, directory: &Path, strategy: &str, writes: usize, seed: u64) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(directory).map_err(said)?;
    let config = directory.join("zoolet.toml");
    let text = format!(
        "log_strategy = \"{strategy}\"\nfour_letter_words = [\"*\"]\n[limits]\nframe_bytes_max = 100000\n\
         log_segment_bytes = 262144\nlog_segments = 8\nmemtable_bytes = 131072\nrecord_cache_bytes = 65536\n\
         [settings]\nsession_timeout_max_ms = 3600000\n"
    );
    std::fs::write(&config, text).map_err(said)?;
    let trace = directory.join("trace");
    let mut wrapper = vec!["strace".to_owned()];
    wrapper.extend(ARGUMENTS.map(str::to_owned));
    wrapper.push(trace.display().to_string());
    let mut server = Server::start(&wrapper, zoolet, &config, &directory.join("data")).map_err(said)?;

    let mut random = Random::new(seed);
    let shape = LoadShape { window: 32, znodes: 150, big_per_cent: 1, bytes_max: 20_000 };
    let mut rounds = Rounds::new(WRITERS, shape, &mut random);
    let patience = Duration::from_secs(60);
    let address = server.address(patience, || false)?.ok_or("it does not serve")?;
    let violation = |violation: zoolet_powercut::check::Violation| violation.to_string();
    Rounds::prepare(address).map_err(violation)?;
    let working = rounds.work(address, writes);
    rounds.gather(working).map_err(violation)?;
    if !rounds.check(address).map_err(violation)? {
        return Err("the server went away".to_owned());
    }
    server.kill();
    server.wait();
    let judged = judge(&finished(&trace)?).map_err(|fault| fault.to_string())?;
    report(&judged, rounds.acknowledged, rounds.lost_zxids(&judged.zxids))
}

/// Returns the trace once strace has written its end.
fn finished(trace: &Path) -> Result<String, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let bytes = std::fs::read(trace).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&bytes);
        let end = text.trim_end().rsplit('\n').next().unwrap_or_default();
        if end.contains("+++ killed by SIGKILL") {
            return Ok(text.into_owned());
        }
        if Instant::now() > until {
            return Err("strace does not end".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn report(judged: &Judged, acknowledged: u64, unseen: u64) -> Result<String, String> {
    let Judged { replies, entries, syncs, .. } = judged;
    if unseen > 0 {
        return Err(format!("{unseen} writes were acknowledged to clients by replies that are not in the trace"));
    }
    if *syncs * 2 > acknowledged {
        return Err(format!("{syncs} syncs for {acknowledged} writes: the load was not pipelined, and shows little"));
    }
    Ok(format!(
        "{replies} replies left after the sync of their entry; {acknowledged} writes, {entries} entries, {syncs} syncs"
    ))
}
