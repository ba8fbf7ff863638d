//! Four-letter words (surface 9.1): the first four bytes of a connection, answered with text.

mod registry;

#[cfg(test)]
pub(super) use registry::FOREIGN;
pub use registry::{Access, Whitelist, Word};
pub(super) use registry::{Asked, is_here};

use super::connection_figures::Record;
use super::dump;
use super::listener::{About, Port, QUESTION, ServerAddresses};
use super::metrics::znode_count;
use super::monitor;
use super::zool;
use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use zoolet_machine::Status;
use zoolet_machine::budget::Part;
use zoolet_machine::seam::event::List;
use zoolet_machine::watch::{ListedBy, Mark, ROWS_MAX};
use zoolet_model::{ServerId, SessionId, Text};
use zoolet_zab::Kind;

/// Answers a word; the caller closes the socket.
pub(super) async fn answer(port: &Port, asked: Asked, peer: SocketAddr, write: &OwnedWriteHalf) {
    let own = write.local_addr().ok().map(|own| own.ip());
    match asked {
        Asked::TelnetClose => {}
        Asked::Known(word) if word.is_allowed(port.settings.four_letter_words, peer.ip(), own) => {
            answer_allowed(port, word, write).await;
        }
        Asked::Known(word) => refuse(port, write, word.text()).await,
        Asked::Foreign(text) => refuse(port, write, text).await,
    }
}

async fn refuse(port: &Port, write: &OwnedWriteHalf, word: &str) {
    send(port, write, &format!("{word} is not executed because it is not in the whitelist.\n")).await;
}

async fn answer_allowed(port: &Port, word: Word, write: &OwnedWriteHalf) {
    let text = match word {
        // These answers are sent in pieces.
        Word::Dump => return dump::answer(port, write).await,
        Word::Wchc => return watches(port, ListedBy::Connection, write).await,
        Word::Wchp => return watches(port, ListedBy::Path, write).await,
        // These two answer for the process, whether or not the server serves.
        Word::Ruok => "imok".to_owned(),
        Word::Envi => envi(&port.settings.about),
        // The report is needed most when the server does not serve.
        Word::Zool => zool::report(port).await,
        Word::Isro => isro(serving(port).await.as_deref()).to_owned(),
        Word::Srvr => when_serving(port, srvr).await,
        Word::Stat => when_serving(port, stat).await,
        Word::Mntr => when_serving(port, monitor::mntr).await,
        Word::Conf => or_not_serving(conf(port).await),
        Word::Cons => when_serving(port, cons).await,
        Word::Crst => when_serving(port, reset_connections).await,
        Word::Srst => when_serving(port, reset_traffic).await,
        Word::Wchs => or_not_serving(wchs(port).await),
        Word::Dirs => or_not_serving(dirs(port).await),
    };
    send(port, write, &text).await;
}

/// Returns what `tell` writes, if the server serves.
async fn when_serving(port: &Port, tell: fn(&mut String, &Port, &Status) -> fmt::Result) -> String {
    or_not_serving(serving(port).await.map(|status| {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = tell(&mut out, port, &status);
        out
    }))
}

pub(super) const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

fn or_not_serving(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOT_SERVING.to_owned())
}

/// Sends `text`; returns whether all of it was sent.
pub(super) async fn send(port: &Port, write: &OwnedWriteHalf, text: &str) -> bool {
    timeout(port.linger(), write_all(write, text.as_bytes())).await.is_ok_and(|written| written.is_ok())
}

/// Sends the list of watches page by page.
///
/// A million watches are hundreds of megabytes of text. The next page is requested when the client
/// has taken the last one.
async fn watches(port: &Port, by: ListedBy, write: &OwnedWriteHalf) {
    if serving(port).await.is_none() {
        send(port, write, NOT_SERVING).await;
        return;
    }
    let (mut from, mut last) = (Some(Mark::default()), None);
    while let Some(mark) = from {
        let Some(page) = port.ask_for(page(by, mark)).await else { return };
        let mut out = String::new();
        for (session, path) in page.listed {
            // Writing to a String cannot fail.
            let _ = match by {
                ListedBy::Connection => grouped(&mut out, &mut last, Group::Session(session), &path),
                ListedBy::Path => grouped(&mut out, &mut last, Group::Path(path), &Group::Session(session)),
            };
        }
        if !send(port, write, &out).await {
            return;
        }
        from = page.next;
    }
    send(port, write, "\n").await;
}

