//! Quotas, with every usage recounted from its whole subtree after each change (surface 7.1).

use super::tree::{Tree, Writer, is_below};
use std::collections::BTreeMap;
use std::sync::Arc;
use zoolet_machine::tree::Room;
use zoolet_model::ErrorCode;

/// Room of one entry for counting, in every simulated server. Both bounds end counts.
pub const COUNTED_AT_ONCE: Room = Room { znodes: 3, key_bytes: 50 };

/// Largest limits that are read, in bytes.
const LIMITS_BYTES_MAX: usize = 1024;

/// Subtrees with a usage. The value is the place up to which a large subtree is counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Quotas {
    subtrees: BTreeMap<String, Option<String>>,
    /// The last entry that counted, and the znodes and bytes of keys that it may still count.
    room: (i64, usize, usize),
}

fn stats(subtree: &str) -> String {
    format!("/zookeeper/quota{subtree}/zookeeper_stats")
}

/// Returns the subtree of a usage. zoolet gives none to `/`, `/zookeeper` and what is below it.
fn subtree_of(path: &str) -> Option<String> {
    let names: Vec<&str> = path.split('/').collect();
    match &names[..] {
        ["", "zookeeper", "quota", first, rest @ .., "zookeeper_stats"] if *first != "zookeeper" => {
            Some([&["", first], rest].concat().join("/"))
        }
        _ => None,
    }
}

/// The order in which a large subtree is counted: by parent, then by name.
fn place(path: &str) -> String {
    let (parent, name) = path.rsplit_once('/').unwrap_or_default();
    format!("{parent}\0{name}")
}

impl Tree {
    /// Returns the number of subtrees with a usage, and of those still being counted.
    pub(super) fn usages(&self) -> (u64, u64) {
        let places = self.quotas.subtrees.values();
        (self.quotas.subtrees.len() as u64, places.flatten().count() as u64)
    }

    /// Returns whether the server itself keeps the data of this znode.
    pub(super) fn shows_usage(&self, path: &str) -> bool {
        subtree_of(path).is_some_and(|subtree| self.quotas.subtrees.contains_key(&subtree))
    }

    /// Begins the usage that a new znode shows, if it is one that does.
    pub(super) fn begin_usage(&mut self, path: &str, zxid: i64) {
        let Some(subtree) = subtree_of(path) else { return };
        let is_small = !self.paths().any(|path| is_below(path, &subtree));
        // The children of `/a` come first, in the order of places.
        let first = format!("{subtree}\0");
        self.quotas.subtrees.insert(subtree.clone(), (!is_small).then_some(first));
        self.open_room(zxid);
        if !is_small {
            // One entry begins to count at most four.
            let left = self.quotas.room.1.saturating_sub(COUNTED_AT_ONCE.znodes.div_ceil(4));
            self.count_usage(&subtree, zxid);
            self.quotas.room.1 = self.quotas.room.1.min(left);
        }
        self.recount_usages();
    }

    fn open_room(&mut self, zxid: i64) {
        if self.quotas.room.0 != zxid {
            self.quotas.room = (zxid, COUNTED_AT_ONCE.znodes, COUNTED_AT_ONCE.key_bytes);
        }
    }

    pub(super) fn end_usage(&mut self, path: &str) {
        if let Some(subtree) = subtree_of(path) {
            self.quotas.subtrees.remove(&subtree);
        }
    }

    /// Counts the next part of a subtree, as far as the entry may still count.
    pub(crate) fn count_usage(&mut self, subtree: &str, zxid: i64) {
        self.open_room(zxid);
        let Some(Some(from)) = self.quotas.subtrees.get(subtree).cloned() else { return };
        let mut left: Vec<String> = self.paths().filter(|path| is_below(path, subtree)).map(place).collect();
        left.retain(|place| *place >= from);
        left.sort();
        let (_, znodes, key_bytes) = &mut self.quotas.room;
        let mut next = Some(from).filter(|_| *znodes == 0 || *key_bytes == 0);
        for place in left {
            if *znodes == 0 || *key_bytes == 0 {
                break;
            }
            // A key has a tag before the place.
            (*znodes, *key_bytes) = (*znodes - 1, key_bytes.saturating_sub(1 + place.len()));
            next = (*znodes == 0 || *key_bytes == 0).then(|| format!("{place}\0"));
        }
        self.quotas.subtrees.insert(subtree.to_owned(), next);
        self.recount_usages();
    }

