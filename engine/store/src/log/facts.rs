//! The facts: the state that a log records besides its entries, and how each record changes it.

use super::record::{Input, Malformed, Record, put_bytes, put_u16, put_u32, put_u64, put_u128};
use bytes::Bytes;
use zoolet_machine::record::chain_after;
use zoolet_model::Zxid;
use zoolet_zab::{Epoch, SPANS_MAX, Span, Spans};

/// Everything that the first batch of a segment restates.
///
/// These invariants are checked at every record:
///
/// - Epochs and the watermark never go back.
/// - `current <= accepted` and `watermark <= last`.
/// - The history has no gaps.
/// - A truncation removes nothing at or below the watermark.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Ensemble of which this server is a member; 0 before its birth.
    pub ensemble_id: u128,
    /// Number of this disk, drawn when the log was created.
    pub disk_incarnation: u128,
    /// Newest promised epoch (Zab's f.p).
    pub accepted: Epoch,
    /// Newest epoch whose initial history is in this log (Zab's f.a).
    pub current: Epoch,
    /// Newest configuration known to be committed, as the membership encodes it.
    pub config_committed: Bytes,
    /// Newest configuration seen.
    pub config_last_seen: Bytes,
    /// Id of the current base.
    pub base_id: u64,
    /// The snapshot that is being received.
    pub receiving: Option<Receiving>,
    /// Entries up to this one are known to be committed.
    pub watermark: Zxid,
    /// Last entry of the history.
    pub last: Zxid,
    /// Chain hash after the last entry.
    pub chain: u128,
    /// The history, epoch by epoch. Only the newest 64 are remembered.
    pub spans: Spans,
    /// True if this server counts nowhere until a snapshot has replaced its state.
    ///
    /// Either this log replaced a lost one, or its history differs from its leader's.
    pub is_damaged: bool,
    /// Number of cuts of the history, by Truncate or SnapEnd. It tells a reader whether to look
    /// ahead.
    pub cuts: u64,
}

/// A snapshot that began and has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiving {
    /// Last entry in the snapshot.
    pub zxid: Zxid,
    /// Id of the base to which it is written.
    pub base_id: u64,
}

/// Flags of encoded facts.
const RECEIVING: u8 = 1;
const DAMAGED: u8 = 2;

impl Facts {
    /// Returns the facts of an empty disk.
    pub fn birth(ensemble_id: u128, disk_incarnation: u128) -> Self {
        Self { ensemble_id, disk_incarnation, ..Self::default() }
    }

