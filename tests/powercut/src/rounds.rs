//! Rounds of load, an abrupt end, a restart and a check on the remaining data.

use crate::check::{Found, Observed, Violation, counted, fate_after, reconcile, together};
use crate::client::{self, Client};
use crate::digest;
use crate::load::{LoadShape, SHARED_ZNODES, SessionFate, Writer, create};
use crate::random::Random;
use crate::tree::SHARED;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use zoolet_model::{CreateKind, CreateMode, ErrorCode, Reply, Request};

/// Time limit of any answer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The writers of one server, over all its restarts.
pub struct Rounds {
    writers: Vec<Writer>,
    shape: LoadShape,
    /// Writes sent so far.
    pub sent: u64,
    /// Writes acknowledged so far.
    pub acknowledged: u64,
    /// Unacknowledged writes that the server held afterwards.
    pub survivors: u64,
    /// The zxids of all acknowledged writes.
    zxids: Vec<i64>,
    /// Versions that a reader saw.
    shown: Shown,
    /// Number of its reads.
    pub reads: u64,
}

/// Running writers and a running reader.
pub struct Working {
    writers: Vec<JoinHandle<(Writer, Result<(), String>)>>,
    reader: JoinHandle<Shown>,
    is_over: Arc<AtomicBool>,
}

impl Rounds {
    /// `count` writers that have done nothing.
    pub fn new(count: u64, shape: LoadShape, random: &mut Random) -> Self {
        let writers = (0..count).map(|number| Writer::new(number, random.fork(number))).collect();
        Self {
            writers,
            shape,
            sent: 0,
            acknowledged: 0,
            survivors: 0,
            zxids: Vec::new(),
            shown: Shown::default(),
            reads: 0,
        }
    }

    /// Counts the acknowledged writes whose zxid is missing in `among`.
    pub fn lost_zxids(&self, among: &BTreeSet<i64>) -> u64 {
        self.zxids.iter().filter(|zxid| !among.contains(zxid)).count() as u64
    }

    /// Creates the shared znodes; `Ok(false)` when the server goes away meanwhile.
    ///
    /// # Errors
    /// [`Violation::Answer`].
    pub fn prepare(address: SocketAddr) -> Result<bool, Violation> {
        let wrong = |what: String| Violation::Answer(what);
        let Some(mut client) = connect(address, None)? else { return Ok(false) };
        let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
        let paths = std::iter::once(SHARED.to_owned()).chain((0..SHARED_ZNODES).map(|n| format!("{SHARED}/s{n}")));
        for path in paths {
            let request = Request::Write(create(&path, Bytes::new(), mode));
            match client.ask(&request).map_err(|error| wrong(error.to_string()))? {
                Some((_, Ok(_) | Err(ErrorCode::NodeExists))) => {}
                Some((_, Err(error))) => return Err(wrong(format!("create {path}: {error:?}"))),
                None => return Ok(false),
            }
        }
        close(client)
    }

    /// Starts the writers, each until about `writes` writes.
    pub fn work(&mut self, address: SocketAddr, writes: usize) -> Working {
        let shape = self.shape;
        let start = |mut writer: Writer| {
            std::thread::spawn(move || {
                let outcome = writer.run(address, shape, writes, PATIENCE);
                (writer, outcome)
            })
        };
        let writers = self.writers.drain(..).map(start).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        // An error of the reader when the server ends is no finding.
        let reader = std::thread::spawn(move || {
            let mut shown = Shown::default();
            let _ = shown.watch(address, &until);
            shown
        });
        Working { writers, reader, is_over }
    }

    /// Waits until the writers are done or the server is gone.
    ///
    /// # Errors
    /// [`Violation::Answer`] for a wrong answer.
    pub fn gather(&mut self, working: Working) -> Result<(), Violation> {
        let mut wrong = None;
        for writer in working.writers {
            let Ok((writer, outcome)) = writer.join() else {
                return Err(Violation::Answer("a writer stopped".to_owned()));
            };
            wrong = wrong.or(outcome.err());
            self.writers.push(writer);
        }
        working.is_over.store(true, Relaxed);
        if let Ok(shown) = working.reader.join() {
            self.reads += shown.reads;
            self.shown.versions.extend(shown.versions);
        }
        match wrong {
            None => Ok(()),
            Some(what) => Err(Violation::Answer(what)),
        }
    }

    /// Compares the digest of a freshly started server with that of its files.
    ///
    /// No client may have written yet. `Ok(false)` when the server goes away meanwhile.
    ///
    /// # Errors
    /// [`Violation::Inconsistent`].
    pub fn check_digest(address: SocketAddr, expected: Option<u128>) -> Result<bool, Violation> {
        let Ok(mntr) = client::word(address, "mntr", PATIENCE) else { return Ok(false) };
        let shown = digest::shown(&mntr);
        match shown {
            None if mntr.is_empty() => Ok(false),
            Some(_) if shown == expected => Ok(true),
            _ => Err(Violation::Inconsistent(format!("the digest is {shown:x?}, that of the disk {expected:x?}"))),
        }
    }

