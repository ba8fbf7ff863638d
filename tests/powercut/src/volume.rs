//! A disk with one directory that models what survives a power cut.
//!
//! Each file has a visible content, a durable content and a list of pending changes that no sync
//! has covered. The directory's names are kept the same way. At a cut, the seed decides for each
//! pending change whether it survives; each sector of a pending write is decided separately. Synced
//! data always survives.

mod cut;

pub use cut::{Cut, CutReport, Survival, Torn};

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Inode number of a file.
pub type Ino = u64;

/// Guarantees of the simulated file system beyond POSIX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// ext4 with a journal: changes of names and lengths become durable in order. Syncing a file
    /// that has such a pending change makes all of them durable.
    Journal,
    /// POSIX only. A name is durable once its directory is synced. Each pending change may be lost
    /// independently. A file may be longer than the data written to it.
    Bare,
}

/// One change of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    /// Truncates, or extends with zeroes.
    Length(u64),
    /// Extends with zeroes; never truncates.
    Allocate(u64),
}

#[derive(Clone, Debug)]
struct Pending {
    /// Position among all changes of the disk.
    number: u64,
    change: Change,
    /// The journal holds this change, so it survives although no sync covered this file.
    journaled: bool,
}

/// One file.
#[derive(Clone, Debug, Default)]
struct Contents {
    /// Shared between copies of the volume until one copy changes it.
    visible: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    pending: Vec<Pending>,
}

/// One change of the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NameChange {
    Create { name: String, ino: Ino },
    Remove { name: String },
    Rename { from: String, to: String },
}

type Names = BTreeMap<String, Ino>;

/// The disk.
#[derive(Clone, Debug)]
pub struct Volume {
    rules: Rules,
    files: BTreeMap<Ino, Contents>,
    visible: Names,
    durable: Names,
    pending: Vec<(u64, NameChange)>,
    next_ino: Ino,
    next_number: u64,
    lying: bool,
}

