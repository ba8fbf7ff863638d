//! Commands for scripts on a real terminal: Ctrl-C, Ctrl-Z, and who may read what is typed.
#![allow(clippy::print_stdout, reason = "a failed test shows the screen")]

use super::{Fixed, code_soon};
use crate::support::*;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use zoolet_model::{Request, WriteOp};

/// A script of bash on a terminal of its own.
struct Script {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Script {
    /// Runs the script in the scratch directory; `$ZOOLET` is the program.
    fn start(server: &Fixed, script: &str) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_bytes();
        let name = std::ffi::OsString::from_vec(name);
        let open = || File::options().read(true).write(true).open(&name).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "bash", "-c", script]).current_dir(server.scratch.path());
        command.env("ZOOLET", env!("CARGO_BIN_EXE_zoolet"));
        command.env("ZOOLET_SERVER", format!("127.0.0.1:{}", server.port));
        let child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        drop(command);
        let keyboard = File::from(terminal);
        let (mut shown, screen) = (keyboard.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let written = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            // It fails once the last process has closed the terminal.
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                written.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, keyboard, screen }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// Waits for its end, and returns the code that a shell tells.
    fn code(&mut self) -> i32 {
        code_soon(&mut self.child)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the screen: {}", self.screen());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn interrupt_of_the_command_ends_the_script_too() {
    let server = Fixed::start();
    let script = "for turn in 1 2 3; do
        \"$ZOOLET\" lock /l -- sh -c 'echo $$ >> pids; exec sleep 1000'
        echo went on >> went
    done";
    let mut script = Script::start(&server, script);
    server.pid("pids");
    script.types("\x03");
    assert_eq!(script.code(), 130);
    assert_eq!((server.lines("pids").len(), server.lines("went").len()), (1, 0));
}

#[test]
fn interrupt_of_a_waiter_ends_the_script_too() {
    let server = Fixed::start();
    let mut client = server.client();
    client.create("/l", b"").unwrap();
    client.create("/l/other-lock-0000000000", b"").unwrap();
    let script = "for turn in 1 2 3; do \"$ZOOLET\" lock /l -- true; echo went on >> went; done";
    let mut script = Script::start(&server, script);
    eventually("a waiter", || client.children("/l").len() == 2);
    script.types("\x03");
    assert_eq!(script.code(), 130);
    assert!(server.lines("went").is_empty());
}

#[test]
fn interrupt_of_the_command_ends_restarts() {
    let server = Fixed::start();
    let script = "exec \"$ZOOLET\" elect /l --restart --forever -- sh -c 'echo $$ >> pids; exec sleep 1000'";
    for (key, code) in [("\x03", 130), ("\x1c", 131)] {
        let mut script = Script::start(&server, script);
        server.pid("pids");
        script.types(key);
        assert_eq!(script.code(), code);
        assert_eq!(server.lines("pids").len(), 1);
        std::fs::remove_file(server.scratch.join("pids")).unwrap();
    }
}

/// `ssh` and `sudo` ask on the terminal although their standard input is a file.
#[test]
fn command_that_asks_on_the_terminal_gets_it() {
    let server = Fixed::start();
    let script = "\"$ZOOLET\" lock /l -- sh -c 'echo ready > ready; read x < /dev/tty; echo $x > read' < /dev/null
        \"$ZOOLET\" lock /l -- sh -c 'stty -echo < /dev/tty; echo set > set' < /dev/null";
    let mut script = Script::start(&server, script);
    eventually("COMMAND", || !server.lines("ready").is_empty());
    script.types("typed\n");
    assert_eq!(script.code(), 0);
    assert_eq!((server.lines("read"), server.lines("set")), (vec!["typed".to_owned()], vec!["set".to_owned()]));
}

#[test]
fn command_in_the_background_that_asks_on_the_terminal_ends_with_an_error() {
    let server = Fixed::start();
    let script = "set -m
        \"$ZOOLET\" lock /l -- sh -c 'read x < /dev/tty; echo read > read' < /dev/null &
        wait $!; exit $?";
    let mut script = Script::start(&server, script);
    assert_eq!(script.code(), 125);
    assert!(script.screen().contains("COMMAND needs the terminal"), "{}", script.screen());
    assert!(server.lines("read").is_empty());
    assert_eq!(server.run("lock /l --no-wait", "exit 3").0, 3);
}

#[test]
fn stop_key_stops_neither_zoolet_nor_the_command() {
    let server = Fixed::start();
    let script = "set -m
        \"$ZOOLET\" lock /l -- sh -c \"trap 'exit 7' INT; echo ready > ready; sleep 1000 & wait\" $INPUT
        exit $?";
    for input in ["", "< /dev/null"] {
        let mut script = Script::start(&server, &script.replace("$INPUT", input));
        eventually("COMMAND", || !server.lines("ready").is_empty());
        script.types("\x1a");
        script.types("\x03");
        assert_eq!(script.code(), 7, "{input}");
        std::fs::remove_file(server.scratch.join("ready")).unwrap();
    }
}

#[test]
fn killed_command_leaves_the_terminal_as_it_was() {
    let server = Fixed::start();
    let script = "\"$ZOOLET\" lock /l -- sh -c 'stty raw -echo; echo $$ > pid; exec sleep 1000'
        echo $? > code; stty -a > modes";
    let mut script = Script::start(&server, script);
    server.pid("pid");
    let mut client = server.client();
    let path = format!("/l/{}", client.children("/l").remove(0)).as_str().into();
    client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
    script.code();
    assert_eq!(server.lines("code"), ["125"]);
    let modes = server.lines("modes").join(" ");
    assert!(modes.contains(" icanon ") && modes.contains(" echo "), "{modes}");
}

#[test]
fn command_that_is_started_again_ignores_no_more_signals_than_at_first() {
    let server = Fixed::start();
    let command = "grep SigIgn /proc/self/status >> ignored; [ $(wc -l < ignored) -eq 1 ] || kill -INT $PPID";
    let script = format!("\"$ZOOLET\" elect /l --restart -- sh -c '{command}'");
    Script::start(&server, &script).code();
    let ignored = server.lines("ignored");
    assert!(ignored.len() == 2 && ignored[0] == ignored[1], "{ignored:?}");
}