    /// Checks the invariants of facts that were decoded or given by the caller.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.current > self.accepted {
            return Err("the current epoch is newer than the accepted one");
        }
        if self.watermark > self.last {
            return Err("the log lacks committed entries");
        }
        if self.spans.last() != self.last {
            return Err("the epochs do not end where the history ends");
        }
        Ok(())
    }

    /// Applies one record. Fails with the invariant that it breaks.
    pub(super) fn pass(&mut self, record: &Record<'_>) -> Result<(), &'static str> {
        match record {
            Record::Facts { facts: restated, .. } => {
                if **restated != *self {
                    return Err("the restated facts differ from the recorded facts");
                }
            }
            Record::Entry { zxid, payload } => {
                if !follows(self.last, *zxid) {
                    return Err("the history has a gap");
                }
                self.spans.push(*zxid);
                self.chain = chain_after(self.chain, *zxid, payload);
                self.last = *zxid;
            }
            Record::Promise(epoch) => {
                if *epoch < self.accepted {
                    return Err("a promised epoch goes back");
                }
                self.accepted = *epoch;
            }
            Record::Epoch(epoch) => {
                if *epoch < self.current || *epoch > self.accepted {
                    return Err("the current epoch goes back or was never promised");
                }
                self.current = *epoch;
            }
            Record::Truncate { to, chain } => {
                if *to < self.watermark || *to > self.last {
                    return Err("a truncation removes committed entries, or ends beyond the history");
                }
                // `spans` may have forgotten the epoch. Then the chain hash vouches, because the
                // log read it at this entry.
                if !self.spans.may_contain(*to) {
                    return Err("a truncation ends at an entry that is not in the history");
                }
                self.spans.truncate(*to);
                (self.last, self.chain) = (*to, *chain);
                self.cuts += 1;
            }
            Record::Config { committed, last_seen } => {
                (self.config_committed, self.config_last_seen) = (committed.clone(), last_seen.clone());
            }
            Record::SnapBegin { zxid, base } => self.receiving = Some(Receiving { zxid: *zxid, base_id: *base }),
            Record::SnapEnd { base, zxid, chain } => {
                // A SnapEnd needs no SnapBegin before it. A base that no SnapEnd names does not
                // count, and is removed at the next start.
                if self.receiving.is_some_and(|receiving| receiving != Receiving { zxid: *zxid, base_id: *base }) {
                    return Err("the snapshot that ends is not the snapshot that began");
                }
                if *zxid < self.watermark {
                    return Err("a snapshot removes committed entries");
                }
                (self.receiving, self.is_damaged) = (None, false);
                self.base_id = *base;
                (self.last, self.chain, self.watermark) = (*zxid, *chain, *zxid);
                self.spans = Spans::EMPTY;
                self.spans.push_span(Span { epoch: zxid.epoch(), last: zxid.counter() });
                self.cuts += 1;
            }
            Record::Birth { ensemble } => {
                // A birth precedes the entry that completes it. A crash in between leaves an
                // ensemble that never existed, and another birth may follow.
                self.ensemble_id = *ensemble;
            }
            Record::Damaged => self.is_damaged = true,
        }
        Ok(())
    }

    /// Applies a batch's watermark, after its records.
    pub(super) fn commit(&mut self, watermark: Zxid) {
        self.watermark = self.watermark.max(watermark.min(self.last));
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // Comes first, because it seeds the checksum of the batch around it (batch.rs).
        put_u128(out, self.disk_incarnation);
        put_u128(out, self.ensemble_id);
        put_u32(out, self.accepted.as_u32());
        put_u32(out, self.current.as_u32());
        put_u64(out, self.base_id);
        let receives = if self.receiving.is_some() { RECEIVING } else { 0 };
        out.push(receives | if self.is_damaged { DAMAGED } else { 0 });
        put_u64(out, self.receiving.map_or(0, |receiving| receiving.zxid.to_bits()));
        put_u64(out, self.receiving.map_or(0, |receiving| receiving.base_id));
        put_u64(out, self.watermark.to_bits());
        put_u64(out, self.last.to_bits());
        put_u128(out, self.chain);
        put_u64(out, self.cuts);
        put_u16(out, self.spans.iter().count() as u16);
        for span in self.spans.iter() {
            put_u32(out, span.epoch.as_u32());
            put_u64(out, span.last);
        }
        put_bytes(out, &self.config_committed);
        put_bytes(out, &self.config_last_seen);
    }

    pub(super) fn decode(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut facts = Self {
            disk_incarnation: input.u128()?,
            ensemble_id: input.u128()?,
            accepted: input.epoch()?,
            current: input.epoch()?,
            base_id: input.u64()?,
            ..Self::default()
        };
        let flags = input.u8()?;
        if flags & !(RECEIVING | DAMAGED) != 0 {
            return Err(Malformed::Content("unknown flags"));
        }
        let receiving = Receiving { zxid: input.zxid()?, base_id: input.u64()? };
        facts.receiving = (flags & RECEIVING != 0).then_some(receiving);
        facts.is_damaged = flags & DAMAGED != 0;
        facts.watermark = input.zxid()?;
        facts.last = input.zxid()?;
        facts.chain = input.u128()?;
        facts.cuts = input.u64()?;
        let count = usize::from(input.u16()?);
        if count > SPANS_MAX {
            return Err(Malformed::Content("too many epochs"));
        }
        let mut newest = None;
        for _ in 0..count {
            let span = Span { epoch: input.epoch()?, last: input.u64()? };
            if newest.is_some_and(|newest| newest >= span.epoch) || Zxid::new(span.epoch, span.last).is_none() {
                return Err(Malformed::Content("epochs do not ascend"));
            }
            newest = Some(span.epoch);
            facts.spans.push_span(span);
        }
        facts.config_committed = input.bytes()?;
        facts.config_last_seen = input.bytes()?;
        facts.check().map_err(Malformed::Content)?;
        Ok(facts)
    }
}

/// Returns true if `zxid` can come directly after `last`: its successor, or the no-op of a later
/// epoch.
///
/// No entry belongs to epoch 0.
fn follows(last: Zxid, zxid: Zxid) -> bool {
    if zxid.epoch() > last.epoch() { zxid.counter() == 0 } else { last != Zxid::ZERO && last.next() == Some(zxid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_must_follow_its_predecessor_or_open_a_newer_epoch() {
        let zxid = |epoch: u32, counter| Zxid::new(Epoch::new(epoch).unwrap(), counter).unwrap();
        let last = zxid(3, 4);
        assert!(follows(last, zxid(3, 5)) && follows(last, zxid(4, 0)) && follows(last, zxid(9, 0)));
        for other in [last, zxid(3, 3), zxid(3, 6), zxid(4, 1), zxid(2, 0), zxid(2, 5), zxid(3, 0)] {
            assert!(!follows(last, other), "{other:?}");
        }
        let full = zxid(3, Zxid::COUNTER_MAX);
        assert!(follows(full, zxid(4, 0)) && !follows(full, zxid(4, 1)));
    }

    #[test]
    fn first_entry_of_a_history_must_open_an_epoch() {
        let mut facts = Facts::birth(1, 2);
        let entry = |bits| Record::Entry { zxid: Zxid::from_bits(bits).unwrap(), payload: b"" };
        assert!(facts.pass(&entry(0)).is_err());
        assert!(facts.pass(&entry(1)).is_err());
        assert!(facts.pass(&entry(1 << 40)).is_ok());
    }
}
