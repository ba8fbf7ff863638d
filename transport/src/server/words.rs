//! Four-letter words (surface 9.1): the first four bytes of a connection, answered with text.

use super::dump;
use super::monitor;
use super::port::{About, Port, QUESTION, ServerAddresses};
use super::record::Record;
use super::report;
use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::io;
use std::net::{IpAddr, SocketAddr};
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

/// The words this server answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum Word {
    Ruok,
    Srvr,
    Stat,
    Mntr,
    Isro,
    Envi,
    Conf,
    Cons,
    Dump,
    Wchs,
    Wchc,
    Wchp,
    Dirs,
    Crst,
    Srst,
    /// zoolet's addition: the server's status as JSON, for `zoolet status`.
    Zool,
}

impl Word {
    /// Every word.
    pub const ALL: [Self; 16] = [
        Self::Ruok,
        Self::Srvr,
        Self::Stat,
        Self::Mntr,
        Self::Isro,
        Self::Envi,
        Self::Conf,
        Self::Cons,
        Self::Dump,
        Self::Wchs,
        Self::Wchc,
        Self::Wchp,
        Self::Dirs,
        Self::Crst,
        Self::Srst,
        Self::Zool,
    ];

    /// Returns the word as sent by the client.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ruok => "ruok",
            Self::Srvr => "srvr",
            Self::Stat => "stat",
            Self::Mntr => "mntr",
            Self::Isro => "isro",
            Self::Envi => "envi",
            Self::Conf => "conf",
            Self::Cons => "cons",
            Self::Wchs => "wchs",
            Self::Dump => "dump",
            Self::Wchc => "wchc",
            Self::Wchp => "wchp",
            Self::Dirs => "dirs",
            Self::Crst => "crst",
            Self::Srst => "srst",
            Self::Zool => "zool",
        }
    }
}

/// The set of words that are answered (4lw.commands.whitelist).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whitelist(u16);

impl Whitelist {
    /// No word.
    pub const NONE: Self = Self(0);
    /// Every word: `*`.
    pub const ALL: Self = Self(u16::MAX);

    /// Parses ZooKeeper's notation: words separated by commas, or `*`.
    ///
    /// Unknown words allow nothing, as in ZooKeeper.
    pub fn parse(list: &str) -> Self {
        if list.trim() == "*" {
            return Self::ALL;
        }
        let named = |word: &Word| list.split(',').any(|name| name.trim() == word.text());
        Word::ALL.into_iter().filter(named).fold(Self::NONE, Self::with)
    }

    /// Returns this set with `word` added. A server with `readonlymode.enabled` also answers
    /// `isro`.
    #[must_use]
    pub const fn with(self, word: Word) -> Self {
        Self(self.0 | 1 << word as u16)
    }

    /// Whether `word` is answered.
    pub const fn allows(self, word: Word) -> bool {
        self.0 & 1 << word as u16 != 0
    }
}

impl Default for Whitelist {
    /// Returns ZooKeeper's default: `srvr` alone.
    fn default() -> Self {
        Self::NONE.with(Word::Srvr)
    }
}

/// A received four-letter word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// A word that this server knows.
    Known(Word),
    /// A word that only ZooKeeper answers.
    Foreign(&'static str),
    /// The bytes that telnet sends when it is closed.
    TelnetClose,
}

/// ZooKeeper's other words (surface 9.1).
const FOREIGN: [&str; 3] = ["gtmk", "hash", "stmk"];

impl Asked {
    /// Interprets the first four bytes of a connection; `None` when they are a length.
    pub(super) fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        if bytes == [0xff, 0xf4, 0xff, 0xfd] {
            return Some(Self::TelnetClose);
        }
        let known = Word::ALL.into_iter().find(|word| word.text().as_bytes() == bytes);
        let foreign = || FOREIGN.into_iter().find(|text| text.as_bytes() == bytes);
        known.map(Self::Known).or_else(|| foreign().map(Self::Foreign))
    }
}

/// Answers a word; the caller closes the socket.
pub(super) async fn answer(port: &Port, asked: Asked, peer: SocketAddr, write: &OwnedWriteHalf) {
    let own = write.local_addr().ok().map(|own| own.ip());
    let is_allowed = |word| is_allowed(word, port.settings.four_letter_words, peer.ip(), own);
    let text = match asked {
        Asked::TelnetClose => return,
        Asked::Known(word) if is_allowed(word) => match word {
            Word::Dump => return dump::answer(port, write).await,
            Word::Wchc => return watches(port, ListedBy::Connection, write).await,
            Word::Wchp => return watches(port, ListedBy::Path, write).await,
            word => text(port, word).await,
        },
        Asked::Known(word) => refused(word.text()),
        Asked::Foreign(text) => refused(text),
    };
    send(port, write, &text).await;
}

