//! Events of disks: appends that become durable, fetches, checkpoints and completions.

use super::{Run, entry_of};
use crate::one_server::{Snapshot, apply_changes, look_up};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::Event;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::record::key::Key;
use zoolet_machine::seam::action::{BaseRead, Checkpoint, Fetch, FetchId, Generation};
use zoolet_machine::seam::event::{BaseFailure, Fetched, Shortage};
use zoolet_model::Zxid;
use zoolet_zab::AppendSeq;

impl Run {
    /// Makes some appended records durable, or repeats an earlier completion.
    pub(super) fn persist(&mut self) {
        let durable = self.log.iter().take_while(|logged| logged.seq <= self.persisted).count();
        let more = if self.random().one_in(4) { 0 } else { self.below(self.log.len() - durable + 1) };
        if durable + more == 0 {
            return;
        }
        let back = if self.random().one_in(8) { self.below(durable + more) } else { 0 };
        let seq = self.log[durable + more - 1 - back].seq;
        let lie = if self.random().one_in(10) { self.random().below(1 << 20) } else { 0 };
        self.persisted_up_to(seq, lie);
    }

    /// Reports records as durable.
    ///
    /// `lie` is added to the reported log use in bytes, because segments are coarse.
    pub(super) fn persisted_up_to(&mut self, seq: AppendSeq, lie: u64) {
        if seq > self.persisted {
            self.persisted = seq;
            let durable = self.log.iter().take_while(|logged| logged.seq <= seq);
            self.durable_zxid = durable.filter_map(|logged| entry_of(&logged.records[0])).last().unwrap_or(Zxid::ZERO);
        }
        let checkpoint = self.durable.meta.as_ref().map_or(Zxid::ZERO, |meta| meta.zxid);
        let above = self.entries.iter().rev().take_while(|(zxid, _)| *zxid > checkpoint);
        let log_bytes_used = above.map(|(_, payload)| payload.len() as u64).sum::<u64>() + lie;
        self.happen(Event::Persisted { seq, log_bytes_used, checkpoint });
    }

    /// Answers some fetches in flight, in any order.
    pub(super) fn answer_fetch(&mut self) {
        for _ in 0..=self.random().below(16) {
            if self.fetches.is_empty() || self.failed {
                return;
            }
            let count = self.fetches.len();
            let at = self.below(count);
            self.answered(at, None);
        }
    }

    pub(super) fn fail_fetch(&mut self) {
        if !self.fetches.is_empty() {
            let count = self.fetches.len();
            let (at, damaged) = (self.below(count), self.random().one_in(4));
            let why = "chosen".to_owned();
            self.answered(at, Some(if damaged { BaseFailure::Damaged(why) } else { BaseFailure::Io(why) }));
        }
    }

    pub(super) fn answered(&mut self, at: usize, failure: Option<BaseFailure>) {
        let (Fetch { id, what, .. }, base) = self.fetches.swap_remove(at);
        self.harmed |= failure.is_some();
        let result = failure.map_or_else(|| Ok(look_up(&base, &what)), Err);
        self.happen(Event::Fetched { id, result });
    }

    pub(super) fn end_checkpoint(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            self.checkpointed(&checkpoint);
        }
    }

    pub(super) fn fail_checkpoint(&mut self) {
        if self.checkpoint.take().is_some() {
            self.happen(Event::CheckpointFailed { reason: "chosen".into() });
        }
    }

    pub(super) fn checkpointed(&mut self, checkpoint: &Checkpoint) {
        self.write_base(checkpoint);
        let newest = self.generations.keys().next_back().map_or(0, |newest| newest.0);
        let generation = Generation(newest + 1);
        self.generations.insert(generation, self.durable.records.clone());
        self.happen(Event::Checkpointed { generation });
        let persisted = self.persisted;
        self.persisted_up_to(persisted, 0);
    }

    pub(super) fn write_base(&mut self, checkpoint: &Checkpoint) {
        apply_changes(Arc::make_mut(&mut self.durable.records), &checkpoint.changes);
        self.durable.meta = Some(checkpoint.meta.clone());
        let digest =
            self.durable.records.iter().fold(0u128, |sum, (key, record)| sum.wrapping_add(record_hash(key, record)));
        assert_eq!(digest, checkpoint.meta.digest, "a base holds what its digest says");
    }

    /// Carries out any completion in flight.
    pub(super) fn complete(&mut self) {
        if !self.completions.is_empty() {
            let count = self.completions.len();
            let at = self.below(count);
            self.completed(at, true);
        }
    }

    /// Fails a completion, because its base cannot be read.
    pub(super) fn unread_completion(&mut self) {
        if !self.completions.is_empty() {
            let count = self.completions.len();
            let at = self.below(count);
            self.completed(at, false);
        }
    }

    pub(super) fn completed(&mut self, at: usize, works: bool) {
        let (completion, base) = self.completions.swap_remove(at);
        if works {
            let (_, failure) = completion.run(&Snapshot(&base));
            assert_eq!(failure, None, "a base that is whole answers");
        } else {
            let (result, failure) = completion.run(&Unreadable);
            assert!(result.is_err() == failure.is_some(), "a base that cannot be read is no answer");
        }
        self.happen(Event::Completed { bytes: completion.bytes });
    }

    /// Sends answers that were never requested.
    pub(super) fn stray(&mut self) {
        let id = FetchId(u64::MAX - self.random().below(3));
        let event = match self.random().below(4) {
            0 => Event::Fetched { id, result: Ok(Fetched::Record(None)) },
            1 => Event::Fetched { id, result: Ok(Fetched::Keys(vec![Key::from(*b"n/")])) },
            2 => Event::Fetched { id, result: Err(BaseFailure::Damaged("never asked".into())) },
            _ => Event::Completed { bytes: self.random().bits() },
        };
        self.happen(event);
    }

    /// Reports too little disk space, or enough again. Reports may repeat.
    pub(super) fn room(&mut self, is_short: bool) {
        self.space_is_short = is_short;
        self.happen(Event::Space { shortage: is_short.then_some(Shortage::Disk) });
    }
}

/// A base on which every read fails.
struct Unreadable;

impl BaseRead for Unreadable {
    fn record(&self, _: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Err(BaseFailure::Io("chosen".into()))
    }

    fn keys(&self, _: &[u8], _: Option<&[u8]>, _: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        Err(BaseFailure::Damaged("chosen".into()))
    }
}
