//! One whole server with the real log and base, on a virtual disk.
//!
//! Every action is carried out at once, and the process may die at any step of the disk.

use crate::disk::SimDisk;
use std::collections::BTreeMap;
use std::sync::Arc;
use zoolet_machine::record::key::Key;
use zoolet_machine::seam::action::{Append, Fetch, FetchWhat, Generation};
use zoolet_machine::seam::event::{BaseFailure, Fetched};
use zoolet_machine::{Action, ConnId, Event, Limits, Now, Server, Settings, Start, Status};
use zoolet_model::{ConnectReply, ErrorCode, Reply, ServerId};
use zoolet_store::base::{Base, BaseReader};
use zoolet_store::log::{AppendError, Log};
use zoolet_store::{Reserve, Store, Strategy, capped};
use zoolet_zab::{Config, Timing};

/// A message to a connection.
#[derive(Clone, Debug)]
pub enum Told {
    /// The answer to its connect request.
    Connected(ConnId, ConnectReply),
    /// The answer to a request: xid, zxid, and body or error.
    Reply(ConnId, i32, i64, Result<Reply, ErrorCode>),
    /// The connection was closed.
    Closed(ConnId),
}

/// The server stopped: its process died, or it gave up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stopped(pub String);

/// One server over log and base.
pub struct Machine {
    /// The machine itself.
    pub server: Server,
    /// Messages to clients since they were last taken.
    pub told: Vec<Told>,
    /// The last answer to [`Event::Status`].
    pub status: Option<Box<Status>>,
    /// Keys that the base cannot read now, and prefixes that it cannot list.
    pub unreadable: Vec<Key>,
    /// Failures of the next reads of the base, in reverse order.
    pub failing: Vec<BaseFailure>,
    log: Log,
    base: Base,
    reserve: Reserve,
    readers: BTreeMap<Generation, BaseReader>,
    /// Appends that are not durable yet.
    waiting: Vec<Append>,
    stalled: bool,
    now: Now,
}

/// `spare_cache_bytes` of which the default bound of connections leaves 1 MiB.
pub const SPARE_CACHE_BYTES: u32 = 33 << 20;

/// Returns very small bounds. A few writes rotate the log, freeze the memtable and overflow the
/// cache.
pub fn tiny_limits() -> Limits {
    Limits {
        memtable_bytes: 6 << 10,
        record_cache_bytes: 2 << 10,
        base_cache_bytes: 64 << 10,
        log_segment_bytes: 16 << 10,
        log_segments: 8,
        disk_reserve_bytes: 256 << 10,
        ..Limits::default()
    }
}

impl Machine {
    /// Opens the disk, passes the log's entries to the server and starts it.
    ///
    /// # Errors
    /// [`Stopped`] if the disk dies before, or if the server refuses the disk's contents.
    pub fn start(disk: &SimDisk, limits: Limits, now: Now) -> Result<Self, Stopped> {
        let stopped = |error: &dyn std::fmt::Display| Stopped(error.to_string());
        let disk = capped(Arc::new(disk.clone()), limits.disk_bytes_max);
        let store = Store::open(disk, Strategy::Recycle, &limits, 1).map_err(|e| stopped(&e))?;
        let start = Start {
            limits,
            settings: Settings::default(),
            id: ServerId::STANDALONE,
            members: Config::standalone(ServerId::STANDALONE),
            timing: Timing::default(),
            recovered: store.recovered.clone(),
            base: store.state.clone(),
            chain_at_base: store.chain_at_base,
            seed: [7; 32],
            log_bytes_used: store.log.used_bytes(),
        };
        let mut entries = Vec::new();
        store
            .replay(|event| {
                entries.push(event);
                Ok::<(), Stopped>(())
            })
            .map_err(|error| Stopped(format!("{error:?}")))?;
        let Store { log, base, reserve, .. } = store;
        let reader = base.reader();
        let mut machine = Self {
            server: Server::new(start, now),
            told: Vec::new(),
            status: None,
            unreadable: Vec::new(),
            failing: Vec::new(),
            log,
            base,
            reserve,
            readers: BTreeMap::from([(reader.generation(), reader)]),
            waiting: Vec::new(),
            stalled: false,
            now,
        };
        for event in entries {
            machine.handle(event)?;
        }
        machine.server.start(now);
        machine.settle()?;
        Ok(machine)
    }

