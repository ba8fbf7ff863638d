//! Merging runs, in steps that are short enough for a checkpoint to come between.
//!
//! Runs pile up, one for each checkpoint. When there are enough of them, they become parts: each step walks the runs and what the parts hold
//! from where the last step stopped, writes one new part, and puts it in the place of those that it replaces. The runs stay until
//! the last step: until then they say the same as the new parts. So a step is a state of its own, a crash between two steps costs only
//! the work, and the space that a merge needs beside its runs is that of one part.
//!
//! Where the parts are much larger than the runs, rewriting them would be dear: then the runs become one run.

use super::{
    BaseError, Core, Options,
    part::{DELETED, Part, PartWriter},
    version::{Piece, Version, Walk},
};
use crate::store::key::Key;
use std::{ops::ControlFlow, sync::Arc};

/// A merge that has begun, of the oldest runs.
pub(super) enum Merge {
    /// Into parts; keys below `from` are done.
    IntoParts { runs: Vec<Arc<Part>>, from: Key },
    /// Into one run, which is being written.
    IntoRun { runs: Vec<Arc<Part>>, walk: Walk, writer: Box<PartWriter> },
}

impl Merge {
    /// What should be merged now, if anything. `eagerly`: space is short, and merging frees some.
    fn begin(core: &Core, version: &Version, numbers: &mut u64, eagerly: bool) -> Result<Option<Self>, BaseError> {
        let runs = version.runs.clone();
        let enough = if eagerly { 1 } else { core.options.runs_max };
        if runs.len() < enough.max(1) {
            return Ok(None);
        }
        if eagerly || version.parts.is_empty() || version.run_bytes() >= version.part_bytes() / 4 {
            return Ok(Some(Self::IntoParts { runs, from: Key::default() }));
        }
        let keys = runs.iter().map(|run| run.records()).sum();
        let (walk, writer) = (Walk::of_runs(&runs, b"")?, core.new_part(numbers, Some(keys))?);
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
            None => return Ok(false),
        },
    };
    *merge = match begun {
        Merge::IntoParts { runs, from } => write_part(core, &version, runs, from, numbers)?,
        Merge::IntoRun { runs, walk, writer } => write_run(core, &version, runs, walk, writer)?,
    };
    Ok(true)
}

/// Where the next new part begins: at which key, and in whose place.
struct Place {
    first: usize,
    from: Key,
}

fn write_part(
    core: &Core,
    version: &Version,
    runs: Vec<Arc<Part>>,
    from: Key,
    numbers: &mut u64,
) -> Result<Option<Merge>, BaseError> {
    let Some(place) = next_place(&core.options, version, &runs, from)? else {
        core.publish(without(version, &runs))?;
        return Ok(None);
    };
    let mut writer = core.new_part(numbers, None)?;
    let (mut outcome, mut is_empty) = (Ok(()), true);
    let mut end: Option<Key> = None;
    let mut ahead = version.parts[(place.first + 1).min(version.parts.len())..].iter().peekable();
    version.walk(&runs, &place.from)?.run(|key, stored| {
        let mut passed = false;
        while ahead.peek().is_some_and(|piece| *piece.from <= *key) {
            // The next part begins here. It may have nothing to do with these runs.
            let begins = ahead.next();
            if !passed && writer.bytes() >= core.options.part_bytes / 2 {
                end = begins.map(|piece| piece.from.clone());
                passed = true;
            }
        }
        if passed {
            return ControlFlow::Break(());
        }
        if writer.bytes() >= core.options.part_bytes {
            end = Some(key.into());
            return ControlFlow::Break(());
        }
        if stored != DELETED {
            is_empty = false;
            outcome = writer.push(key, stored);
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    let mut next = version.clone();
    let written = if is_empty { None } else { Some(finish(core, version, writer)?) };
    next.replace(&place, end.as_deref(), written);
    match end {
        Some(from) => {
            core.publish(next)?;
            Ok(Some(Merge::IntoParts { runs, from }))
        }
        None => {
            core.publish(without(&next, &runs))?;
            Ok(None)
        }
    }
}

/// Passes over parts that the runs do not touch, unless they are small: small ones are better one with their neighbours.
fn next_place(options: &Options, version: &Version, runs: &[Arc<Part>], from: Key) -> Result<Option<Place>, BaseError> {
    let mut first = version.parts.partition_point(|piece| *piece.from < *from);
    let mut from = from;
    loop {
        let Some(piece) = version.parts.get(first) else {
            // Behind the last part.
            let left = Walk::of_runs(runs, &from)?.key().is_some();
            return Ok(left.then_some(Place { first, from }));
        };
        let next = version.parts.get(first + 1).map(|next| next.from.clone());
        let is_small = piece.part.bytes() < options.part_bytes / 4 && (next.is_some() || first > 0);
        let touched = Walk::of_runs(runs, &from)?.key().map(|key| next.as_deref().is_none_or(|next| key < next));
        match (touched, next) {
            (Some(true), _) => return Ok(Some(Place { first, from })),
            (Some(false), Some(_)) if is_small => return Ok(Some(Place { first, from })),
            (Some(false), Some(next)) => {
                first += 1;
                from = next;
            }
            // The runs are used up.
            (None, _) | (Some(false), None) => return Ok(None),
        }
    }
}

fn write_run(
    core: &Core,
    version: &Version,
    runs: Vec<Arc<Part>>,
    mut walk: Walk,
    mut writer: Box<PartWriter>,
) -> Result<Option<Merge>, BaseError> {
    let (mut outcome, stop) = (Ok(()), writer.bytes() + core.options.part_bytes);
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

fn finish(core: &Core, version: &Version, writer: PartWriter) -> Result<Arc<Part>, BaseError> {
    let part = writer.finish(version.meta.zxid)?;
    core.ledger.merge_bytes_written.add(part.bytes());
    Ok(Arc::new(part))
}

/// The oldest runs are in the parts, or in one run: they go.
fn without(version: &Version, runs: &[Arc<Part>]) -> Version {
    let mut next = version.clone();
    next.runs.truncate(version.runs.len() - runs.len());
    next
}

impl Version {
    /// Puts a part in the place of everything from `place` up to `end`.
    fn replace(&mut self, place: &Place, end: Option<&[u8]>, part: Option<Arc<Part>>) {
        let after = match end {
            Some(end) => self.parts.partition_point(|piece| *piece.from < *end),
            None => self.parts.len(),
        };
        // The last of them still answers for what comes from `end` on.
        let rest =
            end.filter(|end| after > place.first && self.parts.get(after).is_none_or(|next| *next.from != **end));
        let rest = rest.map(|end| Piece { from: end.into(), part: self.parts[after - 1].part.clone() });
        let new = part.map(|part| Piece { from: place.from.clone(), part });
        self.parts.splice(place.first..after, new.into_iter().chain(rest));
    }
}
