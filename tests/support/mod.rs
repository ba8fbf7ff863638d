//! Shared parts of the whole-system tests.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each test binary uses a part, stops at the first surprise, and tells its figures"
)]

#[path = "../scratch/mod.rs"]
mod scratch;

pub(crate) mod certificates;
pub(crate) mod ensemble;
pub(crate) mod manual;
pub(crate) mod sockets;

pub(crate) use scratch::Scratch;

use bytes::{Bytes, BytesMut};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zoolet_model::{
    ConnectReply, ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, Reply, Request, RequestedAcl, SessionId,
    Text, WatchEvent, WriteOp,
};
use zoolet_transport::wire::client_side::{
    Header, Shape, decode_connect_reply, decode_event, decode_header, decode_reply, encode_connect, encode_request,
};
use zoolet_transport::wire::{Reader, XID_EVENT, split_frame};

/// Time limit for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The usual test configuration: a small log, short timeouts, all four-letter words. Lines of
/// `[settings]` may follow.
pub(crate) const SMALL: &str = "four_letter_words = [\"*\"]\n[limits]\nlog_segment_bytes = 262144\nlog_segments = 8\n\
                         frame_bytes_max = 100000\n[settings]\ntick_ms = 100\nsession_timeout_min_ms = 200\n";

/// [`SMALL`] with more lines of `[limits]`.
pub(crate) fn with_limits(lines: &str) -> String {
    SMALL.replace("[settings]", &format!("{lines}\n[settings]"))
}

/// [`with_limits`] with frames of up to a megabyte, and a log that holds them.
pub(crate) fn with_roomy_frames(lines: &str) -> String {
    let roomy = "log_segment_bytes = 4194304\nlog_segments = 8\nframe_bytes_max = 1048575\n";
    let small = "log_segment_bytes = 262144\nlog_segments = 8\nframe_bytes_max = 100000\n";
    with_limits(lines).replace(small, roomy)
}

/// The real binary, serving.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) first_line: String,
    data: PathBuf,
    config: PathBuf,
    /// The log file, for tests that read it.
    log: Option<PathBuf>,
}

impl Server {
    pub(crate) fn start(scratch: &Scratch) -> Self {
        Self::start_with(scratch, SMALL)
    }

    /// Starts the server on a port that the system chooses.
    pub(crate) fn start_with(scratch: &Scratch, toml: &str) -> Self {
        let (data, config) = (scratch.join("data"), scratch.join("zoolet.toml"));
        std::fs::write(&config, toml).unwrap();
        Self::spawn(data, config, None)
    }

    /// Starts a server whose warnings the test can read.
    pub(crate) fn start_logging(scratch: &Scratch, toml: &str) -> Self {
        let (data, config) = (scratch.join("data"), scratch.join("zoolet.toml"));
        std::fs::write(&config, toml).unwrap();
        Self::spawn(data, config, Some(scratch.join("log")))
    }

    /// Returns what it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log.as_ref().unwrap()).unwrap()
    }

    fn spawn(data: PathBuf, config: PathBuf, log: Option<PathBuf>) -> Self {
        let level = if log.is_some() { "warn" } else { "error" };
        let mut command = zoolet(&["serve", "--listen", "127.0.0.1:0", "--log", level]);
        // Limits memory that glibc's allocator keeps after a free, which would distort the
        // measurements.
        command.envs([("MALLOC_MMAP_THRESHOLD_", "131072"), ("MALLOC_TRIM_THRESHOLD_", "131072")]);
        if let Some(log) = &log {
            command.stderr(std::fs::File::create(log).unwrap());
        }
        command.arg("--config").arg(&config).arg("--data").arg(&data);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut first_line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
        let address = first_line
            .split_whitespace()
            .find_map(|word| word.trim_end_matches([';', ',']).parse().ok())
            .unwrap_or_else(|| panic!("no address in {first_line:?}"));
        Self { child, address, first_line, data, config, log }
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        *self = Self::spawn(self.data.clone(), self.config.clone(), self.log.clone());
    }

    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Restarts the server with another configuration.
    pub(crate) fn restart_with(&mut self, toml: &str) {
        std::fs::write(&self.config, toml).unwrap();
        self.terminate_and_restart();
    }

    pub(crate) fn terminate_and_restart(&mut self) {
        assert!(self.terminate().success());
        *self = Self::spawn(self.data.clone(), self.config.clone(), self.log.clone());
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// Returns its resident memory that no file backs.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        self.status("RssAnon:")
    }

    /// Returns its peak of resident memory.
    pub(crate) fn resident_bytes_peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn stream(&self) -> TcpStream {
        stream(self.address)
    }

    /// Returns the answer to a four-letter word.
    pub(crate) fn word(&self, word: &str) -> String {
        answer(self.address, word)
    }

    /// Returns one figure of mntr.
    pub(crate) fn figure(&self, key: &str) -> u64 {
        figure(self.address, key)
    }
}

