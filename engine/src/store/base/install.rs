//! A new base from an image: how a snapshot becomes what a server serves.

use super::{Base, record};
use crate::store::{
    digest::record_hash,
    disk::Disk,
    image::{Image, ImageError},
};
use std::sync::Arc;

impl Base {
    /// Makes a base of what an image holds, every record checked and the whole held against the image's digest. Complete and
    /// durable when it returns; which base is current only the log says.
    ///
    /// # Errors
    /// As [`ImageError`] says; files of this id, also those that a crash in here left, must be removed first.
    pub fn install(disk: Arc<dyn Disk>, id: u64, cache_bytes: usize, image: &Image) -> Result<Self, ImageError> {
        let meta = image.meta();
        Self::create_with(disk, id, cache_bytes, |opened| {
            opened.load(image.file_bytes() * 5 / 4, &meta, |insert| {
                let (mut stored, mut digest, mut outcome) = (Vec::new(), 0_u128, Ok(()));
                image.scan(b"", None, &mut |key, value| {
                    digest = digest.wrapping_add(record_hash(key, value));
                    stored.clear();
                    record::seal(key, value, &mut stored);
                    outcome = insert(key, &stored);
                    outcome.is_ok()
                })?;
                outcome?;
                if digest == meta.digest {
                    Ok(())
                } else {
                    Err(ImageError::Damaged("its records do not add up to its digest".into()))
                }
            })
        })
    }
}
