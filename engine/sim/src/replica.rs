//! A server's state without a server: all records in a map.
//!
//! Entries are applied to it one by one.

use crate::reference::COUNTED_AT_ONCE;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::record::key::{self, Key};
use zoolet_machine::record::znode::{self, Kind, Mark, Session, Totals, Znode};
use zoolet_machine::seam::action::FetchWhat;
use zoolet_machine::server::Counts;
use zoolet_machine::state::{Found, Stuck, View};
use zoolet_machine::tree::{self, Applied, Buffers, Room};
use zoolet_model::{SessionId, Zxid, path::parent_and_name};

/// The whole state of a server.
///
/// All records are present, but a forgetful replica may only read records that it fetched.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Every record.
    pub records: BTreeMap<Key, Bytes>,
    /// The totals counted by apply.
    pub totals: Totals,
    /// The digest summed up by apply.
    pub digest: u128,
    /// Fetched records, and starts of listed ranges; `None` if nothing is ever missing.
    fetched: Option<(BTreeSet<Key>, BTreeSet<Key>)>,
}

impl Replica {
    /// Creates the initial state of every server. A forgetful replica forgets all fetched records
    /// after each entry.
    pub fn new(forgetful: bool) -> Self {
        let (changes, totals, digest) = tree::birth();
        let records = changes.into_iter().filter_map(|(key, record)| Some((key, record?))).collect();
        let fetched = forgetful.then(Default::default);
        Self { records, totals, digest, fetched }
    }

