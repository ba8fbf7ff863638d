//! Builds a base from an image file.

use super::{
    Base, BaseError, Options,
    database::{Mark, Opened},
};
use crate::disk::Disk;
use crate::image::record;
use crate::image::{Image, ImageError};
use std::sync::Arc;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::seam::action::CheckpointMeta;

impl Base {
    /// Makes a base from an image, complete and durable on return.
    ///
    /// Every record is verified, and all records together are compared with the image's digest.
    /// Only the log makes the base current.
    ///
    /// # Errors
    /// See [`ImageError`]. Files with this id must be removed first, including files left by a
    /// crash during this call.
    pub fn install(disk: Arc<dyn Disk>, id: u64, options: Options, image: &Image) -> Result<Self, ImageError> {
        Self::create_with(disk, id, options, |opened| fill(opened, image))
    }
}

fn fill(opened: &Opened, image: &Image) -> Result<CheckpointMeta, ImageError> {
    let meta = image.meta();
    let mark = Mark { zxid: meta.zxid, steps: 1 };
    opened.load(image.file_bytes() * 5 / 4, mark, |insert| {
        let (mut stored, mut digest, mut outcome) = (Vec::new(), 0_u128, Ok::<_, BaseError>(()));
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
            Err(ImageError::Damaged("its records do not match its digest".into()))
        }
    })?;
    Ok(meta)
}
