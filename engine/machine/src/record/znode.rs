//! Stored form of znodes and sessions: rkyv archives, read in place.

use crate::record::acl;
use bytes::Bytes;
use rkyv::api::low::{LowSerializer, to_bytes_in_with_alloc};
use rkyv::ser::{allocator::SubAllocator, writer::Buffer};
use rkyv::{Archive, Serialize, rancor::Failure, with::InlineAsBox};
use zoolet_model::{AclEntry, CreateKind, ServerId, SessionId, SessionSecret, Stat, TimeToLive};

/// Longest data stored inside a znode's record, in bytes. Longer data has a separate record, so
/// that a child's birth does not rewrite its parent's megabyte.
pub const INLINE_DATA_MAX: usize = 1024;

/// Stored bytes passed their checksum but are not a record: a bug or an unknown format, never
/// served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotARecord;

/// A znode, borrowed from its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Znode<'a> {
    /// Zxid that created it.
    pub czxid: i64,
    /// Zxid of the last setData.
    pub mzxid: i64,
    /// Zxid of the last creation or deletion of a child.
    pub pzxid: i64,
    /// Wall clock of the creation, milliseconds since 1970.
    pub ctime: i64,
    /// Wall clock of the last setData, milliseconds since 1970.
    pub mtime: i64,
    /// Number of setData calls.
    pub version: i32,
    /// Number of children ever created: ZooKeeper's internal cversion, the source of sequence
    /// numbers. Stays at its maximum.
    pub creates: i32,
    /// Number of setACL calls.
    pub aversion: i32,
    /// Number of direct children.
    pub num_children: i32,
    /// Kind of znode.
    pub kind: Kind,
    /// Data, or where it is stored.
    pub data: Data<'a>,
    /// ACL in the form of [`acl::encode`].
    pub acl: &'a [u8],
}

/// The kind of a stored znode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "as CreateKind, with the owner")]
pub enum Kind {
    Persistent,
    Ephemeral(SessionId),
    Container,
    /// `since_ms`: ensemble time of its creation, the last change of its data, or the deletion of
    /// its last child.
    Ttl {
        ttl_ms: u64,
        since_ms: u64,
    },
}

/// The reaper's mark of a znode that it may delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A container that has lost all its children.
    Emptied,
    /// A TTL znode without children, due at this ensemble time in milliseconds.
    Due(u64),
}

/// The data of a stored znode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data<'a> {
    /// Null, which differs from empty.
    Null,
    /// Data inside the record.
    Inline(&'a [u8]),
    /// Data in a separate record. Its hash is kept here, so that the digest can change without
    /// reading that record.
    Large {
        /// Length in bytes.
        length: u32,
        /// `store::digest::record_hash` of that record.
        hash: u128,
    },
    /// Usage of a subtree, kept by the server. Clients read it as text.
    Usage(Usage<'a>),
}

/// Usage of the subtree of a quota: its znodes, and the bytes of their data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage<'a> {
    /// Znodes counted so far, the root of the subtree included.
    pub count: i64,
    /// Bytes of data counted so far.
    pub bytes: i64,
    /// Key of the first descendant that is not counted yet. Empty: all are counted.
    pub next: &'a [u8],
}

impl<'a> Usage<'a> {
    /// Returns whether the whole subtree is counted.
    pub fn is_complete(&self) -> bool {
        self.next.is_empty()
    }

    /// Returns the text that clients read, as in ZooKeeper (surface 7.1).
    pub fn text(&self) -> String {
        format!("count={},bytes={}", self.count, self.bytes)
    }

    fn encode(&self) -> Vec<u8> {
        [&self.count.to_le_bytes()[..], &self.bytes.to_le_bytes(), self.next].concat()
    }

    fn decode(bytes: &'a [u8]) -> Result<Self, NotARecord> {
        let (count, rest) = bytes.split_first_chunk().ok_or(NotARecord)?;
        let (bytes, next) = rest.split_first_chunk().ok_or(NotARecord)?;
        Ok(Self { count: i64::from_le_bytes(*count), bytes: i64::from_le_bytes(*bytes), next })
    }
}

