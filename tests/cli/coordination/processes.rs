//! Processes around COMMAND: its watchdog, the processes that it leaves, and those of other users.
#![allow(clippy::print_stdout, reason = "a test tells that it cannot check")]

use super::{Fixed, Running, children_of, is_gone, kill, runs};
use crate::support::*;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use zoolet_model::{Request, WriteOp};

const FOR_EVER: &str = "echo $$ > pid; exec sleep 1000";

#[test]
fn killed_watchdog_is_replaced_and_ends_the_command_of_a_stopped_zoolet() {
    let server = Fixed::start();
    // A long timeout: only the end of the watchdog itself can tell zoolet of it soon.
    let words = "lock /l --session-timeout 4s";
    let mut holder = server.start_command(words, FOR_EVER);
    let pid = server.pid("pid");
    let watchdog = |but: u32| {
        let mut found = None;
        eventually("a watchdog", || {
            found = children_of(holder.0.id()).into_iter().find(|child| ![pid, but].contains(child));
            found.is_some()
        });
        found.unwrap()
    };
    let first = watchdog(pid);
    kill("KILL", first);
    let second = watchdog(first);
    // A child that is not a watchdog yet would die of its own pipe, whatever it was told.
    eventually("the start of the new watchdog", || {
        let words = std::fs::read(format!("/proc/{second}/cmdline")).unwrap();
        let is_watching = words.split(|byte| *byte == 0).any(|word| word == b"watch-command");
        is_watching && !children_of(holder.0.id()).contains(&first)
    });
    holder.signal("STOP");
    is_gone(pid);
    holder.signal("CONT");
    assert_eq!(holder.code(), 125);
}

/// The kernel kills COMMAND once neither zoolet nor its watchdog can.
#[test]
fn command_dies_with_a_zoolet_whose_watchdog_is_dead() {
    let server = Fixed::start();
    let mut holder = server.start_command("lock /l", FOR_EVER);
    let pid = server.pid("pid");
    let watchdog = children_of(holder.0.id()).into_iter().find(|child| *child != pid).unwrap();
    // A stopped zoolet does not replace its watchdog.
    holder.signal("STOP");
    kill("KILL", watchdog);
    assert!(runs(pid));
    holder.signal("KILL");
    holder.status();
    is_gone(pid);
}

#[test]
fn orphans_of_the_command_are_reaped_while_it_runs() {
    let server = Fixed::start();
    let orphans = "for n in 1 2 3 4 5; do (setsid sh -c 'echo $$ >> orphans' &); done";
    let script = format!("{orphans}; while [ ! -e go ]; do sleep 0.01; done; exit 6");
    let mut holder = server.start_command("lock /l", &script);
    eventually("all orphans", || server.lines("orphans").len() == 5);
    let exists = |pid: &String| std::fs::exists(format!("/proc/{pid}")).unwrap();
    eventually("the reaping of all", || !server.lines("orphans").iter().any(exists));
    std::fs::write(server.scratch.join("go"), "").unwrap();
    assert_eq!(holder.code(), 6);
}

/// A daemon that left the group never reaps its child, which is a zombie in the group.
#[test]
fn zombie_whose_parent_has_left_the_group_does_not_hold_the_lock() {
    let server = Fixed::start();
    let script = "sh -c 'sleep 0.01 & echo $! > zombie; exec setsid sleep 1000' & echo $! > daemon
        until grep -q ') Z' /proc/$(cat zombie)/stat; do sleep 0.01; done
        exit 4";
    let mut holder = server.start_command("lock /l --grace 1s", script);
    let daemon = server.pid("daemon");
    let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| holder.code_soon()));
    kill("KILL", daemon);
    assert_eq!(code.ok(), Some(4));
}

/// `timeout` in a script leaves COMMAND's process group, and ran on without the lock. So did the
/// COMMAND of a zoolet in a script.
#[test]
fn process_that_leaves_the_group_but_is_no_daemon_ends_before_the_lock() {
    let server = Fixed::start();
    let inner = "'echo $$ > inner; trap \"\" TERM; while :; do sleep 0.01; done'";
    let zoolet = env!("CARGO_BIN_EXE_zoolet");
    for leaving in [format!("timeout 1000 sh -c {inner}"), format!("{zoolet} lock /m --grace 0ms -- sh -c {inner}")] {
        // COMMAND ends by itself, or is killed because its lock is lost.
        for is_lost in [false, true] {
            let script = format!("{leaving} & echo $$ > pid; until [ -s inner ]; do sleep 0.01; done; $END");
            let script = script.replace("$END", if is_lost { "exec sleep 1000" } else { "exit 4" });
            let mut holder = server.start_command("lock /l --grace 100ms", &script);
            let (_, inner) = (server.pid("pid"), server.pid("inner"));
            if is_lost {
                let mut client = server.client();
                let path = format!("/l/{}", client.children("/l").remove(0)).as_str().into();
                client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
            }
            assert_eq!(holder.code_soon(), if is_lost { 125 } else { 4 }, "{script}");
            let has_ended = !runs(inner);
            if !has_ended {
                kill("KILL", inner);
            }
            assert!(has_ended, "{script}");
            for file in ["pid", "inner"] {
                std::fs::remove_file(server.scratch.join(file)).unwrap();
            }
        }
    }
}