/// Whether `word` is answered to `asker`.
///
/// A client on this host may always ask for the status (`zool`). `own` is the local address that it
/// connected to.
fn is_allowed(word: Word, list: Whitelist, asker: IpAddr, own: Option<IpAddr>) -> bool {
    list.allows(word) || (word == Word::Zool && is_here(asker, own))
}

/// Whether `client` is on this host: it comes from loopback or from `own`, the address it connected
/// to.
pub(super) fn is_here(client: IpAddr, own: Option<IpAddr>) -> bool {
    client.to_canonical().is_loopback() || own == Some(client)
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

fn refused(word: &str) -> String {
    format!("{word} is not executed because it is not in the whitelist.\n")
}

pub(super) const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

async fn text(port: &Port, word: Word) -> String {
    match word {
        // These two answer for the process, whether or not the server serves.
        Word::Ruok => return "imok".into(),
        Word::Envi => return envi(&port.settings.about),
        // The report is needed most when the server does not serve.
        Word::Zool => return report::report(port).await,
        Word::Srvr
        | Word::Stat
        | Word::Mntr
        | Word::Isro
        | Word::Conf
        | Word::Cons
        | Word::Dump
        | Word::Wchs
        | Word::Wchc
        | Word::Wchp
        | Word::Dirs
        | Word::Crst
        | Word::Srst => {}
    }
    let Some(status) = serving(port).await else {
        return if word == Word::Isro { "null".into() } else { NOT_SERVING.into() };
    };
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = match word {
        Word::Srvr => srvr(&mut out, port, &status),
        Word::Stat => stat(&mut out, port, &status),
        Word::Mntr => monitor::mntr(&mut out, port, &status),
        Word::Isro => out.write_str("rw"),
        Word::Conf => conf(&mut out, &port.settings.about, &status),
        Word::Cons => cons(&mut out, port),
        Word::Wchs => return wchs(port).await.unwrap_or_else(|| NOT_SERVING.into()),
        Word::Dirs => return dirs(&port.settings.about).await.unwrap_or_else(|| NOT_SERVING.into()),
        Word::Crst => {
            port.connections().iter().for_each(|connection| connection.reset_record());
            writeln!(out, "Connection stats reset.")
        }
        Word::Srst => {
            port.traffic.reset();
            writeln!(out, "Server stats reset.")
        }
        Word::Ruok | Word::Envi | Word::Zool | Word::Dump | Word::Wchc | Word::Wchp => Ok(()),
    };
    out
}

/// Returns the engine's status if the server serves.
pub(super) async fn serving(port: &Port) -> Option<Box<Status>> {
    port.ask().await.filter(|status| !status.role.is_empty())
}

/// Returns the version text.
///
/// Clients such as kazoo read the numbers before the first `-` as the release whose behaviour to
/// expect.
pub(super) fn version(about: &About) -> String {
    let built_on = if about.built_on.is_empty() { "unknown" } else { &about.built_on };
    format!("3.9.5-zoolet-{}, built on {built_on}", about.version)
}

fn srvr(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    writeln!(out, "Zookeeper version: {}", version(&port.settings.about))?;
    totals(out, port, status)
}

fn stat(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    writeln!(out, "Zookeeper version: {}", version(&port.settings.about))?;
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
    writeln!(out, "Mode: {}", status.role)?;
    writeln!(out, "Node count: {}", znode_count(status))?;
    if status.role == "leader" {
        let sizes = status.proposals.0.map_or("-1/-1/-1".to_owned(), |[last, min, max]| format!("{last}/{min}/{max}"));
        writeln!(out, "Proposal sizes last/min/max: {sizes}")?;
    }
    Ok(())
}

/// ZooKeeper counts the root twice (surface 9.3).
pub(super) fn znode_count(status: &Status) -> u64 {
    status.znodes + 1
}

fn cons(out: &mut String, port: &Port) -> fmt::Result {
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

/// Counts watches by paging through the list.
///
/// Watches on children are not listed, as in ZooKeeper. Several watches of one connection on a path
/// count once. Returns `None` when the engine did not answer for a page: a partial count would be
/// wrong.
async fn wchs(port: &Port) -> Option<String> {
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

/// Writes the configuration. As in ZooKeeper, the membership ends without a line feed.
fn conf(out: &mut String, about: &About, status: &Status) -> fmt::Result {
    about.conf.iter().try_for_each(|(key, value)| writeln!(out, "{key}={value}"))?;
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

/// Returns the bytes of the data directory; `None` when the disk did not answer in time.
///
/// Another thread reads the directory, so that a hanging disk does not stop the sockets.
async fn dirs(about: &About) -> Option<String> {
    let directory = about.conf.iter().find(|(key, _)| key == "dataDir").map(|(_, directory)| PathBuf::from(directory));
    let sizes = spawn_blocking(move || directory.map_or((0, 0), |directory| sizes(&directory)));
    let (base, log) = timeout(QUESTION, sizes).await.ok()?.ok()?;
    Some(format!("datadir_size: {base}\nlogdir_size: {log}\n"))
}

/// Returns the bytes of the base and of the log's segments.
///
/// The base stands for ZooKeeper's snapshots. The reserve file counts as neither.
fn sizes(directory: &Path) -> (u64, u64) {
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
/// Tools look for the Java keys, so these are present and say that this is not a Java server.
fn envi(about: &About) -> String {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let first_line = |file: &str| std::fs::read_to_string(file).unwrap_or_default().trim().to_owned();
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
        ("os.name", std::env::consts::OS.into()),
        ("os.arch", std::env::consts::ARCH.into()),
        ("os.version", first_line("/proc/sys/kernel/osrelease")),
        ("user.name", variable("USER")),
        ("user.home", variable("HOME")),
        ("user.dir", directory),
    ] {
        let _ = writeln!(out, "{key}={value}");
    }
    out
}

/// A mean in milliseconds as Java prints it: one to four decimals.
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
    fn a_whitelist_names_what_it_allows() {
        let list = Whitelist::parse(" stat, ruok,wchp ,nonsense");
        let allowed: Vec<_> = Word::ALL.into_iter().filter(|word| list.allows(*word)).collect();
        assert_eq!(allowed, [Word::Ruok, Word::Stat, Word::Wchp]);
        assert!(Word::ALL.into_iter().all(|word| Whitelist::parse("*").allows(word)));
        let default: Vec<_> = Word::ALL.into_iter().filter(|word| Whitelist::default().allows(*word)).collect();
        assert_eq!(default, [Word::Srvr]);
        assert!(Whitelist::default().with(Word::Isro).allows(Word::Isro));
    }

    #[test]
    fn how_the_server_is_is_told_on_its_own_machine_and_elsewhere_if_the_list_says_so() {
        let [here, mapped, there, own] =
            ["127.0.0.1", "::ffff:127.0.0.1", "10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let list = Whitelist::parse("srvr");
        let is_told = |asker| is_allowed(Word::Zool, list, asker, Some(own));
        // A server that listens on 10.0.0.2 alone is asked there, from that same host.
        assert!(is_told(here) && is_told(mapped) && is_told(own) && !is_told(there));
        assert!(!is_allowed(Word::Zool, list, there, None));
        assert!(is_allowed(Word::Zool, list.with(Word::Zool), there, Some(own)));
        assert!(!is_allowed(Word::Mntr, list, here, Some(here)));
    }

    #[test]
    fn words_are_told_from_lengths() {
        assert_eq!(Asked::from_bytes(*b"ruok"), Some(Asked::Known(Word::Ruok)));
        assert_eq!(Asked::from_bytes(*b"hash"), Some(Asked::Foreign("hash")));
        assert_eq!(Asked::from_bytes([0xff, 0xf4, 0xff, 0xfd]), Some(Asked::TelnetClose));
        assert_eq!(Asked::from_bytes([0, 0, 0, 45]), None);
        assert_eq!(Asked::from_bytes(*b"RUOK"), None);
    }

    #[test]
    fn averages_have_up_to_four_decimals() {
        for (sum_us, count, text) in [(0, 0, "0.0"), (12_961, 10, "1.2961"), (3000, 2, "1.5"), (1, 3, "0.0003")] {
            assert_eq!(Average::of_us(sum_us, count).to_string(), text);
        }
    }
}