    /// Applies and installs one entry.
    ///
    /// # Errors
    /// The damage of a record that stopped it.
    ///
    /// # Panics
    /// If the entry requests a record that it already got, or never stops requesting.
    pub fn apply(&mut self, zxid: Zxid, payload: &Bytes) -> Result<Applied, &'static str> {
        let (totals, digest) = (self.totals, self.digest);
        for _ in 0..1000 {
            match tree::apply(self, totals, digest, zxid, payload, Buffers::default()) {
                Ok(applied) => {
                    self.install(&applied);
                    return Ok(applied);
                }
                Err(Stuck::Damaged(what)) => return Err(what),
                Err(Stuck::Missing(missing)) => {
                    let (keys, prefixes) = self.fetched.as_mut().expect("nothing is missing in a full memory");
                    assert!(!missing.is_empty(), "an entry that waits must say for what");
                    let mut news = false;
                    for what in missing {
                        news |= match what {
                            FetchWhat::Record(key) => keys.insert(key),
                            FetchWhat::KeysUnder(prefix) => prefixes.insert(prefix),
                            FetchWhat::FirstKeys(from) => panic!("no entry looks at the index: {from:?}"),
                            FetchWhat::Weights { from, .. } => prefixes.insert(from),
                        };
                    }
                    assert!(news, "an entry that waits for what it has waits for ever");
                }
            }
        }
        panic!("an entry that never stops asking");
    }

    fn install(&mut self, applied: &Applied) {
        for (key, change) in applied.changes.iter() {
            let before = match &change.after {
                Some(after) => self.records.insert(key.clone(), after.clone()),
                None => self.records.remove(key),
            };
            assert_eq!(before.is_some(), change.existed, "{key:?}");
        }
        (self.totals, self.digest) = (applied.totals, applied.digest);
        if let Some((keys, prefixes)) = &mut self.fetched {
            keys.clear();
            prefixes.clear();
        }
    }

    /// Counts from the records alone every number that is kept beside them.
    ///
    /// # Errors
    /// A znode whose record has the wrong number of children.
    ///
    /// # Panics
    /// If a record cannot be decoded.
    pub fn counts(&self) -> Result<Counts, String> {
        let mut counts = Counts::default();
        // Records are sorted by key, so all children of one parent are adjacent.
        let mut children: Vec<(&str, i32)> = Vec::new();
        let mut parents = Vec::new();
        for (key, record) in &self.records {
            match key.first() {
                Some(&key::SESSION) => {
                    counts.sessions += 1;
                    let id = key[1..].try_into().expect("a session's key is its number");
                    counts.owned.entry(SessionId(i64::from_be_bytes(id))).or_default();
                }
                Some(&key::ZNODE) => {
                    let znode = Znode::decode(record).expect("a stored znode decodes");
                    let (parent, name) = std::str::from_utf8(&key[1..])
                        .ok()
                        .and_then(|text| text.split_once('\0'))
                        .expect("a znode's key is its parent and its name");
                    let is_root = parent.is_empty() && name.is_empty();
                    let path_bytes = if is_root { 1 } else { parent.trim_end_matches('/').len() + 1 + name.len() };
                    counts.znodes += 1;
                    counts.data_bytes += path_bytes as u64 + u64::from(znode.data.length());
                    match znode.mark() {
                        Some(Mark::Emptied) => counts.reapable += 1,
                        Some(Mark::Due(_)) => counts.ttl += 1,
                        None => {}
                    }
                    if let znode::Data::Usage(usage) = znode.data {
                        counts.quotas += 1;
                        counts.counting += u64::from(!usage.is_complete());
                        self.recount(&path_of(key), usage)?;
                    }
                    if let Kind::Ephemeral(owner) = znode.kind {
                        counts.ephemerals += 1;
                        *counts.owned.entry(owner).or_default() += 1;
                    }
                    match children.last_mut() {
                        _ if is_root => {}
                        Some((of, count)) if *of == parent => *count += 1,
                        _ => children.push((parent, 1)),
                    }
                    if znode.num_children != 0 {
                        parents.push((key, znode.num_children));
                    }
                }
                _ => {}
            }
        }
        for (key, kept) in &parents {
            let path = path_of(key);
            let counted = children.iter().position(|&(of, _)| of == path).map_or(0, |at| children.swap_remove(at).1);
            if counted != *kept {
                return Err(format!("{path} has {counted} children, and its record says {kept}"));
            }
        }
        match children.first() {
            None => Ok(counts),
            Some((path, counted)) => Err(format!("{path} has {counted} children, and its record says none")),
        }
    }

    /// Compares the usage that the znode at `path` shows with a recount of its subtree.
    fn recount(&self, path: &str, usage: znode::Usage<'_>) -> Result<(), String> {
        let subtree = path.strip_prefix("/zookeeper/quota").and_then(|path| path.strip_suffix("/zookeeper_stats"));
        let subtree = subtree.expect("only a quota shows a usage");
        let (root, below) = (znode_key(subtree), key::descendants_prefix(subtree));
        let children = key::children_prefix(subtree);
        let (mut count, mut bytes) = (0, 0);
        for (key, record) in &self.records {
            let is_below = key.starts_with(&children) || key.starts_with(&below);
            if *key == root || is_below && (usage.is_complete() || **key < *usage.next) {
                count += 1;
                bytes += i64::from(Znode::decode(record).expect("a stored znode decodes").data.length());
            }
        }
        if (usage.count, usage.bytes) == (count, bytes) {
            return Ok(());
        }
        let (kept, kept_bytes) = (usage.count, usage.bytes);
        Err(format!(
            "usage of {subtree}: its record says {kept} znodes and {kept_bytes} bytes, a recount finds {count} and {bytes}"
        ))
    }

    /// Checks that nothing in the state contradicts anything else.
    ///
    /// Every znode has its parent, every ephemeral its owner, and every count and mark agrees with
    /// the records. The digest is their sum.
    ///
    /// # Panics
    /// If something contradicts.
    pub fn check(&self) {
        let digest = self.records.iter().fold(0u128, |sum, (key, value)| sum.wrapping_add(record_hash(key, value)));
        assert_eq!(digest, self.digest, "the digest is that of the records");
        let mut children: BTreeMap<String, i32> = BTreeMap::new();
        let mut counted =
            Totals { ensemble_ms: self.totals.ensemble_ms, semantics: self.totals.semantics, ..Totals::default() };
        let mut expected: BTreeSet<Key> = BTreeSet::new();
        let znodes: Vec<(String, Znode<'_>)> = self
            .records
            .iter()
            .filter(|(key, _)| key[0] == key::ZNODE)
            .map(|(key, record)| (path_of(key), Znode::decode(record).expect("a stored znode decodes")))
            .collect();
        for (path, znode) in &znodes {
            counted.znodes += 1;
            counted.data_bytes += path.len() as u64 + u64::from(znode.data.length());
            expected.insert(znode_key(path));
            znode.acl_entries().expect("a stored ACL decodes");
            if let Some((parent, _)) = parent_and_name(path) {
                *children.entry(parent.to_owned()).or_default() += 1;
                assert!(self.records.contains_key(&znode_key(parent)), "{path} has a parent");
            }
            if let Kind::Ephemeral(owner) = znode.kind {
                counted.ephemerals += 1;
                expected.insert(key::ephemeral(owner, path));
                assert!(self.records.contains_key(&key::session(owner)), "{path} has an owner");
            }
            match znode.mark() {
                Some(Mark::Emptied) => {
                    counted.reapable += 1;
                    expected.insert(key::reapable(path));
                }
                Some(Mark::Due(due_ms)) => {
                    counted.ttl += 1;
                    expected.insert(key::due(due_ms, path));
                }
                None => {}
            }
            if let znode::Data::Usage(usage) = znode.data {
                counted.quotas += 1;
                if !usage.is_complete() {
                    counted.counting += 1;
                    let subtree =
                        path.strip_prefix("/zookeeper/quota").and_then(|path| path.strip_suffix("/zookeeper_stats"));
                    expected.insert(key::counting(subtree.expect("only a quota shows a usage")));
                }
                assert_eq!(self.recount(path, usage), Ok(()));
            }
            if let znode::Data::Large { length, hash } = znode.data {
                let key = key::data(path).expect("a stored path has a key");
                assert_eq!(self.records[&key].len(), length as usize);
                assert_eq!(record_hash(&key, &self.records[&key]), hash);
                expected.insert(key);
            }
        }
        for (path, znode) in &znodes {
            assert_eq!(znode.num_children, children.get(path).copied().unwrap_or(0), "children of {path}");
        }
        for (key, record) in self.records.iter().filter(|(key, _)| key[0] == key::SESSION) {
            Session::decode(record).expect("a stored session decodes");
            expected.insert(key.clone());
        }
        assert_eq!(counted, self.totals);
        assert!(self.records.keys().eq(&expected), "no record but those that follow from the znodes and sessions");
    }
}

