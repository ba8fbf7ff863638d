//! The table of the document, and how an answer is compared with one of its rows.

use crate::support::{PATIENCE, Scratch, zoolet};
use std::cell::Cell;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/OPERATIONS.md");
const HEADING: &str = "## Mistakes, and what they are answered with";

/// What stands for what differs, and what it is.
pub(crate) type Values<'a> = &'a [(&'a str, &'a str)];

/// One mistake.
pub(crate) struct Row {
    pub(crate) mistake: String,
    /// `start, 2`, `log` or `status`.
    pub(crate) said: String,
    pub(crate) lines: Vec<String>,
}

pub(crate) fn rows() -> Vec<Row> {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let (_, section) = text.split_once(HEADING).unwrap_or_else(|| panic!("no section {HEADING:?}"));
    let section = section.split("\n## ").next().unwrap();
    // Below the heading of the table and the line under it.
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
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

/// The text of a code span.
fn code(span: &str) -> Option<String> {
    let inner = match span.strip_prefix("`` ") {
        Some(rest) => rest.strip_suffix(" ``"),
        None => span.strip_prefix('`')?.strip_suffix('`'),
    };
    inner.map(str::to_owned)
}

/// Below those that systems give to whoever asks for any.
const PORT_MIN: u16 = 12_000;

/// A row, and a directory to make its mistake in.
pub(crate) struct Case<'r> {
    row: &'r Row,
    pub(crate) scratch: Scratch,
    /// Of loopback, and nobody else's: so no port of it is taken by another case.
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

    /// Which nobody has yet.
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

    /// The binary, where this mistake is made.
    pub(crate) fn zoolet(&self, arguments: &[&str]) -> Command {
        let mut command = zoolet(arguments);
        command.current_dir(self.scratch.path());
        command
    }

    /// It must end by itself, with these lines and nothing else.
    pub(crate) fn is_refused(&self, values: Values<'_>, arguments: &[&str]) {
        self.ends(values, self.zoolet(arguments));
    }

    pub(crate) fn ends(&self, values: Values<'_>, command: Command) {
        // One that is not refused would serve for ever.
        let mut command = by(&["timeout", "20"], command);
        let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        let lines: Vec<&str> = stderr.lines().map(str::trim).collect();
        self.compare(&self.wanted(values), &lines);
        let code = status.code().map_or("a signal".to_owned(), |code| code.to_string());
        assert_eq!(format!("start, {code}"), self.row.said, "{}", self.row.mistake);
        assert!(stdout.is_empty(), "{stdout:?}");
    }

    /// `serve --check` must find nothing wrong, and warn.
    pub(crate) fn is_warned_of(&self, values: Values<'_>, command: Command) {
        let log = self.check(command);
        self.is_in_log(values, &log);
    }

    /// What `serve --check` logs.
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

    /// The log of `server` must have the line some time.
    pub(crate) fn is_logged(&self, values: Values<'_>, server: &Serve) {
        let wanted = self.wanted(values);
        wait(|| messages(&server.log()).any(|message| [message] == *wanted));
        self.is_in_log(values, &server.log());
    }

    /// `zoolet status` of this server must say it some time, and that something is wrong.
    pub(crate) fn is_shown(&self, values: Values<'_>, server: SocketAddr) {
        assert_eq!(self.row.said, "status", "{}", self.row.mistake);
        let wanted = self.wanted(values);
        let address = server.to_string();
        let ask = || self.zoolet(&["status", "--server", &address]).output().unwrap();
        wait(|| lines_of(&ask()).windows(wanted.len()).any(|some| some == wanted));
        self.has_shown(values, &ask());
    }

    /// The same of what `zoolet status` has said.
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

    /// A server that goes on, with these arguments after `serve`.
    pub(crate) fn serve(&self, name: &str, arguments: &[&str]) -> Serve {
        self.serve_by(name, &[], arguments)
    }

    /// What all its servers have logged.
    pub(crate) fn logs(&self) -> String {
        let files = fs::read_dir(self.scratch.path()).unwrap().map(|file| file.unwrap().path());
        let logs = files.filter(|file| file.extension().is_some_and(|extension| extension == "log"));
        logs.map(|file| format!("{}:\n{}", file.display(), fs::read_to_string(&file).unwrap())).collect()
    }

    /// The same, started by a program that becomes it.
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

/// The same command, by a program that becomes what is named after its own arguments.
pub(crate) fn by(program: &[&str], command: Command) -> Command {
    let [name, arguments @ ..] = program else { return command };
    let mut other = Command::new(name);
    other.args(arguments).arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        other.current_dir(directory);
    }
    other
}

/// What follows the name of whoever logs it, of each line.
fn messages(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter_map(|line| Some(line.split_once(" WARN ")?.1.split_once(": ")?.1))
}

fn lines_of(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect()
}

/// Until it is so, or long enough: whoever asks then says what is instead.
pub(crate) fn wait(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A connection to the client port of a server that is starting.
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let mut stream = None;
    wait(|| {
        stream = TcpStream::connect(server).ok();
        stream.is_some()
    });
    stream.unwrap_or_else(|| panic!("nobody listens on {server}"))
}

/// A server that goes on.
pub(crate) struct Serve {
    child: Child,
    /// Where clients connect.
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

/// As text, which every path of a test is.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