    /// Checks the whole state of a restarted server.
    ///
    /// `Ok(false)` when the server goes away meanwhile; then nothing is proved.
    ///
    /// # Errors
    /// The violation found.
    pub fn check(&mut self, address: SocketAddr) -> Result<bool, Violation> {
        let answer = |error: std::io::Error| Violation::Answer(error.to_string());
        let Some(mut client) = connect(address, None)? else { return Ok(false) };
        let Some(observed) = Observed::read(&mut client).map_err(answer)? else { return Ok(false) };
        let mut found: Vec<Found> =
            self.writers.iter().map(|writer| reconcile(writer, &observed)).collect::<Result<_, _>>()?;
        together(&mut found, &self.writers, &observed)?;
        self.shown.is_there(&observed)?;
        let Ok(mntr) = client::word(address, "mntr", PATIENCE) else { return Ok(false) };
        if !mntr.is_empty() {
            counted(&mntr, &observed)?;
        }
        let mut fates = Vec::new();
        for writer in &self.writers {
            let is_known = match (writer.fate, writer.session) {
                (SessionFate::None, _) | (_, None) => false,
                (_, Some(session)) => connect(address, Some(session))?.is_some(),
            };
            fates.push((writer.fate, is_known));
        }
        // A refused session counts only if the server still answers afterwards.
        if !close(client)? {
            return Ok(false);
        }
        for ((writer, found), (_, is_known)) in self.writers.iter_mut().zip(found).zip(fates) {
            writer.fate = fate_after(writer, is_known)?;
            let acknowledged = writer.acknowledged();
            self.sent += writer.sent.len() as u64;
            self.acknowledged += acknowledged as u64;
            self.zxids.extend(writer.sent.iter().filter_map(|sent| sent.acknowledged));
            self.survivors += (found.there - acknowledged) as u64;
            writer.sent.clear();
            writer.tree = found.tree;
        }
        Ok(true)
    }
}

/// Versions of the shared znodes that a reader saw.
///
/// A value that was shown must never be lost, acknowledged or not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Shown {
    versions: BTreeMap<String, i32>,
    reads: u64,
}

impl Shown {
    /// Reads until the server is gone or `is_over` is set.
    fn watch(&mut self, address: SocketAddr, is_over: &AtomicBool) -> std::io::Result<()> {
        let Some(mut client) = Client::connect(address, None, PATIENCE)? else { return Ok(()) };
        while !is_over.load(Relaxed) {
            for number in 0..SHARED_ZNODES {
                let path = format!("{SHARED}/s{number}");
                let request = Request::GetData { path: path.as_str().into(), watch: false };
                match client.ask(&request)? {
                    Some((_, Ok(Reply::Data(_, stat)))) => {
                        self.reads += 1;
                        self.versions.insert(path, stat.version);
                    }
                    Some(_) => {}
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }

    fn is_there(&self, observed: &Observed) -> Result<(), Violation> {
        for (path, version) in &self.versions {
            let now = observed.znodes.get(path).map(|(_, stat)| stat.version);
            if now.is_none_or(|now| now < *version) {
                return Err(Violation::Shown(format!("{path} was read at version {version} and is at {now:?}")));
            }
        }
        Ok(())
    }
}

fn connect(address: SocketAddr, session: Option<zoolet_model::ConnectReply>) -> Result<Option<Client>, Violation> {
    match Client::connect(address, session.as_ref(), PATIENCE) {
        Ok(client) => Ok(client),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(Violation::Answer(format!("connecting: {error}"))),
    }
}

fn close(mut client: Client) -> Result<bool, Violation> {
    let answer = client.ask(&Request::CloseSession).map_err(|error| Violation::Answer(error.to_string()))?;
    Ok(answer.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::Stat;

    #[test]
    fn version_seen_by_a_reader_and_lost_is_detected() {
        let mut shown = Shown::default();
        let mut observed = Observed::default();
        assert_eq!(shown.is_there(&observed), Ok(()));
        shown.versions.insert("/shared/s0".into(), 4);
        assert!(matches!(shown.is_there(&observed), Err(Violation::Shown(_))));
        for (version, is_right) in [(3, false), (4, true), (5, true)] {
            let stat = Stat { version, ..Stat::default() };
            observed.znodes.insert("/shared/s0".into(), (Bytes::new(), stat));
            assert_eq!(shown.is_there(&observed).is_ok(), is_right);
        }
    }
}