fn page(by: ListedBy, from: Mark) -> List {
    List::Watches { by, from, rows_max: ROWS_MAX }
}

/// The heading that consecutive lines share.
#[derive(PartialEq, Eq)]
enum Group {
    Session(SessionId),
    Path(Text),
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(f, "0x{:x}", session.0),
            Self::Path(path) => f.write_str(path),
        }
    }
}

fn grouped(out: &mut String, last: &mut Option<Group>, group: Group, line: &impl fmt::Display) -> fmt::Result {
    if last.as_ref() != Some(&group) {
        writeln!(out, "{group}")?;
        *last = Some(group);
    }
    writeln!(out, "\t{line}")
}

async fn write_all(write: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        write.writable().await?;
        match write.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the engine's status if the server serves.
pub(super) async fn serving(port: &Port) -> Option<Box<Status>> {
    port.ask().await.filter(|status| !status.role.is_empty() || status.read_only_ms.is_some())
}

/// Returns the version text.
///
/// Clients such as kazoo read the numbers before the first `-` as the release whose behaviour to
/// expect.
pub(super) fn version(about: &About) -> String {
    let built_on = if about.built_on.is_empty() { "unknown" } else { &about.built_on };
    format!("3.9.5-zoolet-{}, built on {built_on}", about.version)
}

fn isro(status: Option<&Status>) -> &'static str {
    match status {
        Some(status) if status.read_only_ms.is_some() => "ro",
        Some(_) => "rw",
        None => "null",
    }
}

fn head(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    writeln!(out, "Zookeeper version: {}", version(&port.settings.about))?;
    if status.read_only_ms.is_some() {
        writeln!(out, "READ-ONLY mode; serving only read-only clients")?;
    }
    Ok(())
}

fn srvr(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    head(out, port, status)?;
    totals(out, port, status)
}

fn stat(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    head(out, port, status)?;
    writeln!(out, "Clients:")?;
    for connection in port.connections() {
        brief(out, connection.peer, &connection.record())?;
        writeln!(out, ")")?;
    }
    writeln!(out)?;
    totals(out, port, status)
}

fn totals(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    let traffic = port.traffic.read();
    let average = Average::of_us(traffic.latency_us_sum, traffic.answered);
    let (min, max) = (traffic.latency_us_min / 1000, traffic.latency_us_max / 1000);
    writeln!(out, "Latency min/avg/max: {min}/{average}/{max}")?;
    writeln!(out, "Received: {}", traffic.received)?;
    writeln!(out, "Sent: {}", traffic.sent)?;
    writeln!(out, "Connections: {}", port.budget.current(Part::Connections))?;
    writeln!(out, "Outstanding: {}", traffic.outstanding)?;
    writeln!(out, "Zxid: {}", status.zxid)?;
    writeln!(out, "Mode: {}", super::metrics::server_state(status))?;
    if let Some(age_ms) = status.read_only_ms {
        writeln!(out, "State age: {age_ms} ms")?;
    }
    writeln!(out, "Node count: {}", znode_count(status))?;
    if status.role == "leader" {
        let sizes = status.proposals.0.map_or("-1/-1/-1".to_owned(), |[last, min, max]| format!("{last}/{min}/{max}"));
        writeln!(out, "Proposal sizes last/min/max: {sizes}")?;
    }
    Ok(())
}

fn cons(out: &mut String, port: &Port, _: &Status) -> fmt::Result {
    for connection in port.connections() {
        let record = connection.record();
        brief(out, connection.peer, &record)?;
        if record.session != SessionId(0) {
            write!(out, ",sid=0x{:x},lop={}", record.session.0, record.last_operation)?;
            write!(out, ",est={},to={}", record.established_ms, record.timeout_ms)?;
            if record.last_xid >= 0 {
                write!(out, ",lcxid=0x{:x}", record.last_xid)?;
            }
            write!(out, ",lzxid=0x{:x},lresp={}", record.last_zxid, record.last_response_us / 1000)?;
            let average = record.latency_us_sum.checked_div(record.answered).unwrap_or(0);
            write!(out, ",llat={},minlat={}", record.latency_us_last / 1000, record.latency_us_min / 1000)?;
            write!(out, ",avglat={},maxlat={}", average / 1000, record.latency_us_max / 1000)?;
        }
        writeln!(out, ")")?;
    }
    writeln!(out)
}