    /// Writes each usage into its znode.
    pub(super) fn recount_usages(&mut self) {
        for subtree in self.quotas.subtrees.keys().cloned().collect::<Vec<_>>() {
            let (count, bytes) = self.usage(&subtree);
            let Some(znode) = self.znodes.get_mut(&*stats(&subtree)) else { continue };
            Arc::make_mut(znode).data = Some(format!("count={count},bytes={bytes}").into_bytes());
        }
    }

    fn usage(&self, subtree: &str) -> (i64, i64) {
        let up_to = self.quotas.subtrees.get(subtree).cloned().flatten();
        let is_counted = |path: &&str| {
            *path == subtree || is_below(path, subtree) && up_to.as_ref().is_none_or(|up_to| place(path) < *up_to)
        };
        let counted = self.paths().filter(is_counted).filter_map(|path| self.get(path));
        counted.fold((0, 0), |(count, bytes), znode| {
            (count + 1, bytes + znode.data.as_ref().map_or(0, |data| data.len() as i64))
        })
    }

    /// Fails if `path` would pass a hard limit with `added` more znodes and this data.
    pub(super) fn check_quota(
        &self,
        by: &Writer,
        path: &str,
        added: i64,
        data: Option<&[u8]>,
    ) -> Result<(), ErrorCode> {
        if path == "/" || path == "/zookeeper" || is_below(path, "/zookeeper") || !by.enforces_quotas {
            return Ok(());
        }
        let has_limits = |subtree: &&str| self.get(&format!("/zookeeper/quota{subtree}/zookeeper_limits")).is_some();
        let ends = (1..=path.len()).rev().filter(|&end| end == path.len() || path.as_bytes()[end] == b'/');
        let Some(subtree) = ends.map(|end| &path[..end]).find(has_limits) else { return Ok(()) };
        if self.quotas.subtrees.get(subtree) != Some(&None) {
            return Ok(());
        }
        let text = &self.get(&format!("/zookeeper/quota{subtree}/zookeeper_limits")).expect("just found").data;
        let Some(limits) = text.as_deref().and_then(limits) else { return Ok(()) };
        let length = |data: Option<&[u8]>| data.map_or(0, |data| data.len() as i64);
        let old = self.get(path).and_then(|znode| znode.data.as_deref());
        let (count, bytes) = self.usage(subtree);
        let more = length(data) - length(old);
        let passes = |key: &str, wanted: i64| limits.get(key).is_some_and(|limit| *limit > -1 && wanted > *limit);
        if added != 0 && passes("countHardLimit", count + added) || more != 0 && passes("byteHardLimit", bytes + more) {
            return Err(ErrorCode::QuotaExceeded);
        }
        Ok(())
    }
}

/// Reads limits as Java does (surface 7.1); `None` where its parser throws.
fn limits(text: &[u8]) -> Option<BTreeMap<String, i64>> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= LIMITS_BYTES_MAX)?;
    let mut limits = BTreeMap::new();
    let mut parts: Vec<&str> = text.split([',', ';']).collect();
    if text.is_empty() {
        return Some(limits);
    }
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    if parts.is_empty() {
        parts.push("");
    }
    for (at, part) in parts.into_iter().enumerate() {
        if part.is_empty() && at > 0 {
            continue;
        }
        let mut fields: Vec<&str> = part.split('=').collect();
        while fields.last().is_some_and(|field| field.is_empty()) {
            fields.pop();
        }
        let (key, value) = (fields.first()?, fields.get(1)?);
        limits.insert((*key).to_owned(), if value.is_empty() { -1 } else { value.parse().ok()? });
    }
    Some(limits)
}
