//! Generates entries that a server makes and entries that no server makes. Apply must survive both.

use crate::workload::Random;
use bytes::{Bytes, BytesMut};
use zoolet_machine::record::acl::{self, Identity};
use zoolet_machine::txn::{self, Header, Op, Txn};
use zoolet_model::{AclEntry, AuthId, CreateKind, ErrorCode, Perms, SessionId, SessionSecret};

const PATHS: [&str; 23] = [
    "/",
    "",
    "a",
    "foo/bar",
    "//",
    "//a",
    "/a/",
    "/a\0b",
    "/zookeeper",
    "/zookeeper/quota",
    "/zookeeper/config",
    "/a",
    "/a/b",
    "/a/b/c",
    "/c",
    "/c/x",
    "/e",
    "/e/x",
    "/a/n-0000000000",
    "/a/n-0000000001",
    "/\u{1f600}",
    "/zookeeper/quota/a",
    "/zookeeper/quota/a/zookeeper_stats",
];

/// A generator of payloads of entries.
#[derive(Debug)]
pub struct Entries {
    random: Random,
    /// Sessions that are alive.
    sessions: Vec<i64>,
    /// Payloads to mutate.
    seen: Vec<Bytes>,
}

impl Entries {
    /// Creates a generator from a seed. Equal seeds yield equal entries if the same sessions are
    /// alive.
    pub fn new(seed: u64) -> Self {
        Self::of(Random::new(seed))
    }

    /// Creates a generator from random numbers. Equal numbers yield equal entries if the same
    /// sessions are alive.
    pub fn of(random: Random) -> Self {
        Self { random, sessions: Vec::new(), seen: Vec::new() }
    }

    /// Returns whether the random numbers are used up.
    pub fn is_over(&self) -> bool {
        self.random.is_over()
    }

    /// Records that a session began or ended, so that later entries can name a live session.
    pub fn session(&mut self, id: i64, alive: bool) {
        self.sessions.retain(|&known| known != id);
        if alive {
            self.sessions.push(id);
        }
    }

    /// Returns a payload: mostly valid, sometimes a damaged one, sometimes noise.
    pub fn payload(&mut self) -> Bytes {
        let payload = match self.random.below(10) {
            0 => {
                let bytes = self.random.below(60);
                (0..bytes).map(|_| self.random.bits() as u8).collect::<Vec<u8>>().into()
            }
            1 | 2 if !self.seen.is_empty() => self.mutated(),
            _ => self.valid(),
        };
        if self.seen.len() < 200 {
            self.seen.push(payload.clone());
        } else {
            let at = self.random.below(200) as usize;
            self.seen[at] = payload.clone();
        }
        payload
    }

    fn mutated(&mut self) -> Bytes {
        let mut bytes = self.random.pick(&self.seen).to_vec();
        for _ in 0..=self.random.below(3) {
            if bytes.is_empty() {
                break;
            }
            let at = self.random.below(bytes.len() as u64) as usize;
            match self.random.below(5) {
                0 => bytes[at] ^= 1 << self.random.below(8),
                1 => bytes[at] = *self.random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.random.bits() as u8),
                _ => {
                    let other = self.random.pick(&self.seen).clone();
                    let from = self.random.below(other.len() as u64 + 1) as usize;
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
            }
        }
        bytes.into()
    }

    fn valid(&mut self) -> Bytes {
        let header = Header {
            wall_ms: self.random.bits() as i64,
            ensemble_ms: if self.random.one_in(16) { u64::MAX } else { self.random.below(1 << 40) },
            enforces_quotas: true,
            forwarder: None,
        };
        let data: Vec<Option<Vec<u8>>> = (0..6)
            .map(|_| match self.random.below(5) {
                0 => None,
                1 => Some(vec![7; 1020 + self.random.below(10) as usize]),
                2 => Some(vec![8; 5000]),
                n => Some(vec![9; n as usize]),
            })
            .collect();
        let acls: Vec<Bytes> = (0..6).map(|_| self.acl()).collect();
        let session = SessionId(if self.sessions.is_empty() || self.random.one_in(20) {
            self.random.bits() as i64
        } else {
            *self.random.pick(&self.sessions)
        });
        let identity = self.identity();
        let count = self.random.below(6) as usize;
        let mut ops: Vec<Op<'_>> =
            (0..count.max(1)).map(|at| op(&mut self.random, data[at].as_deref(), &acls[at])).collect();
        let path = *self.random.pick(&PATHS);
        let txn = match self.random.below(30) {
            0 => Txn::NoOp,
            1..=3 => {
                Txn::CreateSession { timeout_ms: self.random.bits() as u32, secret: SessionSecret([3; 16]), home: None }
            }
            4..=5 => Txn::CloseSession { session },
            6..=8 => Txn::Reap { path },
            9..=14 => {
                ops.truncate(count);
                Txn::Multi { session, identity, ops }
            }
            15 => Txn::RenewSession { session, timeout_ms: header.wall_ms as u32 },
            16 => Txn::CountUsage { path },
            _ => Txn::Write { session, identity, op: ops.remove(0) },
        };
        txn::encode(header, &txn, &mut BytesMut::new())
    }

    fn acl(&mut self) -> Bytes {
        let world = |perms| AclEntry { perms, scheme: "world".into(), id: "anyone".into() };
        acl::encode(&match self.random.below(12) {
            0 => vec![world(Perms::READ)],
            1 => vec![
                AclEntry { perms: Perms(self.random.bits() as i32), scheme: "ip".into(), id: "::/0".into() },
                world(Perms::ALL),
            ],
            2 => vec![AclEntry { perms: Perms::ALL, scheme: "digest".into(), id: "u:h".into() }],
            _ => vec![world(Perms::ALL)],
        })
    }

    fn identity(&mut self) -> Identity {
        let ids =
            if self.random.one_in(3) { vec![AuthId { scheme: "digest".into(), id: "u:h".into() }] } else { vec![] };
        Identity { is_super: self.random.one_in(4), ip: Some([127, 0, 0, 1].into()), ids }
    }
}

fn op<'a>(random: &mut Random, data: Option<&'a [u8]>, acl: &'a [u8]) -> Op<'a> {
    let path = *random.pick(&PATHS);
    let version = *random.pick(&[-1, -1, -1, 0, 1, i32::MAX, i32::MIN]);
    match random.below(20) {
        0..=9 => {
            let kind = match random.below(6) {
                0 | 1 => CreateKind::Ephemeral,
                2 => CreateKind::Container,
                3 => CreateKind::Ttl { ttl_ms: random.bits() >> random.below(64) },
                _ => CreateKind::Persistent,
            };
            let (sequential, with_stat) = (random.one_in(4), random.one_in(2));
            Op::Create { path, data, acl, kind, sequential, with_stat }
        }
        10..=13 => Op::Delete { path, version },
        14..=16 => Op::SetData { path, data, version },
        17 => Op::SetAcl { path, acl, version },
        18 => Op::Check { path, version },
        _ => Op::Refused(*random.pick(&ErrorCode::ALL)),
    }
}
