//! The end of a segment: a batch without records in the last block of its file. It is written when the first batch of the next segment is
//! durable and before anybody is told of that; so where it stands, there was a next one.

use super::{
    AppendError, BLOCK_BYTES, END_BYTES, LogError, LogOptions,
    batch::{HEADER_BYTES, Header},
    read::Reader,
    ring::Segment,
};
use crate::store::disk::DiskFile;
use std::sync::Arc;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// An end that is not durable yet.
pub(super) struct End {
    file: Arc<dyn DiskFile>,
    at: u64,
    header: Header,
}

impl End {
    /// What ends `segment`, whose batches end at `tail`, when `next` is the header of a batch that says where they end. `None` when the file
    /// is full to its last block, as those before the first release were.
    pub(super) fn of(
        segment: &Segment,
        tail: u64,
        options: &LogOptions,
        next: Header,
    ) -> Result<Option<Self>, AppendError> {
        let file_bytes = segment.file.len().map_err(AppendError::Fatal)?;
        let at = last_block(file_bytes).max(tail);
        if at + u64::from(END_BYTES) > segment.bytes.max(options.segment_bytes.into()) {
            return Ok(None);
        }
        let header =
            Header { is_first: false, is_end: true, payload_bytes: 0, incarnation: segment.incarnation, ..next };
        Ok(Some(Self { file: segment.file.clone(), at, header }))
    }

    /// Makes it durable; says how many bytes were written.
    pub(super) fn write(&self, disk_incarnation: u128) -> Result<u64, AppendError> {
        let mut batch = vec![0; HEADER_BYTES];
        self.header.seal(disk_incarnation, &mut batch);
        self.file.write_at(self.at, &batch).map_err(AppendError::of_write)?;
        self.file.sync().map_err(AppendError::Fatal)?;
        Ok(batch.len() as u64)
    }
}

/// Where the segment of this incarnation is ended; `None` when it is not.
pub(super) fn find(reader: &mut Reader<'_>, incarnation: u64, disk_incarnation: u128) -> Result<Option<u64>, LogError> {
    let at = last_block(reader.file_bytes());
    let is_end = reader.header(at)?.is_some_and(|header| header.is_end && header.incarnation == incarnation);
    let is_intact = is_end && reader.batch(at, Some(disk_incarnation))?.is_some();
    Ok(is_intact.then_some(at))
}

/// The last whole block of a file of so many bytes.
fn last_block(file_bytes: u64) -> u64 {
    (file_bytes / BLOCK * BLOCK).saturating_sub(BLOCK)
}
