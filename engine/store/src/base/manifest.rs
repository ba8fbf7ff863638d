//! The manifest: the list of the base's files, one small file that is replaced as a whole.

use super::{BaseError, run::NUMBERS_END, run_id::RunId};
use bytes::Bytes;
use zoolet_machine::seam::action::CheckpointMeta;
use zoolet_model::Zxid;

const MAGIC: [u8; 8] = *b"zltbase\x03";
/// Maximum length of a manifest, bytes. Totals have 44 bytes, and merges keep the number of runs
/// below hundreds.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// The content of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    pub(super) meta: CheckpointMeta,
    /// Newest first.
    pub(super) runs: Vec<RunId>,
    /// Least number of transactions that redb's file has seen. An older redb file in its place has
    /// fewer, and is refused.
    pub(super) steps: u64,
}

impl Manifest {
    pub(super) fn encode(&self, base: u64) -> Vec<u8> {
        let Self { meta, runs, steps } = self;
        let mut out = Vec::with_capacity(96 + meta.totals.len() + 24 * runs.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&base.to_le_bytes());
        out.extend_from_slice(&meta.zxid.to_bits().to_le_bytes());
        out.extend_from_slice(&meta.digest.to_le_bytes());
        put_bytes(&mut out, &meta.totals);
        out.extend_from_slice(&steps.to_le_bytes());
        put_count(&mut out, runs.len());
        runs.iter().for_each(|run| put_id(&mut out, *run));
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(super) fn decode(base: u64, bytes: &[u8]) -> Result<Self, BaseError> {
        let damaged = || BaseError::Damaged("its manifest is corrupt".into());
        let body = bytes.len().checked_sub(4).ok_or_else(damaged)?;
        let (body, checksum) = bytes.split_at(body);
        if checksum != crc32c::crc32c(body).to_le_bytes() {
            return Err(damaged());
        }
        if !body.starts_with(&MAGIC) {
            return Err(BaseError::Damaged("its manifest is of another format".into()));
        }
        Self::decode_fields(base, &body[MAGIC.len()..]).ok_or_else(damaged)
    }

    fn decode_fields(base: u64, bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        if rest.number()? != base {
            return None;
        }
        let zxid = Zxid::from_bits(rest.number()?)?;
        let digest = rest.wide()?;
        let totals = Bytes::copy_from_slice(rest.bytes()?);
        let meta = CheckpointMeta { zxid, digest, totals };
        let steps = rest.number()?;
        let runs = (0..rest.count()?).map(|_| rest.id()).collect::<Option<_>>()?;
        rest.0.is_empty().then_some(Self { meta, runs, steps })
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_id(out: &mut Vec<u8>, id: RunId) {
    out.extend_from_slice(&id.number.to_le_bytes());
    out.extend_from_slice(&id.hash.to_le_bytes());
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.take()?)).ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn wide(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.count()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn id(&mut self) -> Option<RunId> {
        Some(RunId { number: self.number().filter(|number| *number < NUMBERS_END)?, hash: self.wide()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            meta: CheckpointMeta {
                zxid: Zxid::from_bits(0x0102_0304_0506_0708).unwrap(),
                digest: 0x11,
                totals: Bytes::from_static(b"totals"),
            },
            runs: vec![RunId { number: 5, hash: 7 }],
            steps: 9,
        }
    }

    #[test]
    fn golden_manifest() {
        let bytes = manifest().encode(2);
        let mut expected = b"zltbase\x03\x02\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x11".to_vec();
        expected.resize(40, 0);
        expected.extend_from_slice(b"\x06\0\0\0totals\x09\0\0\0\0\0\0\0\x01\0\0\0\x05\0\0\0\0\0\0\0\x07");
        expected.resize(40 + 10 + 8 + 4 + 24, 0);
        assert_eq!(bytes[..bytes.len() - 4], expected);
        assert_eq!(Manifest::decode(2, &bytes), Ok(manifest()));
        assert!(Manifest::decode(3, &bytes).is_err());
    }

    #[test]
    fn flipped_or_shortened_manifest_is_damage() {
        let bytes = manifest().encode(2);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(matches!(Manifest::decode(2, &flipped), Err(BaseError::Damaged(_))), "byte {at}");
            assert!(matches!(Manifest::decode(2, &bytes[..at]), Err(BaseError::Damaged(_))), "cut at {at}");
        }
    }
}
