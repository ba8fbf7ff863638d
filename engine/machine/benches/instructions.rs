//! Bounds the instructions of one request in the machine alone, or in the machines of three
//! servers: no socket, disk or other thread.
//!
//! Run times on a shared computer vary by half, which hides a gradual slowdown. Instruction counts
//! of one build vary by less than 0.1%. Valgrind counts them: `apt-get install valgrind`.
//!
//! `cargo bench -p zoolet-machine --bench instructions`

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a measurement prints, and stops at the first surprise"
)]

mod support;

use std::io::ErrorKind;
use std::process::{Command, ExitCode, exit};
use support::{BATCH, Kind, Machine, Requests};

/// Maximum instructions per request, on x86-64. Each bound was set a tenth above the count.
///
/// Lower the bound when a request becomes cheaper: a loose bound misses a slowdown.
const fn bound(kind: Kind) -> u64 {
    match kind {
        Kind::Set => 10_550,
        Kind::Get => 2_630,
        Kind::Mix => 4_420,
        Kind::Absent => 2_140,
        Kind::Create => 15_890,
        Kind::Ping => 1_340,
        Kind::Replicated => 26_800,
        Kind::Forwarded => 31_120,
    }
}

const USAGE: &str = "usage: cargo bench -p zoolet-machine --bench instructions [-- --count KIND BATCHES]";

/// Batches that each run builds. The long run serves all of them, the short run a third.
const BATCHES: usize = 300;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // From cargo bench. `cargo test --benches` passes nothing, and builds without optimisation.
        ["--bench"] => check(),
        [] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        ["--count", name, batches] => {
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
            serve(kind.unwrap_or_else(|| panic!("unknown kind {name}")), batches.parse().unwrap())
        }
        _ => panic!("{USAGE}"),
    }
}

/// Counts each kind, and compares the count with its bound.
fn check() -> ExitCode {
    println!("{:<59} {:>12} {:>7}", "kind", "instructions", "bound");
    let mut failed = 0;
    for kind in Kind::ALL {
        let (count, bound) = (instructions(kind), bound(kind));
        println!("{kind:<59} {count:>12} {bound:>7}");
        if count > bound {
            failed += 1;
            println!(
                "FAILED: {} takes {count} instructions, {:.1}% above its bound of {bound}. Make it cheaper. If the \
                 growth is intended, raise the bound in {} and say why in the commit.",
                kind.name(),
                (count - bound) as f64 * 100.0 / bound as f64,
                file!(),
            );
        }
    }
    println!("instructions of a request: {} passed, {failed} failed", Kind::ALL.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}

/// Returns the instructions of one request.
///
/// Both runs start a machine and build the same requests. They differ only in how many of the
/// requests they serve, so the difference is the cost of serving.
fn instructions(kind: Kind) -> u64 {
    let (short, long) = (run(kind, BATCHES / 3), run(kind, BATCHES));
    (long.instructions - short.instructions) / (long.requests - short.requests)
}

struct Run {
    requests: u64,
    instructions: u64,
}

/// Runs this program with `--count` under Valgrind.
fn run(kind: Kind, batches: usize) -> Run {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(program).args(["--count", kind.name(), &batches.to_string()]);
    let output = command.output().unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => fail("cannot run valgrind: it is not installed; on Debian, apt-get install valgrind"),
        _ => fail(&format!("cannot run valgrind: {error}")),
    });
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match (said.trim().parse(), instruction_total(&log)) {
        (Ok(requests), Some(instructions)) if output.status.success() => Run { requests, instructions },
        _ => fail(&format!("{command:?} failed, {}; its output:\n{said}{log}", output.status)),
    }
}

/// Parses N from Cachegrind's line `==PID== I refs: N`. N has thousands separators.
fn instruction_total(log: &str) -> Option<u64> {
    let (_, total) = log.lines().find_map(|line| line.split_once(" refs:"))?;
    total.trim().replace(',', "").parse().ok()
}

fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    exit(1)
}

/// Serves the first `batches` batches of a kind, and prints the number of requests.
///
/// Exits without running destructors. Valgrind would count those of the requests that were not served
/// and of the servers' state.
fn serve(kind: Kind, batches: usize) -> ! {
    let (mut machine, requests) = (Machine::start(kind), Requests::new());
    let mut built = (0..BATCHES).map(|round| requests.batch(kind, round)).collect::<Vec<_>>().into_iter();
    let replies: usize = built.by_ref().take(batches).map(|batch| machine.serve(batch)).sum();
    assert_eq!(replies, batches * BATCH);
    println!("{replies}");
    exit(0)
}
