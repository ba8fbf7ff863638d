//! `zoolet shell` while connections are lost: who may do what meanwhile, and what its user hears.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use crate::proxy::{Fate, Proxy};
use crate::support::*;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// Opcodes of the protocol.
const SET_ACL: i32 = 7;
const MULTI: i32 = 14;
const WHO_AM_I: i32 = 107;

const UNIMPLEMENTED: i32 = -6;

fn shell(scratch: &Scratch, address: &str, words: &str) -> Command {
    let mut command = zoolet(&["shell", "--server", address]);
    command.args(words.split_whitespace()).current_dir(scratch.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end; returns the exit code, or 128 and the signal as a shell does, and both streams.
fn ended(child: Child) -> (i32, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().or(output.status.signal().map(|signal| 128 + signal));
    (code.unwrap(), text(output.stdout), text(output.stderr))
}

/// Returns the lines of standard error, as they come.
fn errors(child: &mut Child) -> Arc<Mutex<Vec<String>>> {
    let (errors, stream) = (Arc::<Mutex<Vec<String>>>::default(), child.stderr.take().unwrap());
    let lines = errors.clone();
    std::thread::spawn(move || {
        BufReader::new(stream).lines().for_each(|line| lines.lock().unwrap().push(line.unwrap()));
    });
    errors
}

/// Carries out the lines of a script.
fn script(scratch: &Scratch, address: &str, lines: &str) -> (i32, String, String) {
    let mut child = shell(scratch, address, "").spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    ended(child)
}

/// Carries out one command that succeeds.
fn well(scratch: &Scratch, server: &Server, words: &str) -> String {
    let (code, out, err) = ended(shell(scratch, &server.address.to_string(), words).spawn().unwrap());
    assert_eq!(code, 0, "{words}: {out}{err}");
    out
}

/// Returns the ACL of a znode in one line.
fn acl(scratch: &Scratch, server: &Server, path: &str) -> String {
    well(scratch, server, &format!("getAcl {path}")).replace('\n', "")
}

/// Returns a fate for each request of an opcode, in their order; later ones are forwarded.
fn fates<const COUNT: usize>(fates: [(i32, Fate); COUNT]) -> impl FnMut(i32) -> Fate + Send + 'static {
    let mut left = fates.to_vec();
    move |opcode| {
        let next = left.iter().position(|(known, _)| *known == opcode);
        next.map_or(Fate::Forwarded, |next| left.remove(next).1)
    }
}

/// The ACL of a parent in which no client may create children, so that `cp -r` widens it meanwhile.
const READ_ONLY: &str = "'world,'anyone: r";

fn with_narrow_parent(scratch: &Scratch) -> Server {
    let server = Server::start(scratch);
    for words in ["create /app", "create /app/a", "setAcl /app world:anyone:r"] {
        well(scratch, &server, words);
    }
    server
}

#[test]
fn lost_connection_lets_no_other_client_into_a_parent() {
    let scratch = Scratch::new();
    let server = with_narrow_parent(&scratch);
    let twice = Proxy::start(&server, fates([(WHO_AM_I, Fate::Lost), (WHO_AM_I, Fate::Lost)]));
    let (code, _, err) = ended(shell(&scratch, &twice.address, "cp -r /app /none").spawn().unwrap());
    assert!(code == 1 && err.contains("the server has not told the identities of this session"), "{err}");
    assert!(!server.client().exists("/none"));

    // The last step fails, so the ACL stays as it is meanwhile.
    let once = Proxy::start(&server, fates([(WHO_AM_I, Fate::Lost), (SET_ACL, Fate::Cut)]));
    let (code, _, err) = ended(shell(&scratch, &once.address, "cp -r /app /copy").spawn().unwrap());
    assert_eq!(acl(&scratch, &server, "/copy"), format!("{READ_ONLY}'ip,'127.0.0.1: cdrwa"));
    assert_eq!(code, 1);
    assert!(err.contains("\nthe subtree was copied\n1 ACL is still wider than in /app, first /copy; "), "{err}");
}

#[test]
fn server_that_cannot_tell_identities_is_not_asked_by_a_session_with_one() {
    let scratch = Scratch::new();
    let server = with_narrow_parent(&scratch);
    let wide = |lines: &str, path: &str| {
        let old = Proxy::start(&server, fates([(WHO_AM_I, Fate::Refused(UNIMPLEMENTED)), (SET_ACL, Fate::Cut)]));
        let (code, out, err) = script(&scratch, &old.address, lines);
        assert!(code == 1 && err.contains("1 ACL is still wider"), "{out}{err}");
        acl(&scratch, &server, path)
    };
    assert_eq!(wide("cp -r /app /open\n", "/open"), format!("{READ_ONLY}'world,'anyone: cdrwa"));
    let closed = wide("addauth digest me:secret\ncp -r /app /closed\n", "/closed");
    assert!(closed.starts_with(&format!("{READ_ONLY}'digest,'me:")) && closed.ends_with(": cdrwa"), "{closed}");
}

/// Writes a file of 1,500 children below a top in which no client may create any.
fn save_many(scratch: &Scratch) {
    let narrow = "{\"acl\":[{\"id\":\"anyone\",\"perms\":\"r\",\"scheme\":\"world\"}],\"data\":\"\",\"path\":\"/\"}\n";
    let many: String = (0..1500).map(|number| format!("{{\"data\":\"\",\"path\":\"/{number:04}\"}}\n")).collect();
    let head = "{\"format\":\"zoolet subtree\",\"path\":\"/app\",\"version\":1}\n";
    let text = format!("{head}{narrow}{many}{{\"end\":true,\"ephemerals\":0,\"znodes\":1501}}\n");
    std::fs::write(scratch.join("many.json"), text).unwrap();
}

#[test]
fn import_that_fails_halfway_leaves_no_parent_wider_than_in_its_file() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    save_many(&scratch);
    // The first multi has the top. The second one is lost; or the first one happens without an answer.
    for (path, first, is_first) in [("/second", Fate::Forwarded, false), ("/first", Fate::Unanswered, true)] {
        let proxy = Proxy::start(&server, fates([(MULTI, first), (MULTI, Fate::Lost)]));
        let (code, _, err) =
            ended(shell(&scratch, &proxy.address, &format!("import many.json {path}")).spawn().unwrap());
        assert!(code == 1 && !err.contains("wider"), "{err}");
        assert_eq!(err.contains("\noperations carried out before: 0; "), is_first, "{err}");
        assert_eq!(acl(&scratch, &server, path), READ_ONLY);
    }
    let proxy = Proxy::start(&server, fates([(MULTI, Fate::Forwarded), (MULTI, Fate::Cut)]));
    let (code, _, err) = ended(shell(&scratch, &proxy.address, "import many.json /cut").spawn().unwrap());
    assert!(
        code == 1 && err.contains("\n1 ACL is still wider than in the file, first /cut; set each with setAcl\n"),
        "{err}"
    );
    assert_eq!(acl(&scratch, &server, "/cut"), format!("{READ_ONLY}'ip,'127.0.0.1: cdrwa"));
}

