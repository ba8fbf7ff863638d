//! Reads batches of one segment through a window, which bounds memory.

use super::{
    BLOCK_BYTES, LogError,
    batch::{HEADER_BYTES, Header, VERSION, claimed_disk_incarnation},
};
use crate::disk::DiskFile;

/// Window of the first read and largest window, bytes. A larger batch is read as a whole.
const WINDOW_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=256 << 10;

pub(super) struct Reader<'a> {
    file: &'a dyn DiskFile,
    name: &'a str,
    file_bytes: u64,
    /// Offset of the window in the file.
    at: u64,
    window: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'a str, file: &'a dyn DiskFile) -> Result<Self, LogError> {
        let file_bytes = file.len().map_err(|error| LogError::io(name, error))?;
        Ok(Self { file, name, file_bytes, at: 0, window: Vec::new() })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Returns the header at `at`, intact or not; `None` if the bytes are not a header.
    pub(super) fn header(&mut self, at: u64) -> Result<Option<Header>, LogError> {
        Ok(self.bytes(at, HEADER_BYTES as u64)?.and_then(|bytes| bytes.first_chunk()).and_then(Header::parse))
    }

    /// Returns true if a block of zeroes starts at `at`, or the file ends there.
    pub(super) fn is_blank(&mut self, at: u64) -> Result<bool, LogError> {
        let count = self.file_bytes.saturating_sub(at).min(u64::from(BLOCK_BYTES));
        Ok(self.bytes(at, count)?.is_none_or(|block| block.iter().all(|&byte| byte == 0)))
    }

    /// Returns the intact batch at `at`: its header and its records.
    ///
    /// Without `disk_incarnation`, the batch's own facts name the disk.
    pub(super) fn batch(
        &mut self,
        at: u64,
        disk_incarnation: Option<u128>,
    ) -> Result<Option<(Header, &[u8])>, LogError> {
        let Some(header) = self.header(at)? else { return Ok(None) };
        let name = self.name;
        let Some(batch) = self.bytes(at, header.batch_bytes() as u64)? else { return Ok(None) };
        let Some(disk_incarnation) = disk_incarnation.or_else(|| claimed_disk_incarnation(batch)) else {
            return Ok(None);
        };
        if !header.is_intact(disk_incarnation, batch) {
            return Ok(None);
        }
        if header.version != VERSION {
            let what = format!("format version {}, this release knows {VERSION}", header.version);
            return Err(LogError::Unsupported { file: name.to_owned(), what });
        }
        Ok(Some((header, &batch[HEADER_BYTES..])))
    }

    fn bytes(&mut self, at: u64, count: u64) -> Result<Option<&[u8]>, LogError> {
        if at.checked_add(count).is_none_or(|end| end > self.file_bytes) {
            return Ok(None);
        }
        let window_end = self.at + self.window.len() as u64;
        if at < self.at || at + count > window_end {
            // A look at the start of a segment stays cheap, and a walk through all of it takes few
            // reads.
            let window = (2 * self.window.len() as u64).clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end());
            let wanted = count.max(window).min(self.file_bytes - at);
            self.window.resize(wanted as usize, 0);
            self.at = at;
            if let Err(error) = self.file.read_at(at, &mut self.window) {
                self.window.clear();
                return Err(LogError::io(self.name, error));
            }
            // One large batch must not keep its memory for the rest of a replay.
            self.window.shrink_to(*WINDOW_BYTES.end() as usize);
        }
        let from = (at - self.at) as usize;
        Ok(Some(&self.window[from..from + count as usize]))
    }
}
