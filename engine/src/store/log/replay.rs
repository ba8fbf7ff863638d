//! Replay: the surviving history after a zxid, in order.

use super::{
    Log, LogError, ReplayError,
    record::Record,
    walk::{Step, Walk},
};
use bytes::Bytes;
use std::convert::Infallible;
use zoolet_model::Zxid;

/// A cut of the history: entries above `to` that were appended before the record `seq` are no part of it.
struct Cut {
    seq: u64,
    to: Zxid,
}

/// Reading back.
impl Log {
    /// Calls `visit` with every entry after `after`, committed or not, in order. `after` is the zxid of a durable checkpoint; which
    /// of the entries may be applied before a new epoch commits the rest, [`super::Facts::watermark`] says.
    ///
    /// # Errors
    /// [`LogError::Damaged`] also when the log does not continue `after`; else what `visit` returned.
    pub fn replay<E>(
        &self,
        after: Zxid,
        visit: &mut dyn FnMut(Zxid, Bytes) -> Result<(), E>,
    ) -> Result<(), ReplayError<E>> {
        let newest = self.ring.live.back().map_or("", |segment| &segment.name);
        let Some(start) = self.ring.start_of(after) else {
            let oldest = self.ring.live.front().map_or("", |segment| &segment.name);
            return Err(LogError::damaged(oldest, 0, format!("entries after {after} are missing before it")).into());
        };
        let cuts = self.cuts_since(start)?;
        let mut is_continued = self.facts.last == after;
        let mut gap = None;
        let walked = Walk::all(self.ring.live.range(start..), self.tail, &mut |step: Step<'_>| {
            let Record::Entry { zxid, payload } = step.record else { return Ok(()) };
            let survives = cuts.iter().all(|cut| cut.seq < step.seq || *zxid <= cut.to);
            if *zxid <= after || !survives || gap.is_some() {
                return Ok(());
            }
            is_continued |= step.before.last == after;
            if is_continued {
                visit(*zxid, Bytes::copy_from_slice(payload))
            } else {
                gap = Some(*zxid);
                Ok(())
            }
        })?;
        if !is_continued {
            let next = gap.map_or_else(|| "nothing".to_owned(), |zxid| zxid.to_string());
            let what = format!("the base ends at {after}, the log goes on with {next}");
            return Err(LogError::damaged(newest, self.tail, what).into());
        }
        if walked.is_none_or(|walk| walk.facts != self.facts || walk.next_seq != self.next_seq.0) {
            return Err(LogError::damaged(newest, self.tail, "the records do not add up to the facts").into());
        }
        Ok(())
    }

    /// The chain hash after `to`; `None` when it is not in the history, or so old that its segment is gone.
    pub(super) fn find_chain(&self, to: Zxid) -> Result<Option<u128>, LogError> {
        if to == self.facts.last {
            return Ok(Some(self.facts.chain));
        }
        let Some(start) = self.ring.start_of(to) else { return Ok(None) };
        // The last time the history ended at `to`, unless it was cut below since.
        let mut found = None;
        self.walk_from(start, &mut |step| {
            if step.before.last == to {
                found = Some(step.before.chain);
            }
            match step.record {
                Record::Truncate { to: end, .. } | Record::SnapEnd { zxid: end, .. } if *end < to => found = None,
                _ => {}
            }
        })?;
        Ok(found)
    }

    /// The cuts that can concern entries of the live segments from `start` on. Most logs have none, and are read once.
    fn cuts_since(&self, start: usize) -> Result<Vec<Cut>, LogError> {
        let mut cuts: Vec<Cut> = Vec::new();
        if self.ring.live.get(start).is_none_or(|segment| segment.start_cuts == self.facts.cuts) {
            return Ok(cuts);
        }
        self.walk_from(start, &mut |step| {
            let to = match step.record {
                Record::Truncate { to, .. } => *to,
                // Nothing of the old history is left, also where the snapshot ends later than it did.
                Record::SnapEnd { .. } => Zxid::ZERO,
                _ => return,
            };
            // A later cut at or below an earlier one says all there is to say.
            cuts.retain(|earlier| earlier.to < to);
            cuts.push(Cut { seq: step.seq, to });
        })?;
        Ok(cuts)
    }

    fn walk_from(&self, start: usize, visit: &mut dyn FnMut(Step<'_>)) -> Result<(), LogError> {
        let walked = Walk::all(self.ring.live.range(start..), self.tail, &mut |step| {
            visit(step);
            Ok::<(), Infallible>(())
        });
        match walked {
            Ok(_) => Ok(()),
            Err(ReplayError::Log(error)) => Err(error),
            Err(ReplayError::Visit(never)) => match never {},
        }
    }
}
