//! `zoolet elect` over three servers, and `zoolet barrier`.

use super::{Fixed, Running, children_of, is_gone, runs};
use crate::support::ensemble::Ensemble;
use crate::support::*;
use std::process::Stdio;
use zoolet_model::{Request, WriteOp};

/// Starts a candidate whose COMMAND notes its token and process.
fn candidate(scratch: &Scratch, servers: &str, options: &str) -> Running {
    let mut command = zoolet(&["elect", "/leaders/a", "--server", servers, "--session-timeout", "4s"]);
    command.args(options.split(' ')).args(["--", "sh", "-c", "echo $ZOOLET_TOKEN $$ >> log; exec sleep 1000"]);
    Running(command.current_dir(scratch.path()).stdin(Stdio::null()).spawn().unwrap())
}

/// Returns the tokens of the leaders so far, and the processes of their commands.
fn log(scratch: &Scratch) -> Vec<(i64, u32)> {
    let text = std::fs::read_to_string(scratch.join("log")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let fields = whole.lines().map(|line| line.split_once(' ').unwrap());
    fields.map(|(token, pid)| (token.parse().unwrap(), pid.parse().unwrap())).collect()
}

#[test]
fn one_candidate_of_three_leads_while_candidates_and_the_leading_server_are_killed() {
    let scratch = Scratch::new();
    let ensemble = Ensemble::start(&scratch);
    let servers = ensemble.servers();
    let mut candidates: Vec<Running> = (0..3).map(|_| candidate(&scratch, &servers, "--restart --forever")).collect();
    eventually("a leader", || log(&scratch).len() == 1);
    // The candidate whose COMMAND runs is killed: another one leads.
    let (_, first) = log(&scratch)[0];
    let parent = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
        line.trim().parse::<u32>().unwrap()
    };
    let leads = candidates.iter().position(|candidate| candidate.0.id() == parent(first)).unwrap();
    candidates.remove(leads).signal("KILL");
    is_gone(first);
    eventually("a second leader", || log(&scratch).len() == 2);
    // Its COMMAND ends: with --restart it starts COMMAND again, and keeps its token.
    let (token, second) = log(&scratch)[1];
    super::kill("KILL", second);
    eventually("a restart", || log(&scratch).len() == 3);
    assert_eq!(log(&scratch)[2].0, token);
    let &(leader, _) = ensemble.processes.iter().find(|(_, leads)| *leads).unwrap();
    Ensemble::signal(leader, "KILL");
    // A leader that is asked to end resigns, so the last candidate leads.
    let (_, third) = *log(&scratch).last().unwrap();
    let leads = candidates.iter().position(|candidate| candidate.0.id() == parent(third)).unwrap();
    let mut resigning = candidates.remove(leads);
    resigning.signal("TERM");
    assert_eq!(resigning.code(), 143);
    eventually("a last leader", || log(&scratch).len() >= 4 && runs(log(&scratch).last().unwrap().1));
    let tokens: Vec<i64> = log(&scratch).iter().map(|(token, _)| *token).collect();
    assert!(tokens.is_sorted() && *tokens.last().unwrap() > token, "{tokens:?}");
    assert_eq!(log(&scratch).iter().filter(|(_, pid)| runs(*pid)).count(), 1);
}

#[test]
fn leader_resigns_when_its_command_ends_and_the_next_candidate_leads() {
    let server = Fixed::start();
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; exit 5";
    let mut first = server.start_command("elect /leaders/b", script);
    let pid = server.pid("pid");
    assert_eq!(server.run("elect /leaders/b --wait 100ms", "echo ran").0, 124);
    let mut second = server.start_command("elect /leaders/b", "echo $ZOOLET_TOKEN > second; exit 6");
    assert!(runs(pid) && server.lines("second").is_empty());
    std::fs::write(server.scratch.join("go"), "").unwrap();
    assert_eq!((first.code(), second.code()), (5, 6));
}

/// It kept the lead, and started COMMAND again each second.
#[test]
fn candidate_that_cannot_run_its_command_gives_up_the_lead() {
    let server = Fixed::start();
    let (code, line) = server.run("elect /leaders/c --restart -- ./absent", "");
    assert!(code == 127 && line.starts_with("zoolet: cannot run ./absent"), "{code}: {line}");
    assert_eq!(server.run("elect /leaders/c --restart", "exit 126").0, 126);
    let mut broken = server.start_command("elect /leaders/c --restart --forever -- ./absent", "");
    let mut other = server.start_command("elect /leaders/c --restart --forever", "echo $$ > pid; exec sleep 1000");
    server.pid("pid");
    assert!(broken.0.try_wait().unwrap().is_none(), "it is no candidate any more");
    for candidate in [&mut broken, &mut other] {
        candidate.signal("TERM");
        assert_eq!(candidate.code_soon(), 143);
    }
}

