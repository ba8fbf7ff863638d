//! Random messages of the client protocol.

#![allow(dead_code, reason = "each test uses its part")]

use bytes::Bytes;
use zoolet_model::*;

/// A generator of messages, driven by a seed or by scripted bytes.
pub(crate) struct Random(zoolet_sim::workload::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(zoolet_sim::workload::Random::new(seed))
    }

    /// Returns a generator that yields the same numbers for the same bytes.
    pub(crate) fn scripted(bytes: &[u8]) -> Self {
        Self(zoolet_sim::workload::Random::scripted(bytes))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.0.one_in(2)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn maybe<T>(&mut self, make: fn(&mut Self) -> T) -> Option<T> {
        if self.below(4) == 0 { None } else { Some(make(self)) }
    }

    fn duration(&mut self) -> Option<u64> {
        self.maybe(|random| random.next() >> 1)
    }

    fn several<T>(&mut self, make: fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(5)).map(|_| make(self)).collect()
    }

    pub(crate) fn text(&mut self) -> Text {
        let fixed = ["", "/", "/a", "/zookeeper/config", "/\u{e9}/\u{20ac}", "/\u{1f600}", "no slash", "/a//b\0"];
        if self.bool() { Text::from(self.pick(&fixed)) } else { Text::from(format!("/r{}", self.next())) }
    }

    pub(crate) fn bytes(&mut self) -> Bytes {
        (0..self.below(200)).map(|_| self.next() as u8).collect::<Vec<_>>().into()
    }

    fn i32(&mut self) -> i32 {
        let any = self.next() as i32;
        self.pick(&[-1, 0, 1, i32::MAX, i32::MIN, any])
    }

    fn i64(&mut self) -> i64 {
        let any = self.next() as i64;
        self.pick(&[-1, 0, 1, i64::MAX, i64::MIN, any])
    }

    fn stat(&mut self) -> Stat {
        Stat {
            czxid: self.i64(),
            mzxid: self.i64(),
            ctime: self.i64(),
            mtime: self.i64(),
            version: self.i32(),
            cversion: self.i32(),
            aversion: self.i32(),
            ephemeral_owner: self.i64(),
            data_length: self.i32(),
            num_children: self.i32(),
            pzxid: self.i64(),
        }
    }

    fn error(&mut self) -> ErrorCode {
        self.pick(&ErrorCode::ALL)
    }

    fn acl(&mut self) -> AskedAcl {
        self.several(|random| RequestedAcl {
            perms: Perms(random.i32()),
            scheme: random.maybe(Self::text),
            id: random.maybe(Self::text),
        })
        .into()
    }

    fn create(&mut self, in_multi: bool) -> Create {
        // The wire has no sequential container inside a multi. `Unimplemented` and `Mismatched` are
        // left out: they decode back only under some options or inside a multi.
        let sequential = self.bool();
        let mode = match self.below(6) {
            0 => CreateMode::Valid { kind: CreateKind::Persistent, sequential },
            1 => CreateMode::Valid { kind: CreateKind::Ephemeral, sequential },
            2 => CreateMode::Valid { kind: CreateKind::Container, sequential: sequential && !in_multi },
            3 => CreateMode::Valid { kind: CreateKind::Ttl { ttl_ms: 1 + self.next() % ((1 << 40) - 1) }, sequential },
            4 => CreateMode::BadArguments,
            _ => CreateMode::Valid { kind: CreateKind::Persistent, sequential: false },
        };
        let always = matches!(
            mode,
            CreateMode::Valid { kind: CreateKind::Container | CreateKind::Ttl { .. }, .. } | CreateMode::Unimplemented
        );
        Create {
            path: self.text(),
            data: self.maybe(Self::bytes),
            acl: self.maybe(Self::acl),
            mode,
            with_stat: always || self.bool(),
        }
    }

    fn write(&mut self) -> WriteOp {
        match self.below(4) {
            0 => WriteOp::Create(self.create(false)),
            1 => WriteOp::SetAcl { path: self.text(), acl: self.maybe(Self::acl), version: self.i32() },
            _ => loop {
                let operation = self.multi_write();
                if !matches!(operation, WriteOp::Check { .. }) {
                    return operation;
                }
            },
        }
    }

    fn multi_write(&mut self) -> WriteOp {
        match self.below(4) {
            0 => WriteOp::Create(self.create(true)),
            1 => WriteOp::Delete { path: self.text(), version: self.i32() },
            2 => WriteOp::SetData { path: self.text(), data: self.maybe(Self::bytes), version: self.i32() },
            _ => WriteOp::Check { path: self.text(), version: self.i32() },
        }
    }

    /// Returns any request with a distinct encoding.
    pub(crate) fn request(&mut self) -> Request {
        let kinds = [
            WatcherType::Children,
            WatcherType::Data,
            WatcherType::Any,
            WatcherType::Persistent,
            WatcherType::PersistentRecursive,
        ];
        match self.below(24) {
            0..=3 => Request::Write(self.write()),
            4 => Request::Multi(self.several(Self::multi_write)),
            5 => Request::Exists { path: self.text(), watch: self.bool() },
            6 => Request::GetData { path: self.text(), watch: self.bool() },
            7 => Request::GetChildren { path: self.text(), watch: self.bool(), with_stat: self.bool() },
            8 => Request::GetAcl { path: self.text() },
            9 => Request::GetEphemerals { prefix: self.maybe(Self::text) },
            10 => Request::GetAllChildrenNumber { path: self.text() },
            11 => Request::MultiRead(self.several(|random| match random.bool() {
                true => ReadOp::GetData { path: random.text() },
                false => ReadOp::GetChildren { path: random.text() },
            })),
            12 => Request::Sync { path: self.maybe(Self::text) },
            13 => Request::Ping,
            14 => Request::Auth { scheme: self.maybe(Self::text), auth: self.maybe(Self::bytes) },
            15 => Request::Sasl,
            16 => Request::WhoAmI,
            17 => Request::SetWatches(SetWatches {
                relative_zxid: self.i64(),
                data: self.several(Self::text),
                exist: self.several(Self::text),
                child: self.several(Self::text),
                persistent: self.several(Self::text),
                persistent_recursive: self.several(Self::text),
            }),
            18 => Request::AddWatch {
                path: self.text(),
                mode: self.pick(&[AddWatchMode::Persistent, AddWatchMode::PersistentRecursive]),
            },
            19 => Request::CheckWatches { path: self.text(), kind: self.pick(&kinds) },
            20 => Request::RemoveWatches { path: self.text(), kind: self.pick(&kinds) },
            21 => Request::Reconfig,
            22 => Request::GetTtl { path: self.text() },
            _ => self.pick_odd(),
        }
    }

    fn pick_odd(&mut self) -> Request {
        match self.below(4) {
            0 => Request::CloseSession,
            1 => Request::Malformed { write: self.bool() },
            _ => Request::Unknown,
        }
    }

    /// Returns a successful reply with the shape that answers `request`.
    pub(crate) fn reply_to(&mut self, request: &Request) -> Reply {
        match request {
            Request::Write(WriteOp::Create(create)) if create.with_stat => Reply::PathStat(self.text(), self.stat()),
            Request::Write(WriteOp::Create(_)) => Reply::Path(self.text()),
            Request::Write(WriteOp::SetData { .. } | WriteOp::SetAcl { .. }) | Request::Exists { .. } => {
                Reply::Stat(self.stat())
            }
            Request::GetData { .. } => Reply::Data(self.maybe(Self::bytes), self.stat()),
            Request::GetChildren { with_stat: true, .. } => {
                Reply::NamesStat(self.several(Self::text).into(), self.stat())
            }
            Request::GetChildren { .. } | Request::GetEphemerals { .. } => {
                Reply::Names(self.several(Self::text).into())
            }
            Request::GetAcl { .. } => {
                let entry = |random: &mut Self| AclEntry {
                    perms: Perms(random.i32()),
                    scheme: random.text(),
                    id: random.text(),
                };
                Reply::Acl(self.several(entry), self.stat())
            }
            Request::GetAllChildrenNumber { .. } => Reply::Count(self.i32()),
            Request::GetTtl { .. } => Reply::Ttl(TimeToLive { ttl_ms: self.duration(), left_ms: self.duration() }),
            Request::Sync { .. } => Reply::Synced(self.maybe(Self::text)),
            Request::Sasl => Reply::NullToken,
            Request::WhoAmI => Reply::Ids(self.several(|random| AuthId { scheme: random.text(), id: random.text() })),
            Request::AddWatch { .. } => Reply::WatchAdded,
            Request::Multi(_) => Reply::Multi(self.several(|random| match random.below(6) {
                0 => OpResult::Create(random.text()),
                1 => OpResult::CreateStat(random.text(), random.stat()),
                2 => OpResult::Delete,
                3 => OpResult::SetData(random.stat()),
                4 => OpResult::Check,
                _ => OpResult::Failed(random.maybe(Self::error)),
            })),
            Request::MultiRead(_) => Reply::MultiRead(self.several(|random| match random.below(3) {
                0 => ReadResult::Data(random.maybe(Self::bytes), random.stat()),
                1 => ReadResult::Children(random.several(Self::text).into()),
                _ => ReadResult::Failed(random.error()),
            })),
            Request::Write(WriteOp::Delete { .. } | WriteOp::Check { .. })
            | Request::Ping
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::Reconfig
            | Request::CloseSession
            | Request::Malformed { .. }
            | Request::Unknown => Reply::Empty,
        }
    }

    pub(crate) fn error_code(&mut self) -> ErrorCode {
        self.error()
    }

    pub(crate) fn event(&mut self) -> WatchEvent {
        let kinds = [
            EventKind::NodeCreated,
            EventKind::NodeDeleted,
            EventKind::NodeDataChanged,
            EventKind::NodeChildrenChanged,
        ];
        WatchEvent { kind: self.pick(&kinds), path: self.text(), zxid: self.i64() }
    }

    pub(crate) fn connect(&mut self) -> ConnectRequest {
        ConnectRequest {
            last_zxid_seen: self.i64(),
            timeout_ms: self.i32(),
            session: SessionId(self.i64()),
            password: self.maybe(Self::bytes),
            read_only: self.maybe(Self::bool),
        }
    }
}