impl Kind {
    /// Returns the kind of a znode that `session` creates at this ensemble time.
    pub fn of(kind: CreateKind, session: SessionId, ensemble_ms: u64) -> Self {
        match kind {
            CreateKind::Persistent => Self::Persistent,
            CreateKind::Ephemeral => Self::Ephemeral(session),
            CreateKind::Container => Self::Container,
            CreateKind::Ttl { ttl_ms } => Self::Ttl { ttl_ms, since_ms: ensemble_ms },
        }
    }

    /// Returns this kind after a change from which a time to live counts anew.
    #[must_use]
    pub fn renewed(self, ensemble_ms: u64) -> Self {
        match self {
            Self::Ttl { ttl_ms, .. } => Self::Ttl { ttl_ms, since_ms: ensemble_ms },
            Self::Persistent | Self::Ephemeral(_) | Self::Container => self,
        }
    }

    const PERSISTENT: u8 = 0;
    const EPHEMERAL: u8 = 1;
    const CONTAINER: u8 = 2;
    const TTL: u8 = 3;

    fn to_parts(self) -> (u8, u64) {
        match self {
            Self::Persistent => (Self::PERSISTENT, 0),
            Self::Ephemeral(owner) => (Self::EPHEMERAL, owner.0 as u64),
            Self::Container => (Self::CONTAINER, 0),
            Self::Ttl { ttl_ms, .. } => (Self::TTL, ttl_ms),
        }
    }

    /// Reads the kind of a record, of which `before` precedes the archive.
    fn from_parts(tag: u8, detail: u64, before: &[u8]) -> Result<Self, NotARecord> {
        if tag == Self::TTL {
            let since_ms = u64::from_le_bytes(before.try_into().map_err(|_| NotARecord)?);
            return Ok(Self::Ttl { ttl_ms: detail, since_ms });
        }
        if !before.is_empty() {
            return Err(NotARecord);
        }
        match tag {
            Self::PERSISTENT => Ok(Self::Persistent),
            Self::EPHEMERAL => Ok(Self::Ephemeral(SessionId(detail as i64))),
            Self::CONTAINER => Ok(Self::Container),
            _ => Err(NotARecord),
        }
    }
}

impl Data<'_> {
    const NULL: u8 = 0;
    const INLINE: u8 = 1;
    const LARGE: u8 = 2;
    const USAGE: u8 = 3;

    /// Returns the length of the data in bytes; null counts 0.
    pub fn length(&self) -> u32 {
        match self {
            Self::Null => 0,
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Large { length, .. } => *length,
            Self::Usage(usage) => u32::try_from(usage.text().len()).unwrap_or(u32::MAX),
        }
    }
}

/// The archive of a znode. Its layout is pinned by the golden bytes below and described in
/// docs/reference/formats.md. `since_ms` of a TTL znode precedes it as 8 bytes.
#[derive(Archive, Serialize)]
struct Stored<'a> {
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    ctime: i64,
    mtime: i64,
    kind_detail: u64,
    version: i32,
    creates: i32,
    aversion: i32,
    num_children: i32,
    data_length: u32,
    kind: u8,
    data_kind: u8,
    #[rkyv(with = InlineAsBox)]
    data: &'a [u8],
    #[rkyv(with = InlineAsBox)]
    acl: &'a [u8],
}