fn stream(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns a server's answer to a four-letter word.
pub(crate) fn answer(server: SocketAddr, word: &str) -> String {
    let (mut stream, mut text) = (stream(server), String::new());
    stream.write_all(word.as_bytes()).unwrap();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Returns one figure of a server's mntr.
pub(crate) fn figure(server: SocketAddr, key: &str) -> u64 {
    let text = answer(server, "mntr");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("zk_{key}\t")));
    line.unwrap_or_else(|| panic!("no {key} in {text}")).parse().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns `COUNT` unused ports, each free for TCP and UDP.
///
/// Closed connections hold their ports for a minute; some tests leave thousands.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let both = || loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            return (tcp, udp);
        }
    };
    // All at once, so that the ports differ.
    let taken: [_; COUNT] = std::array::from_fn(|_| both());
    taken.map(|(tcp, _)| tcp.local_addr().unwrap().port())
}

/// The binary with these arguments.
pub(crate) fn zoolet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoolet"));
    // The environment of the tests must not choose what they talk to.
    command.args(arguments).env_remove("ZOOLET_SERVER").env_remove("ZOOLET_CONFIG");
    command
}

/// Runs the binary to its end, in the scratch directory.
pub(crate) fn run(scratch: &Scratch, arguments: &[&str]) -> Output {
    zoolet(arguments).current_dir(scratch.path()).output().unwrap()
}

