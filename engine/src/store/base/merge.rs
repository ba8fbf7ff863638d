//! Merging runs, in steps that are short enough for a checkpoint to come between.
//!
//! Runs pile up, one for each checkpoint. When there are enough of them, redb gets them: each step writes what the runs say of the next keys, from
//! where the last step stopped, in one durable transaction. The runs stay until the last step: until then they say the same as redb, so a
//! crash between two steps costs only the work, and beginning again changes nothing. In key order each page of redb is copied once for all
//! its changes.
//!
//! Where redb is much larger than the runs, hardly a page would have more than one change: then the runs become one run.

use super::{
    BaseError, Core,
    database::{Mark, estimate_bytes},
    run::{DELETED, Run, RunWriter},
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
    /// Into redb; keys below `from` are done, and nothing in the runs is newer than `zxid`.
    IntoHome { runs: Vec<Arc<Run>>, from: Key, zxid: Zxid },
    /// Into one run, which is being written.
    IntoRun { runs: Vec<Arc<Run>>, walk: Walk, writer: Box<RunWriter> },
}

impl Merge {
    /// What should be merged now, if anything. `eagerly`: space is short, and merging frees some.
    fn begin(core: &Core, version: &Version, numbers: &mut u64, eagerly: bool) -> Result<Option<Self>, BaseError> {
        let runs = version.runs.clone();
        let enough = if eagerly { 1 } else { core.options.runs_max };
        if runs.len() < enough.max(1) {
            return Ok(None);
        }
        if eagerly || version.run_bytes() >= core.home.bytes() / HOME_TIMES {
            return Ok(Some(Self::IntoHome { runs, from: Key::default(), zxid: version.meta.zxid }));
        }
        let keys = runs.iter().map(|run| run.records()).sum();
        let (walk, writer) = (Walk::of_runs(&runs, b"")?, core.new_run(numbers, Some(keys))?);
        Ok(Some(Self::IntoRun { runs, walk, writer: Box::new(writer) }))
    }
}

/// One step of the merge under way, or of the one that should begin; false when there is nothing to do.
pub(super) fn step(
    core: &Core,
    merge: &mut Option<Merge>,
    numbers: &mut u64,
    eagerly: bool,
) -> Result<bool, BaseError> {
    let version = core.version();
    let begun = match merge.take() {
        Some(begun) => begun,
        None => match Merge::begin(core, &version, numbers, eagerly)? {
            Some(begun) => begun,
            None if eagerly => {
                core.home.compact()?;
                return Ok(false);
            }
            None => return Ok(false),
        },
    };
    *merge = match begun {
        Merge::IntoHome { runs, from, zxid } => write_home(core, &version, runs, &from, zxid)?,
        Merge::IntoRun { runs, walk, writer } => write_run(core, &version, runs, walk, writer)?,
    };
    Ok(true)
}

fn write_home(
    core: &Core,
    version: &Version,
    runs: Vec<Arc<Run>>,
    from: &[u8],
    zxid: Zxid,
) -> Result<Option<Merge>, BaseError> {
    let mut changes = Vec::new();
    let (mut bytes, mut end) = (0, None);
    Walk::of_runs(&runs, from)?.run(|key, stored| {
        if bytes as u64 >= core.options.merge_step_bytes {
            end = Some(Key::from(key));
            return ControlFlow::Break(());
        }
        bytes += key.len() + stored.len() + RECORD_BYTES;
        changes.push((key.into(), (stored != DELETED).then(|| stored.into())));
        ControlFlow::Continue(())
    })?;
    // With little room, a small step: what it frees is room for the next.
    let free = core.disk.free_bytes()?;
    while estimate_bytes(&changes) > free && changes.len() > 1 {
        end = changes.drain(changes.len() / 2..).next().map(|(key, _)| key);
    }
    core.need_space(estimate_bytes(&changes))?;
    let mark = Mark { zxid, steps: version.home.mark()?.steps + 1 };
    let before = core.ledger.bytes_written.now();
    core.home.write(&changes, mark)?;
    core.ledger.merge_bytes_written.add(core.ledger.bytes_written.now() - before);
    let next = Version { home: core.home.pin(version.meta.zxid)?, ..version.clone() };
    match end {
        Some(from) => {
            core.live_mut().version = Arc::new(next);
            Ok(Some(Merge::IntoHome { runs, from, zxid }))
        }
        None => {
            core.publish(without(&next, &runs))?;
            Ok(None)
        }
    }
}

fn write_run(
    core: &Core,
    version: &Version,
    runs: Vec<Arc<Run>>,
    mut walk: Walk,
    mut writer: Box<RunWriter>,
) -> Result<Option<Merge>, BaseError> {
    let (mut outcome, stop) = (Ok(()), writer.bytes() + core.options.merge_step_bytes);
    walk.run(|key, stored| {
        if writer.bytes() >= stop {
            return ControlFlow::Break(());
        }
        outcome = writer.push(key, stored);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    if walk.key().is_some() {
        return Ok(Some(Merge::IntoRun { runs, walk, writer }));
    }
    let mut next = without(version, &runs);
    next.runs.push(finish(core, version, *writer)?);
    core.publish(next)?;
    Ok(None)
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
