//! The table of mistakes, and the comparison of an answer with a row.

use crate::support::{PATIENCE, Scratch, manual, zoolet};
use std::cell::Cell;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Placeholders of a row, with their values.
pub(crate) type Values<'a> = &'a [(&'a str, &'a str)];

/// One mistake.
pub(crate) struct Row {
    pub(crate) mistake: String,
    /// `start, 2`, `log` or `status`.
    pub(crate) said: String,
    pub(crate) lines: Vec<String>,
}

pub(crate) fn rows() -> Vec<Row> {
    let lines = manual::page("reference/mistakes.md").lines().filter(|line| line.starts_with('|'));
    // The first two lines are the heading of the table.
    let lines = lines.skip(2);
    lines.map(|line| Row::read(line).unwrap_or_else(|| panic!("no row: {line}"))).collect()
}

impl Row {
    pub(crate) fn read(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let &[mistake, said, answer] = cells.as_slice() else { return None };
        let lines: Option<Vec<_>> = answer.split("<br>").map(code).collect();
        Some(Self { mistake: mistake.to_owned(), said: said.to_owned(), lines: lines? })
    }

    fn with(&self, values: Values<'_>) -> Vec<String> {
        let filled = |line: &String| values.iter().fold(line.clone(), |line, (name, value)| line.replace(name, value));
        self.lines.iter().map(filled).collect()
    }
}

/// Returns the text of a code span.
fn code(span: &str) -> Option<String> {
    let inner = match span.strip_prefix("`` ") {
        Some(rest) => rest.strip_suffix(" ``"),
        None => span.strip_prefix('`')?.strip_suffix('`'),
    };
    inner.map(str::to_owned)
}

/// Below the range from which systems choose ports.
const PORT_MIN: u16 = 12_000;

/// A row, and a directory in which to make its mistake.
pub(crate) struct Case<'r> {
    row: &'r Row,
    pub(crate) scratch: Scratch,
    /// A loopback address of this case alone, so no other case takes its ports.
    pub(crate) host: Ipv4Addr,
    next_port: Cell<u16>,
}

