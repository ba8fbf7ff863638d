//! One state of the base: its files, and reading them as one.

use super::{
    BaseError, filter,
    home::{HomeCursor, Pin},
    manifest::Manifest,
    run::{Cursor, DELETED, Run},
};
use bytes::Bytes;
use std::{ops::ControlFlow, sync::Arc};
use zoolet_machine::seam::action::CheckpointMeta;

/// Immutable runs above a state of redb.
///
/// Invariant: a run's answer for a key takes precedence over older runs and redb. So it makes no
/// difference whether redb already holds some of these runs.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) meta: CheckpointMeta,
    /// Newest first.
    pub(super) runs: Vec<Arc<Run>>,
    pub(super) home: Arc<Pin>,
}

impl Version {
    pub(super) fn manifest(&self) -> Manifest {
        let runs = self.runs.iter().map(|run| run.id()).collect();
        Manifest { meta: self.meta.clone(), runs, steps: self.home.steps() }
    }

    pub(super) fn run_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes()).sum()
    }

    /// Returns the memory of the runs' tables and filters, bytes.
    pub(super) fn table_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.memory_bytes()).sum()
    }

    pub(super) fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        let hash = filter::hash(key);
        for run in self.runs.iter().filter(|run| run.may_hold(hash)) {
            if let Some(said) = run.find(key)? {
                return Ok(said);
            }
        }
        self.home.record(key)
    }

    fn walk(&self, key: &[u8]) -> Result<Walk, BaseError> {
        let mut walk = Walk::of_runs(&self.runs, key)?;
        walk.sources.push(Source::Home(Box::new(HomeCursor::seek(self.home.clone(), key)?)));
        Ok(walk)
    }

    /// Calls `visit` with each key and stored value in `from..to`, in key order, until it returns
    /// false.
    pub(super) fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), BaseError> {
        self.walk(from)?.run(|key, stored| {
            let goes_on = to.is_none_or(|to| key < to) && (stored == DELETED || visit(key, stored));
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }
}

enum Source {
    Run(Cursor),
    Home(Box<HomeCursor>),
}

impl Source {
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Run(cursor) => cursor.key(),
            Self::Home(cursor) => cursor.key(),
        }
    }

    fn read(&mut self) -> Result<(), BaseError> {
        match self {
            Self::Run(cursor) => cursor.read(),
            Self::Home(_) => Ok(()),
        }
    }

    fn stored(&self) -> &[u8] {
        match self {
            Self::Run(cursor) => cursor.stored(),
            Self::Home(cursor) => cursor.stored(),
        }
    }

    fn advance(&mut self) -> Result<(), BaseError> {
        match self {
            Self::Run(cursor) => cursor.advance(),
            Self::Home(cursor) => cursor.advance(),
        }
    }
}

/// Reads several files as one, in key order. For equal keys the newest file counts.
pub(super) struct Walk {
    /// Newest first.
    sources: Vec<Source>,
    /// Key of the last visited record, in a reused buffer.
    key: Vec<u8>,
}

impl Walk {
    /// Walks only `runs`, newest first, from `key` on.
    pub(super) fn of_runs(runs: &[Arc<Run>], key: &[u8]) -> Result<Self, BaseError> {
        let source = |run: &Arc<Run>| Cursor::seek(run.clone(), key).map(Source::Run);
        let sources = runs.iter().map(source).collect::<Result<_, _>>()?;
        Ok(Self { sources, key: Vec::new() })
    }

    /// Returns the key to be visited next; `None` at the end.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.sources.iter().filter_map(Source::key).min()
    }

    /// Visits records until `visit` breaks. That record then remains the next one.
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
            let Some((_, at)) = least else { return Ok(()) };
            let source = &mut self.sources[at];
            source.read()?;
            let Some(key) = source.key() else { return Ok(()) };
            if visit(key, source.stored()).is_break() {
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