#[test]
fn import_that_ctrl_c_ends_leaves_no_parent_wider_than_in_its_file() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    save_many(&scratch);
    let pid = Arc::new(Mutex::new(None));
    let (struck, mut multis) = (pid.clone(), 0);
    let proxy = Proxy::start(&server, move |opcode| {
        multis += usize::from(opcode == MULTI);
        if multis == 2
            && let Some(pid) = struck.lock().unwrap().take()
        {
            signal(pid, "INT");
        }
        Fate::Forwarded
    });
    let mut held = pid.lock().unwrap();
    let child = shell(&scratch, &proxy.address, "import many.json /new").spawn().unwrap();
    *held = Some(child.id());
    drop(held);
    let (code, _, err) = ended(child);
    assert!(code == 130 && err.starts_with("Interrupted\n") && !err.contains("wider"), "{err}");
    assert_eq!(acl(&scratch, &server, "/new"), READ_ONLY);
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

#[test]
fn acls_of_a_subtree_are_set_until_the_connection_is_lost() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut client = server.client();
    client.create("/app", b"").unwrap();
    for number in 0..600 {
        client.create(&format!("/app/{number:03}"), b"").unwrap();
    }
    let mut sent = 0;
    let proxy = Proxy::start(&server, move |opcode| {
        sent += usize::from(opcode == SET_ACL);
        if sent == 300 { Fate::Cut } else { Fate::Forwarded }
    });
    let (code, out, err) = ended(shell(&scratch, &proxy.address, "setAcl -R /app world:anyone:cdra").spawn().unwrap());
    assert_eq!((code, out.as_str(), err.matches("ConnectionLoss").count()), (1, "", 1), "{err}");
    let set = err.trim_end().rsplit("\nACLs that were set before: ").next().unwrap();
    assert!((256..300).contains(&set.parse::<usize>().unwrap()), "{err}");
}

