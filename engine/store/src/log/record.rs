//! Encodes records: `length u32, kind u8, body`, little-endian.

use super::facts::Facts;
use bytes::Bytes;
use zoolet_machine::seam::action::LogRecord;
use zoolet_model::Zxid;
use zoolet_zab::Epoch;

/// Bytes of the length and the kind.
pub(super) const RECORD_HEADER_BYTES: usize = 5;

/// The kind byte of each record. Never reused, never renumbered.
pub(super) mod kind {
    pub(in super::super) const FACTS: u8 = 1;
    pub(in super::super) const ENTRY: u8 = zoolet_machine::record::ENTRY_KIND;
    pub(super) const PROMISE: u8 = 3;
    pub(super) const EPOCH: u8 = 4;
    pub(super) const TRUNCATE: u8 = 5;
    pub(super) const CONFIG: u8 = 6;
    pub(super) const SNAP_BEGIN: u8 = 7;
    pub(super) const SNAP_END: u8 = 8;
    pub(super) const BIRTH: u8 = 9;
    pub(super) const DAMAGED: u8 = 10;
}

/// A record as stored in a segment: a [`LogRecord`] or an addition of the log.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Record<'a> {
    /// All facts as of the record before. Only the first record of a segment is of this kind. It
    /// has no append number.
    Facts {
        facts: Box<Facts>,
        /// Length of the segment's file, bytes; 0 if the file grows.
        file_bytes: u64,
    },
    Entry {
        zxid: Zxid,
        payload: &'a [u8],
    },
    Promise(Epoch),
    Epoch(Epoch),
    /// Includes the chain hash at `to`, so that a reader that starts after `to` can continue.
    Truncate {
        to: Zxid,
        chain: u128,
    },
    Config {
        committed: Bytes,
        last_seen: Bytes,
    },
    SnapBegin {
        zxid: Zxid,
        base: u64,
    },
    SnapEnd {
        base: u64,
        zxid: Zxid,
        chain: u128,
    },
    Birth {
        ensemble: u128,
    },
    Damaged,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Malformed {
    /// Written by a newer release.
    UnknownKind(u8),
    /// The checksum is right and the content is wrong, so the writer was faulty.
    Content(&'static str),
}

impl<'a> Record<'a> {
    /// Returns the record as the log keeps it.
    ///
    /// `chain` is the chain hash at a Truncate's `to`; it is unused for other records.
    pub(super) fn of(record: &'a LogRecord, chain: u128) -> Self {
        match record {
            LogRecord::Entry { zxid, payload } => Self::Entry { zxid: *zxid, payload },
            LogRecord::Promise(epoch) => Self::Promise(*epoch),
            LogRecord::Epoch(epoch) => Self::Epoch(*epoch),
            LogRecord::Truncate { to } => Self::Truncate { to: *to, chain },
            LogRecord::Config { committed, last_seen } => {
                Self::Config { committed: committed.clone(), last_seen: last_seen.clone() }
            }
            LogRecord::SnapBegin { zxid, base } => Self::SnapBegin { zxid: *zxid, base: *base },
            LogRecord::SnapEnd { base, zxid, chain } => Self::SnapEnd { base: *base, zxid: *zxid, chain: *chain },
            LogRecord::Birth { ensemble } => Self::Birth { ensemble: *ensemble },
            LogRecord::Damaged => Self::Damaged,
        }
    }

    /// Returns true if the record takes an append number.
    pub(super) fn is_numbered(&self) -> bool {
        !matches!(self, Self::Facts { .. })
    }

    /// Appends the record's bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        let kind = match self {
            Self::Facts { facts, file_bytes } => {
                facts.encode(out);
                put_u64(out, *file_bytes);
                kind::FACTS
            }
            Self::Entry { zxid, payload } => {
                put_u64(out, zxid.to_bits());
                out.extend_from_slice(payload);
                kind::ENTRY
            }
            Self::Promise(epoch) => {
                put_u32(out, epoch.as_u32());
                kind::PROMISE
            }
            Self::Epoch(epoch) => {
                put_u32(out, epoch.as_u32());
                kind::EPOCH
            }
            Self::Truncate { to, chain } => {
                put_u64(out, to.to_bits());
                put_u128(out, *chain);
                kind::TRUNCATE
            }
            Self::Config { committed, last_seen } => {
                put_bytes(out, committed);
                put_bytes(out, last_seen);
                kind::CONFIG
            }
            Self::SnapBegin { zxid, base } => {
                put_u64(out, zxid.to_bits());
                put_u64(out, *base);
                kind::SNAP_BEGIN
            }
            Self::SnapEnd { base, zxid, chain } => {
                put_u64(out, *base);
                put_u64(out, zxid.to_bits());
                put_u128(out, *chain);
                kind::SNAP_END
            }
            Self::Birth { ensemble } => {
                put_u128(out, *ensemble);
                kind::BIRTH
            }
            Self::Damaged => kind::DAMAGED,
        };
        let length = length(out.len() - start - RECORD_HEADER_BYTES);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        out[start + 4] = kind;
    }

    /// Decodes one record and removes it from the front.
    pub(super) fn decode(bytes: &mut &'a [u8]) -> Result<Self, Malformed> {
        let mut input = Input(bytes);
        let length = input.u32()? as usize;
        let kind = input.u8()?;
        let mut body = Input(input.take(length)?);
        *bytes = input.0;
        let record = match kind {
            kind::FACTS => {
                let facts = Box::new(Facts::decode(&mut body)?);
                // Facts written before the first release end here.
                let file_bytes = if body.0.is_empty() { 0 } else { body.u64()? };
                Self::Facts { facts, file_bytes }
            }
            kind::ENTRY => Self::Entry { zxid: body.zxid()?, payload: body.rest() },
            kind::PROMISE => Self::Promise(body.epoch()?),
            kind::EPOCH => Self::Epoch(body.epoch()?),
            kind::TRUNCATE => Self::Truncate { to: body.zxid()?, chain: body.u128()? },
            kind::CONFIG => Self::Config { committed: body.bytes()?, last_seen: body.bytes()? },
            kind::SNAP_BEGIN => Self::SnapBegin { zxid: body.zxid()?, base: body.u64()? },
            kind::SNAP_END => Self::SnapEnd { base: body.u64()?, zxid: body.zxid()?, chain: body.u128()? },
            kind::BIRTH => Self::Birth { ensemble: body.u128()? },
            kind::DAMAGED => Self::Damaged,
            unknown => return Err(Malformed::UnknownKind(unknown)),
        };
        if body.0.is_empty() { Ok(record) } else { Err(Malformed::Content("a record is too long")) }
    }
}