impl<'r> Case<'r> {
    pub(crate) fn new(row: &'r Row) -> Self {
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = Ipv4Addr::new(127, high.max(1), low, NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { row, scratch: Scratch::new(), host, next_port: Cell::new(PORT_MIN) }
    }

    /// Returns a port that this case has not used yet.
    pub(crate) fn free_port(&self) -> u16 {
        self.next_port.replace(self.next_port.get() + 1)
    }

    pub(crate) fn at(&self, port: u16) -> String {
        format!("{}:{port}", self.host)
    }

    fn wanted(&self, values: Values<'_>) -> Vec<String> {
        let host = self.host.to_string();
        self.row.with(&[values, &[("HOST", &host)]].concat())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.scratch.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn mkdir(&self, name: &str) -> PathBuf {
        let path = self.scratch.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// The binary, run in the directory of this case.
    pub(crate) fn zoolet(&self, arguments: &[&str]) -> Command {
        let mut command = zoolet(arguments);
        command.current_dir(self.scratch.path());
        command
    }

    /// The command must end with exactly the row's lines.
    pub(crate) fn is_refused(&self, values: Values<'_>, arguments: &[&str]) {
        self.ends(values, self.zoolet(arguments));
    }

    pub(crate) fn ends(&self, values: Values<'_>, command: Command) {
        // Without a refusal it would serve for ever.
        let mut command = by(&["timeout", "20"], command);
        let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        let lines: Vec<&str> = stderr.lines().map(str::trim).collect();
        self.compare(&self.wanted(values), &lines);
        let code = status.code().map_or("a signal".to_owned(), |code| code.to_string());
        assert_eq!(format!("start, {code}"), self.row.said, "{}", self.row.mistake);
        assert!(stdout.is_empty(), "{stdout:?}");
    }

    /// `serve --check` must succeed with the row's warning.
    pub(crate) fn is_warned_of(&self, values: Values<'_>, command: Command) {
        let log = self.check(command);
        self.is_in_log(values, &log);
    }

    /// Returns the log of a successful `serve --check`.
    pub(crate) fn check(&self, mut command: Command) -> String {
        let output = command.arg("--check").output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{}: {log}", self.row.mistake);
        log
    }

    pub(crate) fn is_in_log(&self, values: Values<'_>, log: &str) {
        assert_eq!(self.row.said, "log", "{}", self.row.mistake);
        let wanted = self.wanted(values);
        if !messages(log).any(|message| [message] == *wanted) {
            self.compare(&wanted, &messages(log).collect::<Vec<_>>());
        }
    }

    /// The log of `server` must contain the row's line within [`PATIENCE`].
    pub(crate) fn is_logged(&self, values: Values<'_>, server: &Serve) {
        let wanted = self.wanted(values);
        wait(|| messages(&server.log()).any(|message| [message] == *wanted));
        self.is_in_log(values, &server.log());
    }

    /// `zoolet status` of this server must show the row's lines within [`PATIENCE`].
    ///
    /// Its exit code must be 1.
    pub(crate) fn is_shown(&self, values: Values<'_>, server: SocketAddr) {
        assert_eq!(self.row.said, "status", "{}", self.row.mistake);
        let wanted = self.wanted(values);
        let address = server.to_string();
        let ask = || self.zoolet(&["status", "--server", &address]).output().unwrap();
        wait(|| lines_of(&ask()).windows(wanted.len()).any(|some| some == wanted));
        self.has_shown(values, &ask());
    }

    /// This output of `zoolet status` must show the row's lines, and its exit code must be 1.
    pub(crate) fn has_shown(&self, values: Values<'_>, output: &Output) {
        let (wanted, lines) = (self.wanted(values), lines_of(output));
        assert_eq!(output.status.code(), Some(1), "{}", self.row.mistake);
        if !lines.windows(wanted.len()).any(|some| some == wanted) {
            self.compare(&wanted, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    fn compare(&self, wanted: &[String], found: &[&str]) {
        assert!(
            wanted == found,
            "{}:\nthe document has\n  {}\nand what is said is\n  {}",
            self.row.mistake,
            wanted.join("\n  "),
            found.join("\n  ")
        );
    }

    /// Starts a server with these arguments after `serve`.
    pub(crate) fn serve(&self, name: &str, arguments: &[&str]) -> Serve {
        self.serve_by(name, &[], arguments)
    }

    /// Returns the logs of all servers of this case.
    pub(crate) fn logs(&self) -> String {
        let files = fs::read_dir(self.scratch.path()).unwrap().map(|file| file.unwrap().path());
        let logs = files.filter(|file| file.extension().is_some_and(|extension| extension == "log"));
        logs.map(|file| format!("{}:\n{}", file.display(), fs::read_to_string(&file).unwrap())).collect()
    }

    /// As [`Case::serve`], started by a program that execs the server.
    pub(crate) fn serve_by(&self, name: &str, program: &[&str], arguments: &[&str]) -> Serve {
        let client = SocketAddr::from((self.host, self.free_port()));
        let listen = client.to_string();
        let all = [&["serve", "--listen", &listen, "--log", "warn"], arguments].concat();
        let log = self.scratch.join(&format!("{name}.log"));
        let mut command = by(program, self.zoolet(&all));
        let child = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        Serve { child, client, log }
    }
}

/// Prefixes a command with a program that execs it, and that program's arguments.
pub(crate) fn by(program: &[&str], command: Command) -> Command {
    let [name, arguments @ ..] = program else { return command };
    let mut other = Command::new(name);
    other.args(arguments).arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        other.current_dir(directory);
    }
    other
}

/// Returns the messages of the warnings, without their target.
fn messages(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter_map(|line| Some(line.split_once(" WARN ")?.1.split_once(": ")?.1))
}

fn lines_of(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect()
}

/// Waits until `is_so` or [`PATIENCE`]; the caller checks again and reports the difference.
pub(crate) fn wait(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Connects to the client port of a server that is starting.
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let mut stream = None;
    wait(|| {
        stream = TcpStream::connect(server).ok();
        stream.is_some()
    });
    stream.unwrap_or_else(|| panic!("nobody listens on {server}"))
}

/// A running server.
pub(crate) struct Serve {
    child: Child,
    /// Address for clients.
    pub(crate) client: SocketAddr,
    log: PathBuf,
}

impl Serve {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path as text; all paths of a test are UTF-8.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
