//! Maps an image into memory; the only unsafe code of the engine.
#![allow(unsafe_code, reason = "a map has no safe interface: the file could change under it")]

use bytes::Bytes;
use memmap2::Mmap;
use std::{fs::File, io, path::Path};

/// Returns a file's bytes, shared with the page cache.
pub(super) fn map(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    // Check the size first: for a file too large to map, memmap2 returns `InvalidData`, which
    // stands for damage here.
    if isize::try_from(file.metadata()?.len()).is_err() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // SAFETY: an image is complete before it gets its name and is never modified afterwards, so the
    // bytes do not change while the map lives. Another program that breaks this rule can make this
    // process read changed bytes, which are all checked against their bounds and checksums. By
    // truncating the file it can end this process with SIGBUS, as `Image::open` documents.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}
