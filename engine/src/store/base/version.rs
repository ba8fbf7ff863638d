//! One state of the base: which files hold it, and how they are read as one.

use super::{
    BaseError, filter,
    manifest::Manifest,
    part::{Cursor, DELETED, Part},
};
use crate::{action::CheckpointMeta, store::key::Key};
use bytes::Bytes;
use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

/// A set of files that never changes.
///
/// Invariant: what a run says of a key counts before what older runs and parts say. Each part answers for the keys from its `from` up to
/// the next part's; whatever its file holds below that is not there any more.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) meta: CheckpointMeta,
    /// Newest first.
    pub(super) runs: Vec<Arc<Part>>,
    /// In key order.
    pub(super) parts: Vec<Piece>,
}

/// A part and the first key it answers for.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) from: Key,
    pub(super) part: Arc<Part>,
}

impl Version {
    pub(super) fn manifest(&self) -> Manifest {
        Manifest {
            meta: self.meta.clone(),
            runs: self.runs.iter().map(|run| run.id()).collect(),
            parts: self.parts.iter().map(|piece| (piece.from.clone(), piece.part.id())).collect(),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<Part>> {
        self.runs.iter().chain(self.parts.iter().map(|piece| &piece.part))
    }

    pub(super) fn run_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes()).sum()
    }

    pub(super) fn part_bytes(&self) -> u64 {
        self.parts.iter().map(|piece| piece.part.bytes()).sum()
    }

    /// The place of the first part that answers for keys from `key` on, or for some of them.
    pub(super) fn piece_at(&self, key: &[u8]) -> usize {
        self.parts.partition_point(|piece| *piece.from <= *key).saturating_sub(1)
    }

    pub(super) fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        let hash = filter::hash(key);
        for run in self.runs.iter().filter(|run| run.may_hold(hash)) {
            if let Some(said) = run.find(key)? {
                return Ok(said);
            }
        }
        match self.parts.get(self.piece_at(key)) {
            Some(piece) if *piece.from <= *key => Ok(piece.part.find(key)?.flatten()),
            Some(_) | None => Ok(None),
        }
    }

    /// Everything from `key` on, deletions included.
    pub(super) fn walk(&self, runs: &[Arc<Part>], key: &[u8]) -> Result<Walk, BaseError> {
        let mut sources = Vec::with_capacity(runs.len() + 1);
        for run in runs {
            sources.push(Source::run(run.clone(), key)?);
        }
        sources.push(Source::parts(&self.parts[self.piece_at(key)..], key)?);
        Ok(Walk { sources, key: Vec::new() })
    }

    /// Calls `visit` with every key and stored value from `from` up to, not including, `to`, in order, until it says false.
    pub(super) fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), BaseError> {
        self.walk(&self.runs, from)?.run(|key, stored| {
            let goes_on = to.is_none_or(|to| key < to) && (stored == DELETED || visit(key, stored));
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }
}

/// One run, or all parts one after another.
struct Source {
    cursor: Option<Cursor>,
    next: VecDeque<Piece>,
}

impl Source {
    fn run(run: Arc<Part>, key: &[u8]) -> Result<Self, BaseError> {
        Ok(Self { cursor: Some(Cursor::seek(run, key)?), next: VecDeque::new() })
    }

    fn parts(parts: &[Piece], key: &[u8]) -> Result<Self, BaseError> {
        let mut next: VecDeque<Piece> = parts.iter().cloned().collect();
        let cursor = match next.pop_front() {
            Some(piece) => Some(Cursor::seek(piece.part, key.max(&piece.from))?),
            None => None,
        };
        let mut source = Self { cursor, next };
        source.settle()?;
        Ok(source)
    }

    fn key(&self) -> Option<&[u8]> {
        self.cursor.as_ref().and_then(Cursor::key)
    }

    fn stored(&self) -> &[u8] {
        self.cursor.as_ref().map_or(DELETED, Cursor::stored)
    }

    fn advance(&mut self) -> Result<(), BaseError> {
        if let Some(cursor) = &mut self.cursor {
            cursor.advance()?;
        }
        self.settle()
    }

    fn settle(&mut self) -> Result<(), BaseError> {
        while self.key().is_none()
            && let Some(piece) = self.next.pop_front()
        {
            self.cursor = Some(Cursor::seek(piece.part, &piece.from)?);
        }
        Ok(())
    }
}

/// Several files read as one, in key order; of equal keys the newest file's counts.
pub(super) struct Walk {
    /// Newest first.
    sources: Vec<Source>,
    /// Of the record visited last; its memory is used again.
    key: Vec<u8>,
}

impl Walk {
    /// Only runs, in this order, from `key` on.
    pub(super) fn of_runs(runs: &[Arc<Part>], key: &[u8]) -> Result<Self, BaseError> {
        let sources = runs.iter().map(|run| Source::run(run.clone(), key)).collect::<Result<_, _>>()?;
        Ok(Self { sources, key: Vec::new() })
    }

    /// The key that is visited next; `None` at the end.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.sources.iter().filter_map(Source::key).min()
    }

    /// Visits one record after another until `visit` breaks: then that record is the next one still.
    pub(super) fn run(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), BaseError> {
        loop {
            let mut least: Option<(&[u8], usize)> = None;
            for (at, source) in self.sources.iter().enumerate() {
                if let Some(key) = source.key()
                    && least.is_none_or(|(least, _)| key < least)
                {
                    least = Some((key, at));
                }
            }
            let Some((key, at)) = least else { return Ok(()) };
            if visit(key, self.sources[at].stored()).is_break() {
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            for source in &mut self.sources[at..] {
                if source.key() == Some(&self.key) {
                    source.advance()?;
                }
            }
        }
    }
}