const _: () = assert!(size_of::<ArchivedStored<'static>>() == 86);
const _: () = assert!(align_of::<ArchivedStored<'static>>() == 1);

impl<'a> Znode<'a> {
    /// Decodes a record in place.
    ///
    /// # Errors
    /// [`NotARecord`] if the bytes are not a znode.
    pub fn decode(record: &'a [u8]) -> Result<Self, NotARecord> {
        let stored = rkyv::access::<ArchivedStored<'_>, Failure>(record).map_err(|_| NotARecord)?;
        let bytes: &'a [u8] = &stored.data;
        let data = match stored.data_kind {
            Data::NULL => Data::Null,
            Data::INLINE => Data::Inline(bytes),
            Data::LARGE => Data::Large {
                length: stored.data_length.to_native(),
                hash: u128::from_le_bytes(bytes.try_into().map_err(|_| NotARecord)?),
            },
            Data::USAGE => Data::Usage(Usage::decode(bytes)?),
            _ => return Err(NotARecord),
        };
        let bytes = size_of::<ArchivedStored<'static>>() + stored.data.len() + stored.acl.len();
        let before = &record[..record.len().checked_sub(bytes).ok_or(NotARecord)?];
        Ok(Self {
            czxid: stored.czxid.to_native(),
            mzxid: stored.mzxid.to_native(),
            pzxid: stored.pzxid.to_native(),
            ctime: stored.ctime.to_native(),
            mtime: stored.mtime.to_native(),
            version: stored.version.to_native(),
            creates: stored.creates.to_native(),
            aversion: stored.aversion.to_native(),
            num_children: stored.num_children.to_native(),
            kind: Kind::from_parts(stored.kind, stored.kind_detail.to_native(), before)?,
            data,
            acl: &stored.acl,
        })
    }

    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        self.encode_on(|_| None)
    }

    /// Encodes the record. A short record is written into memory from `pooled`, if that returns
    /// any.
    pub(crate) fn encode_on(&self, pooled: impl FnOnce(&[u8]) -> Option<Bytes>) -> Bytes {
        let (kind, kind_detail) = self.kind.to_parts();
        let (hash, usage);
        let (data_kind, data): (u8, &[u8]) = match self.data {
            Data::Null => (Data::NULL, &[]),
            Data::Inline(bytes) => (Data::INLINE, bytes),
            Data::Large { hash: of_record, .. } => {
                hash = of_record.to_le_bytes();
                (Data::LARGE, &hash)
            }
            Data::Usage(of_subtree) => {
                usage = of_subtree.encode();
                (Data::USAGE, &usage)
            }
        };
        let since = if let Kind::Ttl { since_ms, .. } = self.kind { since_ms.to_le_bytes() } else { [0; 8] };
        let before = if kind == Kind::TTL { &since[..] } else { &[] };
        archive(
            before,
            &Stored {
                czxid: self.czxid,
                mzxid: self.mzxid,
                pzxid: self.pzxid,
                ctime: self.ctime,
                mtime: self.mtime,
                kind_detail,
                version: self.version,
                creates: self.creates,
                aversion: self.aversion,
                num_children: self.num_children,
                data_length: self.data.length(),
                kind,
                data_kind,
                data,
                acl: self.acl,
            },
            size_of::<ArchivedStored<'static>>() + data.len() + self.acl.len(),
            pooled,
        )
    }

    /// Returns the Stat that clients see.
    ///
    /// Its cversion counts creates and deletes of children. Containers and TTL znodes show no owner
    /// (surface 4).
    pub fn stat(&self) -> Stat {
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.creates.wrapping_mul(2).wrapping_sub(self.num_children),
            aversion: self.aversion,
            ephemeral_owner: if let Kind::Ephemeral(owner) = self.kind { owner.0 } else { 0 },
            data_length: i32::try_from(self.data.length()).unwrap_or(i32::MAX),
            num_children: self.num_children,
            pzxid: self.pzxid,
        }
    }

    /// Returns the ACL that clients see.
    ///
    /// # Errors
    /// [`NotARecord`] if the stored ACL is invalid.
    pub fn acl_entries(&self) -> Result<Vec<AclEntry>, NotARecord> {
        acl::decode(self.acl).map_err(|_| NotARecord)
    }

    /// Returns the mark by which the reaper finds this znode; `None` if it must not be reaped.
    pub fn mark(&self) -> Option<Mark> {
        match self.kind {
            Kind::Container if self.num_children == 0 && self.creates > 0 => Some(Mark::Emptied),
            Kind::Ttl { ttl_ms, since_ms } if self.num_children == 0 => {
                Some(Mark::Due(since_ms.saturating_add(ttl_ms)))
            }
            Kind::Persistent | Kind::Ephemeral(_) | Kind::Container | Kind::Ttl { .. } => None,
        }
    }

    /// Returns the znode's time to live, as of this ensemble time.
    pub fn time_to_live(&self, ensemble_ms: u64) -> TimeToLive {
        let Kind::Ttl { ttl_ms, .. } = self.kind else { return TimeToLive::default() };
        let left_ms = match self.mark() {
            Some(Mark::Due(due_ms)) => Some(due_ms.saturating_sub(ensemble_ms)),
            Some(Mark::Emptied) | None => None,
        };
        TimeToLive { ttl_ms: Some(ttl_ms), left_ms }
    }
}

