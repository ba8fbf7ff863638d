//! The end of a segment: a batch without records in the last block of its file.
//!
//! It is written when the first batch of the next segment is durable, before that batch is
//! acknowledged. So its presence proves that there was a next segment.

use super::{
    AppendError, BLOCK_BYTES, END_BYTES, LogError, LogOptions,
    batch::{HEADER_BYTES, Header},
    read::Reader,
    ring::Segment,
};
use crate::disk::DiskFile;
use std::sync::Arc;
use zoolet_zab::AppendSeq;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// An end that is not durable yet.
pub(super) struct End {
    /// Last append that was reported. Those after it are reported once this end is durable.
    pub(super) reported: AppendSeq,
    file: Arc<dyn DiskFile>,
    at: u64,
    header: Header,
}

impl End {
    /// Returns the end of `segment`, whose batches end at `tail`.
    ///
    /// `next` is the header of a batch that follows them, and `reported` the last append that was
    /// reported. Returns `None` if the file is full to its last block, as files written before the
    /// first release can be.
    pub(super) fn of(
        segment: &Segment,
        tail: u64,
        options: &LogOptions,
        next: Header,
        reported: AppendSeq,
    ) -> Result<Option<Self>, AppendError> {
        let file_bytes = segment.file.len().map_err(AppendError::Fatal)?;
        let at = last_block(file_bytes).max(tail);
        if at + u64::from(END_BYTES) > segment.bytes.max(options.segment_bytes.into()) {
            return Ok(None);
        }
        let header =
            Header { is_first: false, is_end: true, payload_bytes: 0, incarnation: segment.incarnation, ..next };
        Ok(Some(Self { reported, file: segment.file.clone(), at, header }))
    }

    /// Makes the end durable. Returns the bytes written.
    pub(super) fn write(&self, disk_incarnation: u128) -> Result<u64, AppendError> {
        let mut batch = vec![0; HEADER_BYTES];
        self.header.seal(disk_incarnation, &mut batch);
        self.file.write_at(self.at, &batch).map_err(AppendError::of_write)?;
        self.file.sync().map_err(AppendError::Fatal)?;
        Ok(batch.len() as u64)
    }
}

/// Returns where the segment of this incarnation is ended; `None` if it is not.
pub(super) fn find(reader: &mut Reader<'_>, incarnation: u64, disk_incarnation: u128) -> Result<Option<u64>, LogError> {
    let at = last_block(reader.file_bytes());
    let is_end = reader.header(at)?.is_some_and(|header| header.is_end && header.incarnation == incarnation);
    let is_intact = is_end && reader.batch(at, Some(disk_incarnation))?.is_some();
    Ok(is_intact.then_some(at))
}

/// Returns the offset of the last whole block in a file of `file_bytes`.
fn last_block(file_bytes: u64) -> u64 {
    (file_bytes / BLOCK * BLOCK).saturating_sub(BLOCK)
}