/// It ended, although a leader in the same place becomes a candidate again.
#[test]
fn standby_whose_znode_is_deleted_becomes_a_candidate_again() {
    let server = Fixed::start();
    let mut client = server.client();
    client.create("/l", b"").unwrap();
    let other = "/l/other-lock-0000000000";
    client.create(other, b"").unwrap();
    let mut standby = server.start_command("elect /l --forever", "echo $$ > pid; exec sleep 1000");
    eventually("a standby", || client.children("/l").len() == 2);
    let mut names = client.children("/l");
    // The standby hears of its own znode when the one before it has gone.
    names.sort_by_key(|name| other.ends_with(&**name));
    for name in names {
        let path = format!("/l/{name}").as_str().into();
        client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
    }
    server.pid("pid");
    standby.signal("TERM");
    assert_eq!(standby.code_soon(), 143);
}

#[test]
fn waiters_go_on_once_the_barrier_is_open() {
    let server = Fixed::start();
    assert_eq!(server.run("barrier close /stopped", ""), (0, String::new()));
    assert_eq!(server.run("barrier close /stopped", ""), (0, String::new()));
    let (code, line) = server.run("barrier wait /stopped --wait 1s", "");
    assert_eq!((code, line.as_str()), (124, "zoolet: /stopped: the barrier was not opened within 1 s\n"));
    let mut waiter = server.start_command("barrier wait /stopped", "");
    assert_eq!(server.run("barrier open /stopped", ""), (0, String::new()));
    assert_eq!(waiter.code(), 0);
}

#[test]
fn parties_begin_together_and_leave_together() {
    let server = Fixed::start();
    let words = "barrier meet /calibration --parties 3";
    let mut one = server.start_command(words, "echo one >> begun");
    assert_eq!(server.run("barrier meet /calibration --parties 3 --wait 100ms", "exit 0").0, 124);
    assert!(server.lines("begun").is_empty());
    let mut two = server.start_command(words, "echo two >> begun");
    let mut three = server.start_command(words, "echo three >> begun; while [ ! -e go ]; do sleep 0.01; done");
    eventually("all parties", || server.lines("begun").len() == 3);
    assert!(one.0.try_wait().unwrap().is_none() && two.0.try_wait().unwrap().is_none());
    std::fs::write(server.scratch.join("go"), "").unwrap();
    assert_eq!((one.code(), two.code(), three.code()), (0, 0, 0));
    // Without a command, a party only waits for the others.
    let mut other = server.start_command("barrier meet /ready --parties 2", "");
    assert_eq!(server.run("barrier meet /ready --parties 2", "").0, 0);
    assert_eq!(other.code(), 0);
}

/// The script of the failed party went on beside the COMMAND of the other one.
#[test]
fn party_whose_command_fails_waits_for_the_others_too() {
    let server = Fixed::start();
    let words = "barrier meet /m --parties 2";
    let mut failing = server.start_command(words, "echo $$ > pid; exit 3");
    let mut other = server.start_command(words, "echo $$ > other; while [ ! -e go ]; do sleep 0.01; done");
    is_gone(server.pid("pid"));
    eventually("the end of COMMAND's watchdog", || children_of(failing.0.id()).is_empty());
    // Longer than an end of a process takes.
    assert_eq!(server.run("barrier meet /n --parties 1", "exit 4").0, 4);
    assert!(failing.0.try_wait().unwrap().is_none(), "it has not waited");
    std::fs::write(server.scratch.join("go"), "").unwrap();
    assert_eq!((failing.code_soon(), other.code_soon()), (3, 0));
}

#[test]
fn party_that_is_asked_to_end_does_not_wait_for_the_others() {
    let server = Fixed::start();
    let for_ever = "exec sleep 1000";
    let mut asked = server.start_command("barrier meet /m --parties 3", &format!("echo $$ > asked; {for_ever}"));
    let mut done = server.start_command("barrier meet /m --parties 3", "echo $$ > done");
    let mut last = server.start_command("barrier meet /m --parties 3", &format!("echo $$ > last; {for_ever}"));
    server.pid("asked");
    server.pid("last");
    is_gone(server.pid("done"));
    // One whose COMMAND runs, and one that waits for the others.
    asked.signal("TERM");
    assert_eq!(asked.code_soon(), 143);
    done.signal("TERM");
    assert_eq!(done.code_soon(), 143);
    assert!(runs(server.pid("last")));
    last.signal("TERM");
    assert_eq!(last.code_soon(), 143);
}
