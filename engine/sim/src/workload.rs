//! Random requests with many collisions: few paths, few users, and every error that a client can
//! make.

mod quota;

use bytes::Bytes;
use zoolet_model::{
    AddWatchMode, AskedAcl, Create, CreateKind, CreateMode, Perms, ReadOp, Request, RequestedAcl, SetWatches, Text,
    WatcherType, WriteOp,
};

/// Random numbers from a seed (splitmix64), or from given bytes.
///
/// With bytes, a fuzzer that changes the bytes changes the choices.
#[derive(Clone, Debug)]
pub struct Random(Source);

#[derive(Clone, Debug)]
enum Source {
    Seed(u64),
    Script(Bytes),
}

impl Random {
    /// Creates a source of numbers. Equal seeds yield equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(Source::Seed(seed))
    }

    /// Creates a source that reads numbers from `bytes`. Once they are used up, all further numbers
    /// are 0.
    pub fn scripted(bytes: &[u8]) -> Self {
        Self(Source::Script(Bytes::copy_from_slice(bytes)))
    }

    /// Returns whether all bytes are used up.
    pub fn is_over(&self) -> bool {
        matches!(&self.0, Source::Script(rest) if rest.is_empty())
    }

    /// Returns 64 bits.
    pub fn bits(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut mixed = *state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                mixed ^ (mixed >> 31)
            }
            Source::Script(rest) => number(rest, 8),
        }
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        match &mut self.0 {
            // Takes as few bytes as possible, so that changing a byte changes one choice.
            Source::Script(rest) => number(rest, (64 - (end - 1).leading_zeros()).div_ceil(8) as usize) % end,
            // The bias of the remainder is far too small for a test to notice.
            Source::Seed(_) => self.bits() % end,
        }
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the choices, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// Takes a little-endian number off the front. Missing bytes are 0.
fn number(rest: &mut Bytes, bytes: usize) -> u64 {
    let taken = rest.split_to(bytes.min(rest.len()));
    taken.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The user whose identity passes every check, as the text of its auth packet.
pub const SUPER_USER: &str = "root:secret";

/// The users that ACLs name, as the text of their auth packets.
pub const USERS: [&str; 2] = ["ann:1", "bob:2"];

/// Parents and their descendants: deep enough for recursive watches, few enough to collide.
const PATHS: [&str; 20] = [
    "/",
    "/a",
    "/a/b",
    "/a/b/c",
    "/a/b/c/d",
    "/a/d",
    "/ab",
    "/e",
    "/e/x",
    "/c",
    "/c/x",
    "/c/y",
    "/q",
    "/q/r",
    "/s",
    "/s/t",
    "/zookeeper/quota/a",
    "/big",
    "/big/x",
    "/\u{e9}",
];

const RESERVED: [&str; 4] = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/zookeeper/config/x"];

const INVALID: [&str; 12] =
    ["", "a", "foo/bar", "//", "//a", "/a/", "/a//b", "/a/./b", "/..", "/a\0b", "/a\u{1}", "/a/\u{1f600}"];

/// Sequences of creates (true) and deletes (false) of one path in one multi.
const OVER_ONE_PATH: [&[bool]; 6] = [
    &[false, true],
    &[true, false],
    &[true, false, true],
    &[false, true, false],
    &[false, true, false, true],
    &[true, false, true, false],
];

/// Returns a multi's operations that create and delete `path` several times. `create` makes each
/// create.
pub(crate) fn over_one_path(
    random: &mut Random,
    path: &Text,
    mut create: impl FnMut(&mut Random) -> Create,
) -> Vec<WriteOp> {
    let steps = *random.pick(&OVER_ONE_PATH);
    let op = |&is_create: &bool| {
        if is_create {
            WriteOp::Create(Create { path: path.clone(), ..create(random) })
        } else {
            WriteOp::Delete { path: path.clone(), version: -1 }
        }
    };
    steps.iter().map(op).collect()
}

/// Times to live in milliseconds. Some are over within a run, and some are not.
const TTLS_MS: [u64; 6] = [1, 200, 1000, 1000, 5000, 60_000];

/// Draws a kind with a time to live.
pub(crate) fn ttl(random: &mut Random) -> CreateKind {
    CreateKind::Ttl { ttl_ms: *random.pick(&TTLS_MS) }
}

/// Generates requests. Its only state is its random numbers.
#[derive(Clone, Debug)]
pub struct Workload {
    random: Random,
    /// Draws the multis over one path. A separate stream keeps the other requests of each seed
    /// unchanged.
    repeats: Random,
    /// Draws the times to live, in a separate stream as well.
    ttls: Random,
    /// Draws requests for quotas, in one of three runs. A separate stream, for the same reason.
    quotas: Option<Random>,
    mostly_ephemeral: bool,
}

impl Workload {
    /// Creates a generator. Equal seeds yield equal requests.
    pub fn new(seed: u64) -> Self {
        Self::of(Random::new(seed))
    }

    /// Creates a generator from random numbers. Equal numbers yield equal requests.
    pub fn of(random: Random) -> Self {
        let first = random.clone().bits();
        let repeats = Random::new(first ^ 0x07e9_ea75);
        let ttls = Random::new(first ^ 0x0077_1771);
        let quotas = first.is_multiple_of(3).then(|| Random::new(first ^ 0x0000_90a5));
        Self { random, repeats, ttls, quotas, mostly_ephemeral: false }
    }

    /// From now on makes nearly every znode an ephemeral. A session's end is then a large change.
    pub fn mostly_ephemeral(&mut self) {
        self.mostly_ephemeral = true;
    }

    /// Returns the random numbers, for a driver's other choices.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Returns any request that does not end a connection or session.
    ///
    /// `last_zxid` is the newest zxid that the client has seen.
    pub fn request(&mut self, last_zxid: i64) -> Request {
        if let Some(random) = &mut self.quotas
            && random.one_in(8)
        {
            return quota::request(random);
        }
        match self.random.below(100) {
            0..=39 => Request::Write(self.write_op(true)),
            40..=49 => self.multi(),
            50..=56 => Request::GetData { path: self.path(), watch: self.random.one_in(2) },
            57..=63 => Request::Exists { path: self.path(), watch: self.random.one_in(2) },
            64..=71 => Request::GetChildren {
                path: self.path(),
                watch: self.random.one_in(2),
                with_stat: self.random.one_in(2),
            },
            72..=74 => Request::GetAcl { path: self.path() },
            75..=76 => Request::GetEphemerals { prefix: self.prefix() },
            // Not the empty path: ZooKeeper counts the root itself there, and no client relies on
            // that.
            77..=78 => Request::GetAllChildrenNumber { path: self.valid_path() },
            79..=80 => Request::MultiRead((0..self.random.below(5)).map(|_| self.read_op()).collect()),
            // Frequent enough for two concurrent syncs, where one must not stand for the other.
            81..=83 => Request::Sync { path: if self.random.one_in(4) { None } else { Some(self.path()) } },
            84 => Request::Ping,
            85 => Request::WhoAmI,
            86..=89 => Request::AddWatch {
                path: self.path(),
                mode: *self.random.pick(&[AddWatchMode::Persistent, AddWatchMode::PersistentRecursive]),
            },
            90..=91 => Request::CheckWatches { path: self.path(), kind: self.watcher_type() },
            92..=94 => Request::RemoveWatches { path: self.path(), kind: self.watcher_type() },
            95..=97 => Request::SetWatches(self.set_watches(last_zxid)),
            98 => match self.random.below(3) {
                0 => Request::Reconfig,
                1 => Request::Malformed { write: false },
                _ => Request::Sasl,
            },
            _ => Request::Malformed { write: true },
        }
    }

    /// Returns an auth packet that is accepted.
    pub fn auth(&mut self) -> Request {
        if self.random.one_in(10) {
            return Request::Auth { scheme: Some("ip".into()), auth: None };
        }
        let auth = match self.random.below(8) {
            0 => SUPER_USER,
            1 => "nocolon",
            2 => "ann:wrong",
            _ => USERS[self.random.below(2) as usize],
        };
        Request::Auth { scheme: Some("digest".into()), auth: Some(Bytes::from_static(auth.as_bytes())) }
    }

    /// Returns a request that ends its connection, and perhaps the session.
    pub fn last_request(&mut self) -> Request {
        match self.random.below(6) {
            0 => Request::Unknown,
            1 => Request::Auth { scheme: Some("nosuch".into()), auth: Some(Bytes::from_static(b"x")) },
            2 => Request::Auth { scheme: None, auth: Some(Bytes::from_static(b"x")) },
            3 => Request::Auth { scheme: Some("digest".into()), auth: None },
            _ => Request::CloseSession,
        }
    }

    /// Returns the setWatches that a client sends after a reconnect.
    pub fn set_watches(&mut self, last_zxid: i64) -> SetWatches {
        let mut paths = |max: u64| (0..self.random.below(max)).map(|_| self.path()).collect();
        let (data, exist, child) = (paths(4), paths(4), paths(4));
        let (persistent, persistent_recursive) = (paths(2), paths(2));
        let back = self.random.below(30) as i64;
        SetWatches { relative_zxid: last_zxid - back, data, exist, child, persistent, persistent_recursive }
    }

    fn multi(&mut self) -> Request {
        let count = self.random.below(6);
        let careful = self.random.one_in(2);
        let ops = (0..count)
            .map(|_| if careful { self.likely_op() } else { self.write_op(false) })
            .map(|op| match op {
                // A multi cannot contain setACL, nor operations that the wire refuses.
                WriteOp::SetAcl { path, version, .. } => WriteOp::Check { path, version },
                op => op,
            })
            .collect();
        Request::Multi(if self.repeats.one_in(4) { self.over_one_path() } else { ops })
    }

    fn over_one_path(&mut self) -> Vec<WriteOp> {
        // Few paths without children, so that a multi finds the znodes that an earlier one left.
        let path = Text::from(*self.repeats.pick(&["/e", "/a/d", "/c/x", "/c/y"]));
        over_one_path(&mut self.repeats, &path, |random| Create {
            path: Text::EMPTY,
            data: None,
            acl: Some(RequestedAcl::open()),
            mode: CreateMode::Valid {
                kind: *random.pick(&[CreateKind::Ephemeral, CreateKind::Ephemeral, CreateKind::Persistent]),
                sequential: false,
            },
            with_stat: random.one_in(2),
        })
    }

    /// Returns an operation that is likely to succeed. Otherwise most multis would fail in their
    /// first steps.
    fn likely_op(&mut self) -> WriteOp {
        match self.random.below(4) {
            0 => WriteOp::SetData { path: self.valid_path(), data: self.data(), version: -1 },
            1 => WriteOp::Check { path: self.parent(), version: -1 },
            _ => WriteOp::Create(Create {
                path: format!("{}/n-", self.parent().trim_end_matches('/')).into(),
                data: self.data(),
                acl: Some(RequestedAcl::open()),
                mode: CreateMode::Valid { kind: CreateKind::Persistent, sequential: true },
                with_stat: self.random.one_in(2),
            }),
        }
    }

    /// Returns any write. `alone` excludes check, which is legal only in a multi.
    fn write_op(&mut self, alone: bool) -> WriteOp {
        match self.random.below(20) {
            0..=8 => WriteOp::Create(self.create(alone)),
            9..=12 => WriteOp::Delete { path: self.path(), version: self.version() },
            13..=17 => WriteOp::SetData { path: self.path(), data: self.data(), version: self.version() },
            18 if !alone => WriteOp::Check { path: self.path(), version: self.version() },
            _ => {
                let path = self.path();
                let acl = if path == "/" { Some(RequestedAcl::open()) } else { self.acl(alone) };
                WriteOp::SetAcl { path, acl, version: self.version() }
            }
        }
    }

    fn create(&mut self, alone: bool) -> Create {
        let sequential = self.random.one_in(3);
        let kind = match self.random.below(8) {
            1..=7 if self.mostly_ephemeral => CreateKind::Ephemeral,
            0..=3 => CreateKind::Persistent,
            4..=5 => CreateKind::Ephemeral,
            _ => CreateKind::Container,
        };
        let mode = match self.random.below(40) {
            0 => CreateMode::BadArguments,
            1 => CreateMode::Unimplemented,
            2 => CreateMode::Valid { kind: ttl(&mut self.ttls), sequential },
            _ if kind == CreateKind::Persistent && self.ttls.one_in(6) => {
                CreateMode::Valid { kind: ttl(&mut self.ttls), sequential }
            }
            _ => CreateMode::Valid { kind, sequential },
        };
        let mut path = self.path();
        if sequential && self.random.one_in(2) {
            path = format!("{}/n-", path.trim_end_matches('/')).into();
        }
        Create { path, data: self.data(), acl: self.acl(alone), mode, with_stat: self.random.one_in(2) }
    }

    fn read_op(&mut self) -> ReadOp {
        let path = self.path();
        match self.random.below(40) {
            0 => ReadOp::Unreadable,
            1..=20 => ReadOp::GetData { path },
            _ => ReadOp::GetChildren { path },
        }
    }

    /// Returns mostly one of `PATHS`, sometimes a sequential znode, rarely a reserved or invalid
    /// path.
    fn path(&mut self) -> Text {
        match self.random.below(30) {
            0 => (*self.random.pick(&RESERVED)).into(),
            1 => (*self.random.pick(&INVALID)).into(),
            _ => self.valid_path(),
        }
    }

    fn valid_path(&mut self) -> Text {
        if self.random.one_in(4) {
            let parent = self.parent();
            return format!("{}/n-{:010}", parent.trim_end_matches('/'), self.random.below(12)).into();
        }
        (*self.random.pick(&PATHS)).into()
    }

    /// Returns a parent of sequential znodes.
    fn parent(&mut self) -> Text {
        (*self.random.pick(&["/a", "/c", "/q", "/s", "/"])).into()
    }

    fn prefix(&mut self) -> Option<Text> {
        match self.random.below(4) {
            0 => None,
            1 => Some(Text::EMPTY),
            2 => Some("/a".into()),
            _ => Some(self.path()),
        }
    }

    fn version(&mut self) -> i32 {
        *self.random.pick(&[-1, -1, -1, -1, 0, 0, 1, 2, 7, -2])
    }

    /// Returns data with sizes around every threshold of the storage.
    fn data(&mut self) -> Option<Bytes> {
        let bytes = match self.random.below(12) {
            0 => return None,
            1 => 0,
            2 => 1023 + self.random.below(3),
            3 => 3000,
            n => n,
        };
        let fill = b'a' + self.random.below(26) as u8;
        Some(vec![fill; bytes as usize].into())
    }

    fn acl(&mut self, alone: bool) -> Option<AskedAcl> {
        let world = |perms| entry(perms, "world", "anyone");
        let asked = match self.random.below(40) {
            0 => vec![world(Perms::READ)],
            1 => {
                vec![world(Perms(1 | 2 | 4 | 8)), entry(Perms::ADMIN, "digest", &crate::reference::digest_of(USERS[0]))]
            }
            2 => vec![entry(Perms::ALL, "digest", &crate::reference::digest_of(USERS[1])), world(Perms::READ)],
            3 => vec![RequestedAcl { perms: Perms::ALL, scheme: Some("auth".into()), id: None }, world(Perms::ALL)],
            4 => vec![entry(Perms::ALL, "ip", "127.0.0.0/8")],
            5 => vec![entry(Perms::ALL, "ip", "10.0.0.1"), world(Perms(31 & !8))],
            6 => vec![world(Perms::ALL), world(Perms::ALL), world(Perms::READ)],
            7 => vec![entry(Perms(0), "world", "anyone"), entry(Perms(64), "digest", "x:y"), world(Perms::ALL)],
            8 => vec![entry(Perms::ALL, "ip", "::1/64"), world(Perms::ALL)],
            9 => vec![],
            10 => return None,
            11 => vec![entry(Perms::ALL, "nosuch", "x")],
            12 => vec![entry(Perms::ALL, "digest", "nocolon")],
            13 => vec![entry(Perms::ALL, "world", "somebody")],
            14 => vec![RequestedAcl { perms: Perms::ALL, scheme: None, id: None }],
            15 => vec![entry(Perms::ALL, "ip", "300.1.1.1")],
            16 => vec![entry(Perms::ALL, "ip", "1.2.3.4/33")],
            // ZooKeeper fails a whole multi because of this ACL, so no multi contains it.
            17 if alone => vec![RequestedAcl { perms: Perms::ALL, scheme: Some("digest".into()), id: None }],
            _ => return Some(RequestedAcl::open()),
        };
        Some(asked.into())
    }

    fn watcher_type(&mut self) -> WatcherType {
        *self.random.pick(&[
            WatcherType::Children,
            WatcherType::Data,
            WatcherType::Any,
            WatcherType::Persistent,
            WatcherType::PersistentRecursive,
        ])
    }
}

fn entry(perms: Perms, scheme: &str, id: &str) -> RequestedAcl {
    RequestedAcl { perms, scheme: Some(scheme.into()), id: Some(id.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{RefOutput, Reference, digest_of};
    use std::collections::{BTreeMap, BTreeSet};
    use zoolet_machine::ConnId;
    use zoolet_model::{ErrorCode, EventKind, OpResult, Reply};

    /// A seed with requests for quotas.
    const WITH_QUOTAS: u64 = 3;

    #[test]
    fn equal_seeds_make_equal_requests() {
        let (mut one, mut two) = (Workload::new(5), Workload::new(5));
        for _ in 0..1000 {
            assert_eq!(one.request(9), two.request(9));
        }
    }

    /// A workload that never reaches an outcome does not test it.
    #[test]
    fn workload_reaches_every_outcome() {
        let mut workload = Workload::new(WITH_QUOTAS);
        let mut server = Reference::new(Some(digest_of(SUPER_USER)));
        server.enforce_quotas();
        let mut zxid = 0;
        let mut errors: BTreeMap<i32, u32> = BTreeMap::new();
        let mut successes: BTreeMap<String, u32> = BTreeMap::new();
        let mut events: BTreeMap<i32, u32> = BTreeMap::new();
        let mut connections: BTreeSet<u64> = BTreeSet::new();
        let (mut conn, mut multis) = (0, [0, 0]);
        for step in 0..20_000 {
            while connections.len() < 4 {
                conn += 1;
                zxid += 1;
                server.create_session(zxid);
                server.attach(ConnId(conn), zxid, Some([127, 0, 0, 1].into()));
                connections.insert(conn);
            }
            let all: Vec<_> = connections.iter().copied().collect();
            let from = *workload.random().pick(&all);
            let request = match workload.random().below(200) {
                0 => workload.last_request(),
                1..=3 => workload.auth(),
                _ => workload.request(zxid),
            };
            if step % 3 == 0 {
                zxid += 1;
                let subtree = *workload.random().pick(&["/a", "/a/b", "/c", "/q"]);
                server.count_usage(subtree, zxid);
            }
            zxid += i64::from(Reference::is_ordered(&request));
            for output in server.apply(ConnId(from), step, &request, zxid, 0) {
                match output {
                    RefOutput::Notify { event, .. } => *events.entry(event.kind as i32).or_default() += 1,
                    RefOutput::Close { conn } => {
                        connections.remove(&conn.0);
                    }
                    RefOutput::Reply { result: Err(error), .. } => *errors.entry(error.code()).or_default() += 1,
                    RefOutput::Reply { result: Ok(reply), .. } => {
                        if let Reply::Multi(results) = &reply {
                            multis[usize::from(matches!(results[..], [OpResult::Failed(_), ..]))] += 1;
                        }
                        let name: String = format!("{reply:?}").chars().take_while(|c| c.is_alphabetic()).collect();
                        *successes.entry(name).or_default() += 1;
                    }
                }
            }
        }
        for kind in
            [EventKind::NodeCreated, EventKind::NodeDeleted, EventKind::NodeDataChanged, EventKind::NodeChildrenChanged]
        {
            assert!(events.get(&(kind as i32)) > Some(&100), "{kind:?}: {events:?}");
        }
        for error in [
            ErrorCode::MarshallingError,
            ErrorCode::Unimplemented,
            ErrorCode::BadArguments,
            ErrorCode::NoNode,
            ErrorCode::NoAuth,
            ErrorCode::BadVersion,
            ErrorCode::NoChildrenForEphemerals,
            ErrorCode::NodeExists,
            ErrorCode::NotEmpty,
            ErrorCode::InvalidAcl,
            ErrorCode::AuthFailed,
            ErrorCode::NoWatcher,
            ErrorCode::ReconfigDisabled,
            ErrorCode::QuotaExceeded,
        ] {
            assert!(errors.get(&error.code()) >= Some(&5), "{error}: {errors:?}");
        }
        assert_eq!(successes.len(), 16, "every kind of reply: {successes:?}");
        assert!(multis[0] > 200 && multis[1] > 200, "multis that succeed and that fail: {multis:?}");
        assert!(server.tree().paths().count() > 20);
    }
}
