//! A new base from an image: how a snapshot becomes what a server serves.

use super::{
    Base, BaseError, Core, Options,
    part::PartWriter,
    record,
    version::{Piece, Version},
};
use crate::store::{
    digest::record_hash,
    disk::Disk,
    image::{Image, ImageError},
    key::Key,
};
use std::sync::Arc;
use zoolet_model::Zxid;

impl Base {
    /// Makes a base of what an image holds, every record checked and the whole held against the image's digest. Complete and
    /// durable when it returns; which base is current only the log says.
    ///
    /// # Errors
    /// As [`ImageError`] says; files of this id, also those that a crash in here left, must be removed first.
    pub fn install(disk: Arc<dyn Disk>, id: u64, options: Options, image: &Image) -> Result<Self, ImageError> {
        Self::create_with(disk, id, options, |core, numbers| fill(core, numbers, image))
    }
}

fn fill(core: &Core, numbers: &mut u64, image: &Image) -> Result<Version, ImageError> {
    let meta = image.meta();
    let mut filling = Filling { core, numbers, zxid: meta.zxid, parts: Vec::new(), writing: None };
    let (mut stored, mut digest, mut outcome) = (Vec::new(), 0_u128, Ok(()));
    image.scan(b"", None, &mut |key, value| {
        digest = digest.wrapping_add(record_hash(key, value));
        stored.clear();
        record::seal(key, value, &mut stored);
        outcome = filling.push(key, &stored).map_err(ImageError::from);
        outcome.is_ok()
    })?;
    outcome?;
    filling.finish_part()?;
    if digest != meta.digest {
        return Err(ImageError::Damaged("its records do not add up to its digest".into()));
    }
    Ok(Version { meta, runs: Vec::new(), parts: filling.parts })
}

/// Parts in the making, one after another.
struct Filling<'a> {
    core: &'a Core,
    numbers: &'a mut u64,
    zxid: Zxid,
    parts: Vec<Piece>,
    writing: Option<(Key, PartWriter)>,
}

impl Filling<'_> {
    fn push(&mut self, key: &[u8], stored: &[u8]) -> Result<(), BaseError> {
        if self.writing.as_ref().is_some_and(|(_, writer)| writer.bytes() >= self.core.options.part_bytes) {
            self.finish_part()?;
        }
        let (_, writer) = match &mut self.writing {
            Some(writing) => writing,
            none => none.insert((key.into(), self.core.new_part(self.numbers, None)?)),
        };
        writer.push(key, stored)
    }

    fn finish_part(&mut self) -> Result<(), BaseError> {
        if let Some((from, writer)) = self.writing.take() {
            self.parts.push(Piece { from, part: Arc::new(writer.finish(self.zxid)?) });
        }
        Ok(())
    }
}
