//! A model of the records, and histories of checkpoints, for tests of base and image.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses a part of it")]

use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};
use zoolet_machine::record::{digest, key};
use zoolet_machine::seam::action::{BaseRead, Checkpoint, CheckpointMeta};
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::state::Changes;
use zoolet_model::{SessionId, Zxid};
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::base::{Base, BaseError, Options};

/// Options so small that a few checkpoints cause merges of several steps.
pub const OPTIONS: Options =
    Options { cache_bytes: 64 << 10, merge_step_bytes: 16 << 10, runs_max: 3, table_bytes_max: 4 << 20 };
pub const BASE_ID: u64 = 7;

pub type Records = BTreeMap<key::Key, Bytes>;

/// The expected state after some checkpoints.
#[derive(Clone, Default)]
pub struct Model {
    pub records: Records,
    pub digest: u128,
    pub zxid: u64,
}

/// Reads a model like a base.
pub struct Source<'a>(pub &'a Records);

impl BaseRead for Source<'_> {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Ok(self.0.get(key).cloned())
    }

    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        let inside = |key: &&key::Key| ***key >= *from && to.is_none_or(|to| ***key < *to);
        let _ = self.0.keys().filter(inside).all(|key| visit(key));
        Ok(())
    }
}

impl Model {
    pub fn meta(&self) -> CheckpointMeta {
        let totals = if self.zxid == 0 { String::new() } else { format!("{} records", self.records.len()) };
        let totals = Bytes::from(totals);
        CheckpointMeta { zxid: Zxid::from_bits(self.zxid).unwrap(), digest: self.digest, totals }
    }

    /// Applies changes and returns their checkpoint.
    pub fn checkpoint(&mut self, changes: Changes) -> Checkpoint {
        for (key, value) in &changes {
            let old = self.records.get(key).cloned();
            self.digest = digest::replaced(self.digest, key, old.as_deref(), value.as_deref());
            match value {
                Some(value) => self.records.insert(key.clone(), value.clone()),
                None => self.records.remove(key),
            };
        }
        self.zxid += 1;
        Checkpoint { changes: Arc::new(changes), meta: self.meta() }
    }

    /// Returns a checkpoint of `count` random creates, overwrites and deletes.
    ///
    /// The znodes have up to `paths` names in each of seven directories. Some have large data, and
    /// some changes add or remove sessions.
    pub fn random_checkpoint(&mut self, random: &mut Random, count: u64, paths: u64) -> Checkpoint {
        let mut changes = Changes::default();
        for _ in 0..count {
            let path = format!("/app/{:03}/{:04}", random.below(7), random.below(paths));
            let fill = random.bits().to_le_bytes()[0];
            let bytes = usize::try_from(random.below(300)).unwrap();
            let value = (random.below(4) > 0).then(|| Bytes::from(vec![fill; bytes]));
            if random.below(20) == 0 {
                let data = value.is_some().then(|| Bytes::from(vec![fill; 1100 + bytes * 100]));
                changes.insert(key::data(&path).unwrap(), data);
            }
            if random.below(20) == 0 {
                changes.insert(key::session(SessionId(random.below(50).cast_signed())), value.clone());
            }
            changes.insert(key::znode(&path).unwrap(), value);
        }
        self.checkpoint(changes)
    }
}

/// Returns everything that a reader shows, by scan and by lookup.
pub fn contents(source: &dyn BaseRead) -> Result<Records, BaseFailure> {
    let mut keys: Vec<key::Key> = Vec::new();
    source.keys(b"", None, &mut |key| {
        keys.push(key.into());
        true
    })?;
    let mut records = Records::new();
    for key in keys {
        let value = source.record(&key)?.unwrap_or_else(|| panic!("{} was listed and is absent", key.escape_ascii()));
        records.insert(key, value);
    }
    Ok(records)
}

/// Asserts that the base holds the model's records and passes a scrub.
pub fn assert_holds(base: &Base, model: &Model, context: &str) {
    assert_eq!(base.meta(), model.meta(), "{context}");
    let found = contents(&base.reader()).unwrap_or_else(|failure| panic!("{context}: {failure:?}"));
    assert!(found == model.records, "{context}: records differ");
    let mut scrub = base.scrub();
    while scrub.step(10_000).unwrap_or_else(|failure| panic!("{context}: {failure:?}"))
        == zoolet_store::base::Scrubbed::More
    {}
}

pub fn create(disk: &SimDisk) -> Base {
    Base::create(Arc::new(disk.clone()), BASE_ID, OPTIONS).unwrap()
}

pub fn open(disk: &SimDisk) -> Result<Base, BaseError> {
    Base::open(Arc::new(disk.clone()), BASE_ID, OPTIONS)
}

/// Merges until nothing is left to merge; returns the number of steps.
pub fn merge(base: &Base, eagerly: bool) -> Result<usize, BaseError> {
    let mut steps = 0;
    while base.merge(eagerly)? {
        steps += 1;
    }
    Ok(steps)
}