/// Writes one connection, up to its closing parenthesis.
///
/// The number in brackets is 1 while the server reads the connection, otherwise 0.
fn brief(out: &mut String, peer: SocketAddr, record: &Record) -> fmt::Result {
    let interest = u8::from(!record.paused);
    let Record { queued, received, sent, .. } = record;
    write!(out, " /{peer}[{interest}](queued={queued},recved={received},sent={sent}")
}

fn reset_connections(out: &mut String, port: &Port, _: &Status) -> fmt::Result {
    port.connections().iter().for_each(|connection| connection.reset_record());
    writeln!(out, "Connection stats reset.")
}

fn reset_traffic(out: &mut String, port: &Port, _: &Status) -> fmt::Result {
    port.traffic.reset();
    writeln!(out, "Server stats reset.")
}

/// Counts watches by paging through the list.
///
/// Watches on children are not listed, as in ZooKeeper. Several watches of one connection on a path
/// count once. Returns `None` when the server does not serve, or the engine did not answer for a
/// page: a partial count would be wrong.
async fn wchs(port: &Port) -> Option<String> {
    serving(port).await?;
    let (mut watches, mut paths, mut sessions, mut last) = (0_u64, 0_u64, HashSet::new(), Text::EMPTY);
    let mut from = Some(Mark::default());
    while let Some(mark) = from {
        let page = port.ask_for(page(ListedBy::Path, mark)).await?;
        for (session, path) in page.listed {
            watches += 1;
            sessions.insert(session);
            if path != last || watches == 1 {
                paths += 1;
                last = path;
            }
        }
        from = page.next;
    }
    Some(format!("{} connections watching {paths} paths\nTotal watches:{watches}\n", sessions.len()))
}

/// Returns the configuration; `None` when the server does not serve.
///
/// A disk that hangs leaves out the sizes of the directories, and nothing else.
async fn conf(port: &Port) -> Option<String> {
    let status = serving(port).await?;
    let sizes = sizes(port).await;
    let mut out = String::new();
    for (key, value) in &port.settings.about.conf {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{key}={value}");
        let _ = match (key.as_str(), sizes) {
            ("dataDir", Some((base, _))) => writeln!(out, "dataDirSize={base}"),
            ("dataLogDir", Some((_, log))) => writeln!(out, "dataLogSize={log}"),
            _ => Ok(()),
        };
    }
    let _ = members(&mut out, port, &status);
    Some(out)
}

/// Writes the membership. As in ZooKeeper, it ends without a line feed.
fn members(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    let about = &port.settings.about;
    if about.servers.is_empty() {
        return Ok(());
    }
    // A server that is not a member is an observer, even if its configuration file says otherwise.
    let votes = status.members.iter().any(|&(id, kind)| status.id == Some(id) && kind == Kind::Voter);
    writeln!(out, "peerType={}", u8::from(!votes))?;
    writeln!(out, "membership: ")?;
    let place = |id: ServerId| about.servers.iter().find(|server| server.id == id.as_u8());
    // Clients connect to the addresses listed here, so all members show a client address or none
    // does.
    let shows_clients = status.members.iter().all(|(id, _)| place(*id).is_some_and(|server| server.client.is_some()));
    for &(id, kind) in &status.members {
        member(out, id, kind, place(id), shows_clients)?;
    }
    write!(out, "version={:x}", status.members_since.to_bits())
}

/// Writes a member's line. A member that the configuration file does not name has no address.
fn member(out: &mut String, id: ServerId, kind: Kind, at: Option<&ServerAddresses>, shows_client: bool) -> fmt::Result {
    let role = match kind {
        Kind::Voter => "participant",
        Kind::Observer => "observer",
    };
    let addresses = at.map(|at| at.addresses.join(&format!(":{role}|"))).unwrap_or_default();
    write!(out, "server.{}={addresses}:{role}", id.as_u8())?;
    match at.and_then(|at| at.client.as_ref()).filter(|_| shows_client) {
        Some(client) => writeln!(out, ";{client}"),
        None => writeln!(out),
    }
}