/// A stored session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// Negotiated timeout, milliseconds.
    pub timeout_ms: u32,
    /// Secret that the owner presents to continue the session.
    pub secret: SessionSecret,
    /// Server in whose process the owner lives; `None` for a remote client.
    pub home: Option<ServerId>,
}

/// The archive of a session. The id of its home, if any, precedes it as one byte.
#[derive(Archive, Serialize)]
struct StoredSession {
    timeout_ms: u32,
    secret: [u8; 16],
}

const _: () = assert!(size_of::<ArchivedStoredSession>() == 20);

impl Session {
    /// Decodes a record.
    ///
    /// # Errors
    /// [`NotARecord`] if the bytes are not a session.
    pub fn decode(record: &[u8]) -> Result<Self, NotARecord> {
        let (home, record) = match record {
            [home, record @ ..] if record.len() == size_of::<ArchivedStoredSession>() => {
                (Some(ServerId::new(*home).ok_or(NotARecord)?), record)
            }
            _ => (None, record),
        };
        let stored = rkyv::access::<ArchivedStoredSession, Failure>(record).map_err(|_| NotARecord)?;
        Ok(Self { timeout_ms: stored.timeout_ms.to_native(), secret: SessionSecret(stored.secret), home })
    }

    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let stored = StoredSession { timeout_ms: self.timeout_ms, secret: self.secret.0 };
        let archive = archive(&[], &stored, size_of::<ArchivedStoredSession>(), |_| None);
        match self.home {
            None => archive,
            Some(home) => [&[home.as_u8()], &archive[..]].concat().into(),
        }
    }
}

/// Replicated totals that no record holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Znodes, including the built-in ones.
    pub znodes: u64,
    /// Bytes of paths and data.
    pub data_bytes: u64,
    /// Ephemerals of all sessions.
    pub ephemerals: u64,
    /// Containers that may be reaped.
    pub reapable: u64,
    /// TTL znodes without children.
    pub ttl: u64,
    /// Subtrees whose usage is known or being counted.
    pub quotas: u64,
    /// Those of them whose usage is still being counted.
    pub counting: u64,
    /// Ensemble time of the last entry, milliseconds.
    pub ensemble_ms: u64,
    /// Version of the rules that apply entries: raised by a dedicated entry, never lowered.
    pub semantics: u32,
}

/// The archive of the totals. `ttl` precedes it as 8 bytes, unless it is 0. With quotas, `ttl`,
/// `quotas` and `counting` precede it as 8 bytes each.
#[derive(Archive, Serialize)]
struct StoredTotals {
    znodes: u64,
    data_bytes: u64,
    ephemerals: u64,
    reapable: u64,
    ensemble_ms: u64,
    semantics: u32,
}

const _: () = assert!(size_of::<ArchivedStoredTotals>() == 44);

impl Totals {
    /// Decodes the totals from a checkpoint's meta record.
    ///
    /// # Errors
    /// [`NotARecord`] if the bytes are not totals.
    pub fn decode(record: &[u8]) -> Result<Self, NotARecord> {
        let at = record.len().checked_sub(size_of::<ArchivedStoredTotals>()).ok_or(NotARecord)?;
        let (before, record) = record.split_at(at);
        let number = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        let (ttl, quotas, counting) = match *before.as_chunks::<8>().0 {
            _ if before.len() % 8 != 0 => return Err(NotARecord),
            [] => (0, 0, 0),
            [ttl] => (number(ttl), 0, 0),
            [ttl, quotas, counting] if [quotas, counting] != [[0; 8]; 2] => {
                (number(ttl), number(quotas), number(counting))
            }
            _ => return Err(NotARecord),
        };
        let stored = rkyv::access::<ArchivedStoredTotals, Failure>(record).map_err(|_| NotARecord)?;
        Ok(Self {
            znodes: stored.znodes.to_native(),
            data_bytes: stored.data_bytes.to_native(),
            ephemerals: stored.ephemerals.to_native(),
            reapable: stored.reapable.to_native(),
            ttl,
            quotas,
            counting,
            ensemble_ms: stored.ensemble_ms.to_native(),
            semantics: stored.semantics.to_native(),
        })
    }

