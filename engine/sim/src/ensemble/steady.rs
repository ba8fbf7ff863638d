//! A load that can go on for ever: a fixed small set of znodes, and all kinds of requests at one
//! pace.
//!
//! It serves long runs in which nothing, or one thing, disturbs the ensemble.

use super::client::Asks;
use super::{DiskModel, Habits, MS, Mix, Plan};
use crate::oracle::ClientId;
use crate::workload::Random;
use bytes::Bytes;
use std::collections::VecDeque;
use zoolet_machine::Limits;
use zoolet_model::{ConnectReply, Create, CreateKind, CreateMode, Request, RequestedAcl, Text, WriteOp};

/// The load of the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Any requests; each client draws its behaviour: [`Habits::drawn`].
    Anything,
    /// Writes, reads and syncs of a few znodes, by clients that never leave a server by themselves.
    Steady {
        /// Mean time between two requests of one client, in microseconds.
        think_us: u64,
        /// Session timeouts of clients with odd and with even ids, in milliseconds.
        timeouts_ms: [i32; 2],
        /// One client in this many only reads, and seldom; 0 means none.
        readers_one_in: u32,
        /// Size of one write's data, at least [`DATA_BYTES`].
        data_bytes: usize,
    },
}

/// Bytes of data that identify a write.
pub const DATA_BYTES: usize = 100;
/// Factor by which a reading client waits longer between two requests.
const READER_THINKS: u64 = 50;

impl Load {
    /// Returns the longest session timeout that servers must grant, in milliseconds.
    pub(super) fn timeout_ms_max(self) -> u32 {
        match self {
            Self::Anything => 20_000,
            Self::Steady { timeouts_ms: [odd, even], .. } => odd.max(even).unsigned_abs(),
        }
    }
}

impl Plan {
    /// Returns a plan for undisturbed voters under a [`Load::Steady`], for `for_us` microseconds.
    ///
    /// All disks are of one kind. The limits make a server write a checkpoint every minute or two.
    pub fn steady(voters: u8, disk: DiskModel, for_us: u64) -> Self {
        let limits = Limits {
            memtable_bytes: 128 << 10,
            record_cache_bytes: 64 << 10,
            base_cache_bytes: 64 << 10,
            log_segment_bytes: 128 << 10,
            log_segments: 8,
            disk_reserve_bytes: 0,
            ..Limits::default()
        };
        let load = Load::Steady {
            think_us: 1000 * MS,
            timeouts_ms: [10_000, 20_000],
            readers_one_in: 0,
            data_bytes: DATA_BYTES,
        };
        let (faults, mix) = ((0, 0), Mix::of(&[]));
        Self {
            voters,
            observers: 0,
            clients: 8,
            safety_us: for_us,
            faults,
            mix,
            disk,
            limits,
            load,
            ..Self::peaceful(0)
        }
    }
}

impl Habits {
    /// Returns the habits of a client of a [`Load::Steady`].
    pub(super) fn steady(think_us: u64, timeout_ms: i32, only_reads: bool) -> Self {
        let think_us = if only_reads { think_us * READER_THINKS } else { think_us };
        Self {
            timeout_ms,
            window: 8,
            think_us,
            at_once_one_in: 0,
            moves_one_in: 0,
            vanishes_one_in: 0,
            renews: None,
            may_read_only: false,
        }
    }
}

/// One client of a [`Load::Steady`].
#[derive(Debug)]
pub(super) struct Steady {
    random: Random,
    client: ClientId,
    clients: u32,
    serial: u64,
    only_reads: bool,
    data_bytes: usize,
    first: VecDeque<Request>,
}

/// The parent of all znodes of the load.
const PARENT: &str = "/load";

impl Steady {
    /// Creates client `client` of `clients`.
    pub(super) fn new(seed: u64, client: ClientId, clients: u32, only_reads: bool, data_bytes: usize) -> Self {
        Self { random: Random::new(seed), client, clients, serial: 0, only_reads, data_bytes, first: VecDeque::new() }
    }

    fn own(&self) -> Text {
        format!("{PARENT}/c{}", self.client.0).into()
    }

    fn ephemeral(&self) -> Text {
        format!("{PARENT}/c{}/here", self.client.0).into()
    }

    /// Draws the znode of any client.
    fn any(&mut self) -> Text {
        format!("{PARENT}/c{}", 1 + self.random.below(u64::from(self.clients))).into()
    }

    /// Returns data that no other write of the run has.
    fn data(&mut self) -> Option<Bytes> {
        self.serial += 1;
        let mut data = format!("{:>60}:{:>39}", self.client.0, self.serial).into_bytes();
        data.resize(self.data_bytes, b' ');
        Some(data.into())
    }

    fn create(&mut self, path: Text, kind: CreateKind) -> Request {
        let mode = CreateMode::Valid { kind, sequential: false };
        let acl = Some(RequestedAcl::open());
        Request::Write(WriteOp::Create(Create { path, data: self.data(), acl, mode, with_stat: true }))
    }
}

impl Asks for Steady {
    fn next(&mut self, _last_zxid: i64) -> Request {
        if let Some(first) = self.first.pop_front() {
            return first;
        }
        match if self.only_reads { self.random.between(13, 20) } else { self.random.below(20) } {
            0..=6 => Request::Write(WriteOp::SetData { path: self.own(), data: self.data(), version: -1 }),
            7 => Request::Write(WriteOp::SetData { path: self.any(), data: self.data(), version: -1 }),
            8 => self.create(self.ephemeral(), CreateKind::Ephemeral),
            9 => Request::Write(WriteOp::Delete { path: self.ephemeral(), version: -1 }),
            10..=12 => Request::Sync { path: Some(PARENT.into()) },
            13..=17 => Request::GetData { path: self.any(), watch: self.random.one_in(4) },
            18 => Request::GetChildren { path: PARENT.into(), watch: false, with_stat: true },
            _ => Request::Exists { path: self.ephemeral(), watch: true },
        }
    }

    /// Creates the parents first, unless they exist.
    fn connected(&mut self, _reply: &ConnectReply) {
        if self.only_reads {
            return;
        }
        let parents = [PARENT.into(), self.own()];
        self.first = parents.into_iter().map(|path| self.create(path, CreateKind::Persistent)).collect();
    }
}