/// Returns the exit code and the one line of a command that refuses.
pub(crate) fn refusal(scratch: &Scratch, arguments: &[&str]) -> (i32, String) {
    let output = run(scratch, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(output.stdout.is_empty(), "{:?}", output.stdout);
    (output.status.code().unwrap(), stderr.trim_end().to_owned())
}

/// A client that has requested a session.
pub(crate) struct Joining(TcpStream);

impl Joining {
    /// Waits for the session; `None` when the server closes instead of answering.
    pub(crate) fn join(self) -> Option<Client> {
        let Self(mut stream) = self;
        let mut buffer = BytesMut::new();
        let session = decode_connect_reply(read_frame(&mut stream, &mut buffer)?).unwrap();
        Some(Client { stream, buffer, session, next_xid: 1, events: Vec::new() })
    }
}

/// A blocking, strict client of the wire protocol.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: BytesMut,
    pub(crate) session: ConnectReply,
    next_xid: i32,
    pub(crate) events: Vec<WatchEvent>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &hello(SessionId(0), None, 10_000)).unwrap()
    }

    /// Resumes a session; `None` when the server closes instead of answering.
    pub(crate) fn reconnect(address: SocketAddr, session: &ConnectReply) -> Option<Self> {
        let password = Bytes::copy_from_slice(&session.secret.0);
        Self::connect_with(address, &hello(session.session, Some(password), session.timeout_ms))
    }

    pub(crate) fn connect_with(address: SocketAddr, request: &ConnectRequest) -> Option<Self> {
        Self::asking(address, request).join()
    }

    /// Requests a new session without waiting for it.
    pub(crate) fn ask_for_session(address: SocketAddr, timeout_ms: i32) -> Joining {
        Self::asking(address, &hello(SessionId(0), None, timeout_ms))
    }

    fn asking(address: SocketAddr, request: &ConnectRequest) -> Joining {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut out = BytesMut::new();
        encode_connect(request, &mut out);
        // A full server closes at once.
        let _ = stream.write_all(&out);
        Joining(stream)
    }

    /// Sends without waiting; returns the xid.
    pub(crate) fn send(&mut self, request: &Request) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        let mut out = BytesMut::new();
        encode_request(xid, request, &mut out);
        self.stream.write_all(&out).unwrap();
        xid
    }

    /// Sends a request with a raw body; returns the xid.
    pub(crate) fn send_raw(&mut self, opcode: i32, body: &[u8]) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        let length = i32::try_from(8 + body.len()).unwrap();
        let header = [length.to_be_bytes(), xid.to_be_bytes(), opcode.to_be_bytes()].concat();
        self.stream.write_all(&[&header, body].concat()).unwrap();
        xid
    }

    /// Returns the next message that is no watch event; `None` at the end. Watch events are kept.
    pub(crate) fn frame(&mut self) -> Option<Bytes> {
        loop {
            let frame = read_frame(&mut self.stream, &mut self.buffer)?;
            if frame[..4] == XID_EVENT.to_be_bytes() {
                self.events.push(decode_event(frame).unwrap());
                continue;
            }
            return Some(frame);
        }
    }

    /// Returns the header of the next reply; `None` at the end.
    pub(crate) fn header(&mut self) -> Option<Header> {
        Some(decode_header(&mut Reader::new(self.frame()?)).unwrap())
    }

    /// Returns the next reply, decoded as an answer to `request`; `None` at the end.
    pub(crate) fn receive(&mut self, request: &Request) -> Option<(Header, Result<Reply, ErrorCode>)> {
        Some(decode_reply(self.frame()?, Shape::of(request)).unwrap())
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, ErrorCode> {
        let xid = self.send(request);
        let (header, result) = self.receive(request).unwrap_or_else(|| panic!("closed instead of {request:?}"));
        assert_eq!(header.xid, xid);
        result
    }

    pub(crate) fn event(&mut self) -> WatchEvent {
        if self.events.is_empty() {
            let frame = read_frame(&mut self.stream, &mut self.buffer).unwrap();
            return decode_event(frame).unwrap();
        }
        self.events.remove(0)
    }

    pub(crate) fn create(&mut self, path: &str, data: &[u8]) -> Result<Reply, ErrorCode> {
        self.ask(&create(path, data, CreateKind::Persistent))
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Option<Bytes>, ErrorCode> {
        match self.ask(&get(path))? {
            Reply::Data(data, _) => Ok(data),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn exists(&mut self, path: &str) -> bool {
        self.ask(&Request::Exists { path: path.into(), watch: false }).is_ok()
    }

    pub(crate) fn children(&mut self, path: &str) -> Vec<Text> {
        match self.ask(&Request::GetChildren { path: path.into(), watch: false, with_stat: false }) {
            Ok(Reply::Names(names)) => names.iter().map(Text::from).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether the server closes without another message.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.frame().is_none()
    }
}

/// Asserts that charged bytes equal the growth of memory within a fifth.
pub(crate) fn assert_charged(what: &str, charged: u64, resident: u64) {
    println!("{what}: charged {} KiB, resident {} KiB", charged >> 10, resident >> 10);
    assert!(charged >= 1 << 20, "{what}: {charged} bytes are too few to be told from noise");
    let (low, high) = (charged - charged / 5, charged + charged / 5);
    assert!((low..=high).contains(&resident), "{what}: {charged} bytes are charged, {resident} are resident");
}

/// Opens `size` sessions, each on a separate connection.
///
/// They are requested in batches before the first reply, so that they share fdatasyncs.
pub(crate) fn crowd(server: &Server, size: usize, timeout_ms: i32) -> Vec<Client> {
    let mut clients = Vec::with_capacity(size);
    while clients.len() < size {
        // A batch is no larger than the listening socket's queue.
        let asking =
            (clients.len()..size.min(clients.len() + 100)).map(|_| Client::ask_for_session(server.address, timeout_ms));
        let asking: Vec<_> = asking.collect();
        clients.extend(asking.into_iter().map(|client| client.join().expect("a session")));
    }
    clients
}

/// Raises the limit of open files to its maximum; servers started later inherit it.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

pub(crate) fn hello(session: SessionId, password: Option<Bytes>, timeout_ms: i32) -> ConnectRequest {
    ConnectRequest { last_zxid_seen: 0, timeout_ms, session, password, read_only: Some(false) }
}

pub(crate) fn create(path: &str, data: &[u8], kind: CreateKind) -> Request {
    Request::Write(WriteOp::Create(Create {
        path: path.into(),
        data: Some(Bytes::copy_from_slice(data)),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind, sequential: false },
        with_stat: false,
    }))
}

pub(crate) fn set(path: &str, data: &[u8]) -> Request {
    Request::Write(WriteOp::SetData { path: path.into(), data: Some(Bytes::copy_from_slice(data)), version: -1 })
}

pub(crate) fn get(path: &str) -> Request {
    Request::GetData { path: path.into(), watch: false }
}

/// Returns whether the other side closes, after any output.
pub(crate) fn closes(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            // After a signal, the kernel does not restart a read with a timeout.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// Runs `hostile` while another client writes and reads, at least once more after it.
pub(crate) fn while_served(server: &Server, hostile: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut other = server.client();
            let mut number = 0;
            loop {
                let last = done.load(Ordering::Relaxed);
                let path = format!("/other-{number}");
                other.create(&path, b"x").unwrap();
                assert_eq!(other.get(&path).unwrap().unwrap(), "x");
                number += 1;
                if last {
                    return;
                }
            }
        });
        // The other thread must end even if `hostile` panics.
        let end = Done(&done);
        hostile();
        drop(end);
    });
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until `is_so` returns true.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads the next frame; `None` at the end of the stream.
fn read_frame(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<Bytes> {
    let mut bytes = [0; 64 << 10];
    loop {
        if let Some(frame) = split_frame(buffer, 64 << 20).unwrap() {
            return Some(frame);
        }
        match stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(count) => buffer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{error}"),
        }
    }
}