/// Returns the bytes of the data directory.
///
/// Returns `None` when the server does not serve, or the disk did not answer in time.
async fn dirs(port: &Port) -> Option<String> {
    serving(port).await?;
    let (base, log) = sizes(port).await?;
    Some(format!("datadir_size: {base}\nlogdir_size: {log}\n"))
}

/// Returns the bytes of the base and of the log; `None` when the disk did not answer in time.
///
/// Another thread reads the directory, so that a hanging disk does not stop the sockets.
async fn sizes(port: &Port) -> Option<(u64, u64)> {
    let directory = port
        .settings
        .about
        .conf
        .iter()
        .find(|(key, _)| key == "dataDir")
        .map(|(_, directory)| PathBuf::from(directory));
    let sizes = spawn_blocking(move || directory.map_or((0, 0), |directory| sizes_of(&directory)));
    timeout(QUESTION, sizes).await.ok()?.ok()
}

/// Returns the bytes of the base and of the log's segments.
///
/// The base stands for ZooKeeper's snapshots. The reserve file counts as neither.
fn sizes_of(directory: &Path) -> (u64, u64) {
    let (mut base, mut log) = (0, 0);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        match entry.file_name().to_string_lossy() {
            name if name.ends_with(".log") => log += bytes,
            name if name == "reserve" => {}
            _ => base += bytes,
        }
    }
    (base, log)
}

/// Answers `envi` with ZooKeeper's keys.
///
/// Tools look for the Java keys, so these are present and say that this is not a Java server. The
/// memory of a Java heap becomes that of the machine, and the memory of this process.
fn envi(about: &About) -> String {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let whole = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let first_line = |file: &str| whole(file).trim().to_owned();
    let mebibytes = |file: &str, key: &str| format!("{}MB", kibibytes(&whole(file), key) >> 10);
    let directory = std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default();
    let mut out = String::from("Environment:\n");
    let none = "none (not a Java server)";
    for (key, value) in [
        ("zookeeper.version", version(about)),
        ("host.name", first_line("/proc/sys/kernel/hostname")),
        ("java.version", none.into()),
        ("java.vendor", none.into()),
        ("java.home", String::new()),
        ("java.class.path", String::new()),
        ("java.library.path", String::new()),
        ("java.io.tmpdir", std::env::temp_dir().display().to_string()),
        ("java.compiler", String::new()),
        ("os.name", first_line("/proc/sys/kernel/ostype")),
        ("os.arch", std::env::consts::ARCH.into()),
        ("os.version", first_line("/proc/sys/kernel/osrelease")),
        ("user.name", variable("USER")),
        ("user.home", variable("HOME")),
        ("user.dir", directory),
        ("os.memory.free", mebibytes("/proc/meminfo", "MemAvailable:")),
        ("os.memory.max", mebibytes("/proc/meminfo", "MemTotal:")),
        ("os.memory.total", mebibytes("/proc/self/status", "VmRSS:")),
    ] {
        let _ = writeln!(out, "{key}={value}");
    }
    out
}

/// Returns the number of the line of `key`; 0 without such a line.
fn kibibytes(text: &str, key: &str) -> u64 {
    let number = |line: &str| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok();
    text.lines().find_map(number).unwrap_or(0)
}

/// A mean in milliseconds as Java prints it: one to four decimals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Average {
    ten_thousandths: u64,
}

impl Average {
    pub(super) fn of_us(sum_us: u64, count: u64) -> Self {
        Self { ten_thousandths: (sum_us.saturating_mul(10)).checked_div(count).unwrap_or(0) }
    }
}

impl fmt::Display for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.ten_thousandths / 10_000, self.ten_thousandths % 10_000);
        let digits = format!("{fraction:04}");
        let digits = digits.trim_end_matches('0');
        write!(f, "{whole}.{}", if digits.is_empty() { "0" } else { digits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kibibytes_are_those_of_the_named_line() {
        let text = "MemTotal:        2041000 kB\nMemAvailable:     512 kB\n";
        assert_eq!(kibibytes(text, "MemAvailable:"), 512);
        assert_eq!(kibibytes(text, "MemFree:"), 0);
    }

    #[test]
    fn averages_have_up_to_four_decimals() {
        for (sum_us, count, text) in [(0, 0, "0.0"), (12_961, 10, "1.2961"), (3000, 2, "1.5"), (1, 3, "0.0003")] {
            assert_eq!(Average::of_us(sum_us, count).to_string(), text);
        }
    }
}
