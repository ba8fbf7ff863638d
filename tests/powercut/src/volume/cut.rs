//! Power cuts: which pending changes a disk still has when the power is back.

use super::{Change, Contents, Rules, Volume};
use crate::random::Random;
use std::sync::Arc;

/// Share of the pending changes that a cut keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survival {
    /// Keeps no pending change.
    Nothing,
    /// Keeps all pending changes, as a crash of the process alone does.
    Everything,
    /// Keeps each change, and each sector of a write, with this probability.
    Some {
        /// Probability in per cent.
        per_cent: u64,
    },
    /// Keeps all changes before a drawn pivot, part of the pivot, and no later change.
    First,
    /// Keeps all changes after a drawn pivot, part of the pivot, and no earlier change.
    Last,
}

/// Content of a sector that a power cut interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Torn {
    /// The old content.
    Old,
    /// Zeroes in 20% of the cases, else the old content.
    Zeroes,
    /// Random bytes in 20% of the cases, else the old content.
    Garbage,
}

/// How the power fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Share of the pending changes that survives.
    pub survival: Survival,
    /// Content of a lost sector.
    pub torn: Torn,
    /// Bytes that the device writes atomically.
    pub sector: u64,
}

impl Cut {
    /// Draws a cut of any kind.
    pub fn any(random: &mut Random) -> Self {
        let survival = match random.below(12) {
            0 | 1 => Survival::Nothing,
            2 => Survival::Everything,
            3..=5 => Survival::Some { per_cent: 50 },
            6 => Survival::Some { per_cent: 90 },
            7 => Survival::Some { per_cent: 10 },
            8 | 9 => Survival::First,
            _ => Survival::Last,
        };
        Self {
            survival,
            torn: *random.pick(&[Torn::Old, Torn::Old, Torn::Zeroes, Torn::Garbage]),
            sector: *random.pick(&[512, 4096]),
        }
    }
}

/// Counts of one cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CutReport {
    /// Pending changes of files and names.
    pub changes: u64,
    /// Sectors of pending writes.
    pub sectors: u64,
    /// Sectors that do not hold the data written.
    pub sectors_lost: u64,
    /// Pending changes of names that were lost.
    pub names_lost: u64,
}

impl Volume {
    /// Returns the disk as found after the power cut.
    #[must_use]
    pub fn cut(&self, cut: Cut, random: &mut Random) -> (Self, CutReport) {
        let mut report = CutReport::default();
        let choice = Choice::new(self, cut.survival, random);
        // The journal ends at a drawn change: it holds a prefix of the changes of names and
        // lengths.
        let journal_end = match cut.survival {
            Survival::Nothing => 0,
            Survival::Everything => u64::MAX,
            Survival::Some { .. } | Survival::First | Survival::Last => random.below(self.next_number + 2),
        };
        let is_kept = |number: u64, journaled: bool, random: &mut Random| match self.rules {
            Rules::Journal => journaled || number <= journal_end,
            Rules::Bare => journaled || choice.keeps(number, random),
        };

        let mut names = self.durable.clone();
        for (number, change) in &self.pending {
            report.changes += 1;
            if is_kept(*number, false, random) {
                change.apply(&mut names);
            } else {
                report.names_lost += 1;
            }
        }
        let mut after = Self::new(self.rules);
        for (name, ino) in names {
            // Each file has at most one name: a rename moves the name, and does nothing if its
            // create was lost.
            let Some(file) = self.files.get(&ino) else { continue };
            let mut content = Arc::clone(&file.durable);
            for pending in &file.pending {
                report.changes += 1;
                match &pending.change {
                    Change::Write { at, bytes } => {
                        let chance = choice.chance(pending.number);
                        self.tear(Arc::make_mut(&mut content), *at, bytes, chance, cut, random, &mut report);
                    }
                    Change::Length(_) | Change::Allocate(_) => {
                        if is_kept(pending.number, pending.journaled, random) {
                            pending.change.apply(Arc::make_mut(&mut content));
                        }
                    }
                }
            }
            let ino = after.next_ino;
            after.next_ino += 1;
            after.files.insert(ino, Contents { visible: Arc::clone(&content), durable: content, pending: Vec::new() });
            after.visible.insert(name, ino);
        }
        after.durable.clone_from(&after.visible);
        (after, report)
    }

    /// Applies a write of which each sector survives with probability `chance` (per cent).
    #[allow(clippy::too_many_arguments, reason = "what a write is, and what may become of it")]
    fn tear(
        &self,
        content: &mut Vec<u8>,
        at: u64,
        bytes: &[u8],
        chance: u64,
        cut: Cut,
        random: &mut Random,
        report: &mut CutReport,
    ) {
        let mut from = at;
        let end = at + bytes.len() as u64;
        while from < end {
            let to = end.min((from / cut.sector + 1) * cut.sector);
            let part = &bytes[(from - at) as usize..(to - at) as usize];
            report.sectors += 1;
            if random.chance(chance) {
                Change::Write { at: from, bytes: part.to_vec() }.apply(content);
            } else {
                report.sectors_lost += 1;
                self.spoil(content, from, part.len(), cut.torn, random);
            }
            from = to;
        }
        // The new length may be durable without the data.
        if self.rules == Rules::Bare && chance > 0 && random.chance(chance / 2) {
            Change::Allocate(end).apply(content);
        }
    }

    /// Sets the content of a sector that the power cut interrupted.
    fn spoil(&self, content: &mut Vec<u8>, at: u64, count: usize, torn: Torn, random: &mut Random) {
        // A journal extends a file only after the new data is written.
        let is_beyond = self.rules == Rules::Journal && at + count as u64 > content.len() as u64;
        if torn == Torn::Old || is_beyond || !random.chance(20) {
            return;
        }
        let mut bytes = vec![0; count];
        if torn == Torn::Garbage {
            random.fill(&mut bytes);
        }
        Change::Write { at, bytes }.apply(content);
    }
}

/// Decides which changes survive.
struct Choice {
    survival: Survival,
    /// For `First` and `Last`: the change that survives in part.
    pivot: u64,
}

impl Choice {
    fn new(volume: &Volume, survival: Survival, random: &mut Random) -> Self {
        let mut numbers: Vec<u64> = volume.pending.iter().map(|(number, _)| *number).collect();
        numbers.extend(volume.files.values().flat_map(|file| &file.pending).map(|pending| pending.number));
        numbers.sort_unstable();
        let pivot = if numbers.is_empty() { 0 } else { *random.pick(&numbers) };
        Self { survival, pivot }
    }

    fn chance(&self, number: u64) -> u64 {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match (self.survival, number.cmp(&self.pivot)) {
            (Survival::Nothing, _) | (Survival::First, Greater) | (Survival::Last, Less) => 0,
            (Survival::Everything, _) | (Survival::First, Less) | (Survival::Last, Greater) => 100,
            (Survival::First | Survival::Last, Equal) => 50,
            (Survival::Some { per_cent }, _) => per_cent,
        }
    }

    fn keeps(&self, number: u64, random: &mut Random) -> bool {
        random.chance(self.chance(number))
    }
}