    /// Lets time pass and persists all waiting appends.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn advance(&mut self, ms: u64) -> Result<(), Stopped> {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms as i64;
        self.server.handle_deadline(self.now);
        if self.reserve.is_short() {
            self.merge()?;
        } else {
            self.recheck_space();
        }
        self.settle()
    }

    /// Handles one event. Its appends wait until [`Machine::settle`].
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn handle(&mut self, event: Event) -> Result<(), Stopped> {
        self.server.handle(self.now, event);
        self.carry_out()
    }

    /// Persists all waiting appends as one batch, and goes on until nothing is left to do.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn settle(&mut self) -> Result<(), Stopped> {
        self.carry_out()?;
        while !self.waiting.is_empty() {
            match self.log.append(&self.waiting) {
                Ok(_) => {
                    self.waiting.clear();
                    if std::mem::take(&mut self.stalled) {
                        self.handle(Event::LogResumed)?;
                    }
                    self.tell_persisted()?;
                }
                Err(AppendError::Stalled(error)) => {
                    if let Some(shortage) = self.reserve.make_way(&error) {
                        self.handle(Event::Space { shortage: Some(shortage) })?;
                        continue;
                    }
                    if !std::mem::replace(&mut self.stalled, true) {
                        self.handle(Event::LogStalled { is_read_only: false })?;
                    }
                    return Ok(());
                }
                Err(error @ AppendError::Fatal(_)) => {
                    return Err(Stopped(error.to_string()));
                }
            }
        }
        Ok(())
    }

    /// Returns the base, for tests.
    pub fn base(&self) -> &Base {
        &self.base
    }

    fn tell_persisted(&mut self) -> Result<(), Stopped> {
        let (seq, log_bytes_used) = (self.log.appended(), self.log.used_bytes());
        let checkpoint = self.log.checkpoint();
        self.handle(Event::Persisted { seq, log_bytes_used, checkpoint })
    }

    fn carry_out(&mut self) -> Result<(), Stopped> {
        while let Some(action) = self.server.poll_action() {
            match action {
                Action::Append(append) => self.waiting.push(append),
                Action::Fetch(fetch) => {
                    let event = Event::Fetched { id: fetch.id, result: self.read(&fetch) };
                    self.server.handle(self.now, event);
                }
                Action::Checkpoint(checkpoint) => {
                    let written = self.reserve.checkpoint(&self.base, &checkpoint);
                    self.recheck_space();
                    let event = match written {
                        Ok(()) => {
                            let reader = self.base.reader();
                            let generation = reader.generation();
                            self.readers.insert(generation, reader);
                            self.log.recycle(checkpoint.meta.zxid);
                            Event::Checkpointed { generation }
                        }
                        Err(error) => Event::CheckpointFailed { reason: error.to_string() },
                    };
                    let durable = matches!(event, Event::Checkpointed { .. });
                    self.server.handle(self.now, event);
                    if durable {
                        self.tell_persisted()?;
                    }
                }
                Action::ReleaseGenerations { below, .. } => {
                    self.readers = self.readers.split_off(&below);
                    self.merge()?;
                }
                Action::Connected { conn, reply } => self.told.push(Told::Connected(conn, reply)),
                Action::Reply { conn, xid, zxid, result } => self.told.push(Told::Reply(conn, xid, zxid, result)),
                Action::Complete(completion) => {
                    let reader =
                        self.readers.get(&completion.generation).ok_or_else(|| released(completion.generation))?;
                    let (result, _) = completion.run(reader);
                    self.told.push(Told::Reply(completion.conn, completion.xid, completion.zxid, result));
                    self.server.handle(self.now, Event::Completed { bytes: completion.bytes });
                }
                Action::Close { conn } => {
                    self.told.push(Told::Closed(conn));
                    self.server.handle(self.now, Event::Disconnected { conn });
                }
                Action::Status { status, .. } => self.status = Some(status),
                Action::Notify { .. } => {}
                Action::Fail(reason) => return Err(Stopped(reason)),
                peers @ (Action::PeerSend { .. }
                | Action::PeerClose { .. }
                | Action::ReadLog(_)
                | Action::HoldLog { .. }
                | Action::SendSnapshot { .. }
                | Action::ReceiveSnapshot { .. }
                | Action::DropSnapshot { .. }
                | Action::InstallSnapshot { .. }) => return Err(Stopped(format!("one voter has no peers: {peers:?}"))),
            }
        }
        Ok(())
    }

    /// Merges files as the checkpoint thread does between two checkpoints. It merges more often, so
    /// that merges of a few files occur too.
    fn merge(&mut self) -> Result<(), Stopped> {
        let eagerly = self.base.generation().0.is_multiple_of(3);
        loop {
            let more = if eagerly { self.base.merge(true) } else { self.reserve.merge(&self.base) };
            match more {
                // Merged files are removed once nothing reads them.
                Ok(true) => self.serve(),
                Ok(false) => break,
                Err(error) if self.base.sync_failed() => return Err(Stopped(error.to_string())),
                Err(_) => break,
            }
        }
        self.recheck_space();
        Ok(())
    }

    fn recheck_space(&mut self) {
        if self.reserve.recheck(&self.base) {
            self.server.handle(self.now, Event::Space { shortage: self.reserve.shortage() });
        }
    }

    fn serve(&mut self) {
        let reader = self.base.reader();
        self.readers.insert(reader.generation(), reader);
    }

    fn read(&mut self, fetch: &Fetch) -> Result<Fetched, BaseFailure> {
        let reader =
            self.readers.get(&fetch.generation).ok_or_else(|| BaseFailure::Io(released(fetch.generation).0))?;
        if let Some(failure) = self.failing.pop() {
            return Err(failure);
        }
        let (FetchWhat::Record(key)
        | FetchWhat::KeysUnder(key)
        | FetchWhat::FirstKeys(key)
        | FetchWhat::Weights { from: key, .. }) = &fetch.what;
        if self.unreadable.contains(key) {
            return Err(BaseFailure::Io("chosen by a test".into()));
        }
        reader.fetch(&fetch.what)
    }
}

fn released(generation: Generation) -> Stopped {
    Stopped(format!("{generation:?} was released and is still asked for"))
}
