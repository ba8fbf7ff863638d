//! Merging runs, in steps that are short enough for a checkpoint to come between.
//!
//! Runs pile up, one for each checkpoint. When there are enough of them, redb gets them: each step writes what the runs say of the next keys, from
//! where the last step stopped, in one durable transaction. The runs stay until the last step: until then they say the same as redb, so a
//! crash between two steps costs only the work, and beginning again changes nothing. In key order each page of redb is copied once for all
//! its changes.
//!
//! Where redb is much larger than the runs, hardly a page would have more than one change: then the runs become one run; unless its table and filter would take
//! too much memory, which grow with the number of its records.

use super::{
    BaseError, Core,
    backend::SPARE_BYTES,
    database::Step,
    run::{Run, RunWriter},
    version::{Version, Walk},
};
use crate::store::key::Key;
use std::{ops::ControlFlow, sync::Arc};
use zoolet_model::Zxid;

/// redb's file may be this many times the runs' size before they become one run: it is half empty, and doubles.
const HOME_TIMES: u64 = 8;
/// What a record counts for in a step beside its bytes: the smallest are many to a page, but each is work.
const RECORD_BYTES: usize = 64;

/// A merge that has begun, of the oldest runs.
pub(super) enum Merge {
    IntoHome(IntoHome),
    IntoRun(IntoRun),
}

/// A merge into redb.
pub(super) struct IntoHome {
    runs: Vec<Arc<Run>>,
    /// Keys below are done.
    from: Key,
    /// Stands there; `None` when that must be found again.
    walk: Option<Walk>,
    /// Nothing in the runs is newer.
    zxid: Zxid,
    left_bytes: u64,
    /// Its memory is used again by the next one.
    step: Step,
    /// The last step found no room.
    lacked_space: bool,
}

/// A merge into one run, which is being written.
pub(super) struct IntoRun {
    runs: Vec<Arc<Run>>,
    walk: Walk,
    writer: Box<RunWriter>,
    left_bytes: u64,
}

impl Merge {
    /// What should be merged now, if anything. `eagerly`: space is short, and merging frees some.
    fn begin(core: &Core, version: &Version, numbers: &mut u64, eagerly: bool) -> Result<Option<Self>, BaseError> {
        let runs = version.runs.clone();
        let enough = if eagerly { 1 } else { core.options.runs_max };
        // While one run is made of them it has a table too, which is there twice when it is finished.
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

    /// What is still to be done, in the bytes that steps count, at most.
    pub(super) fn left_bytes(&self) -> u64 {
        match self {
            Self::IntoHome(IntoHome { left_bytes, .. }) | Self::IntoRun(IntoRun { left_bytes, .. }) => *left_bytes,
        }
    }

    /// It found no room, and there are newer runs: what they delete need not be written first.
    fn is_stuck(&self, version: &Version) -> bool {
        match self {
            Self::IntoHome(into) => into.lacked_space && version.runs.len() > into.runs.len(),
            Self::IntoRun(_) => false,
        }
    }
}

/// What merging these runs is, in the bytes that steps count, at most.
pub(super) fn left_bytes(runs: &[Arc<Run>]) -> u64 {
    runs.iter().map(|run| run.bytes() + run.records() * RECORD_BYTES as u64).sum()
}

/// One step of the merge under way, or of the one that should begin; false when there is nothing to do. `spare_bytes`: what a
/// merge into redb leaves free; one into a run can be given up.
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
                // redb has what the steps before wrote: a merge that began anew after each error might never end.
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
    /// One transaction; whether there is more to do.
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

    /// What the step counts for.
    fn step_bytes(&self) -> u64 {
        (self.step.bytes() + self.step.len() * RECORD_BYTES) as u64
    }

    /// Takes what the runs say of the next keys into the step; the first key after them, if there is one.
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
        // With little room, a small step: what it frees is room for the next.
        let room = core.disk.free_bytes()?.saturating_sub(SPARE_BYTES + spare_bytes);
        while step.estimate_bytes() > room && step.len() > 1 {
            next = Some(step.halve());
            self.walk = None;
        }
        Ok(next)
    }
}

impl IntoRun {
    /// Writes a little more, or the end; after an error what there is of the run is removed.
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

/// The oldest runs are in redb, or in one run: they go.
fn without(version: &Version, runs: &[Arc<Run>]) -> Version {
    let mut next = version.clone();
    next.runs.truncate(version.runs.len() - runs.len());
    next
}
