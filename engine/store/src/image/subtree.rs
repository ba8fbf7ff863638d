//! An image of a few znodes, as clients see them: last-known-good.

use super::{Image, ImageError, damaged};
use crate::disk::Disk;
use bytes::Bytes;
use std::collections::BTreeMap;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::record::key::{self, Key};
use zoolet_machine::record::znode::{Data, INLINE_DATA_MAX, Kind, Totals, Znode};
use zoolet_machine::seam::action::{BaseRead, CheckpointMeta};
use zoolet_machine::seam::event::BaseFailure;
use zoolet_model::{Path, Stat, Zxid};

/// The znodes of an image.
///
/// Each znode is stored as persistent and with the open ACL, because a reader of the image has no
/// session. Child counts cover only the znodes in the image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subtree {
    records: BTreeMap<Key, Bytes>,
    digest: u128,
    totals: Totals,
}

impl Subtree {
    /// Adds a znode with `num_children` children in this image.
    ///
    /// A path that no znode can have is ignored, and so is a path that was added before.
    pub fn add(&mut self, path: &Path, data: Option<&[u8]>, stat: &Stat, num_children: i32) {
        let (Some(place), Some(data_place)) = (key::znode(path.as_str()), key::data(path.as_str())) else { return };
        if self.records.contains_key(&place) {
            return;
        }
        let data = match data {
            None => Data::Null,
            Some(bytes) if bytes.len() <= INLINE_DATA_MAX => Data::Inline(bytes),
            Some(bytes) => {
                let hash = record_hash(&data_place, bytes);
                self.put(data_place, Bytes::copy_from_slice(bytes));
                Data::Large { length: u32::try_from(bytes.len()).unwrap_or(u32::MAX), hash }
            }
        };
        let znode = Znode {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.czxid,
            ctime: stat.ctime,
            mtime: stat.mtime,
            version: stat.version,
            creates: num_children,
            aversion: stat.aversion,
            num_children,
            kind: Kind::Persistent,
            data,
            acl: &[],
        };
        self.totals.znodes += 1;
        self.totals.data_bytes += path.as_str().len() as u64 + u64::from(data.length());
        self.put(place, znode.encode());
    }

    fn put(&mut self, key: Key, value: Bytes) {
        self.digest = self.digest.wrapping_add(record_hash(&key, &value));
        self.records.insert(key, value);
    }

    /// Returns whether no znode was added.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the bytes of all paths and data.
    pub fn bytes(&self) -> u64 {
        self.totals.data_bytes
    }

    /// Returns the digest of all records.
    ///
    /// Equal digests mean equal images, except for the zxid.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Writes the image as [`write()`](super::write()) does.
    ///
    /// # Errors
    /// As [`ImageError`] says; an existing image is then untouched.
    pub fn write(&self, disk: &dyn Disk, name: &str, zxid: Zxid) -> Result<u64, ImageError> {
        let meta = CheckpointMeta { zxid, digest: self.digest, totals: self.totals.encode() };
        super::write(disk, name, self, &meta)
    }
}

impl BaseRead for Subtree {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Ok(self.records.get(key).cloned())
    }

    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        let from = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        let mut keys = self.records.range::<[u8], _>(from).map(|(key, _)| &**key);
        let _ = keys.by_ref().take_while(|key| to.is_none_or(|to| *key < to)).all(visit);
        Ok(())
    }
}

impl Image {
    /// Returns a znode's data and stat; `None` if it does not exist.
    ///
    /// Copies nothing from a mapped file.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] and [`ImageError::Io`].
    pub fn znode(&self, path: &Path) -> Result<Option<(Option<Bytes>, Stat)>, ImageError> {
        let Some(place) = key::znode(path.as_str()) else { return Ok(None) };
        let Some(record) = self.value(&place)? else { return Ok(None) };
        let znode =
            Znode::decode(&record).map_err(|_| damaged(format!("the record of {} is not a znode", path.as_str())))?;
        let data = match znode.data {
            Data::Null => None,
            Data::Inline(bytes) => Some(record.slice_ref(bytes)),
            Data::Usage(usage) => Some(usage.text().into()),
            Data::Large { .. } => {
                let place = key::data(path.as_str());
                let data = place.map_or(Ok(None), |place| self.value(&place))?;
                Some(data.ok_or_else(|| damaged(format!("the data of {} is missing", path.as_str())))?)
            }
        };
        Ok(Some((data, znode.stat())))
    }

    fn value(&self, key: &[u8]) -> Result<Option<Bytes>, ImageError> {
        self.record(key).map_err(|failure| match failure {
            BaseFailure::Damaged(what) => ImageError::Damaged(what),
            BaseFailure::Io(what) => ImageError::Io(what),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_added_twice_counts_once() {
        let (path, stat) = (Path::new(zoolet_model::Text::from_static("/a")).unwrap(), Stat::default());
        let mut once = Subtree::default();
        once.add(&path, Some(&[7; 2000]), &stat, 0);
        let mut twice = once.clone();
        twice.add(&path, Some(&b"other"[..]), &stat, 1);
        assert_eq!(twice, once);
    }
}
