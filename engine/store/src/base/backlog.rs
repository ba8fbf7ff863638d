//! How much of a merge a checkpoint does first, so that runs do not pile up.

use super::merge::Merge;
use super::{BaseError, Core, Writing, merge};

/// Maximum number of runs, as a multiple of `Options::runs_max`, while merges have space.
///
/// From half of this limit on, each checkpoint first does its share of the merge. Otherwise one
/// checkpoint would have to wait for the whole merge.
const RUNS_LIMIT: usize = 4;
/// The same limit while no merge has space.
///
/// Deletes would free space, and deletes arrive in checkpoints, so more checkpoints are let
/// through. Each run is one more open file.
const RUNS_LIMIT_WITHOUT_ROOM: usize = 2 * RUNS_LIMIT;

impl Core {
    /// Does this checkpoint's share of the merge. `needed_bytes`: space that the checkpoint takes.
    ///
    /// Checkpoints may arrive faster than the steps between them can merge. Then each checkpoint
    /// waits a little.
    pub(super) fn merge_before_checkpoint(&self, writing: &mut Writing, needed_bytes: u64) -> Result<(), BaseError> {
        let limit = self.options.runs_max.saturating_mul(RUNS_LIMIT);
        let (Writing { numbers, merge, .. }, version) = (writing, self.version());
        let (runs, begin) = (version.runs.len(), limit / 2);
        if runs >= begin {
            let merging = merge.as_ref().map_or(&version.runs, Merge::runs);
            let left_bytes = merge.as_ref().map_or_else(|| merge::left_bytes(merging), Merge::left_bytes);
            // The rest of the merge is spread over the coming checkpoints. It ends by the time
            // there are as many new runs as it merges, so there are at most `limit` runs.
            let checkpoints = (begin + merging.len().min(begin)).saturating_sub(runs).max(1) as u64;
            for _ in 0..left_bytes.div_ceil(self.options.merge_step_bytes).div_ceil(checkpoints) {
                match merge::step(self, merge, numbers, false, needed_bytes) {
                    Ok(_) => {}
                    // On a full disk the checkpoint goes before the merge, because checkpoints
                    // bring the deletes.
                    Err(BaseError::NoSpace) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        self.merge_what_is_too_much(merge, numbers, needed_bytes)?;
        if matches!(merge, Some(Merge::IntoRun(_))) && self.need_space(needed_bytes).is_err() {
            // Dropping the merge removes its half-written run.
            *merge = None;
        }
        Ok(())
    }

    /// Merges until the number of runs and the memory of their tables are within bounds.
    ///
    /// If only the number of runs is too high and a merge lacks space, the checkpoint may go first.
    /// [`RUNS_LIMIT_WITHOUT_ROOM`] bounds this.
    fn merge_what_is_too_much(
        &self,
        merge: &mut Option<Merge>,
        numbers: &mut u64,
        needed_bytes: u64,
    ) -> Result<(), BaseError> {
        let times = |limit| self.options.runs_max.saturating_mul(limit);
        loop {
            let version = self.version();
            let runs = version.runs.len();
            let are_tables_too_large = version.table_bytes() >= self.options.table_bytes_max / 4 * 3;
            if runs < times(RUNS_LIMIT) && !are_tables_too_large {
                return Ok(());
            }
            let may_wait = runs < times(RUNS_LIMIT_WITHOUT_ROOM) && !are_tables_too_large;
            match merge::step(self, merge, numbers, false, if may_wait { needed_bytes } else { 0 }) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(BaseError::NoSpace) if may_wait => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