    /// Encodes the totals for a checkpoint's meta record.
    pub fn encode(&self) -> Bytes {
        let Self { znodes, data_bytes, ephemerals, reapable, ttl, quotas, counting, ensemble_ms, semantics } = *self;
        let stored = StoredTotals { znodes, data_bytes, ephemerals, reapable, ensemble_ms, semantics };
        let numbers = [ttl, quotas, counting].map(u64::to_le_bytes);
        let before = match (ttl, quotas, counting) {
            (0, 0, 0) => &[][..],
            (_, 0, 0) => &numbers[..1],
            _ => &numbers,
        };
        archive(before.as_flattened(), &stored, size_of::<ArchivedStoredTotals>(), |_| None)
    }
}

/// Serializes straight into the given buffer, without scratch memory.
type Serializer<'a, 'b> = LowSerializer<Buffer<'b>, SubAllocator<'a>, Failure>;

/// Length that most records do not exceed, in bytes.
const SHORT: usize = 256;

/// Returns `before`, followed by the archive of `value`, which takes `bytes`.
fn archive(
    before: &[u8],
    value: &impl for<'a, 'b> Serialize<Serializer<'a, 'b>>,
    bytes: usize,
    pooled: impl FnOnce(&[u8]) -> Option<Bytes>,
) -> Bytes {
    let mut short = [0; SHORT];
    let bytes = before.len() + bytes;
    if let Some(place) = short.get_mut(..bytes) {
        write(before, value, place);
        return pooled(place).unwrap_or_else(|| shared(place));
    }
    // With one spare byte the buffer is shareable from the start; the first clone of an exact one
    // would allocate.
    let mut long = Vec::with_capacity(bytes + 1);
    long.resize(bytes, 0);
    write(before, value, &mut long);
    Bytes::from(long)
}

fn write(before: &[u8], value: &impl for<'a, 'b> Serialize<Serializer<'a, 'b>>, place: &mut [u8]) {
    let (first, place) = place.split_at_mut(before.len());
    first.copy_from_slice(before);
    let bytes = place.len();
    let written = to_bytes_in_with_alloc::<_, _, Failure>(value, Buffer::from(place), SubAllocator::new(&mut []));
    assert!(written.is_ok_and(|written| written.len() == bytes), "the place has the record's size");
}

/// Returns a short record in a single allocation, including its reference count.
///
/// A `Vec` converted to [`Bytes`] takes two. The allocation has the smallest allocator size class
/// that fits.
fn shared(record: &[u8]) -> Bytes {
    match record.len() {
        0..=32 => shared_in::<32>(record),
        33..=96 => shared_in::<96>(record),
        97..=128 => shared_in::<128>(record),
        129..=160 => shared_in::<160>(record),
        161..=192 => shared_in::<192>(record),
        193..=224 => shared_in::<224>(record),
        _ => shared_in::<SHORT>(record),
    }
}

