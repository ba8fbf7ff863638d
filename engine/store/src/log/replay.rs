//! Replays the surviving history after a zxid, in order.

use super::{
    Log, LogError, ReplayError,
    record::Record,
    walk::{Step, Walk},
};
use bytes::Bytes;
use zoolet_model::Zxid;

/// Reading back.
impl Log {
    /// Calls `visit` with every entry after `after`, in order, committed or not.
    ///
    /// `after` is the last entry of a durable checkpoint. [`super::Facts::watermark`] bounds the
    /// entries that may be applied before a new epoch commits the rest.
    ///
    /// # Errors
    /// [`LogError::Damaged`] also if the log does not continue `after`; otherwise the error of
    /// `visit`.
    pub fn replay<E>(
        &self,
        after: Zxid,
        visit: &mut dyn FnMut(Zxid, Bytes) -> Result<(), E>,
    ) -> Result<(), ReplayError<E>> {
        let newest = self.ring.live.back().map_or("", |segment| &segment.name);
        let Some(start) = self.ring.start_of(after) else {
            let oldest = self.ring.live.front().map_or("", |segment| &segment.name);
            return Err(LogError::damaged(
                oldest,
                0,
                format!("the entries after {after} are missing before this segment"),
            )
            .into());
        };
        let mut is_continued = self.facts.last == after;
        let mut gap = None;
        let walked = Walk::all(self.ring.live.range(start..), self.tail, &mut |step: Step<'_>| {
            let Record::Entry { zxid, payload } = step.record else { return Ok(()) };
            let survives = self.cuts.iter().all(|cut| cut.seq < step.seq || *zxid <= cut.to);
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
            let what = format!("the base ends at {after}, but the log continues with {next}");
            return Err(LogError::damaged(newest, self.tail, what).into());
        }
        if walked.is_none_or(|walk| walk.facts != self.facts || walk.next_seq != self.next_seq.0) {
            return Err(LogError::damaged(newest, self.tail, "the records do not match the facts").into());
        }
        Ok(())
    }
}