/// The reader of `watch` has gone, so it ends at the line that tells of the outage.
#[test]
fn watch_that_ends_in_an_outage_is_not_set_again() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let proxy = Proxy::start(&server, |_| Fate::Forwarded);
    let mut child = shell(&scratch, &proxy.address, "").spawn().unwrap();
    drop(child.stdout.take());
    let (mut input, errors) = (child.stdin.take().unwrap(), errors(&mut child));
    input.write_all(b"watch /app\n").unwrap();
    eventually("the watch", || server.figure("watch_count") == 1);
    proxy.cut();
    eventually("the end of the watch", || server.figure("watch_count") == 0);
    // Its answer shows that `watch` is over, still without a connection.
    input.write_all(b"ls\n").unwrap();
    eventually("the usage", || errors.lock().unwrap().iter().any(|line| line.starts_with("ls [-s]")));
    proxy.mend();
    input.write_all("create /again\n".repeat(3).as_bytes()).unwrap();
    drop(input);
    eventually("the session's next change", || server.client().exists("/again"));
    assert_eq!(server.figure("watch_count"), 0);
    child.wait().unwrap();
}

#[test]
fn script_hears_that_its_session_has_expired() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let proxy = Proxy::start(&server, |_| Fate::Forwarded);
    let mut client = server.client();
    for (options, says) in [("", EXPIRED.to_owned()), (" --json", format!("{{\"error\":\"{EXPIRED}\"}}"))] {
        let mut child = shell(&scratch, &proxy.address, &format!("--timeout 1s{options}")).spawn().unwrap();
        let (mut input, errors) = (child.stdin.take().unwrap(), errors(&mut child));
        input.write_all(b"printwatches off\ncreate -e /mine\n").unwrap();
        eventually("the ephemeral", || client.exists("/mine"));
        proxy.cut();
        eventually("the end of the session", || !client.exists("/mine"));
        proxy.mend();
        eventually(&says, || errors.lock().unwrap().contains(&says));
        input.write_all(b"create -e /mine\n").unwrap();
        eventually("an ephemeral of the next session", || client.exists("/mine"));
        drop(input);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert!(!client.exists("/mine"));
    }
}

const EXPIRED: &str = "the session has expired, so its ephemerals are gone; the shell goes on with a new session";

#[test]
fn session_is_closed_before_a_signal_ends_the_shell() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut client = server.client();
    for (name, number) in [("TERM", 15), ("HUP", 1), ("INT", 2)] {
        for line in ["", "watch /none\n"] {
            let mut child = shell(&scratch, &server.address.to_string(), "").spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(format!("create -e /mine\n{line}").as_bytes()).unwrap();
            eventually("the ephemeral", || client.exists("/mine"));
            eventually("the watch", || line.is_empty() || server.figure("watch_count") == 1);
            signal(child.id(), name);
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(number), "{name} {line}: {status}");
            // The server would take the session timeout, 30 s, to end a session that is left.
            assert!(!client.exists("/mine"), "{name} {line}");
        }
    }
}

#[test]
fn signal_ends_the_shell_although_the_server_is_silent() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut client = server.client();
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        let mut child = shell(&scratch, &server.address.to_string(), "").spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"create -e /mine\n").unwrap();
        eventually("the ephemeral", || client.exists("/mine"));
        server.signal("STOP");
        signal(child.id(), name);
        eventually("the end", || child.try_wait().unwrap().is_some());
        server.signal("CONT");
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        eventually("the end of the session", || !client.exists("/mine"));
        drop(input);
    }
}

#[test]
fn ctrl_c_of_a_command_ends_the_script_that_runs_it() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let loops = "for turn in 1 2 3; do \"$0\" shell --server \"$1\" watch /app; echo $? >> ends; done";
    let mut bash = Command::new("setsid");
    bash.args(["bash", "-c", loops, env!("CARGO_BIN_EXE_zoolet"), &server.address.to_string()]);
    let mut bash = bash.current_dir(scratch.path()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the watch", || server.figure("watch_count") == 1);
    // A terminal sends Ctrl-C to the whole group.
    assert!(Command::new("kill").args(["-INT", "--", &format!("-{}", bash.id())]).status().unwrap().success());
    eventually("the end of the script", || bash.try_wait().unwrap().is_some());
    assert!(!scratch.join("ends").exists());
}