/// Returns the bytes that `record` takes in a batch.
pub(super) fn encoded_bytes(record: &LogRecord) -> usize {
    RECORD_HEADER_BYTES
        + match record {
            LogRecord::Entry { payload, .. } => 8 + payload.len(),
            LogRecord::Promise(_) | LogRecord::Epoch(_) => 4,
            LogRecord::Truncate { .. } => 24,
            LogRecord::Config { committed, last_seen } => 8 + committed.len() + last_seen.len(),
            LogRecord::SnapBegin { .. } | LogRecord::Birth { .. } => 16,
            LogRecord::SnapEnd { .. } => 32,
            LogRecord::Damaged => 0,
        }
}

/// Converts a length. A record fits into a segment, whose length is a `u32`.
pub(super) fn length(bytes: usize) -> u32 {
    debug_assert!(u32::try_from(bytes).is_ok(), "a record outgrew every segment");
    bytes as u32
}

pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u128(out: &mut Vec<u8>, value: u128) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, length(bytes.len()));
    out.extend_from_slice(bytes);
}

/// Bytes that are not decoded yet.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Content("a record is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Content("a record is too short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, Malformed> {
        self.array().map(u128::from_le_bytes)
    }

    pub(super) fn zxid(&mut self) -> Result<Zxid, Malformed> {
        Zxid::from_bits(self.u64()?).ok_or(Malformed::Content("a zxid is negative"))
    }

    pub(super) fn epoch(&mut self) -> Result<Epoch, Malformed> {
        Epoch::new(self.u32()?).ok_or(Malformed::Content("an epoch has more than 23 bits"))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let length = self.u32()? as usize;
        self.take(length).map(Bytes::copy_from_slice)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes records of every kind, changes each byte and cuts them at each length.
    #[test]
    fn altered_log_record_bytes_never_panic() {
        let mut facts = Facts::birth(1, 2);
        facts.config_last_seen = Bytes::from_static(b"three");
        let records = [
            Record::Facts { facts: Box::new(facts), file_bytes: 20480 },
            Record::Entry { zxid: Zxid::ZERO, payload: b"payload" },
            Record::Promise(Epoch::MAX),
            Record::Epoch(Epoch::ZERO),
            Record::Truncate { to: Zxid::ZERO, chain: 9 },
            Record::Config { committed: Bytes::from_static(b"a"), last_seen: Bytes::from_static(b"bc") },
            Record::SnapBegin { zxid: Zxid::ZERO, base: 1 },
            Record::SnapEnd { base: 1, zxid: Zxid::ZERO, chain: 9 },
            Record::Birth { ensemble: 5 },
            Record::Damaged,
        ];
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let mut whole = bytes.as_slice();
            assert_eq!(Record::decode(&mut whole).as_ref(), Ok(&record));
            assert!(whole.is_empty());
            for length in 0..bytes.len() {
                assert!(Record::decode(&mut &bytes[..length]).is_err());
            }
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut other = bytes.clone();
                    other[at] = value;
                    let mut other = other.as_slice();
                    if let Ok(record) = Record::decode(&mut other) {
                        // Any record that decodes, right or wrong, must not make `pass` panic.
                        let _ = Facts::birth(1, 2).pass(&record);
                    }
                }
            }
        }
    }

    #[test]
    fn predicted_log_record_size_equals_its_encoded_size() {
        let records = [
            LogRecord::Entry { zxid: Zxid::ZERO, payload: Bytes::from_static(b"payload") },
            LogRecord::Promise(Epoch::ZERO),
            LogRecord::Epoch(Epoch::ZERO),
            LogRecord::Truncate { to: Zxid::ZERO },
            LogRecord::Config { committed: Bytes::from_static(b"a"), last_seen: Bytes::from_static(b"bc") },
            LogRecord::SnapBegin { zxid: Zxid::ZERO, base: 1 },
            LogRecord::SnapEnd { base: 1, zxid: Zxid::ZERO, chain: 9 },
            LogRecord::Birth { ensemble: 5 },
            LogRecord::Damaged,
        ];
        for record in records {
            let mut bytes = Vec::new();
            Record::of(&record, 0).encode(&mut bytes);
            assert_eq!(bytes.len(), encoded_bytes(&record), "{record:?}");
        }
    }
}
