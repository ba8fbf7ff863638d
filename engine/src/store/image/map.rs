//! The only unsafe code of the engine: mapping an image into memory.
#![allow(unsafe_code, reason = "a map has no safe interface: the file could change under it")]

use bytes::Bytes;
use memmap2::Mmap;
use std::{fs::File, io, path::Path};

/// The bytes of a file, shared with the page cache.
pub(super) fn map(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    // What the map would say of it is what it says of a damaged one.
    if isize::try_from(file.metadata()?.len()).is_err() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // SAFETY: an image is complete before it gets its name and is never modified afterwards, so the bytes do not change while
    // the map lives; one who breaks that rule from outside can make this process read changed bytes, all of which are checked
    // against their bounds and checksums, or end it with SIGBUS by truncating the file, which Image::open documents.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}