fn znode_key(path: &str) -> Key {
    key::znode(path).expect("a stored path has a key")
}

pub(crate) fn path_of(key: &[u8]) -> String {
    let text = std::str::from_utf8(&key[1..]).expect("a path is text");
    let (parent, name) = text.split_once('\0').expect("a separator");
    if parent.is_empty() && name.is_empty() { "/".into() } else { format!("{}/{name}", parent.trim_end_matches('/')) }
}

impl View for Replica {
    fn record(&mut self, key: &[u8]) -> Found {
        if self.fetched.as_ref().is_some_and(|(keys, _)| !keys.contains(key)) {
            return Found::Unknown;
        }
        self.records.get(key).map_or(Found::Absent, |record| Found::Record(record.clone()))
    }

    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>> {
        if self.fetched.as_ref().is_some_and(|(_, prefixes)| !prefixes.contains(prefix)) {
            return None;
        }
        Some(self.records.keys().filter(|key| key.starts_with(prefix)).cloned().collect())
    }

    fn weights(&mut self, from: &[u8], to: &[u8], mut room: Room) -> Result<Vec<(Key, u32)>, Stuck> {
        if self.fetched.as_ref().is_some_and(|(_, starts)| !starts.contains(from)) {
            return Err(Stuck::Missing(vec![FetchWhat::Weights { from: from.into(), to: to.into() }]));
        }
        let found = self.records.range(Key::from(from)..Key::from(to)).take_while(|(key, _)| room.admit(key));
        let length = |record| Znode::decode(record).expect("a stored znode decodes").data.length();
        Ok(found.map(|(key, record)| (key.clone(), length(record))).collect())
    }

    fn has_weights(&self, from: &[u8]) -> bool {
        self.fetched.as_ref().is_none_or(|(_, starts)| starts.contains(from))
    }

    fn counted_at_once(&self) -> Room {
        COUNTED_AT_ONCE
    }

    fn newer(&self, prefix: &[u8]) -> BTreeMap<Key, bool> {
        self.records.keys().filter_map(|key| Some((key.strip_prefix(prefix)?.into(), true))).collect()
    }
}
