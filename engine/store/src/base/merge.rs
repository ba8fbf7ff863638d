//! Merges runs, in steps short enough to let a checkpoint come between.
//!
//! Each checkpoint adds a run. When there are enough runs, they are merged into redb. Each step
//! takes the runs' records for the next keys and writes them in one durable transaction. The runs
//! stay until the last step, and until then they say the same as redb. So a crash between two steps
//! costs only the work, and starting over changes nothing. In key order, redb copies each page once
//! for all its changes.
//!
//! If redb is much larger than the runs, hardly any page would have more than one change. Then the
//! runs are merged into one run instead. The exception is a run whose table and filter would take
//! too much memory, since they grow with its records.

use super::{
    BaseError, Core,
    backend::SPARE_BYTES,
    database::Step,
    run::{Run, RunWriter},
    version::{Version, Walk},
};
use std::{ops::ControlFlow, sync::Arc};
use zoolet_machine::record::key::Key;
use zoolet_model::Zxid;

/// Runs become one run if redb's file is more than this many times their size. redb's file is half
/// empty, because redb doubles it.
const HOME_TIMES: u64 = 8;
/// Bytes that a record counts for in a step, beside its own.
///
/// Many small records fit into a page, but each of them costs work.
const RECORD_BYTES: usize = 64;

/// A merge of the oldest runs, in progress.
pub(super) enum Merge {
    IntoHome(IntoHome),
    IntoRun(IntoRun),
}

/// A merge into redb.
pub(super) struct IntoHome {
    runs: Vec<Arc<Run>>,
    /// Keys below this one are merged.
    from: Key,
    /// Positioned at `from`; `None` if the position must be searched again.
    walk: Option<Walk>,
    /// The runs hold nothing newer than this entry.
    zxid: Zxid,
    left_bytes: u64,
    /// The buffer is reused by the next step.
    step: Step,
    /// The last step ran out of space.
    lacked_space: bool,
}

/// A merge into one run that is being written.
pub(super) struct IntoRun {
    runs: Vec<Arc<Run>>,
    walk: Walk,
    writer: Box<RunWriter>,
    left_bytes: u64,
}

impl Merge {
    /// Begins the merge that is due; `None` if nothing is due. With `eagerly`, space is short and
    /// merging frees some.
    fn begin(core: &Core, version: &Version, numbers: &mut u64, eagerly: bool) -> Result<Option<Self>, BaseError> {
        let runs = version.runs.clone();
        let enough = if eagerly { 1 } else { core.options.runs_max };
        // The merged run has a table too, and memory holds it twice when the run is finished.
        let are_tables_large = version.table_bytes() >= core.options.table_bytes_max / 4;
        if runs.is_empty() || runs.len() < enough && !are_tables_large {
            return Ok(None);
        }
        if eagerly || are_tables_large || version.run_bytes() >= core.home.bytes() / HOME_TIMES {
            return Ok(Some(Self::IntoHome(IntoHome {
                from: Key::default(),
                walk: None,
                zxid: version.meta.zxid,
                left_bytes: left_bytes(&runs),
                runs,
                step: Step::default(),
                lacked_space: false,
            })));
        }
        let left_bytes = left_bytes(&runs);
        let keys = runs.iter().map(|run| run.records()).sum();
        let (walk, writer) = (Walk::of_runs(&runs, b"")?, core.new_run(numbers, Some(keys))?);
        Ok(Some(Self::IntoRun(IntoRun { runs, walk, writer: Box::new(writer), left_bytes })))
    }

    pub(super) fn runs(&self) -> &Vec<Arc<Run>> {
        match self {
            Self::IntoHome(IntoHome { runs, .. }) | Self::IntoRun(IntoRun { runs, .. }) => runs,
        }
    }

    /// Returns an upper bound on the remaining work, in the bytes that steps count.
    pub(super) fn left_bytes(&self) -> u64 {
        match self {
            Self::IntoHome(IntoHome { left_bytes, .. }) | Self::IntoRun(IntoRun { left_bytes, .. }) => *left_bytes,
        }
    }

    /// Returns true if the merge ran out of space and newer runs exist.
    ///
    /// Then it starts over with the newer runs: records that they delete need not be written.
    fn is_stuck(&self, version: &Version) -> bool {
        match self {
            Self::IntoHome(into) => into.lacked_space && version.runs.len() > into.runs.len(),
            Self::IntoRun(_) => false,
        }
    }
}

/// Returns an upper bound on the work of merging these runs, in the bytes that steps count.
pub(super) fn left_bytes(runs: &[Arc<Run>]) -> u64 {
    runs.iter().map(|run| run.bytes() + run.records() * RECORD_BYTES as u64).sum()
}