fn shared_in<const N: usize>(record: &[u8]) -> Bytes {
    let mut whole = [0; N];
    whole[..record.len()].copy_from_slice(record);
    let mut shared = Bytes::from_owner(whole);
    shared.truncate(record.len());
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn znode() -> Znode<'static> {
        Znode {
            czxid: 1,
            mzxid: 2,
            pzxid: 3,
            ctime: 4,
            mtime: 5,
            version: 6,
            creates: 7,
            aversion: 8,
            num_children: 9,
            kind: Kind::Ephemeral(SessionId(10)),
            data: Data::Inline(b"dd"),
            acl: b"a",
        }
    }

    #[test]
    fn znode_session_and_totals_records_round_trip() {
        for kind in
            [Kind::Persistent, Kind::Ephemeral(SessionId(5)), Kind::Container, Kind::Ttl { ttl_ms: 9, since_ms: 7 }]
        {
            let usage = Data::Usage(Usage { count: -1, bytes: 1 << 40, next: b"n/a\0" });
            let large = Data::Large { length: 5000, hash: 77 };
            for data in [Data::Null, Data::Inline(b""), Data::Inline(b"xyz"), large, usage] {
                for acl in [&b""[..], b"acl"] {
                    let znode = Znode { kind, data, acl, ..znode() };
                    assert_eq!(Znode::decode(&znode.encode()), Ok(znode));
                }
            }
        }
        for home in [None, Some(ServerId::STANDALONE)] {
            let session = Session { timeout_ms: 4000, secret: SessionSecret([3; 16]), home };
            assert_eq!(Session::decode(&session.encode()), Ok(session));
        }
        let totals = Totals {
            znodes: 1,
            data_bytes: 2,
            ephemerals: 3,
            reapable: 4,
            ensemble_ms: 5,
            semantics: 6,
            ..Totals::default()
        };
        for (ttl, quotas, counting) in [(0, 0, 0), (7, 0, 0), (0, 8, 0), (7, 8, 9)] {
            let totals = Totals { ttl, quotas, counting, ..totals };
            assert_eq!(Totals::decode(&totals.encode()), Ok(totals));
        }
    }

    #[test]
    fn golden_bytes_of_a_znode() {
        let mut expected = b"dda".to_vec();
        for long in 1..=5i64 {
            expected.extend(long.to_le_bytes());
        }
        expected.extend(10u64.to_le_bytes());
        for int in 6..=9i32 {
            expected.extend(int.to_le_bytes());
        }
        expected.extend(2u32.to_le_bytes());
        expected.extend([1, 1]);
        // Relative pointers, each followed by its length: back to "dd" from byte 73, to "a" from
        // byte 81.
        for (offset, length) in [(-73i32, 2u32), (-79, 1)] {
            expected.extend(offset.to_le_bytes());
            expected.extend(length.to_le_bytes());
        }
        assert_eq!(znode().encode(), expected);
    }

    #[test]
    fn golden_bytes_of_a_ttl_znode_and_of_totals() {
        let ttl = Znode { kind: Kind::Ttl { ttl_ms: 10, since_ms: 0x0102 }, ..znode() }.encode();
        let mut other = znode().encode().to_vec();
        other[3 + 5 * 8 + 8 + 5 * 4] = 3;
        assert_eq!(ttl, [&[2, 1, 0, 0, 0, 0, 0, 0], &other[..]].concat());
        assert_eq!(Znode::decode(&other), Err(NotARecord), "it has no time to count from");
        let totals = |ttl| Totals { znodes: 1, ttl, ..Totals::default() }.encode();
        assert_eq!(totals(0), [&[1][..], &[0; 43]].concat());
        assert_eq!(totals(9), [&[9, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 43]].concat());
    }

    #[test]
    fn golden_bytes_of_a_usage_and_of_totals_with_quotas() {
        let usage = Usage { count: 3, bytes: 0x0102, next: b"n/a" };
        let stored: [&[u8]; 3] = [&[3, 0, 0, 0, 0, 0, 0, 0], &[2, 1, 0, 0, 0, 0, 0, 0], b"n/a"];
        let mut as_inline = Znode { data: Data::Inline(&stored.concat()), ..znode() }.encode().to_vec();
        let (length, kind) = (as_inline.len() - 22, as_inline.len() - 17);
        as_inline[length] = usage.text().len() as u8;
        as_inline[kind] = 3;
        assert_eq!(Znode { data: Data::Usage(usage), ..znode() }.encode(), as_inline);
        assert_eq!(usage.text(), "count=3,bytes=258");
        let totals = Totals { znodes: 1, quotas: 2, counting: 1, ..Totals::default() };
        let bare = Totals { znodes: 1, ..Totals::default() };
        let before = [0u64, 2, 1].map(u64::to_le_bytes).concat();
        assert_eq!(totals.encode(), [&before[..], &bare.encode()].concat());
        assert_eq!(Totals::decode(&totals.encode()[1..]), Err(NotARecord));
    }

    #[test]
    fn decoding_damaged_record_bytes_never_panics() {
        let good = znode().encode();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.to_vec();
                bytes[at] ^= 1 << bit;
                if let Ok(znode) = Znode::decode(&bytes) {
                    let _ = (znode.stat(), znode.acl_entries(), znode.encode());
                }
            }
        }
        for length in 0..good.len() {
            let _ = Znode::decode(&good[..length]);
            let _ = Session::decode(&good[..length]);
            let _ = Totals::decode(&good[..length]);
        }
    }

    #[test]
    fn shown_cversion_counts_creates_and_deletes() {
        let root = Znode { creates: 0, num_children: 1, ..znode() };
        assert_eq!(root.stat().cversion, -1);
        assert_eq!(Znode { creates: 5, num_children: 2, ..znode() }.stat().cversion, 8);
    }
}
