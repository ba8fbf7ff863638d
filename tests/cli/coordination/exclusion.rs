//! Mutual exclusion of shell loops, and bounds of semaphores, while the server is killed.

use super::{Fixed, Running};
use crate::support::*;

/// Adds one to a counter, and notes an overlap with a process that does the same.
const COUNT: &str = "
    if kill -0 $(cat holder 2>/dev/null) 2>/dev/null; then echo overlap >> overlaps; fi
    echo $$ > holder
    n=$(cat counter 2>/dev/null || echo 0)
    sleep 0.02
    echo $((n + 1)) > counter
    echo $((n + 1)) $ZOOLET_TOKEN >> log
    rm holder";

#[test]
fn eight_shell_loops_count_without_an_overlap_while_the_server_is_killed() {
    let mut server = Fixed::start();
    const LOOPS: usize = 8;
    const TURNS: usize = 5;
    // A loop repeats a turn that zoolet ended or that failed.
    let turns = "turn=0; while [ $turn -lt 5 ]; do \"$ZOOLET\" lock /locks/count --session-timeout 5s -- \
                 sh -c \"$COUNT\" && turn=$((turn + 1)); done";
    let loops: Vec<Running> = (0..LOOPS)
        .map(|_| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", turns]).current_dir(server.scratch.path());
            shell.env("ZOOLET", env!("CARGO_BIN_EXE_zoolet")).env("COUNT", COUNT);
            shell.env("ZOOLET_SERVER", format!("127.0.0.1:{}", server.port));
            Running(shell.spawn().unwrap())
        })
        .collect();
    for (round, signal) in ["KILL", "TERM", "KILL"].into_iter().enumerate() {
        eventually("a turn", || server.lines("log").len() > 2 + 8 * round);
        server.restart(signal);
    }
    for mut ended in loops {
        assert_eq!(ended.code(), 0);
    }
    assert_eq!(server.lines("overlaps"), [""; 0]);
    let log: Vec<(u64, i64)> = server
        .lines("log")
        .iter()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(count, token)| (count.parse().unwrap(), token.parse().unwrap()))
        .collect();
    assert!(log.len() >= LOOPS * TURNS, "{}", log.len());
    // Strictly growing counts: no turn read the counter before an earlier turn had written it.
    assert!(log.is_sorted_by(|before, after| before.0 < after.0 && before.1 < after.1), "{log:?}");
}

#[test]
fn semaphore_never_grants_more_than_its_permits() {
    let server = Fixed::start();
    const PERMITS: usize = 3;
    let words = "semaphore /permits --permits 3 --session-timeout 5s";
    // Each holder has a file; the last sample of each is taken while it holds.
    let script = "mkdir -p holders; > holders/$$; ls holders | wc -l >> counts; sleep 0.05; \
                  ls holders | wc -l >> counts; rm holders/$$";
    std::thread::scope(|threads| {
        for _ in 0..6 {
            threads.spawn(|| {
                for _ in 0..3 {
                    assert_eq!(server.run(words, script).0, 0);
                }
            });
        }
    });
    let counts: Vec<usize> = server.lines("counts").iter().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(counts.len(), 36);
    assert!(counts.iter().all(|count| (1..=PERMITS).contains(count)), "{counts:?}");
    assert!(counts.contains(&PERMITS), "never {PERMITS} at once: {counts:?}");
    let (code, line) = server.run("semaphore /permits --permits 4 --no-wait", "exit 0");
    assert!(code == 125 && line.contains("has another number of permits than 4; omit --permits, or"), "{line}");
    assert_eq!(server.run("semaphore /permits --permits 4 --resize --no-wait", "exit 0").0, 0);
    assert_eq!(server.run("semaphore /permits", "exit 6").0, 6);
    let (code, line) = server.run("semaphore /unset", "exit 0");
    assert!(code == 125 && line.contains("no number of permits is set; set it with --permits N"), "{line}");
}