/// Does one step of the current merge, or begins one. Returns false if nothing is due.
///
/// A step of a merge into redb leaves `spare_bytes` free. A merge into a run need not, because it
/// can be abandoned.
pub(super) fn step(
    core: &Core,
    merge: &mut Option<Merge>,
    numbers: &mut u64,
    eagerly: bool,
    spare_bytes: u64,
) -> Result<bool, BaseError> {
    let version = core.version();
    let begun = match merge.take().filter(|begun| !begun.is_stuck(&version)) {
        Some(begun) => begun,
        None => match Merge::begin(core, &version, numbers, eagerly)? {
            Some(begun) => begun,
            None if eagerly => {
                core.home.compact(None)?;
                return Ok(false);
            }
            None => return Ok(false),
        },
    };
    *merge = match begun {
        Merge::IntoHome(mut into) => match into.step(core, &version, spare_bytes) {
            Ok(true) => Some(Merge::IntoHome(into)),
            Ok(false) => None,
            Err(error) => {
                // redb holds the earlier steps, so the merge goes on after an error. If each error
                // started it over, it might never end.
                into.walk = None;
                into.lacked_space = error == BaseError::NoSpace;
                *merge = Some(Merge::IntoHome(into));
                return Err(error);
            }
        },
        Merge::IntoRun(into) => into.step(core, &version)?.map(Merge::IntoRun),
    };
    Ok(true)
}

impl IntoHome {
    /// Does one transaction. Returns true if more remains.
    fn step(&mut self, core: &Core, version: &Version, spare_bytes: u64) -> Result<bool, BaseError> {
        let next = self.gather(core, spare_bytes)?;
        core.need_space(self.step.estimate_bytes() + spare_bytes)?;
        let before = core.ledger.bytes_written.now();
        core.home.write(&self.step, self.zxid)?;
        core.ledger.merge_bytes_written.add(core.ledger.bytes_written.now() - before);
        let version = Version { home: core.home.pin(version.meta.zxid)?, ..version.clone() };
        match next {
            Some(from) => {
                self.from = from;
                self.left_bytes = self.left_bytes.saturating_sub(self.step_bytes());
                core.live_mut().version = Arc::new(version);
                Ok(true)
            }
            None => {
                core.publish(without(&version, &self.runs))?;
                Ok(false)
            }
        }
    }

    /// Returns the bytes that the step counts for.
    fn step_bytes(&self) -> u64 {
        (self.step.bytes() + self.step.len() * RECORD_BYTES) as u64
    }

    /// Collects the runs' records for the next keys into the step.
    ///
    /// Returns the first key after them; `None` at the end.
    fn gather(&mut self, core: &Core, spare_bytes: u64) -> Result<Option<Key>, BaseError> {
        let walk = match &mut self.walk {
            Some(walk) => walk,
            none => none.insert(Walk::of_runs(&self.runs, &self.from)?),
        };
        let step = &mut self.step;
        step.clear();
        let mut next = None;
        walk.run(|key, stored| {
            if (step.bytes() + step.len() * RECORD_BYTES) as u64 >= core.options.merge_step_bytes {
                next = Some(Key::from(key));
                return ControlFlow::Break(());
            }
            step.push(key, stored);
            ControlFlow::Continue(())
        })?;
        // With little free space the step is made small. The space that it frees serves the next
        // one.
        let room = core.disk.free_bytes()?.saturating_sub(SPARE_BYTES + spare_bytes);
        while step.estimate_bytes() > room && step.len() > 1 {
            next = Some(step.halve());
            self.walk = None;
        }
        Ok(next)
    }
}

impl IntoRun {
    /// Writes some more records, or finishes the run. After an error the unfinished run is removed.
    fn step(mut self, core: &Core, version: &Version) -> Result<Option<Self>, BaseError> {
        let Self { runs, walk, writer, left_bytes } = &mut self;
        let (mut outcome, stop) = (Ok(()), writer.bytes() + core.options.merge_step_bytes);
        walk.run(|key, stored| {
            if writer.bytes() >= stop {
                return ControlFlow::Break(());
            }
            outcome = writer.push(key, stored);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
        *left_bytes = left_bytes.saturating_sub(core.options.merge_step_bytes);
        if walk.key().is_some() {
            return Ok(Some(self));
        }
        let mut next = without(version, runs);
        next.runs.push(finish(core, version, *self.writer)?);
        core.publish(next)?;
        Ok(None)
    }
}

fn finish(core: &Core, version: &Version, writer: RunWriter) -> Result<Arc<Run>, BaseError> {
    let run = writer.finish(version.meta.zxid)?;
    core.ledger.merge_bytes_written.add(run.bytes());
    Ok(Arc::new(run))
}

/// Returns the version without its oldest runs, which are merged now.
fn without(version: &Version, runs: &[Arc<Run>]) -> Version {
    let mut next = version.clone();
    next.runs.truncate(version.runs.len() - runs.len());
    next
}