/// The watchdog killed the process group alone.
#[test]
fn process_that_leaves_the_group_ends_before_the_session_of_a_stopped_zoolet() {
    let server = Fixed::start();
    let script = "timeout 1000 sh -c 'echo $$ > inner; exec sleep 1000' & wait";
    let mut holder = server.start_command("lock /l --session-timeout 4s", script);
    let inner = server.pid("inner");
    let began = Instant::now();
    holder.signal("STOP");
    let ended = std::panic::catch_unwind(|| is_gone(inner));
    if ended.is_err() {
        kill("KILL", inner);
    }
    assert!(ended.is_ok() && began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    holder.signal("CONT");
    assert_eq!(holder.code_soon(), 125);
}

/// They are not COMMAND's, although they are children of the same process.
#[test]
fn children_of_the_program_that_became_zoolet_run_on() {
    let server = Fixed::start();
    let mut starter = Command::new("sh");
    starter.args(["-c", "sleep 1000 & echo $! > other; exec \"$0\" lock /l -- sh -c 'exit 7'"]);
    starter.arg(env!("CARGO_BIN_EXE_zoolet")).env("ZOOLET_SERVER", format!("127.0.0.1:{}", server.port));
    let mut starter = Running(starter.current_dir(server.scratch.path()).spawn().unwrap());
    let other = server.pid("other");
    assert_eq!(starter.code_soon(), 7);
    assert!(runs(other));
    kill("KILL", other);
}

#[test]
fn starter_that_ignores_the_end_of_its_children_loses_no_exit_code() {
    let server = Fixed::start();
    let mut starter = Command::new("bash");
    starter.args(["-c", "trap '' CHLD; exec \"$0\" lock /l -- sh -c 'sleep 0.1; exit 7'"]);
    starter.arg(env!("CARGO_BIN_EXE_zoolet")).env("ZOOLET_SERVER", format!("127.0.0.1:{}", server.port));
    assert_eq!(Running(starter.spawn().unwrap()).code_soon(), 7);
}

/// Tells that this place allows no check. A CI, which has `CI=true`, must check all.
fn not_checked(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "not checked: {why}");
    println!("NOT CHECKED: {why}");
}

/// Runs the command as another user; `None` if this test may not do that.
fn as_user(server: &Fixed, user: u32, words: &str, script: &str) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        not_checked("only root can run a program as another user");
        return None;
    }
    std::fs::set_permissions(server.scratch.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let command = server.command(words, script);
    // That user may not see the directory of the program.
    let program = server.scratch.join("zoolet");
    std::fs::copy(command.get_program(), &program).unwrap();
    let mut other = Command::new("setpriv");
    other.args([&format!("--reuid={user}"), "--clear-groups"]).arg(program).args(command.get_args());
    other.current_dir(server.scratch.path()).env("ZOOLET_SERVER", format!("127.0.0.1:{}", server.port));
    other.stdin(Stdio::null()).stderr(Stdio::piped());
    Some(other)
}

/// Without its watchdog, COMMAND could outlive the lock.
#[test]
fn command_that_cannot_be_watched_does_not_run() {
    let server = Fixed::start();
    // The threads of this user: two of zoolet, and COMMAND. The watchdog would be the fourth.
    let words = "elect /l --restart --forever";
    let Some(user) = as_user(&server, 64_731, words, "echo $$ > pid; exec sleep 1000") else { return };
    let mut limited = Command::new("prlimit");
    limited.arg("--nproc=3").arg(user.get_program()).args(user.get_args()).current_dir(server.scratch.path());
    limited.envs(user.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut limited = Running(limited.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    // It stands for election again after a second, in which COMMAND could run.
    let mut lines = BufReader::new(limited.0.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains("Resource temporarily unavailable"), "{line}");
    }
    assert!(server.lines("pid").is_empty(), "COMMAND ran");
    limited.signal("TERM");
    assert_eq!(limited.code_soon(), 143);
}

/// A program such as `sudo` gets no signals of an ordinary user, but works on.
#[test]
fn lock_is_held_while_a_process_of_another_user_is_in_the_group() {
    let server = Fixed::start();
    let script = "other='echo $$ > other; while [ -e zoolet ] && [ ! -e go ]; do sleep 0.01; done'
        ./asroot --reuid=0 --regid=0 --keep-groups sh -c \"$other\" 2> errors &
        until [ -s other ]; do sleep 0.01; done; exit 5";
    let Some(mut holder) = as_user(&server, 64_732, "lock /l --grace 100ms", script) else { return };
    let setpriv = String::from_utf8(Command::new("which").arg("setpriv").output().unwrap().stdout).unwrap();
    std::fs::copy(setpriv.trim(), server.scratch.join("asroot")).unwrap();
    std::fs::set_permissions(server.scratch.join("asroot"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mut allowed = Command::new("setpriv");
    let words = "--reuid=64732 --clear-groups ./asroot --reuid=0 --regid=0 --keep-groups id -u";
    allowed.args(words.split(' '));
    if allowed.current_dir(server.scratch.path()).output().unwrap().stdout != b"0\n" {
        not_checked("this directory allows no change of the user");
        return;
    }
    let mut holder = Running(holder.spawn().unwrap());
    let other = server.pid("other");
    // zoolet tells that it waits, once KILL has had no effect.
    let mut line = String::new();
    BufReader::new(holder.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with(&format!("zoolet: /l: process {other} (sh) of COMMAND has not ended")), "{line}");
    assert_eq!(server.run("lock /l --no-wait", "exit 0").0, 124);
    assert!(runs(other));
    std::fs::write(server.scratch.join("go"), "").unwrap();
    assert_eq!(holder.code_soon(), 5);
    assert_eq!(server.run("lock /l --no-wait", "exit 3").0, 3);
}