/// Operations that a program sees.
impl Volume {
    /// An empty disk.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            files: BTreeMap::new(),
            visible: Names::new(),
            durable: Names::new(),
            pending: Vec::new(),
            next_ino: 2,
            next_number: 0,
            lying: false,
        }
    }

    /// Makes every later sync report success and do nothing; the checks must detect this.
    pub fn lie(&mut self) {
        self.lying = true;
    }

    /// Returns the inode of a name.
    pub fn lookup(&self, name: &str) -> Option<Ino> {
        self.visible.get(name).copied()
    }

    /// Returns the name of a file; `None` after its removal.
    pub fn name(&self, ino: Ino) -> Option<&str> {
        self.visible.iter().find(|(_, of)| **of == ino).map(|(name, _)| name.as_str())
    }

    /// Returns all names, sorted.
    pub fn names(&self) -> impl Iterator<Item = (&str, Ino)> {
        self.visible.iter().map(|(name, ino)| (name.as_str(), *ino))
    }

    /// Returns a file's visible content.
    pub fn read(&self, ino: Ino) -> io::Result<&[u8]> {
        self.files.get(&ino).map(|file| file.visible.as_slice()).ok_or_else(gone)
    }

    /// Creates an empty file.
    pub fn create(&mut self, name: &str) -> io::Result<Ino> {
        if self.visible.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let ino = self.next_ino;
        self.next_ino += 1;
        self.files.insert(ino, Contents::default());
        self.rename_or(NameChange::Create { name: name.to_owned(), ino });
        Ok(ino)
    }

    /// Removes a name; open handles keep the file.
    pub fn remove(&mut self, name: &str) -> io::Result<()> {
        if !self.visible.contains_key(name) {
            return Err(gone());
        }
        self.rename_or(NameChange::Remove { name: name.to_owned() });
        Ok(())
    }

    /// Renames a file, replacing a file that has the new name.
    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        if !self.visible.contains_key(from) {
            return Err(gone());
        }
        self.rename_or(NameChange::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    /// Writes `bytes` at offset `at`.
    pub fn write(&mut self, ino: Ino, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(ino, Change::Write { at, bytes: bytes.to_vec() })
    }

    /// Truncates, or extends with zeroes.
    pub fn set_len(&mut self, ino: Ino, bytes: u64) -> io::Result<()> {
        self.change(ino, Change::Length(bytes))
    }

    /// Extends with zeroes; never truncates.
    pub fn allocate(&mut self, ino: Ino, bytes: u64) -> io::Result<()> {
        self.change(ino, Change::Allocate(bytes))
    }

    /// Number of the last change; a sync that begins now must cover it.
    pub fn now(&self) -> u64 {
        self.next_number
    }

    /// Counts pending bytes written to a file up to the change `until`.
    pub fn unsynced_bytes(&self, ino: Ino, until: u64) -> u64 {
        let pending = self.files.get(&ino).map_or(&[][..], |file| &file.pending);
        let written = |pending: &Pending| match &pending.change {
            Change::Write { bytes, .. } => bytes.len() as u64,
            Change::Length(_) | Change::Allocate(_) => 0,
        };
        pending.iter().take_while(|pending| pending.number <= until).map(written).sum()
    }

    /// fsync and fdatasync: makes content and length durable up to the change `until`.
    pub fn sync(&mut self, ino: Ino, until: u64) -> io::Result<()> {
        let file = self.files.get_mut(&ino).ok_or_else(gone)?;
        if self.lying {
            return Ok(());
        }
        let is_newborn = self.pending.iter().any(|(number, change)| match change {
            NameChange::Create { ino: created, .. } => *created == ino && *number <= until,
            NameChange::Remove { .. } | NameChange::Rename { .. } => false,
        });
        let mut moves_blocks = false;
        let later = file.pending.partition_point(|pending| pending.number <= until);
        for pending in file.pending.drain(..later) {
            moves_blocks |= match &pending.change {
                Change::Write { at, bytes } => at + bytes.len() as u64 > file.durable.len() as u64,
                Change::Length(_) | Change::Allocate(_) => true,
            };
            pending.change.apply(Arc::make_mut(&mut file.durable));
        }
        if self.rules == Rules::Journal && (is_newborn || moves_blocks) {
            self.commit_journal(until);
        }
        Ok(())
    }

    /// Syncs the directory up to the change `until`.
    pub fn sync_names(&mut self, until: u64) {
        match (self.lying, self.rules) {
            (true, _) => {}
            (false, Rules::Journal) => self.commit_journal(until),
            (false, Rules::Bare) => self.apply_names(until),
        }
    }

    fn apply_names(&mut self, until: u64) {
        let later = self.pending.partition_point(|(number, _)| *number <= until);
        self.pending.drain(..later).for_each(|(_, change)| change.apply(&mut self.durable));
    }

    fn commit_journal(&mut self, until: u64) {
        self.apply_names(until);
        for pending in self.files.values_mut().flat_map(|file| &mut file.pending) {
            pending.journaled |= pending.number <= until && !matches!(pending.change, Change::Write { .. });
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn change(&mut self, ino: Ino, change: Change) -> io::Result<()> {
        let number = self.number();
        let file = self.files.get_mut(&ino).ok_or_else(gone)?;
        change.apply(Arc::make_mut(&mut file.visible));
        file.pending.push(Pending { number, change, journaled: false });
        Ok(())
    }

    fn rename_or(&mut self, change: NameChange) {
        let number = self.number();
        change.apply(&mut self.visible);
        self.pending.push((number, change));
    }
}

/// Images.
impl Volume {
    /// Returns each durable file with its name.
    pub fn durable_files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.durable
            .iter()
            .filter_map(|(name, ino)| self.files.get(ino).map(|file| (name.as_str(), file.durable.as_slice())))
    }

    /// Returns each file as a process sees it.
    pub fn visible_files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.visible
            .iter()
            .filter_map(|(name, ino)| self.files.get(ino).map(|file| (name.as_str(), file.visible.as_slice())))
    }

    /// Describes the pending changes in order, one line each.
    pub fn unsynced(&self) -> Vec<String> {
        let mut lines: Vec<(u64, String)> =
            self.pending.iter().map(|(number, change)| (*number, format!("{change:?}"))).collect();
        for (ino, file) in &self.files {
            let name = self.name(*ino).unwrap_or("(removed)");
            lines.extend(file.pending.iter().map(|pending| {
                let what = match &pending.change {
                    Change::Write { at, bytes } => format!("write {} bytes at {at}", bytes.len()),
                    Change::Length(bytes) => format!("set length to {bytes}"),
                    Change::Allocate(bytes) => format!("allocate to {bytes}"),
                };
                (pending.number, format!("{name}: {what}{}", if pending.journaled { " (journaled)" } else { "" }))
            }));
        }
        lines.sort_unstable();
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Returns the visible bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.visible.len() as u64).sum()
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => {
                let (at, end) = (*at as usize, *at as usize + bytes.len());
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[at..end].copy_from_slice(bytes);
            }
            Self::Length(bytes) => content.resize(*bytes as usize, 0),
            Self::Allocate(bytes) => {
                if content.len() < *bytes as usize {
                    content.resize(*bytes as usize, 0);
                }
            }
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { name, ino } => {
                names.insert(name.clone(), *ino);
            }
            Self::Remove { name } => {
                names.remove(name);
            }
            Self::Rename { from, to } => {
                if let Some(ino) = names.remove(from) {
                    names.insert(to.clone(), ino);
                }
            }
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotFound.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const NOTHING: Cut = Cut { survival: Survival::Nothing, torn: Torn::Old, sector: 512 };
    const EVERYTHING: Cut = Cut { survival: Survival::Everything, torn: Torn::Old, sector: 512 };

    fn after(volume: &Volume, cut: Cut, seed: u64) -> Volume {
        volume.cut(cut, &mut Random::new(seed)).0
    }

    fn content<'a>(volume: &'a Volume, name: &str) -> Option<&'a [u8]> {
        volume.lookup(name).map(|ino| volume.read(ino).unwrap())
    }

    fn both(test: impl Fn(Rules)) {
        test(Rules::Journal);
        test(Rules::Bare);
    }

    #[test]
    fn synced_bytes_survive_any_power_cut() {
        both(|rules| {
            let mut volume = Volume::new(rules);
            let ino = volume.create("a").unwrap();
            volume.write(ino, 0, &[1; 5000]).unwrap();
            volume.sync(ino, volume.now()).unwrap();
            volume.sync_names(volume.now());
            // Overwritten in part, never synced.
            volume.write(ino, 4096, &[2; 512]).unwrap();
            for seed in 0..200 {
                let mut random = Random::new(seed);
                let cut = Cut::any(&mut random);
                let after = volume.cut(cut, &mut random).0;
                let found = content(&after, "a").unwrap();
                assert!(found[..4096].iter().all(|byte| *byte == 1), "{cut:?}");
                assert!(found[4608..5000].iter().all(|byte| *byte == 1) || cut.sector == 4096, "{cut:?}");
            }
        });
    }

    #[test]
    fn unsynced_bytes_survive_only_if_the_power_cut_keeps_them() {
        both(|rules| {
            let mut volume = Volume::new(rules);
            let ino = volume.create("a").unwrap();
            volume.write(ino, 0, &[1; 1000]).unwrap();
            assert_eq!(content(&after(&volume, NOTHING, 1), "a"), None);
            assert_eq!(content(&after(&volume, EVERYTHING, 1), "a"), Some(&[1; 1000][..]));
            volume.sync_names(volume.now());
            assert_eq!(content(&after(&volume, NOTHING, 1), "a"), Some(&[][..]));
        });
    }

    #[test]
    fn synced_file_with_an_unsynced_name_is_lost_only_without_a_journal() {
        let lost = |rules| {
            let mut volume = Volume::new(rules);
            let ino = volume.create("a").unwrap();
            volume.write(ino, 0, &[1; 10]).unwrap();
            volume.sync(ino, volume.now()).unwrap();
            content(&after(&volume, NOTHING, 1), "a").is_none()
        };
        assert!(lost(Rules::Bare));
        assert!(!lost(Rules::Journal));
    }

    #[test]
    fn sectors_of_a_write_are_lost_independently_and_in_any_order() {
        both(|rules| {
            let mut volume = Volume::new(rules);
            let ino = volume.create("a").unwrap();
            volume.write(ino, 0, &[1; 4096]).unwrap();
            volume.sync(ino, volume.now()).unwrap();
            volume.sync_names(volume.now());
            volume.write(ino, 0, &[2; 2048]).unwrap();
            volume.write(ino, 1024, &[3; 2048]).unwrap();
            let cut = Cut { survival: Survival::Some { per_cent: 50 }, torn: Torn::Old, sector: 512 };
            let mut kinds = std::collections::BTreeSet::new();
            for seed in 0..2000 {
                let after = after(&volume, cut, seed);
                let sectors: Vec<u8> = content(&after, "a").unwrap().chunks(512).map(|sector| sector[0]).collect();
                assert!(content(&after, "a").unwrap().chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0])));
                kinds.insert(sectors);
            }
            // By sector: two hold old or first data, two hold old, first or second, two hold old or
            // second.
            assert_eq!(kinds.len(), 2 * 2 * 3 * 3 * 2 * 2);
        });
    }

    #[test]
    fn journal_keeps_a_prefix_of_the_created_names() {
        let mut volume = Volume::new(Rules::Journal);
        for name in ["a", "b", "c", "d"] {
            volume.create(name).unwrap();
        }
        let cut = Cut { survival: Survival::Some { per_cent: 50 }, torn: Torn::Old, sector: 512 };
        let mut bare = volume.clone();
        bare.rules = Rules::Bare;
        let mut had_gap = false;
        for seed in 0..100 {
            let names = |volume: &Volume| volume.names().map(|(name, _)| name.to_owned()).collect::<String>();
            assert!("abcd".starts_with(&names(&after(&volume, cut, seed))));
            had_gap |= !"abcd".starts_with(&names(&after(&bare, cut, seed)));
        }
        assert!(had_gap);
    }

    #[test]
    fn rename_leaves_the_old_or_the_new_file() {
        both(|rules| {
            let mut volume = Volume::new(rules);
            for (name, byte) in [("a", 1), ("b", 2)] {
                let ino = volume.create(name).unwrap();
                volume.write(ino, 0, &[byte; 10]).unwrap();
                volume.sync(ino, volume.now()).unwrap();
            }
            volume.sync_names(volume.now());
            volume.rename("b", "a").unwrap();
            assert_eq!(content(&after(&volume, NOTHING, 1), "a"), Some(&[1; 10][..]));
            assert_eq!(content(&after(&volume, EVERYTHING, 1), "a"), Some(&[2; 10][..]));
        });
    }

    #[test]
    fn sync_covers_only_writes_made_before_it_began() {
        both(|rules| {
            let mut volume = Volume::new(rules);
            let ino = volume.create("a").unwrap();
            volume.sync_names(volume.now());
            volume.write(ino, 0, &[1; 10]).unwrap();
            let began = volume.now();
            volume.write(ino, 5, &[2; 10]).unwrap();
            volume.create("b").unwrap();
            volume.sync(ino, began).unwrap();
            volume.sync_names(began);
            let after = after(&volume, NOTHING, 1);
            assert_eq!(content(&after, "a"), Some(&[1; 10][..]));
            assert_eq!(content(&after, "b"), None);
            volume.sync(ino, volume.now()).unwrap();
            assert_eq!(volume.read(ino).unwrap(), *volume.files[&ino].durable);
        });
    }

    #[test]
    fn lying_disk_loses_synced_bytes() {
        both(|rules| {
            let mut volume = Volume::new(rules);
            let ino = volume.create("a").unwrap();
            volume.sync_names(volume.now());
            volume.lie();
            volume.write(ino, 0, &[1; 10]).unwrap();
            volume.sync(ino, volume.now()).unwrap();
            volume.sync_names(volume.now());
            assert_eq!(content(&after(&volume, NOTHING, 1), "a"), Some(&[][..]));
        });
    }

    #[test]
    fn journaled_file_length_survives_although_its_bytes_are_lost() {
        let mut volume = Volume::new(Rules::Journal);
        let [a, b] = ["a", "b"].map(|name| volume.create(name).unwrap());
        volume.allocate(a, 100).unwrap();
        volume.write(a, 0, &[1; 50]).unwrap();
        volume.sync(b, volume.now()).unwrap();
        assert_eq!(content(&after(&volume, NOTHING, 1), "a"), Some(&[0; 100][..]));
    }
}
